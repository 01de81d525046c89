"""docs/reference/metrics.md tells every metric, and its numbers are what comes out."""

import json
import re
from pathlib import Path

import pytest

from kept.evaluators.metrics.config import GRADED, LIKENESS, read_metric
from kept.evaluators.metrics.llm_graded import rank_weighted, share
from tests.evaluators.metrics.talking import score, scorer, talk

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text("utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells below every heading of a table that begins so."""
    part = PAGE.partition(f"\n| {title} |")[2].partition("\n\n")[0]
    lines = part.splitlines()[2:]
    assert lines, title
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows("metric | settings"), ids=lambda row: f"{row[0]} {row[2]}")
def test_a_worked_number_of_a_comparison_comes_out(row: list[str]):
    metric, settings, answer, truth, value = row
    one = scorer([{"metric": metric, **json.loads(settings)}])
    found = score(one, talk(answer), {"ground_truth": truth})
    assert found.metrics[metric] == pytest.approx(float(value), abs=5e-5)


@pytest.mark.parametrize("row", rows("`metric_type` | verdicts"))
def test_a_worked_number_of_verdicts_comes_out(row: list[str]):
    kind, verdicts, value = row
    holds = [one == "yes" for one in verdicts.split()]
    counted = rank_weighted if kind == "contextual_precision" else share
    assert counted(holds) == pytest.approx(float(value), abs=5e-5)


def test_every_metric_is_told():
    told = {*re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)}
    assert told >= {*LIKENESS, *GRADED, "equality", "numeric", "geval"}
    kinds = {row[0] for row in rows("`metric_type` | what is taken apart")}
    for kind in kinds:
        read_metric({"type": "rag", "metric_type": kind})
    assert kinds == {row[0] for row in rows("`metric_type` | verdicts")}
    assert len(kinds) == 5
