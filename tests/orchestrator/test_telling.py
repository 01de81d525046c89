"""A run told as a story: the same lines while it goes on and afterwards."""

from dataclasses import replace

import pytest

from kept.orchestrator.events import story
from kept.orchestrator.record import Limits
from tests.orchestrator.play import (
    Play,
    Say,
    Says,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    refuse,
    run_agent,
    say,
    with_limits,
    write,
)

DEFECT = {
    "category": "incomplete",
    "location": "report.md",
    "description": "no sources",
    "severity": "warning",
}


def test_the_story_has_plan_delegations_critiques_refusals_and_repairs_in_their_order() -> None:
    play = Play(
        [["hm", plan("report.md")], delegate("w1"), complete()],
        {
            "w1": [write(), done("w1")],
            "repair-1": [write(content="# Mended\n\nWith sources, all of them.\n")],
        },
        critic=say({"score": 0.7, "defects": [DEFECT], "summary": "nearly"}),
    )
    play.workers = {**play.workers, "repair-1": [*play.workers["repair-1"], done("repair-1")]}
    said: list[str] = []
    kit = replace(kit_of(play, checks=[Says([refuse(), refuse()])]), say=said.append)
    record = finished(run_agent(kit)).record
    told = "\n".join(story(record))
    at = [
        told.index(words)
        for words in (
            "task: Write a report",
            "turn 1: the manager wrote no decision",
            "turn 1: the manager plans 1 subtask",
            "s1: write it -> report.md",
            "turn 2: the manager sends 1 worker",
            "w1 is done (1 tool call",
            "critique 0.70: nearly",
            "warning incomplete at report.md: no sources",
            "turn 3: the manager says that it is done, confidence 0.9",
            "refused by says: too short",
            "turn 5: repair-1 is to repair s1: says: too short",
            "turn 6: the manager says that it is done",
            "passed: says",
            "complete (completed), 1 deliverable",
            "report.md (",
            "used: 6 turns, 2 workers",
        )
    ]
    assert at == sorted(at)
    assert all(line in told for line in said), "what was said live is in the story"


Cast = tuple[list[str], dict[str, list[Say]]]
BEA: Cast = ([plan("report.md"), delegate("w1"), delegate("w2")], {"w1": [write(), done("w1")]})
BELOW: Cast = ([plan("report.md"), delegate("m1", as_submanager=True)], {})
REPAIR: Cast = ([*BEA[0][:2], complete()], BEA[1])


@pytest.mark.parametrize(
    ("manager", "limits", "ends"),
    [
        (BEA, with_limits(workers=1), ["  w2 (s1): do it", "  refused (workers): there is no "]),
        (BEA, with_limits(tool_calls=1), ["  w2 (s1): do it", "  refused (tool_calls): there "]),
        (
            BELOW,
            with_limits(depth=1),
            ["  m1 (s1): do it", "  refused (depth): managers may be 1 deep"],
        ),
        (
            REPAIR,
            with_limits(workers=1),
            ["turn 5: the budget has no room", "  refused (workers): there is no worker left for"],
        ),
        (
            BEA,
            with_limits(tokens=50),
            ["turn 1: the budget has no room", "  refused (budget): the manager cannot be asked"],
        ),
    ],
)
def test_what_a_limit_refuses_is_told_the_same_live_and_afterwards(
    manager: Cast, limits: Limits, ends: list[str]
) -> None:
    """Live it was told that a worker is sent, and afterwards that none was."""
    said: list[str] = []
    checks = [Says([refuse(), refuse()])]
    kit = replace(kit_of(Play(*manager), limits=limits, checks=checks), say=said.append)
    record = finished(run_agent(kit)).record
    told = list(story(record))
    assert [line for line in told if line in said] == said
    for wanted, line in zip(ends, said[-2:], strict=True):
        assert line.startswith(wanted)
    turns = told[told.index("", 1) + 1 : told.index("", 4)]
    assert turns == said, "nothing else is told of the turns"


def test_the_last_line_is_one_line_and_names_every_model() -> None:
    reason = "there are no figures\nfor June"
    record = finished(run_agent(kit_of(Play([say({"decision": "fail", "reason": reason})])))).record
    models = replace(record.models, critic="m/strict")
    told = list(story(replace(record, models=models)))
    assert "failed (manager_failed: there are no figures for June), no deliverable" in told
    assert any(line.endswith(", critic m/strict") for line in told)


def test_a_run_that_goes_on_says_how_far_it_is() -> None:
    record = finished(run_agent(kit_of(Play([plan("report.md")])))).record
    told = list(story(replace(record, status="running")))
    assert "running, 5 turns so far" in told


def test_a_record_from_before_wishes_were_kept_tells_who_was_sent() -> None:
    play = Play([plan("report.md"), delegate("w1"), complete()], {"w1": [write(), done("w1")]})
    record = finished(run_agent(kit_of(play))).record
    older = tuple(
        replace(one, decision=one.decision and replace(one.decision, delegations=()))
        for one in record.iterations
    )
    told = list(story(record))
    assert "turn 2: the manager sends 1 worker" in told
    assert list(story(replace(record, iterations=older))) == told
