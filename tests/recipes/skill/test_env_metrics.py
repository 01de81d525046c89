"""Metrics of agent tests as what a skill is measured by: `env.metrics` of a config."""

import json
from pathlib import Path

import pytest

from tests.ui.cli.tasks import Called, kept

CONFIG = """\
model:
  target: {{provider: scripted, model: student.jsonl}}
  optimizer: {{provider: scripted, model: judge.jsonl}}
train: {{batch_size: 2}}
env:
  name: {name}
  data_path: data.jsonl
  split_ratio: "2:2:2"
  metrics: {metrics}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    rows = [{"id": f"q{n}", "question": f"Say {n}.", "answer": f"number {n}"} for n in range(6)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    said = [
        {"when": "Say 1", "text": "Well: <answer>Number 1</answer>"},
        {"when": "Say 2", "text": "<answer>number 22</answer>"},
        {"when": "Say 3", "text": "<answer></answer>"},
        {"when": "Say", "text": "<answer>no idea</answer>"},
    ]
    (tmp_path / "student.jsonl").write_text("\n".join(map(json.dumps, said)))
    (tmp_path / "judge.jsonl").write_text('{"when": "", "text": "{\\"grade\\": 5}"}\n')
    return tmp_path


def measured(place: Path, metrics: str, name: str = "jsonl", *more: str) -> Called:
    (place / "c.yaml").write_text(CONFIG.format(name=name, metrics=metrics))
    return kept("eval", "c.yaml", "--split", "all", "--json", "-q", *more)


@pytest.mark.slow
def test_hard_is_that_all_metrics_pass_and_soft_their_mean(place: Path):
    metrics = "[{metric: equality, case_insensitive: true}, {metric: numeric, threshold: 1}]"
    called = measured(place, metrics)
    assert called.code == 0, called.stderr
    told = called.json
    assert told["summary"]["passed"] == 1
    means = told["summary"]["average_scores"]
    assert means["hard"] == pytest.approx(1 / 6), "an empty answer counts as unsolved"
    assert set(means) >= {"equality", "numeric", "hard", "soft"}
    rows = {row["test_name"]: row for row in told["results"]}
    assert "the answer is empty" in json.dumps(rows["q3"])


@pytest.mark.slow
def test_a_judge_and_a_function_of_yours_measure_a_skill_as_they_do_an_agent(place: Path):
    """The teacher judges where a metric names nobody."""
    (place / "graders.py").write_text("def short(ctx):\n    return len(ctx.agent_response) < 9\n")
    judge = {"when": "", "text": json.dumps({"reason": "it reads well", "grade": 5})}
    (place / "judge.jsonl").write_text(json.dumps(judge))
    called = measured(place, "[{metric: coherence, scale: 5}, {grader: 'graders:short'}]")
    assert called.code == 0, called.stderr
    means = called.json["summary"]["average_scores"]
    assert means["coherence"] == pytest.approx(5 / 6), "one says nothing"
    assert means["short"] == pytest.approx(4 / 6), "and `number 22` has nine letters"
    (row,) = (one for one in called.json["results"] if one["test_name"] == "q2")
    assert not row["passed"]


@pytest.mark.parametrize(
    ("metric", "told"),
    [
        ("{type: rag, metric_type: faithfulness}", "is measured by passages, and there are none"),
        ("{grader: 'nowhere:f'}", "nowhere"),
        ("{type: geval, name: a, criteria: b}", "there is no judge (hint: give it a `model`, or"),
    ],
)
def test_what_a_metric_would_miss_in_every_case_is_told_before(place: Path, metric: str, told: str):
    given = CONFIG.format(name="jsonl", metrics=f"[{metric}]")
    lines = [line for line in given.splitlines() if "optimizer" not in line]
    (place / "c.yaml").write_text("\n".join(lines))
    called = kept("eval", "c.yaml", "--split", "all")
    assert called.code == 2 and "c.yaml:8 env.metrics[0]: " in called.stderr
    assert told in called.stderr


def test_metrics_that_are_none_are_refused_with_their_line(place: Path):
    called = measured(place, "[{metric: equalty}]")
    assert called.code == 2
    assert called.stderr.startswith("error: c.yaml:9 env.metrics[0]")
    assert measured(place, "[]").code == 2


def test_metrics_are_for_data_without_an_environment_of_its_own(place: Path):
    called = measured(place, "[{metric: equality}]", "searchqa")
    assert called.code == 2
    assert "only `jsonl` is measured by metrics; `searchqa` has its own" in called.stderr


@pytest.mark.parametrize(
    ("role", "metrics"),
    [("target", "[{metric: equality}]"), ("optimizer", "[{metric: relevance}]")],
)
def test_a_limit_of_money_needs_the_price_of_whoever_is_asked(place: Path, role: str, metrics: str):
    """The optimizer judges, where a metric names nobody else."""
    dear = "{provider: openai_compatible, model: dear, base_url: 'https://models.example/v1'}"
    paid = ("--cfg-options", f"model.{role}={dear}", "budget.max_usd=1")
    called = measured(place, metrics, "jsonl", *paid)
    assert called.code == 2, called.stderr
    assert "`max_usd` cannot be kept: `openai_compatible/dear` has no `price`" in called.stderr
