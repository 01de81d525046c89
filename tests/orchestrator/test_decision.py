"""What a manager writes, in its own words or in those of others, and what is no decision."""

import json

import pytest

from kept.orchestrator.decision import BadDecision, Decided, Ground, decided

GROUND = Ground(("s1", "s2"), ("file_read", "file_write", "arithmetic"), 3)


def _of(value: object) -> Decided:
    return decided(value if isinstance(value, str) else json.dumps(value), GROUND)


def test_a_plan_has_everything_by_its_own_name() -> None:
    (one,) = _of(
        {
            "decision": "plan",
            "reasoning": "first things first",
            "subtasks": [
                {
                    "id": "s1",
                    "description": "write",
                    "success_criteria": ["it is there"],
                    "required_outputs": ["output/a.md", "./b.md"],
                    "schemas": {"output/a.json": {"type": "object"}},
                    "smoke_test": "run.py",
                }
            ],
        }
    ).decision.plan
    assert one.required_outputs == ("a.md", "b.md")
    assert one.schemas == {"a.json": {"type": "object"}}
    assert one.smoke_test == "run.py" and one.success_criteria == ("it is there",)


@pytest.mark.parametrize(
    "written",
    [
        {"decision": "PLAN", "subtasks": [{"id": "a", "description": "b"}]},
        {"action": "plan", "steps": [{"id": "a", "description": "b"}]},
        {"plan": {"subtasks": [{"id": "a", "goal": "b"}]}},
        {"plan": [{"name": "a", "task": "b"}]},
        {"type": "planning", "tasks": {"a": {"description": "b"}}},
        {"subtasks": [{"subtask_id": "a", "title": "b", "tool_manifest": [{"capability": "x"}]}]},
        "Here you are:\n```json\n"
        + json.dumps({"decision": "plan", "subtasks": [{"id": "a", "description": "b"}]})
        + "\n```",
    ],
)
def test_a_plan_by_other_names_is_the_same_plan(written: object) -> None:
    decision = _of(written).decision
    assert decision.kind == "plan"
    assert [(one.id, one.description) for one in decision.plan] == [("a", "b")]


@pytest.mark.parametrize(
    "written",
    [
        {"decision": "delegate", "delegations": [{"worker_id": "w", "instructions": "go"}]},
        {"workers": [{"worker": "w", "task": "go"}]},
        {"kind": "assign", "assignments": [{"name": "w", "prompt": "go"}]},
        {"delegate": {"delegations": [{"id": "w", "instruction": "go"}]}},
    ],
)
def test_a_delegation_by_other_names_is_the_same(written: object) -> None:
    made = _of(written)
    assert [(one.worker_id, one.instructions) for one in made.delegations] == [("w", "go")]


def test_a_delegation_names_tools_as_the_original_does() -> None:
    row = {
        "worker_id": "the worker!",
        "instructions": "go",
        "tools_allowed": ["file.read", "arithmetic.add"],
        "output_contract": {"required_fields": ["figures"], "description": "all of them"},
        "as_submanager": True,
    }
    made = _of({"decision": "delegate", "delegations": [row]})
    (one,) = made.delegations
    assert one.worker_id == "the-worker" and made.managed == {"the-worker"}
    assert one.tools_allowed == ("file_read", "arithmetic")
    assert one.required_fields == ("figures",) and one.output_description == "all of them"


def test_a_result_that_is_a_text_is_an_answer() -> None:
    decision = _of({"decision": "done", "result": "42"}).decision
    assert decision.kind == "complete" and decision.final_result == {"answer": "42"}
    assert decision.confidence is None


@pytest.mark.parametrize(
    ("written", "wrong"),
    [
        ("I will think about it", "not one JSON object"),
        ({"thought": "hm"}, "it has no `decision`"),
        ({"decision": "plan", "subtasks": []}, "the `plan` is not as it should be"),
        ({"decision": "plan", "subtasks": [{"id": "a"}]}, "description"),
        (
            {"decision": "plan", "subtasks": [{"id": "a", "description": "b"}] * 2},
            "two subtasks are called `a`",
        ),
        (
            {
                "decision": "plan",
                "subtasks": [{"id": "a", "description": "b", "dependencies": ["z"]}],
            },
            "depends on `z`",
        ),
        (
            {
                "decision": "plan",
                "subtasks": [{"id": "a", "description": "b", "required_outputs": ["../x"]}],
            },
            "`../x` is not a path below output/",
        ),
        (
            {
                "decision": "delegate",
                "delegations": [{"worker_id": "w", "subtask_id": "s9", "instructions": "go"}],
            },
            "there is no subtask `s9`; there is s1, s2",
        ),
        (
            {
                "decision": "delegate",
                "delegations": [{"worker_id": "w", "instructions": "go", "tools": ["shell"]}],
            },
            "there is no tool `shell`",
        ),
        (
            {
                "decision": "delegate",
                "delegations": [{"worker_id": f"w{n}", "instructions": "go"} for n in range(4)],
            },
            "at most 3 workers",
        ),
        ({"decision": "complete", "final_result": {}, "confidence": 7}, "confidence"),
        ({"decision": "fail"}, "reason"),
        ({"decision": "diagnose", "hypotheses": []}, "hypotheses"),
    ],
)
def test_what_is_no_decision_is_told_so_that_a_model_can_mend_it(
    written: object, wrong: str
) -> None:
    with pytest.raises(BadDecision) as told:
        _of(written)
    assert wrong in str(told.value)
