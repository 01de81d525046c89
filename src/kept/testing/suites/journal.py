"""Conformance suite for journals."""

from collections.abc import Sequence
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.budget import Dearest, Spend, StopReason
from kept.core.edit import (
    Append,
    Delete,
    Edit,
    EditReport,
    Fill,
    InsertAfter,
    Replace,
    SetValue,
    Splice,
    Write,
)
from kept.core.event import (
    Event,
    Proposed,
    RunResumed,
    RunSettings,
    RunStarted,
    RunStopped,
    StepClosed,
    StepOpened,
)
from kept.core.llm import ModelReply
from kept.core.ports import Journal
from kept.core.proposal import Claim, Measure, Note, Proposal, ProposerFailed, Prove, Skip, Turn
from kept.core.rollout import Failure, Job, TraceItem, Usage
from kept.core.score import Evaluation, Finding, Outcome, Tally
from kept.core.verdict import Verdict
from kept.errors import JournalError

TEXT = "grüße \U0001f600 \u2028 tab\t \r\n \x00 \x1b[0m 'quoted' \"twice\" back\\slash"
"""Text with emoji, control characters, quotes and several kinds of line ends."""

BYTES = "caf\udce9"
"""Bytes that are not UTF-8, as Python reads them with `surrogateescape`."""

HALF = "\ud83d"
"""Half of an emoji, as in a model's reply that was cut."""

REFUSED = Failure("refused", "candidate", TEXT, "detail\n" * 3)


class JournalSuite:
    """Subclass it: make a journal, open it again, and read its events."""

    def make_journal(self) -> Journal:
        """A new journal."""
        raise NotImplementedError

    def reopen(self, journal: Journal) -> Journal:
        """The same journal as the next process finds it."""
        raise NotImplementedError

    def events(self, journal: Journal) -> Sequence[Event]:
        """Events that the journal holds."""
        raise NotImplementedError

    def release(self, journal: Journal) -> None:
        """Close the journal."""

    def test_events_come_back_as_they_were(self) -> None:
        """Events of every kind, in order, in this process and the next."""
        journal = self.make_journal()
        for event in SAMPLES:
            journal.append(event)
        journal.sync()
        assert list(self.events(journal)) == list(SAMPLES)
        journal = self.reopen(journal)
        assert list(self.events(journal)) == list(SAMPLES)
        self.release(journal)

    def test_the_rollouts_behind_an_offset_come_back(self) -> None:
        """Rollouts before the offset are left out."""
        journal = self.make_journal()
        journal.record([(0, job("a"), OUTCOMES[0])])
        start = journal.rollouts_size
        journal.record([(n, job("b", n), outcome) for n, outcome in enumerate(OUTCOMES)])
        assert journal.rollouts_size > start
        journal = self.reopen(journal)
        assert [tuple(row) for row in journal.tail(start)] == [
            (number, job("b", number), outcome) for number, outcome in enumerate(OUTCOMES)
        ]
        assert journal.tail(journal.rollouts_size) == []
        self.release(journal)

    def test_the_rollouts_between_two_offsets_come_back(self) -> None:
        """Works during and after writing; calls and cancelled rollouts are left out."""
        journal = self.make_journal()
        journal.record([(0, job("a"), OUTCOMES[0])])
        start = journal.rollouts_size
        journal.record_cancelled([(1, job("a", 1), Usage())])
        journal.record_call("rollout/b", "k", Failure("crash", "candidate", '"kind":"rollout"'))
        journal.record([(n, job("b", n), outcome) for n, outcome in enumerate(OUTCOMES)])
        end = journal.rollouts_size
        journal.record([(2, job("c"), OUTCOMES[0])])
        wanted = [(n, job("b", n), outcome) for n, outcome in enumerate(OUTCOMES)]
        assert [tuple(row) for row in journal.recorded(start, end)] == wanted
        journal = self.reopen(journal)
        assert [tuple(row) for row in journal.recorded(start, end)] == wanted
        assert list(journal.recorded(start, start)) == []
        self.release(journal)

    def test_what_was_stopped_in_flight_comes_back_with_its_cost_and_is_no_rollout(self) -> None:
        """Cancelled rollouts are found behind an offset too."""
        journal = self.make_journal()
        journal.record_cancelled([(0, job("a"), Usage())])
        start = journal.rollouts_size
        usage = Usage(1, 2, 3, 4, 0.5)
        journal.record([(1, job("b"), OUTCOMES[0])])
        journal.record_cancelled([(1, job("b", 1), usage), (2, job("b", 2), Usage())])
        journal = self.reopen(journal)
        found = [(step, used) for step, _, used in journal.cancelled(start)]
        assert found == [(1, usage), (2, Usage())]
        assert len(journal.tail(0)) == len(journal.outcomes(["a", "b"])) == 1
        self.release(journal)

    def test_the_outcomes_of_a_candidate_come_back_oldest_first(self) -> None:
        """Other candidates are excluded, even if an id is a prefix or appears in a message."""
        journal = self.make_journal()
        quoting = Outcome(failure=Failure("crash", "candidate", 'said "candidate":"ab" and died'))
        written = [(job("ab", n), outcome) for n, outcome in enumerate(OUTCOMES)]
        for at, (mine, outcome) in enumerate(written):
            journal.record([(at, mine, outcome), (at, job("abc", at), quoting)])
        journal = self.reopen(journal)
        assert list(journal.outcomes(["ab"])) == written
        assert len(journal.outcomes(["ab", "abc"])) == 2 * len(written)
        assert list(journal.outcomes(["nobody"])) == []
        assert list(journal.outcomes([])) == []
        self.release(journal)

    def test_replies_come_back_by_scope_and_request(self) -> None:
        """The nth equal request gets the nth reply."""
        journal = self.make_journal()
        replies = [
            ModelReply(TEXT, Usage(1, 2, 3, 4, 0.5)),
            ModelReply("long " * 2000),
            ModelReply(""),
            ModelReply(f"cut {HALF}"),
        ]
        for reply in replies:
            journal.record_call("propose/1", "key", reply)
            journal.record_call("propose/1", "other", ModelReply("other"))
            journal.record_call("propose/11", "key", ModelReply("eleven"))
        journal.record_call("propose/1", "key", REFUSED)
        self._check_calls(journal, [*replies, REFUSED])
        journal = self.reopen(journal)
        journal.tail(0)
        self._check_calls(journal, [*replies, REFUSED])
        self.release(journal)

    def _check_calls(self, journal: Journal, expected: list[ModelReply | Failure]) -> None:
        assert list(journal.calls("propose/1", "key", ModelReply)) == expected
        assert list(journal.calls("propose/1/branch", "key", ModelReply)) == []
        assert list(journal.calls("propose/1", "unknown", ModelReply)) == []
        assert [journal.heard(scope) for scope in ("propose/1", "propose")] == [True, False]

    def test_what_the_calls_at_hand_used_is_told_by_scope(self) -> None:
        """Branches count separately."""
        journal = self.make_journal()
        for scope, usd in (("rollout/a", 0.25), ("rollout/a", 0.5), ("rollout/a/branch", 1.0)):
            journal.record_call(scope, "key", ModelReply("yes", Usage(1, usd=usd)))
        found = {scope: usage.usd for scope, usage in journal.paid().items()}
        assert found == {"rollout/a": 0.75, "rollout/a/branch": 1.0}
        self.release(journal)

    def test_the_dearest_of_the_calls_without_a_price_is_told_by_scope(self) -> None:
        """The result is the same after a resume."""
        journal = self.make_journal()
        for scope, usd, unpriced in (
            ("rollout/a", 0.25, True),
            ("rollout/a", 0.5, True),
            ("rollout/a", 2.0, False),
            ("propose/1", 1.0, True),
            ("propose/2", 1.0, False),
        ):
            reply = ModelReply("long " * 2000, Usage(1, usd=usd))
            journal.record_call(scope, "key", reply, unpriced=unpriced)
        for scope, usd, unpriced in (("propose/3", 0.75, True), ("propose/4", 0.0, False)):
            refused = replace(REFUSED, usage=Usage(1, usd=usd))
            journal.record_call(scope, "key", refused, unpriced=unpriced)
        expected = {"rollout/a": 0.5, "propose/1": 1.0, "propose/3": 0.75}
        assert journal.unpriced() == expected
        journal = self.reopen(journal)
        journal.tail(0)
        assert journal.unpriced() == expected
        self.release(journal)

    def test_calls_that_are_done_with_are_forgotten(self) -> None:
        """Branches of the scope are dropped too, other scopes are kept."""
        journal = self.make_journal()
        scopes = ("rollout/a", "rollout/a/branch", "rollout/ab", "rollout/b")
        for scope in scopes:
            journal.record_call(scope, "key", ModelReply("yes"))
        journal.forget_calls("rollout/a")
        left = [scope for scope in scopes if journal.calls(scope, "key", ModelReply)]
        assert left == ["rollout/ab", "rollout/b"]
        self.release(journal)

    def test_candidates_come_back_whole(self) -> None:
        """Candidates come back whatever their texts contain; storing one twice has no effect."""
        journal = self.make_journal()
        candidates = [
            Candidate({}),
            Candidate({"text": ""}),
            Candidate({"a/b.txt": TEXT, "c": "x" * 5000}, {"logo.png": "0" * 64}),
            Candidate({"bytes": BYTES}),
        ]
        for candidate in (*candidates, *candidates):
            journal.save(candidate)
        for candidate in candidates:
            assert journal.load(candidate.id) == candidate
        journal = self.reopen(journal)
        for candidate in candidates:
            back = journal.load(candidate.id)
            assert (back.texts, back.blobs) == (candidate.texts, candidate.blobs)
        self.release(journal)

    def test_traces_come_back_whole(self) -> None:
        """Traces come back by the address they were stored under."""
        journal = self.make_journal()
        traces = [
            (),
            (TraceItem("tool", TEXT, {"args": {"n": 1, "list": [1, 2]}}), TraceItem("info", "")),
            (TraceItem("stdout", "x" * 5000),),
            (TraceItem("assistant", HALF), TraceItem("stdout", BYTES)),
        ]
        addresses = [journal.put(trace) for trace in traces]
        assert journal.put(traces[1]) == addresses[1], "equal values have equal addresses"
        journal = self.reopen(journal)
        assert [journal.trace(address) for address in addresses] == traces
        self.release(journal)

    def test_what_was_never_stored_is_an_error_that_says_so(self) -> None:
        """A missing candidate or trace raises an error that names it."""
        journal = self.make_journal()
        for get in (journal.load, journal.trace):
            said = ""
            try:
                get("nobody")
            except JournalError as error:
                said = error.message
            assert "nobody" in said, f"{get} found what was never stored"
        self.release(journal)


def job(candidate: str, repeat: int = 0) -> Job:
    """Job of a candidate."""
    return Job(candidate, 'case "1"', repeat, "decide")


OUTCOMES: tuple[Outcome, ...] = (
    Outcome({"score": 0.1 + 0.2, "tokens": 1e300}),
    Outcome(
        {"score": -0.0},
        findings=(Finding(TEXT, "high", "score"), Finding("short")),
        usage=Usage(2, 30, 4, 5, 1e-7),
        seconds=1.5,
        tries=3,
        trace="address",
    ),
    Outcome(failure=REFUSED, tries=2),
    Outcome(failure=Failure("server", "infrastructure", "503")),
    Outcome(failure=Failure("crash", "candidate", f"could not print {HALF}{BYTES}")),
)

EDITS: tuple[Edit, ...] = (
    Replace("a", "old", TEXT),
    InsertAfter("a", "anchor", ""),
    Delete("a", "text"),
    Append("a", "more\n"),
    Fill("a", "<begin>", "<end>", "between"),
    Write("b/c", HALF + BYTES),
    SetValue("a", "s", "text"),
    SetValue("a", "i", 3),
    SetValue("a", "f", 0.5),
    SetValue("a", "b", True),
)

_EVALUATION = Evaluation(
    "candidate",
    "decide",
    {"case": Tally(3, -1.5, 0.75, 1)},
    {0: Tally(1, 0.1, 0.01), 1: Tally(2, 0.3, 0.09)},
    {"score": Tally(2, 1.0, 1.0)},
    asked=4,
    loss=-0.5,
    missing=1,
    failed=1,
    unscored=0,
    first_failure=f"case: {TEXT}",
)

_SPEND = Spend(9, 1, 2, 3, 4, 5, 6, 0.7, 8.5)

SAMPLES: tuple[Event, ...] = (
    RunStarted(
        run_id="run",
        recipe="sample",
        seed="seed",
        inputs={"cases": "abc"},
        settings=RunSettings(metric="score", cases={"train": 3}, proposers=("a",)),
        request={"budget": None},
        facts={"texts": ["a"], "none": None},
        version="1.2.3",
        t=1.5,
    ),
    StepOpened(step=0, turn=Turn("a"), incumbent="seed", rollouts_at=0, t=2.0),
    StepOpened(
        step=1,
        turn=Turn("b", "phase", 3, {"max_edits": 4, "text": TEXT}),
        incumbent="seed",
        rollouts_at=12,
        t=2.5,
    ),
    Proposed(step=0, reply=Proposal(EDITS, TEXT, ("a", "b"), True), spend=_SPEND, t=3.0),
    Proposed(step=1, reply=Note(TEXT, "topic"), t=3.0),
    StepClosed(
        step=0,
        candidate="candidate",
        incumbent="seed",
        reports=(
            EditReport(EDITS[0], "applied", splice=Splice("a", 3, "old", TEXT)),
            EditReport(EDITS[4], "applied", splice=Splice("b/c", 0, "", HALF, creates=True)),
            EditReport(EDITS[2], "target missing", "not in `a`"),
        ),
        verdict=Verdict("keep", TEXT, best=True, numbers={"gain": 0.1}),
        evaluations=(_EVALUATION,),
        spend=_SPEND,
        rollouts=(0, 99),
        t=4.0,
    ),
    StepOpened(step=2, turn=Turn("a"), incumbent="candidate", rollouts_at=99, t=5.0),
    Proposed(step=2, reply=Skip("no more", exhausted=True), t=6.0),
    StepOpened(step=3, turn=Turn("a"), incumbent="candidate", rollouts_at=99, t=5.0),
    Proposed(step=3, reply=ProposerFailed(REFUSED), t=6.0),
    Proposed(step=4, reply=Prove(), t=6.0),
    Proposed(step=5, reply=Claim(), t=6.0),
    Proposed(step=6, reply=Measure(), t=6.0),
    StepClosed(
        step=1,
        candidate=None,
        incumbent="candidate",
        reports=(),
        verdict=Verdict("skip", "a note was taken", code="note"),
        evaluations=(),
        spend=Spend(),
        rollouts=(12, 99),
        t=7.0,
    ),
    StepClosed(
        step=2,
        candidate=None,
        incumbent="candidate",
        reports=(),
        verdict=Verdict("skip", "given up: no call fits", code="unaffordable"),
        evaluations=(),
        spend=Spend(),
        rollouts=(12, 99),
        given_up=StopReason("usd", "no call fits"),
        dearest=Dearest(0.5),
        t=7.0,
    ),
    RunStopped(reason=StopReason("interrupted", "stopped on request"), t=8.0),
    RunResumed(version="1.2.4", t=9.0),
)
"""At least one event of every kind, with at least one of every edit and reply."""
