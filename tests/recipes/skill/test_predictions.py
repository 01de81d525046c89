"""Files of single rollouts: records as the method's source has them, and names that are safe."""

import json
from typing import get_args

import pytest

from kept.core.artifact import is_safe_path
from kept.core.budget import NOTHING
from kept.core.event import RunStarted, StepClosed, StepOpened, StepRecords
from kept.core.proposal import Turn
from kept.core.rollout import Job, Purpose, TraceItem
from kept.core.verdict import Verdict
from kept.recipes.skill.records import PredictionFolders, prediction_files

CHAT = (
    TraceItem("system", "Be brief."),
    TraceItem("user", "Who?"),
    TraceItem("assistant", "", {"tool_calls": [{"name": "look", "arguments": {"at": 1}}]}),
    TraceItem("tool", "Ann", {"name": "look", "arguments": {"at": 1}}),
    TraceItem("user", "Are you sure?"),
    TraceItem("assistant", "Ann", {"final": True}),
    TraceItem("expected", "Ann"),
    TraceItem("verification", "right", {"reference": "Ann"}),
)


def test_a_conversation_has_the_records_of_the_source():
    files = prediction_files(CHAT, "")
    assert files.keys() == {
        "conversation.json",
        "target_system_prompt.txt",
        "target_user_prompt.txt",
    }
    assert files["target_system_prompt.txt"] == "Be brief."
    assert files["target_user_prompt.txt"] == "Who?"
    calls = [{"name": "look", "arguments": {"at": 1}}]
    said = {"type": "message", "role": "assistant"}
    assert files["conversation.json"] == [
        {**said, "turn": 1, "content": "", "tool_calls": calls},
        {"type": "tool_call", "cmd": 'look({"at": 1})', "obs": "Ann"},
        {"role": "user", "content": "Are you sure?"},
        {**said, "turn": 2, "content": "Ann"},
        {"role": "system", "content": "right"},
    ]


def test_steps_of_a_simulator_are_told_with_what_was_thought():
    done = TraceItem("step", "It is open.", {"step": 1, "action": "open", "reasoning": "see"})
    files = prediction_files((TraceItem("user", "Find it."), done), "")
    assert files["conversation.json"] == [
        {"step": 1, "action": "open", "env_feedback": "It is open.", "reasoning": "see"}
    ]


@pytest.mark.parametrize("agent", ["codex", "claude"])
def test_an_agent_cli_leaves_all_that_it_printed_and_its_summary(agent: str):
    trace = (
        TraceItem("user", "Who?"),
        TraceItem("tool", "Ann", {"step": 1, "command": "ls"}),
        TraceItem("info", "", {"summary": "[1] ls"}),
        TraceItem("session", "", {"raw": '{"type":"x"}\n', "gzip": "AAAA"}),
    )
    files = prediction_files(trace, agent)
    assert files[f"{agent}_raw.txt"] == '{"type":"x"}\n'
    assert files[f"{agent}_trace_summary.txt"] == "[1] ls"
    wanted = [{"type": "tool_call", "step": 1, "cmd": "ls", "obs": "Ann"}]
    assert files["conversation.json"] == wanted, "neither the summary nor the session"
    assert "AAAA" not in json.dumps(files)


def step(phase: str) -> StepRecords:
    """A turn for the skill `now`."""
    verdict = Verdict("discard", "no better")
    return StepRecords(
        RunStarted(run_id="r", recipe="skill", seed="seed", inputs={}, version="1", t=0.0),
        StepOpened(step=0, turn=Turn("step", phase), incumbent="now", rollouts_at=0, t=0.0),
        None,
        StepClosed(
            step=0,
            candidate="new",
            incumbent="now",
            reports=(),
            verdict=verdict,
            evaluations=(),
            spend=NOTHING,
            rollouts=(0, 0),
            t=0.0,
        ),
    )


PLACE = "steps/step_0003"


def folder(purpose: Purpose, skill: str, phase: str = "e1/step", repeat: int = 0) -> str:
    folders = PredictionFolders("seed")
    folders.add("new", PLACE)
    folders.add("new", "steps/step_0007")
    job = Job(skill, "c", repeat, purpose)
    return folders.folder_of(job, step(phase), PLACE).removesuffix("/predictions/c")


def test_a_batch_belongs_to_its_step_and_a_measurement_to_the_step_that_made_the_skill():
    assert folder("feedback", "now", repeat=2) == f"{PLACE}/rollout"
    assert folder("probe", "probed") == f"{PLACE}/deep_reflect"
    assert folder("feedback", "now", "e2/slow_update") == f"{PLACE}/rollout_curr"
    assert folder("feedback", "past", "e2/slow_update") == f"{PLACE}/rollout_prev"
    assert folder("decide", "seed") == "selection_eval_baseline"
    assert folder("test", "seed") == "test_eval_baseline"
    assert folder("decide", "new") == f"{PLACE}/selection_eval", "the first that made it"
    assert folder("decide", "new", repeat=4) == f"{PLACE}/selection_eval/predictions/c/repeat_04"
    assert folder("promote", "other") == "candidates/other/promotion_eval"
    all_ = [folder(purpose, "new") for purpose in get_args(Purpose)]
    assert len(set(all_)) == len(all_), "none takes the place of another"


@pytest.mark.parametrize(
    ("case", "name"),
    [
        ("q3", "q3"),
        ("Zürich 1-2_3.b", "Zürich 1-2_3.b"),
        ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
        ("..", "%2E."),
        (".hidden", "%2Ehidden"),
        ("a%2Fb", "a%252Fb"),
        ("a\0\n\udc80", "a%00%0A%ED%B2%80"),
    ],
)
def test_the_folder_of_a_case_is_one_safe_name(case: str, name: str):
    job = Job("new", case, 0, "feedback")
    found = PredictionFolders("seed").folder_of(job, step("e1/step"), PLACE)
    assert found == f"{PLACE}/rollout/predictions/{name}"
    assert is_safe_path(found)


def test_long_ids_that_begin_alike_have_folders_of_their_own():
    jobs = [Job("new", f"{'é' * 400}{n}", 0, "feedback") for n in range(2)]
    folders = PredictionFolders("seed")
    one, other = (folders.folder_of(job, step("e1/step"), PLACE) for job in jobs)
    assert one != other
    assert all(len(part.encode()) <= 255 for part in (*one.split("/"), *other.split("/")))
