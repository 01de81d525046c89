"""A suite is worth what it catches: every one is shown something broken, and must say so."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import Append
from kept.core.event import Event
from kept.core.llm import ModelReply, ModelRequest, ToolAnswer, ToolOffer
from kept.core.ports import (
    Gate,
    Journal,
    Model,
    Proposer,
    Runner,
    Schedule,
    Scope,
    Scorer,
    Sink,
    Tool,
)
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Turn
from kept.core.rollout import Failure, Job, Pair, Rollout
from kept.core.score import Score
from kept.core.state import State
from kept.core.verdict import Verdict, View
from kept.gates._common import asks_for
from kept.testing import (
    AcceptAll,
    GateSuite,
    JournalSuite,
    MemoryJournal,
    ModelSuite,
    ProposerSuite,
    RejectAll,
    RunnerSuite,
    ScheduleSuite,
    ScorerSuite,
    SinkSuite,
    ToolSuite,
)
from kept.testing.journal import Record, RolloutRecord
from kept.testing.suites import evaluators as tool_suite


def failing_tests(suite: object) -> set[str]:
    """Names of the suite's tests that fail, whether by assertion or by any other error."""
    failed: set[str] = set()
    for name in dir(suite):
        if name.startswith("test_"):
            test: Callable[[], None] = getattr(suite, name)
            try:
                test()
            except Exception:  # noqa: BLE001 # a broken thing may raise anything
                failed.add(name)
    return failed


@dataclass(frozen=True)
class Lenient:
    """Compares what was measured, but calls a tie a gain."""

    name: str = "lenient"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        sides = (view.incumbent, view.challenger)
        if asks := asks_for(sides, view.holdout, 1, "decide"):
            return asks
        old, new = (side.known["decide"] for side in sides)
        if new.failed == new.asked:
            return Verdict("crash", "all failed")
        if old.coverage < 0.9 or new.coverage < 0.9:
            return Verdict("skip", "cannot tell", code="indecisive")
        assert old.loss is not None and new.loss is not None
        return Verdict("keep" if new.loss <= old.loss else "discard", "compared")


@dataclass
class Moody:
    """Decides by chance."""

    name: str = "moody"
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        return Verdict(self.chance.choice(("keep", "discard")), "who knows")


@dataclass(frozen=True)
class Endless:
    """Asks the same again and again."""

    name: str = "endless"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        return (Ask(view.challenger.id, (Pair(view.holdout[0], 0),), "decide"),)


@dataclass(frozen=True)
class Nosy:
    """Wants to see the test cases, and answers nothing without."""

    name: str = "nosy"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        if "test" in view.challenger.known:
            return Verdict("discard", "seen")
        return (Ask(view.challenger.id, (Pair("test-0", 0),), "test"),)


@dataclass(frozen=True)
class Forgiving:
    """Leaves failed rollouts out of the mean."""

    name: str = "forgiving"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        sides = (view.incumbent, view.challenger)
        if asks := asks_for(sides, view.holdout, 1, "decide"):
            return asks
        old, new = (side.known["decide"].metric("score") or 0.0 for side in sides)
        return Verdict("keep" if new > old else "discard", "compared")


@dataclass(frozen=True)
class Hasty:
    """Reads only the first case it is shown."""

    name: str = "hasty"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        sides = (view.incumbent, view.challenger)
        if asks := asks_for(sides, view.holdout, 1, "decide"):
            return asks
        old, new = (next(iter(side.known["decide"].cases.values())).mean for side in sides)
        return Verdict("keep" if new < old else "discard", "glanced at it")


TIE = "test_a_tie_is_never_a_win"
GAIN = "test_a_clear_gain_wins"
SAME = "test_the_same_view_gets_the_same_answer"
ENDS = "test_it_asks_for_what_there_is_and_comes_to_a_verdict"
FAILED = "test_a_failed_rollout_never_helps"
ORDER = "test_the_order_of_the_cases_does_not_matter"
MISSING = "test_a_tie_is_no_win_because_an_answer_is_missing"


@pytest.mark.parametrize(
    ("gate", "caught"),
    [
        (AcceptAll(), TIE),
        (RejectAll(), GAIN),
        (Lenient(), TIE),
        (Moody(), SAME),
        (Endless(), ENDS),
        (Nosy(), ENDS),
        (Forgiving(), FAILED),
        (Forgiving(), MISSING),
        (Hasty(), ORDER),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_gate_suite_catches(gate: Gate, caught: str):
    class Suite(GateSuite):
        def make_gate(self) -> Gate:
            return gate

    assert caught in failing_tests(Suite())


class BadRunner:
    """Broken in one way."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.background: list[asyncio.Task[None]] = []
        self.closed = False

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        if self.fault == "raises":
            raise ZeroDivisionError
        if self.fault == "edits":
            candidate.texts["text"] = "changed"  # pyright: ignore[reportIndexIssue] # which is the fault
        if self.fault == "leaves a task":
            self.background.append(asyncio.ensure_future(asyncio.sleep(30)))
            await asyncio.shield(self.background[-1])
        if self.fault == "ignores cancelling":
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return Rollout()
        return Rollout()

    async def close(self) -> None:
        for task in self.background:
            task.cancel()
        if self.closed and self.fault == "closes once":
            raise RuntimeError("closed already")
        self.closed = True


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("raises", "test_a_rollout_comes_back"),
        ("raises", "test_a_crash_is_a_failure_with_a_culprit"),
        ("edits", "test_the_candidate_stays_as_it_is"),
        ("leaves a task", "test_cancelling_leaves_nothing_running"),
        ("ignores cancelling", "test_cancelling_leaves_nothing_running"),
        ("closes once", "test_closing_twice_is_closing_once"),
    ],
)
def test_the_runner_suite_catches(fault: str, caught: str):
    class Suite(RunnerSuite):
        def make_runner(self) -> Runner:
            hangs = fault in ("leaves a task", "ignores cancelling")
            return BadRunner("" if hangs else fault)

        def make_crashing_runner(self) -> Runner | None:
            return BadRunner(fault) if fault == "raises" else None

        def make_hanging_runner(self) -> Runner | None:
            return BadRunner(fault) if "task" in fault or "cancelling" in fault else None

    assert caught in failing_tests(Suite())


class BadScorer:
    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.count = 0

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        self.count += 1
        if self.fault == "counts":
            return Score({"score": float(self.count)})
        if self.fault == "not a number":
            return Score({"score": float("nan")})
        return Score({"score": float(rollout.output)})

    async def close(self) -> None:
        self.count += 1
        if self.fault == "closes once" and self.count > 1:
            raise RuntimeError("closed already")


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("counts", "test_the_same_rollout_gets_the_same_score"),
        ("not a number", "test_a_rollout_is_scored"),
        ("raises", "test_the_unexpected_is_a_score_or_a_failure"),
        ("closes once", "test_closing_twice_is_closing_once"),
    ],
)
def test_the_scorer_suite_catches(fault: str, caught: str):
    class Suite(ScorerSuite):
        def make_scorer(self) -> Scorer:
            return BadScorer(fault)

        def rollouts(self) -> Sequence[Rollout]:
            return (Rollout(output="0.5"),)

    assert caught in failing_tests(Suite())


class BadProposer:
    serial = False

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.name = "" if fault == "nameless" else "bad"
        self.count = 0

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        self.count += 1
        if self.fault == "counts":
            return Proposal((Append("text", f"{self.count}"),))
        if self.fault == "caches":
            # right when asked twice in a row, wrong after a resume
            return Proposal((Append("text", f"{self.count - brief.step > 2}"),))
        if self.fault == "asks for ever":
            return Ask(brief.incumbent.id, (Pair("a", self.count),), "feedback")
        if self.fault == "peeks":
            return Ask(brief.incumbent.id, (Pair("holdout-1", 0),), "feedback")
        if self.fault == "edits the brief":
            brief.incumbent.texts["text"] = "x"  # pyright: ignore[reportIndexIssue] # which is the fault
        return Proposal(())


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("nameless", "test_it_has_a_name_and_says_whether_it_is_serial"),
        ("counts", "test_the_same_brief_gets_the_same_reply"),
        ("counts", "test_a_fresh_one_says_what_a_used_one_says"),
        ("caches", "test_the_order_of_the_steps_does_not_matter"),
        ("asks for ever", "test_the_same_brief_gets_the_same_reply"),
        ("peeks", "test_the_same_brief_gets_the_same_reply"),
        ("edits the brief", "test_the_brief_stays_as_it_is"),
    ],
)
def test_the_proposer_suite_catches(fault: str, caught: str):
    class Suite(ProposerSuite):
        def make_proposer(self) -> Proposer:
            return BadProposer(fault)

    assert caught in failing_tests(Suite())


class BadModel:
    name = "bad"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        return ModelReply("")


def test_the_model_suite_catches_a_reply_that_costs_nothing_and_a_failure_that_is_none():
    class Suite(ModelSuite):
        def make_model(self) -> Model:
            return BadModel()

        def make_failing_model(self) -> Model:
            return BadModel()

    assert {
        "test_a_reply_says_what_it_cost",
        "test_what_goes_wrong_is_a_failure_with_a_culprit",
    } <= failing_tests(Suite())


@dataclass
class BadSchedule:
    """Counts for itself instead of reading the state, and never stops."""

    count: int = 0

    def next(self, state: State) -> Turn:
        self.count += 1
        return Turn("a", number=self.count)

    def last(self, state: State) -> Turn | None:
        return None


def test_the_schedule_suite_catches_a_schedule_with_a_memory():
    class Suite(ScheduleSuite):
        def make_schedule(self) -> Schedule:
            return BadSchedule()

        def proposers(self) -> tuple[str, ...]:
            return ("a",)

    assert failing_tests(Suite()) == {
        "test_it_is_a_function_of_the_state",
        "test_a_turn_is_for_a_proposer_of_the_plan",
        "test_a_stop_has_its_reason",
        "test_who_has_run_dry_gets_no_turn",
    }


class BadSink:
    """Cannot bear a keep."""

    def on_event(self, event: Event, state: State) -> None:
        if state.keeps:
            raise RuntimeError("too good to be true")


def test_the_sink_suite_catches_a_sink_that_raises():
    class Suite(SinkSuite):
        def make_sink(self, journal: Journal) -> Sink:
            return BadSink()

    assert "test_it_follows_a_run_from_start_to_stop" in failing_tests(Suite())


def _forgiven(record: Record) -> Record:
    if isinstance(record, RolloutRecord):
        return record._replace(outcome=record.outcome._replace(failure=None))
    return record


@dataclass
class ForgetfulJournal(MemoryJournal):
    """Loses something when it is opened again."""

    fault: str = ""

    def reopened(self, records: int | None = None) -> "ForgetfulJournal":
        again = ForgetfulJournal(self.records[:records], self._candidates, self._values)
        if self.fault == "failures":
            again = ForgetfulJournal([_forgiven(record) for record in again.records])
        if self.fault == "candidates":
            again._candidates = {}
        if self.fault == "last":
            again = ForgetfulJournal(again.records[:-1])
        return again


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("failures", "test_the_rollouts_behind_an_offset_come_back"),
        ("candidates", "test_candidates_come_back_whole"),
        ("last", "test_events_come_back_as_they_were"),
        ("last", "test_replies_come_back_by_scope_and_request"),
    ],
)
def test_the_journal_suite_catches(fault: str, caught: str):
    class Suite(JournalSuite):
        def make_journal(self) -> Journal:
            journal = ForgetfulJournal()
            journal.fault = fault
            return journal

        def reopen(self, journal: Journal) -> Journal:
            assert isinstance(journal, MemoryJournal)
            return journal.reopened()

        def events(self, journal: Journal) -> Sequence[Event]:
            assert isinstance(journal, MemoryJournal)
            return journal.events

    assert caught in failing_tests(Suite())


CANCELLED = "test_cancelling_a_use_leaves_nothing_running_and_the_others_alone"


class BadTool:
    """Broken in one way."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.uses = 0
        self.background: list[asyncio.Task[None]] = []

    @property
    def offer(self) -> ToolOffer:
        return ToolOffer("a name" if self.fault == "no name" else "name", "", {"type": "object"})

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        if self.fault == "keeps no journal":
            return self._answer(arguments)

        async def do() -> ToolAnswer | Failure:
            if self.fault == "leaves a task":
                self.background.append(asyncio.ensure_future(asyncio.sleep(30)))
                await asyncio.shield(self.background[-1])
            if self.fault == "ignores cancelling":
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    return ToolAnswer("anyway")
            return self._answer(arguments)

        return await scope.call({"arguments": dict(arguments)}, ToolAnswer, do, 0.0)

    def _answer(self, arguments: Mapping[str, object]) -> ToolAnswer | Failure:
        self.uses += 1
        if "odd" in arguments and self.fault == "fails for arguments":
            return Failure("harness", "infrastructure", "no")
        if "odd" in arguments and self.fault != "takes anything":
            return ToolAnswer("no", wrong=True)
        if self.fault == "edits":
            arguments["a"] = 2  # pyright: ignore[reportIndexIssue] # which is the fault
        if self.fault == "one at a time" and self.uses > 1:
            return Failure("limit", "infrastructure", "busy")
        return ToolAnswer("yes")


@pytest.mark.parametrize(
    ("fault", "caught"),
    [
        ("no name", "test_a_model_can_be_told_of_it"),
        ("fails for arguments", "test_wrong_arguments_are_answered_with_what_is_wrong"),
        ("takes anything", "test_wrong_arguments_are_answered_with_what_is_wrong"),
        ("edits", "test_the_arguments_stay_as_they_are"),
        ("keeps no journal", "test_a_resume_does_not_use_it_again"),
        ("one at a time", "test_uses_side_by_side_are_all_answered"),
        ("leaves a task", CANCELLED),
        ("ignores cancelling", CANCELLED),
    ],
)
def test_the_tool_suite_catches(fault: str, caught: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool_suite, "PATIENCE", 0.2)
    hangs = fault in ("leaves a task", "ignores cancelling")

    class Suite(ToolSuite):
        async def open_tool(self) -> Tool:
            return BadTool("" if hangs else fault)

        async def open_hanging_tool(self) -> Tool | None:
            return BadTool(fault) if hangs else None

        def arguments(self) -> Mapping[str, object]:
            return {"a": 1}

        def wrong_arguments(self) -> Mapping[str, object] | None:
            return {"odd": 1}

    assert failing_tests(Suite()) == {caught}
