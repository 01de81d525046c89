"""Agent runs from a task to their end, with a scripted manager, workers and critic."""

import json
import re

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.core.rollout import Failure
from kept.errors import JournalError
from kept.models.scripted import ScriptedModel
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import ARTIFACTS
from kept.testing import MemoryJournal
from kept.testing.journal import C
from kept.testing.server import Fault
from tests.orchestrator.play import (
    GOOD,
    REPORT,
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
    simple,
    use,
    with_limits,
    write,
)


def test_a_run_that_is_planned_done_and_checked_is_complete() -> None:
    play = simple()
    came = finished(run_agent(kit_of(play)))
    record = came.record
    assert (record.status, record.reason) == ("complete", "completed")
    assert came.files == {"report.md": REPORT.encode()}
    assert [who for who, _ in play.heard] == ["manager", "manager", "w1", "w1", "critic", "manager"]
    assert record.deliverables[0].path == "report.md" and record.deliverables[0].declared
    assert record.evaluation is not None and record.critique is not None
    assert record.budget is not None and record.budget.used.workers == 1
    assert [one.decision.kind for one in record.iterations if one.decision] == [
        "plan",
        "delegate",
        "complete",
    ]


def test_what_the_task_came_with_lies_in_the_workspace_binaries_too() -> None:
    workers = {"w1": [use("file_read", path="input/a.txt"), write(), done("w1")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], workers)
    inputs = {"a.txt": b"12 in May", "logo.png": b"\x89PNG\xff\x00"}
    came = finished(run_agent(kit_of(play), inputs=inputs))
    assert came.record.inputs == ("a.txt", "logo.png")
    assert "input/logo.png (6 bytes)" in dict(play.heard)["w1"]
    assert "`input/a.txt`" in play.heard[0][1]


def test_a_completion_that_is_refused_goes_back_to_the_manager_with_the_reason() -> None:
    workers = {"w1": [write(), done("w1")], "w2": [write(content=REPORT * 2), done("w2")]}
    play = Play(
        [plan("report.md"), delegate("w1"), complete(), delegate("w2"), complete()], workers
    )
    kit = kit_of(play, checks=[Says([refuse("too short")])])
    record = finished(run_agent(kit)).record
    assert record.status == "complete"
    assert [(one.gate, one.reason, one.completion) for one in record.rejections] == [
        ("says", "too short", True)
    ]
    asked = [text for who, text in play.heard if who == "manager"]
    assert "The completion was refused (says): too short" in asked[3]


def test_two_refusals_alike_force_a_repair_and_the_run_goes_on() -> None:
    repair = [write(content="# Better\n\n" + REPORT), done("repair-1")]
    play = Play(
        [plan("report.md"), delegate("w1"), complete(), complete(), "{}", complete()],
        {"w1": [write(), done("w1")], "repair-1": repair},
    )
    kit = kit_of(play, checks=[Says([refuse(), refuse()])])
    came = finished(run_agent(kit))
    record = came.record
    assert record.status == "complete"
    assert len(record.rejections) == 2
    (mended,) = record.repairs
    assert (mended.worker_id, mended.subtask_id, mended.attempt) == ("repair-1", "s1", 1)
    assert record.iterations[4].decision is None, "nobody asked the manager"
    assert came.files["report.md"].startswith(b"# Better")


def test_r35_repairs_that_come_to_rest_end_the_run() -> None:
    same = [write(content="# Same\n\n" + REPORT), done("repair-1")]
    again = [write(content="# Same\n\n" + REPORT), done("repair-2")]
    play = Play(
        [plan("report.md"), delegate("w1"), complete()],
        {"w1": [write(), done("w1")], "repair-1": same, "repair-2": again},
    )
    kit = kit_of(play, checks=[Says([refuse()] * 9)])
    record = finished(run_agent(kit)).record
    assert (record.status, record.reason) == ("partial", "repair_fixpoint_detected")
    assert [one.fixpoint for one in record.repairs] == [False, True]


def test_repairs_that_move_and_are_refused_still_end_when_there_were_enough() -> None:
    one = [write(content="Apples are red and pears are green this year.\n" * 3), done("repair-1")]
    two = [write(content="Der Umsatz stieg im Juni deutlich an, um 25 Prozent.\n" * 3)]
    play = Play(
        [plan("report.md"), delegate("w1"), complete()],
        {"w1": [write(), done("w1")], "repair-1": one, "repair-2": [*two, done("repair-2", 0.4)]},
    )
    kit = kit_of(play, checks=[Says([refuse()] * 9)])
    record = finished(run_agent(kit)).record
    assert (record.status, record.reason) == ("partial", "max_rejected_completions")
    assert len(record.repairs) == 2


def test_a_manager_that_gives_up_has_failed_with_its_reason() -> None:
    play = Play([say({"decision": "fail", "reason": "there is no data"})])
    record = finished(run_agent(kit_of(play))).record
    assert (record.status, record.reason) == ("failed", "manager_failed: there is no data")


def test_a_manager_that_writes_garbage_three_times_ends_the_run() -> None:
    play = Play([["I think we should", '{"decision": "ponder"}', '{"decision": "plan"}', plan()]])
    record = finished(run_agent(kit_of(play))).record
    assert (record.status, record.reason) == ("failed", "manager_garbage")
    assert len(record.iterations[0].garbage) == 3
    assert len(play.heard) == 3


def test_a_manager_is_told_what_was_wrong_and_may_do_better() -> None:
    play = Play(
        [["nonsense", plan("report.md")], delegate("w1"), complete()],
        {"w1": [write(), done("w1")]},
    )
    record = finished(run_agent(kit_of(play))).record
    assert record.status == "complete"
    assert record.iterations[0].garbage == ("it is not one JSON object: there is no JSON in it",)
    assert "That is no decision: it is not one JSON object" in play.heard[1][1]


def test_a_manager_that_only_plans_is_stopped() -> None:
    record = finished(run_agent(kit_of(Play([plan("report.md")])))).record
    assert (record.status, record.reason) == ("partial", "stall_detected")
    assert len(record.iterations) == 5


def test_no_run_is_complete_without_a_deliverable_even_where_no_check_minds() -> None:
    play = Play(
        [plan(), delegate("w1"), complete()],
        {"w1": [done("w1")]},
    )
    record = finished(run_agent(kit_of(play, checks=[]), task="What is 2 + 2?")).record
    assert record.status == "partial"
    assert {one.gate for one in record.rejections} == {"deliverable"}


def test_a_check_that_cannot_tell_makes_nothing_complete() -> None:
    unknown = Failure("limit", "candidate", "no room for the judge")
    kit = kit_of(simple(), checks=[Says([unknown] * 9)], limits=with_limits(loops=4))
    record = finished(run_agent(kit)).record
    assert record.status == "partial"
    assert "cannot tell" in record.rejections[0].reason


def test_checks_are_asked_though_the_budget_is_used_up() -> None:
    """The original skips most of its checks then, and calls the run complete."""
    workers = {"w1": [write(content="TODO"), done("w1")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], workers)
    record = finished(run_agent(kit_of(play, limits=with_limits(loops=3)))).record
    assert (record.status, record.reason) == ("partial", "max_loops")
    assert record.rejections[0].completion


def test_workers_of_one_turn_are_sent_side_by_side_and_share_the_workspace() -> None:
    workers = {
        "a": [write("output/a.md"), done("a")],
        "b": [write("output/b.md"), done("b")],
        "c": [write("output/c.md"), done("c")],
    }
    play = Play([plan("a.md", "b.md", "c.md"), delegate("a", "b", "c"), complete()], workers)
    came = finished(run_agent(kit_of(play)))
    assert sorted(came.files) == ["a.md", "b.md", "c.md"]
    assert [who for who, _ in play.heard[2:5]] == ["a", "b", "c"], "none waits for another"
    assert [one.written for one in came.record.iterations[1].delegations] == [
        ("output/a.md",),
        ("output/b.md",),
        ("output/c.md",),
    ]


def test_what_a_worker_is_told_does_not_depend_on_how_quick_another_one_is() -> None:
    workers = {"a": [write("output/a.md"), done("a")], "b": [write("output/b.md"), done("b")]}
    play = Play([plan("a.md", "b.md"), delegate("a", "b"), complete()], workers)
    finished(run_agent(kit_of(play, limits=with_limits(parallel_workers=1))))
    first = next(text for who, text in play.heard if who == "b")
    assert "nothing so far" in first and "a.md" not in first.partition("The workspace holds")[2]


def test_uses_of_tools_in_one_reply_come_in_their_order() -> None:
    both = ModelReply(
        "",
        finish="tool_calls",
        tool_calls=(
            ToolCall(
                "1", "file_write", json.dumps({"path": "output/report.md", "content": REPORT})
            ),
            ToolCall("2", "file_read", json.dumps({"path": "output/report.md"})),
        ),
    )
    play = Play([plan("report.md"), delegate("w1"), complete()], {"w1": [both, done("w1")]})
    came = finished(run_agent(kit_of(play)))
    assert came.record.iterations[1].delegations[0].tool_calls == 2
    assert came.record.status == "complete"


def test_r17_an_answer_that_breaks_the_contract_is_asked_for_once_more() -> None:
    workers = {"w1": [write(), "all done!", done("w1", summary="done")]}
    play = Play([plan("report.md"), delegate("w1"), complete()], workers)
    record = finished(run_agent(kit_of(play))).record
    assert record.status == "complete"
    assert record.iterations[1].delegations[0].confidence == 0.9


def test_r17_a_contract_that_is_broken_twice_is_the_workers_failure() -> None:
    workers = {"w1": [write(), done("w1", sources=[])]}
    play = Play(
        [plan("report.md"), delegate("w1", required_fields=["figures"]), complete()], workers
    )
    sent = finished(run_agent(kit_of(play))).record.iterations[1].delegations[0]
    assert sent.result is None and sent.critique is None
    assert sent.failure is not None and sent.failure.kind == "parse"
    assert "figures" in sent.failure.message
    assert sent.written == ("output/report.md",)


def test_an_unparsable_critique_is_a_failure_and_never_a_score() -> None:
    """The original gives 0.5 without a defect."""
    play = simple()
    play.critic = "looks good to me"
    record = finished(run_agent(kit_of(play))).record
    sent = record.iterations[1].delegations[0]
    assert sent.critique is None
    assert sent.critique_failure is not None and sent.critique_failure.kind == "parse"
    assert [who for who, _ in play.heard[3:7]] == ["w1", "critic", "critic", "manager"]
    assert record.status != "complete"


def test_a_critic_that_misses_a_file_which_is_there_is_not_believed() -> None:
    gone = {
        "category": "missing_data",
        "location": "report.md",
        "description": "the file is missing",
        "severity": "critical",
    }
    play = simple()
    play.critic = say({**GOOD, "defects": [gone, {**gone, "location": "other.md"}]})
    sent = finished(run_agent(kit_of(play))).record.iterations[1].delegations[0]
    assert sent.critique is not None
    assert [one.location for one in sent.critique.defects] == ["other.md"]


def test_a_worker_cannot_write_outside_and_is_told_so() -> None:
    outside = use("file_write", path="/etc/cron.d/x", content="!")
    play = Play(
        [plan("report.md"), delegate("w1"), complete()],
        {"w1": [outside, use("file_write", path="../x", content="!"), write(), done("w1")]},
    )
    came = finished(run_agent(kit_of(play)))
    assert came.record.status == "complete"
    assert sorted(came.files) == ["report.md"]


def test_a_worker_that_goes_round_in_circles_is_stopped() -> None:
    play = Play(
        [plan("report.md"), delegate("w1"), say({"decision": "fail", "reason": "no use"})],
        {"w1": [use("file_list")]},
    )
    record = finished(run_agent(kit_of(play))).record
    sent = record.iterations[1].delegations[0]
    assert sent.failure is not None and sent.failure.kind == "limit"
    assert sent.tool_calls == 15
    assert record.status == "failed"


def test_a_worker_that_floods_its_conversation_is_stopped_before_it_is_paid_for() -> None:
    flood = use("file_write", path="big", content="x" * 1_000_000)
    play = Play(
        [plan("report.md"), delegate("w1"), say({"decision": "fail", "reason": "no use"})],
        {"w1": [flood, write(), done("w1")]},
    )
    record = finished(run_agent(kit_of(play, limits=with_limits(tokens=200_000)))).record
    sent = record.iterations[1].delegations[0]
    assert sent.failure is not None and "max_total_tokens" in sent.failure.message
    assert [who for who, _ in play.heard].count("w1") == 1


def test_a_worker_that_refuses_to_answer_is_its_own_failure() -> None:
    play = Play(
        [plan("report.md"), delegate("w1"), say({"decision": "fail", "reason": "refused"})],
        {"w1": [ModelReply("I cannot help with that", finish="refused")]},
    )
    record = finished(run_agent(kit_of(play))).record
    sent = record.iterations[1].delegations[0]
    assert sent.failure is not None and sent.failure.kind == "refused"


def test_an_outage_is_nobodys_result() -> None:
    play = simple()
    play.workers = {"w1": [Fault("status", 503)]}
    came = run_agent(kit_of(play))
    assert isinstance(came, Failure) and came.blame == "infrastructure"


def test_a_brief_is_told_in_the_first_turn_only() -> None:
    play = simple()
    about = Assignment(task="Write report.md", brief="## REFINEMENT CONTEXT\n\nMend the title.")
    finished(run_agent(kit_of(play), assignment=about))
    asked = [text for who, text in play.heard if who == "manager"]
    assert asked[0].startswith("## REFINEMENT CONTEXT\n\nMend the title.\n\n## Task")
    assert not any("REFINEMENT" in text for text in asked[1:])


def test_each_of_the_six_artifacts_reaches_who_it_is_for() -> None:
    kit = kit_of(simple())
    texts = {name: f"canary {name}" for name in ARTIFACTS}
    texts["tool_description_templates"] = "## file.write\n\ncanary of a tool\n"
    finished(run_agent(kit, artifacts=texts))
    assert isinstance(kit.manager, ScriptedModel)
    told: dict[str, str] = {}
    for request in kit.manager.requests:
        who = request.messages[0].text.split(".")[0]
        offers = " ".join(offer.description for offer in request.tools)
        told[who] = "\n".join((*(message.text for message in request.messages), offers))
    manager, worker, critic = (
        next(text for who, text in told.items() if words in who)
        for words in ("manager", "worker", "judge")
    )
    for name in (
        "manager_planning_preamble",
        "experiment_context_hint_template",
        "pattern_library",
    ):
        assert f"canary {name}" in manager and f"canary {name}" not in worker
    assert "canary worker_pitfalls" in worker and "canary of a tool" in worker
    assert "canary critique_rubric" in critic


def test_a_diagnosis_is_told_to_the_manager_until_somebody_is_sent() -> None:
    diagnosis = say({"decision": "diagnose", "failed_worker": "w0", "hypotheses": ["no data"]})
    play = Play([plan("report.md"), diagnosis, delegate("w1"), complete()], simple().workers)
    finished(run_agent(kit_of(play)))
    asked = [text for who, text in play.heard if who == "manager"]
    assert "* no data" in asked[2] and "* no data" not in asked[3]


def test_a_manager_may_stand_in_the_place_of_a_worker() -> None:
    play = Play([], {"w1": [write(), done("w1")]})
    # the manager below has half the turns, by which the script tells the two apart
    outer = [plan("report.md"), delegate("m1", as_submanager=True), complete()]
    inner = [plan("report.md"), delegate("w1"), complete()]

    def managed(user: str, spoken: int) -> str:
        left = int(re.findall(r"(\d+) further turns?", user)[-1])
        return outer[min(99 - left, 2)] if left > 60 else inner[48 - left]

    play._managed = managed  # pyright: ignore[reportPrivateUsage,reportAttributeAccessIssue]
    record = finished(run_agent(kit_of(play))).record
    assert record.status == "complete"
    sent = record.iterations[1].delegations[0]
    assert sent.worker_id == "m1" and sent.result is not None
    assert sent.written == ("output/report.md",)
    assert record.budget is not None and record.budget.used.tool_calls == 1
    assert record.budget.used.loops == 6, "three turns of each"
    assert record.budget.used.workers == 2


def _poor(user: str) -> str:
    return say({"score": 0.2, "defects": [], "summary": "poor"})


def test_a_repair_that_fails_does_not_open_the_gate_that_its_critics_hold_shut() -> None:
    play = Play(
        [plan("report.md"), delegate("w1"), complete()],
        {"w1": [write(), done("w1")], "repair-1": ["nonsense"], "repair-2": ["nonsense"]},
        critic=_poor,
    )
    record = finished(run_agent(kit_of(play))).record
    assert len(record.repairs) > 0 and record.iterations[4].delegations[0].failure is not None
    assert record.status == "partial"
    assert {one.gate for one in record.rejections} == {"critique"}
    assert record.critique is not None and record.critique.score == 0.2


def test_a_worker_that_changed_files_and_failed_leaves_what_no_critic_has_seen() -> None:
    workers = {"w1": [write(), done("w1")], "w2": [write(content=REPORT + "\nMore.\n"), "nonsense"]}
    play = Play([plan("report.md"), delegate("w1"), delegate("w2"), complete()], workers)
    record = finished(run_agent(kit_of(play, limits=with_limits(loops=4)))).record
    assert record.status == "partial"
    (refused,) = record.rejections
    assert refused.gate == "critique" and "w2" in refused.reason


def test_a_worker_that_changed_nothing_and_failed_leaves_the_critique_of_its_subtask() -> None:
    workers = {"w1": [write(), done("w1")], "w2": ["nonsense"]}
    play = Play([plan("report.md"), delegate("w1"), delegate("w2"), complete()], workers)
    record = finished(run_agent(kit_of(play))).record
    assert record.status == "complete"
    assert record.critique is not None and record.critique.score == 0.9


class FullDisk(MemoryJournal):
    """A journal whose disk is full when the second worker says something."""

    def record_call(self, scope: str, key: str, reply: C, *, unpriced: bool = False) -> C:
        if "/b/" in f"{scope}/":
            raise JournalError("cannot write rollouts.jsonl")
        return super().record_call(scope, key, reply, unpriced=unpriced)


def test_what_a_worker_beside_another_raises_ends_the_run_as_it_is() -> None:
    workers = {"a": [write(), done("a")], "b": [done("b")]}
    play = Play([plan("report.md"), delegate("a", "b"), complete()], workers)
    with pytest.raises(JournalError, match=r"^cannot write rollouts.jsonl$"):
        run_agent(kit_of(play), journal=FullDisk())
