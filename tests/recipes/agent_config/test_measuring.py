"""Metrics of an agent.yaml, looked at before anything is spent."""

from dataclasses import replace
from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.evaluators.metrics import code_grader
from kept.recipes.agent_config.compile import compile_agent
from kept.recipes.evaluate.request import Wanted
from kept.sandbox import worker
from kept.sandbox.capabilities import abilities

AGENT = """\
name: router
model: {provider: scripted, name: replies.jsonl}
instructions: {inline: Route it.}
"""


def warnings(folder: Path, rest: str) -> list[str]:
    (folder / "replies.jsonl").write_text('"billing"\n')
    (folder / "agent.yaml").write_text(AGENT + rest)
    compiled = compile_agent(folder / "agent.yaml", Wanted())
    return [one for one in compiled.warnings if "case" in one]


def test_cases_that_a_metric_cannot_measure_are_told_and_named(tmp_path: Path):
    told = warnings(
        tmp_path,
        """\
evaluations:
  metrics:
    - {type: standard, metric: equality}
    - {type: standard, metric: numeric, enabled: false}
    - {type: rag, metric_type: faithfulness}
test_cases:
  - {name: a, input: x, ground_truth: y, retrieval_context: [z]}
  - {name: b, input: x, retrieval_context: [z]}
  - name: c
    turns: [{input: x, ground_truth: y, retrieval_context: [z]}, {input: x}]
  - name: d
    input: x
    evaluations: [{type: standard, metric: numeric}]
    ground_truth: seven
""",
    )
    assert told == [
        "`equality`: 2 cases have no `ground_truth`: `b`, `c`",
        "`faithfulness`: 1 case has no `retrieval_context`, and the agent no tool that finds any: "
        "`c`",
        "`numeric`: 1 case has a `ground_truth` that is no number: `d`",
    ]


def test_where_all_can_be_measured_nothing_is_told(tmp_path: Path):
    rest = """\
evaluations: {metrics: [{metric: equality}, {metric: rouge}]}
test_cases: [{name: a, input: x, ground_truth: y}]
"""
    assert warnings(tmp_path, rest) == []


def test_a_metric_that_cannot_be_is_a_problem_with_its_line(tmp_path: Path):
    rest = """\
evaluations:
  metrics:
    - {metric: fluency, scale: 1}
    - {metric: coherence, scale: 1, enabled: false}
test_cases: [{name: a, input: x}]
"""
    with pytest.raises(SpecError) as caught:
        warnings(tmp_path, rest)
    (problem,) = caught.value.problems
    assert problem.path == "evaluations.metrics[0].scale"
    assert problem.where.endswith("agent.yaml:6")


def test_a_grader_without_walls_round_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    able = replace(abilities(), walls=False, why_not="no `bwrap` here")
    for module in (worker, code_grader):
        monkeypatch.setattr(module, "abilities", lambda: able)
    (tmp_path / "replies.jsonl").write_text('"billing"\n')
    (tmp_path / "graders.py").write_text("def grade(ctx): return True\n")
    rest = "evaluations: {metrics: [{type: code, grader: 'graders:grade'}]}\n"
    (tmp_path / "agent.yaml").write_text(AGENT + rest + "test_cases: [{input: x}]\n")
    told = compile_agent(tmp_path / "agent.yaml", Wanted()).warnings
    words = "nothing keeps the grader `graders:grade` from writing to your files: no `bwrap` here"
    assert words in told
