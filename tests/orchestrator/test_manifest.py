"""R31: a plan says what each subtask is done with, and that is there."""

import json
from dataclasses import replace

import pytest

from kept.orchestrator.decision import BadDecision, Ground, decided
from kept.orchestrator.loss import run_loss
from kept.orchestrator.record import Need, Subtask
from tests.orchestrator.play import (
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
)
from tests.orchestrator.play import write as written

GROUND = Ground((), ("file_read", "file_write", "arithmetic"), 3, says_tools=True)
REUSE = {"subtask": "s1", "capability": "read", "reuse_or_generate": "reuse", "tool": "file.read"}
MAKE = {"capability": "draw", "reuse_or_generate": "generate", "assumptions": ["no network"]}
COOK: dict[str, object] = {
    "capability": "c",
    "reuse_or_generate": "synthesize",
    "archetype_id": "a",
}


def _subtask(ground: Ground = GROUND, /, **said: object) -> Subtask:
    (one,) = decided(plan(**said), ground).decision.plan
    return one


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({}, "subtask `s1` does not say what it is done with: `tools` (of file_read, file_write"),
        ({"tools": []}, "does not say what it is done with"),
        ({"tools": ["web.search"]}, "subtask `s1` names the tool `web_search`; there is file_read"),
        ({"tool_manifest": [{**REUSE, "tool": "fax"}]}, "row 1 of the `tool_manifest` of subtask"),
        ({"tool_manifest": [{"capability": "x"}]}, "has `reuse_or_generate` None, which is one of"),
        ({"tool_manifest": [REUSE, {**MAKE, "capability": " "}]}, "row 2 of"),
        ({"tool_manifest": [{**REUSE, "tool": 1, "capability": ""}]}, "has no `capability`"),
        ({"tool_manifest": [COOK]}, "is to synthesize and has no `recipe_params`"),
        (
            {"tool_manifest": [{"capability": "x", "reuse_or_generate": "generate"}]},
            "is to generate and has no `assumptions`",
        ),
        (
            {"tool_manifest": [{"capability": "x", "reuse_or_generate": "reuse"}]},
            "is to reuse and has no `tool` or `pattern_id`",
        ),
    ],
)
def test_r31_a_plan_without_its_means_is_no_plan(said: dict[str, object], wrong: str) -> None:
    with pytest.raises(BadDecision) as told:
        _subtask(**said)
    assert wrong in str(told.value)


def test_r31_all_that_is_wrong_with_a_plan_is_told_at_once() -> None:
    rows = [{"id": n, "description": "d", "tools": [f"no-{n}"]} for n in ("a", "b")]
    with pytest.raises(BadDecision, match=r"`no-a`.*`no-b`"):
        decided(json.dumps({"decision": "plan", "subtasks": rows}), GROUND)


def test_r31_means_are_read_in_both_shapes() -> None:
    assert _subtask(tools=["file.read", "arithmetic.add"]).tools == ("file_read", "arithmetic")
    one = _subtask(tool_manifest=[REUSE, MAKE, {**COOK, "recipe_params": {"n": 1}}])
    assert one.needs == (
        Need(capability="read", how="reuse", of="file.read"),
        Need(capability="draw", how="generate", assumptions=("no network",)),
        Need(capability="c", how="synthesize", of="a"),
    )


def test_r31_where_nobody_asks_for_a_manifest_only_tools_that_are_not_there_are_refused() -> None:
    ground = replace(GROUND, says_tools=False)
    assert _subtask(ground).tools == ()
    assert _subtask(ground, tool_manifest=[{"capability": "x"}, MAKE]).needs[0].capability == "draw"
    with pytest.raises(BadDecision, match="`fax`"):
        _subtask(ground, tools=["fax"])


def test_r31_a_plan_that_is_refused_is_asked_for_again_and_counts_in_no_loss() -> None:
    """The original writes such a refusal as a gate, and its loss counts it with completions."""
    play = Play(
        [[plan("report.md"), plan("report.md", tool_manifest=[MAKE])], delegate("w1"), complete()],
        {"w1": [written(), done("w1")]},
    )
    record = finished(run_agent(replace(kit_of(play), says_tools=True))).record
    assert record.status == "complete" and record.rejections == ()
    assert "does not say what it is done with" in record.iterations[0].garbage[0]
    assert run_loss(record).gate_reject == 0.0
    (told,) = {text for who, text in play.heard if who == "w1"}
    assert "The plan has it done with:\n* draw: generate, assuming no network" in told
