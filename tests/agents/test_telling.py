"""A run told as a story: the same lines while it goes on and afterwards."""

from dataclasses import replace

from kept.agents.telling import story
from tests.agents.play import (
    Play,
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


def test_a_run_that_goes_on_says_how_far_it_is() -> None:
    record = finished(run_agent(kit_of(Play([plan("report.md")])))).record
    told = list(story(replace(record, status="running")))
    assert "running, 5 turns so far" in told
