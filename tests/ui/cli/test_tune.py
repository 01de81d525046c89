"""`kept test optimize` as a person types it: lines, events, files, exit codes, a resume."""

import csv
import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from kept.recipes.agent_config.outputs.trials import HEADER
from kept.store.reader import Run
from kept.testing.server import ModelServer
from kept.ui.cli._tune_run import SCHEMA
from tests.recipes.agent_config.tune.world import answer, write_agent
from tests.ui.cli.tasks import Called, kept

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SIGMA = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-very-secret-key")


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        yield made


def optimize(
    here: Path,
    server: ModelServer,
    *words: str,
    more: str = SIGMA,
    cases: int = 16,
    trials: int = 3,
) -> Called:
    write_agent(here, server.v1, cases=cases, trials=trials, more=more)
    return kept("test", "optimize", *words)


CYCLE = r"(c(p(s?t)*P)+C)"
"""One cycle of a stream, in letters."""


def in_letters(events: list[dict[str, Any]]) -> str:
    letters = {
        "run_started": "r", "baseline": "b", "cycle_started": "c", "phase_started": "p",
        "trial_started": "s", "trial": "t", "phase_completed": "P", "cycle_completed": "C",
        "run_completed": "R", "error": "e",
    }  # fmt: skip
    return "".join(letters[event["event"]] for event in events)


def results(here: Path) -> Path:
    (folder,) = (here / "results" / "optimizer").iterdir()
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def test_lines_are_grouped_by_phase_and_show_the_bar(here: Path, server: ModelServer):
    called = optimize(here, server)
    assert called.code == 0, called.stderr
    lines = [line for line in called.stderr.splitlines() if not line.startswith("warning")]
    shapes = [
        re.sub(r"\d+\.\d+", "0.000", re.sub(r"  \d+s(?=$|  )", "  0s", line)) for line in lines
    ]
    assert shapes[1].startswith("baseline") and " train 0.000 ±0.000" in shapes[1]
    assert shapes[2] == f"{'── cycle 1 · numeric phase (fresh TPE study #1) ':─<70}"
    assert re.fullmatch(
        r"\[c1/n 1\] model\.temperature {5}train 0\.000 ±0\.000 "
        r"\(gain [+-]0\.000 [<>≥] bar 0\.000\) +"
        r"(——|hold 0\.000) +(accept ✓|noise ✗|worse ✗|hold  ✗) +\$0\.000  0s  "
        r"\(model\.temperature 0\.000 → 0\.000\)",
        shapes[3],
    ), shapes[3]
    assert f"{'── cycle 1 · textual phase ':─<70}" in lines
    assert any(line.startswith("[c1/t 1] instructions") for line in lines)


def test_verbose_lines_show_what_was_tried_and_what_critic_and_applier_said(
    here: Path, server: ModelServer
):
    said = optimize(here, server, "-v", "--max-cycles", "1").stderr
    assert re.search(r"^    tried: model\.temperature 0\.9 → 0\.\d+$", said, re.MULTILINE)
    assert "    critic  (0.8): answers are not one of the two words" in said
    assert re.search(r"^    applier \(insert\): added: ", said, re.MULTILINE)
    assert re.search(r"^    verdict: ", said, re.MULTILINE)


def test_the_answer_says_what_was_gained_and_where_it_lies(here: Path, server: ModelServer):
    called = optimize(here, server, "-q")
    assert called.code == 0 and not called.stderr.replace("warning", "").count("[c1")
    told = dict(line.split("  ", 1) for line in called.stdout.splitlines())
    assert {"train loss", "holdout loss", "exit"} <= {name.strip() for name in told}
    assert (results(here) / "best.yaml").is_symlink()


def test_json_progress_keeps_to_its_grammar_and_is_all_of_stdout(here: Path, server: ModelServer):
    called = optimize(here, server, "--progress", "json")
    assert called.code == 0
    events = [json.loads(line) for line in called.stdout.splitlines()]
    assert {event["schema"] for event in events} == {SCHEMA}
    assert re.fullmatch(f"rb{CYCLE}+R", in_letters(events))
    trials = [event for event in events if event["event"] == "trial"]
    written = rows(results(here))[1:]
    for told, row in zip(trials, written, strict=True):
        assert {key: told[key] for key in row} == row
    last = events[-1]
    cycles = [event for event in events if event["event"] == "cycle_completed"]
    assert {trials[-1]["best_loss"], cycles[-1]["best_loss"], last["best_loss"]} == {
        trials[-1]["best_loss"]
    }
    assert Path(last["artifacts"]["best_yaml"]).exists()
    assert last["exit_reason"] in ("dry_cycle", "max_cycles")


def test_the_events_of_a_race_agree_on_the_best_loss(here: Path, server: ModelServer):
    """The leading candidate is drawn again in every trial, and may not be proven at the end.

    `best.yaml` had the loss of the draws that it was accepted by, in the page as well.
    """
    called = optimize(here, server, "--progress", "json", more="gate: race", cases=32)
    assert called.code == 0, called.stderr
    events = [json.loads(line) for line in called.stdout.splitlines()]
    latest = None
    for event in events:
        if event["event"] == "trial":
            latest = event["best_loss"]
        elif "best_loss" in event:
            assert event["best_loss"] == latest, event
    last = events[-1]
    assert last["event"] == "run_completed" and last["accepted"]
    page = (results(here) / "report.md").read_text()
    leads = "is not `best.yaml`" not in page
    assert not leads or last["best_yaml_loss"] == last["best_loss"], "it is the same candidate"
    shown = f"{last['best_yaml_loss']:.4g}"
    assert re.search(rf"^\* train loss \S+ → {re.escape(shown)} ", page, re.MULTILINE)
    assert re.search(rf"^\| train \| loss \| \S+ \| {re.escape(shown)} \|$", page, re.MULTILINE)


def test_an_error_is_an_event_too(here: Path, server: ModelServer):
    called = optimize(here, server, "--progress", "json", more="losss: {}")
    assert called.code == 1
    (event,) = map(json.loads, called.stdout.splitlines())
    assert (event["event"], event["fatal"]) == ("error", True)


def test_the_table_has_the_header_of_its_source_and_a_row_a_trial(here: Path, server: ModelServer):
    optimize(here, server, "-q")
    folder = results(here)
    table = list(csv.DictReader((folder / "trajectory.csv").read_text().splitlines()))
    assert tuple(table[0]) == HEADER
    assert (table[0]["phase"], table[0]["axis_target"], table[0]["noise_bar"]) == (
        "baseline",
        "—",
        "—",
    )
    written = rows(folder)
    assert [int(row["trial_id"]) for row in table] == [row["trial_id"] for row in written]
    for before, row in pairwise(table):
        if row["accepted"] == "false":
            assert row["best_train"] == before["best_train"]
        else:
            assert row["best_train"] == row["train_mean"]
    check_page(written)


OF_THE_AGENT = {"average_scores", "loss_components", "params", "axis_marginals", "numbers"}
"""Fields that have names of the agent's own, or of a rule, in them."""


def fields_of(value: object) -> Iterator[str]:
    """The name of every field of a line, whatever it is in."""
    if isinstance(value, dict):
        for name, inside in cast("dict[str, object]", value).items():
            yield name
            if name not in OF_THE_AGENT:
                yield from fields_of(inside)
    elif isinstance(value, list):
        for inside in cast("list[object]", value):
            yield from fields_of(inside)


def check_page(written: list[dict[str, Any]]) -> None:
    """The page says what every field of a line holds."""
    page = (ROOT / "docs" / "reference" / "optimizer.md").read_text()
    of_edits = {"path", "key", "value", "op"}
    found = {name for row in written for name in fields_of(row)} - of_edits
    assert {"baseline_before_path", "root_cause_hypothesis", "loss_std", "best_trial_id"} <= found
    assert sorted(name for name in found if not re.search(rf"[`.]{name}[`.]", page)) == []


def test_every_candidate_loads_and_runs_where_it_lies(here: Path, server: ModelServer):
    optimize(here, server, "-q", cases=40, trials=5)
    folder = results(here)
    accepted = [row for row in rows(folder) if row["decision"]["accepted"]]
    assert len(accepted) > 1, "nothing was accepted, so that nothing was written"
    for row in accepted:
        path = folder / row["candidate_path"]
        text = path.read_text()
        assert "${KEY}" in text and "# never written here" in text
        called = kept("eval", str(path), "-q", "--json")
        assert called.code in (0, 1), called.stderr
    for path in here.rglob("*"):
        if path.is_file() and not path.is_symlink():
            assert b"sk-very-secret-key" not in path.read_bytes(), path


def test_print_baseline_measures_and_stops(here: Path, server: ModelServer):
    called = optimize(here, server, "--print-baseline")
    assert called.code == 0
    (row,) = rows(results(here))
    assert row["train"]["loss_components"]["equality"] is not None
    assert "train loss" in called.stdout
    assert re.search(r"equality +0\.\d+ on train, 0\.\d+ on holdout, weight 1", called.stdout)
    told = json.loads((results(here) / "exit.json").read_text())
    assert told["exit_reason"] == "baseline"


def test_a_dry_run_spends_nothing(here: Path, server: ModelServer):
    before = len(server.answered)
    called = optimize(here, server, "--dry-run", "--max-cycles", "1")
    assert called.code == 0
    assert len(server.answered) == before
    assert "model.temperature [0.0, 1.0]" in called.stdout
    assert "max_cycles 1" in called.stdout
    assert {path.name for path in here.iterdir()} == {"agent.yaml", "cases.yaml"}


def test_flags_come_before_the_file(here: Path, server: ModelServer):
    optimize(
        here, server, "-q", "--numeric-max-trials", "1", "--textual-max-trials", "2",
        "--max-cycles", "1", "--seed", "7", "--repeats", "1",
    )  # fmt: skip
    folder = results(here)
    header = json.loads((folder / "run.json").read_text())
    assert header["seed"] == 7
    assert header["optimizer_config"]["repeats"] == 1
    phases = [row["phase"] for row in rows(folder)]
    assert phases == ["baseline", "numeric", "textual", "textual"]


def test_an_output_folder_may_be_named(here: Path, server: ModelServer):
    called = optimize(here, server, "-q", "--max-cycles", "1", "-o", "mine")
    assert called.code == 0
    assert (here / "mine" / "report.md").exists()
    assert not (here / "results").exists()


def test_only_the_best_is_left_if_that_is_wanted(here: Path, server: ModelServer):
    optimize(here, server, "-q", "--keep-best-only")
    folder = results(here)
    best = (folder / "best.yaml").resolve()
    real = [path for path in (folder / "candidates").glob("iter-*") if not path.is_symlink()]
    assert real == [best]
    assert len(rows(folder)) > 3, "the record of trials is kept"


def test_a_report_can_be_written_again(here: Path, server: ModelServer):
    optimize(here, server, "-q")
    page = results(here) / "report.md"
    first = page.read_text()
    page.unlink()
    called = kept("test", "optimize", "--report-only")
    assert called.code == 0
    assert page.read_text() == first
    for title in ("Summary", "Trajectory", "What paid", "The change", "How to adopt"):
        assert f"## {title}" in first


def test_a_finished_run_is_resumed_to_the_same_end(here: Path, server: ModelServer):
    optimize(here, server, "-q")
    folder = results(here)
    before = (folder / "trials.jsonl").read_bytes()
    header = (folder / "run.json").read_bytes()
    asked = len(server.answered)
    called = kept("test", "optimize", "--resume", "last", "-q")
    assert called.code == 0, called.stderr
    assert len(server.answered) == asked
    assert (folder / "trials.jsonl").read_bytes() == before
    assert (folder / "run.json").read_bytes() == header


def test_a_baseline_that_drifted_is_not_gone_on_with(here: Path, server: ModelServer):
    optimize(here, server, "-q", "--max-cycles", "1")
    text = (here / "agent.yaml").read_text()
    (here / "agent.yaml").write_text(text.replace("what mood", "which mood"))
    called = kept("test", "optimize", "--resume", "last", "-q")
    assert called.code == 1
    assert "changed" in called.stderr


def test_optimize_of_an_agent_is_the_same_with_the_codes_of_kept(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=16, trials=2, more=SIGMA)
    called = kept("optimize", "agent.yaml", "-q", "--json")
    assert called.code == 0, called.stderr
    told = json.loads(called.stdout)
    assert told["metric"] == "loss"
    assert results(here).exists()


def test_the_stream_of_a_resumed_run_keeps_to_the_grammar(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=16, trials=3, more=SIGMA)
    first = kept("test", "optimize", "--progress", "json", "--max-cycles", "1")
    folder = results(here)
    (run,) = (here / ".kept" / "runs").iterdir()
    lines = (run / "journal.jsonl").read_bytes().splitlines(keepends=True)
    # as a kill in the third trial leaves it
    opened = [n for n, line in enumerate(lines) if b'"kind":"step_opened"' in line]
    (run / "journal.jsonl").write_bytes(b"".join(lines[: opened[3] + 1]))
    called = kept("test", "optimize", "--resume", "last", "--progress", "json")
    assert called.code == 0, called.stderr
    events = [json.loads(line) for line in called.stdout.splitlines()]
    assert re.fullmatch(f"rb{CYCLE}+R", in_letters(events))
    assert events[0]["resumed"] is True
    whole = [json.loads(line) for line in first.stdout.splitlines()]
    assert events[1]["loss"] == next(e["loss"] for e in whole if e["event"] == "baseline")
    assert rows(folder)[-1]["trial_id"] == len(rows(folder)) - 1


def test_the_stream_of_a_run_that_tries_nothing_has_no_cycle(here: Path, server: ModelServer):
    write_agent(here, server.v1, cases=16, trials=2, more=SIGMA)
    for words in (("--max-cycles", "1"), ("--resume", "last"), ("--print-baseline",)):
        called = kept("test", "optimize", "--progress", "json", *words)
        assert called.code == 0, called.stderr
        events = [json.loads(line) for line in called.stdout.splitlines()]
        cycles = "{1}" if words == ("--max-cycles", "1") else "{0}"
        assert re.fullmatch(f"rb{CYCLE}{cycles}R", in_letters(events)), words


def test_a_suggested_block_is_one_that_can_be_used(here: Path, server: ModelServer):
    path = write_agent(here, server.v1, cases=40)
    whole = path.read_text()
    start, end = whole.index("evaluations:"), whole.index("test_cases_file:")
    metrics = "  metrics:\n    - {type: standard, metric: equality, case_insensitive: true}\n"
    path.write_text(whole[:start] + f"evaluations:\n{metrics}" + whole[end:])
    refused = kept("test", "optimize", "--dry-run")
    assert refused.code == 1
    suggested = kept("test", "optimize", "--suggest-axes")
    told = suggested.stdout
    line = path.read_text().splitlines().index("evaluations:") + 1
    place = f"put what stands below `evaluations:` below the one of agent.yaml:{line}"
    assert place in suggested.stderr and place in refused.stderr
    assert refused.stderr.rstrip().endswith(told.rstrip()), "the error holds the same block"
    path.write_text(
        whole[:start] + told.replace("evaluations:\n", f"evaluations:\n{metrics}", 1) + whole[end:]
    )
    called = kept("test", "optimize", "--dry-run")
    assert called.code == 0, called.stderr
    assert "model.temperature" in called.stdout
    again = kept("test", "optimize", "--suggest-axes")
    assert "has an `optimizer:` already" in again.stderr


CHOICES = """\
gate: sigma
holdout_eval_policy: every_trial
accept_sigma: 0.0
repeats: 2
split: '1:1:0'
"""


def test_a_dry_run_counts_every_sweep_and_the_dearest_model_of_an_axis(
    here: Path, server: ModelServer
):
    path = write_agent(here, server.v1, cases=12, trials=3, more=CHOICES)
    text = path.read_text()
    text = text.replace("  temperature: 0.9", "  max_tokens: 50\n  temperature: 0.9")
    start = text.index("      textual:")
    text = text[:start] + text[text.index("    budget:") :]
    path.write_text(text)

    def most() -> tuple[int, float]:
        told = kept("test", "optimize", "--dry-run")
        found = re.search(r"at most +([\d,]+) rollouts, \$([\d,.]+)", told.stdout)
        assert found is not None, told.stdout
        rollouts, usd = (word.replace(",", "") for word in found.groups())
        return int(rollouts), float(usd)

    _, cheap = most()
    axis = "        - {path: model.temperature, range: [0.0, 1.0]}\n"
    assert axis in text
    names = "[gpt-5-mini, gpt-4o]"
    path.write_text(text.replace(axis, f"{axis}        - {{path: model.name, choices: {names}}}\n"))
    rollouts, dear = most()
    assert dear > 5 * cheap
    called = kept("test", "optimize")
    assert called.code == 0
    (folder,) = (here / ".kept" / "runs").iterdir()
    spend = Run(folder).state.spend
    # the seed and three or more trials, each with two sweeps of 12 cases
    assert 4 * 2 * 12 <= spend.rollouts <= rollouts
    assert spend.usd <= dear
