"""A task whose cases assert what holds: what is wrong with it is told, and what it costs."""

from pathlib import Path
from typing import Any

import pytest

from kept.recipes.base import plan_facts
from kept.recipes.task.compile import compile_task
from tests.recipes.telling import problems, write_cases

TASK = """\
artifacts: {include: [prompt.txt]}
models:
  target: {provider: openai_compatible, model: m, base_url: "http://models.example/v1"}
runner: {prompt: prompt.txt, input: x, template: nunjucks}
scorer: {type: assertions}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: variants, files: ["drafts/*"]}]
cases: {file: cases.jsonl, split: "1:3:0"}
budget: {max_iterations: 4}
"""
ONE = {"type": "contains", "value": "a"}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "drafts").mkdir()
    (tmp_path / "prompt.txt").write_text("Say {{ x }}\n")
    (tmp_path / "drafts" / "b.txt").write_text("Shout {{ x }}\n")
    (tmp_path / "task.yaml").write_text(TASK)
    asserting(tmp_path, ONE)
    return tmp_path / "task.yaml"


def asserting(folder: Path, *assertions: dict[str, Any]) -> None:
    words = ("one", "two", "three", "four")
    write_cases(folder, ({"id": w, "x": w, "assert": list(assertions)} for w in words))


def test_it_is_in_order(task: Path):
    assert compile_task(task).plan.spec.scorer == {"type": "assertions"}


@pytest.mark.parametrize(
    ("assertion", "told"),
    [
        ({"type": "llm-rubric", "value": "kind"}, "models.judge: missing: `llm-rubric` is graded"),
        (
            {"type": "cost", "threshold": 1},
            "models.target: what `openai_compatible/m` costs is",
        ),
        ({"type": "latency", "threshold": 1}, "models.target: a case asserts how long an answer"),
        ({**ONE, "weight": 0}, "scorer.field: case `four`, assert: the weights add up to nothing"),
        ({"type": "nope"}, "scorer.field: case `four`, assert[0].type: `nope` is no assertion"),
        ({"typ": "x"}, "scorer.field: case `four`, assert[0].typ"),
        (
            {"type": "python", "value": "file://check.py"},
            "scorer.field: case `four`, assert[0].value: `check.py` is not among `scorer.files`",
        ),
    ],
)
def test_what_is_wrong_with_an_assertion_is_told_with_its_case(
    task: Path, assertion: dict[str, Any], told: str
):
    (task.parent / "check.py").write_text("def get_assert(output, context):\n    return True\n")
    asserting(task.parent, assertion)
    assert any(one.startswith(told) for one in problems(task)), problems(task)


def test_a_case_that_asserts_nothing_is_named_and_of_many_only_some_are(task: Path):
    rows = [{"id": f"c{n}", "x": "y", "assert": [] if n else [ONE]} for n in range(20)]
    write_cases(task.parent, rows)
    told = problems(task)
    assert len(told) == 11
    assert told[0].endswith("assert: missing: a case asserts something")
    assert told[-1] == "scorer.field: 9 more are wrong"


def test_a_measure_that_no_assertion_names_cannot_decide(task: Path):
    asserting(task.parent, {**ONE, "metric": "tone"})
    told = problems(task, "objective.primary_metric=ton", hints=True)
    assert told == [
        "objective.primary_metric: the scorer `assertions` does not emit `ton` "
        "(it emits score, pass, tone)"
    ]
    assert compile_task(task, ["objective.primary_metric=tone"]).plan.objective.metric == "tone"


def test_a_judge_without_a_price_cannot_be_held_to_a_limit_of_money(task: Path):
    asserting(task.parent, {"type": "llm-rubric", "value": "kind"})
    judge = (
        'models.judge={provider: openai_compatible, model: j, base_url: "http://models.example/v1"}'
    )
    price = "models.target.price={input: 1, output: 1}"
    settings = [judge, price, "models.target.max_tokens=5", "budget={max_usd: 1}"]
    (told,) = problems(task, *settings)
    assert told.startswith("models.judge: what a call costs at most is not known")
    charges = plan_facts(compile_task(task, [judge, price]).plan).charges
    payers = {charge.by: charge.priced for charge in charges}
    assert payers == {"runner": True, "scorer": False}


def test_a_template_is_one_prompt_and_takes_no_cases_without_their_fields(task: Path):
    (task.parent / "more.txt").write_text("more\n")
    told = problems(
        task, "artifacts.include=[prompt.txt, more.txt]", "runner.prompt=[prompt.txt, more.txt]"
    )
    assert any("`template: nunjucks` takes one `prompt`" in one for one in told)
