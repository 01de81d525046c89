"""Conformance suite for proposers."""

import asyncio
from dataclasses import replace

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import Case
from kept.core.edit import apply_edits
from kept.core.objective import Objective
from kept.core.ports import Proposer
from kept.core.proposal import (
    Answer,
    Ask,
    Brief,
    ClosedStep,
    History,
    Note,
    Proposal,
    ProposerReply,
    Skip,
    Turn,
    derive_seed,
)
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Outcome
from kept.engine.replay import JournalScope
from kept.testing.journal import MemoryJournal

ROUNDS = 20
"""Requests in a row after which a proposer counts as never answering."""


class ProposerSuite:
    """Subclass it and make a proposer."""

    steps = 6
    """Number of briefs per test."""

    def make_proposer(self) -> Proposer:
        """A proposer to test; every call makes a fresh one."""
        raise NotImplementedError

    def incumbent(self) -> Candidate:
        """Candidate to improve."""
        return Candidate({"text": "a seed\n"})

    def rules(self) -> Rules:
        """Rules for edits."""
        return Rules({path: Artifact(path) for path in self.incumbent().texts})

    def closed(self, step: int) -> tuple[ClosedStep, ...]:
        """Results of the steps before this one."""
        return ()

    def outcome(self, pair: Pair) -> Outcome:
        """Outcome of a rollout that the proposer requests."""
        return Outcome({"score": float(pair.repeat % 2)})

    def brief(self, step: int = 0) -> Brief:
        """Brief of one step; the same on every call."""
        return Brief(
            step=step,
            turn=Turn(self.make_proposer().name, number=step),
            seed=derive_seed(0, "main", step),
            incumbent=self.incumbent(),
            history=History(self.closed(step)),
            open=(),
            train=(Case("a", "1 + 1"), Case("b", "2 + 2")),
            memory=(Note("look at the units"),),
            rules=self.rules(),
            objective=Objective(bounds=(0.0, 1.0)),
        )

    def test_it_has_a_name_and_says_whether_it_is_serial(self) -> None:
        """The loop uses the name, and waits for serial proposers."""
        proposer = self.make_proposer()
        assert proposer.name, "a proposer has a name"
        assert type(proposer.serial) is bool, "serial is yes or no"

    def test_the_same_brief_gets_the_same_reply(self) -> None:
        """A proposer keeps no state between calls, and only the brief's seed decides at random."""
        proposer = self.make_proposer()
        for step in range(self.steps):
            first = self._reply(proposer, self.brief(step))
            assert self._reply(proposer, self.brief(step)) == first, f"step {step}: two replies"

    def test_a_fresh_one_says_what_a_used_one_says(self) -> None:
        """A resumed run starts without any cache of the proposer."""
        used = self.make_proposer()
        for step in range(self.steps):
            reply = self._reply(used, self.brief(step))
            fresh = self._reply(self.make_proposer(), self.brief(step))
            assert fresh == reply, f"step {step}: {reply}, but a fresh one: {fresh}"

    def test_the_order_of_the_steps_does_not_matter(self) -> None:
        """Steps are open concurrently, and may be called in any order."""
        there, back = self.make_proposer(), self.make_proposer()
        steps = range(self.steps)
        forward = {step: self._reply(there, self.brief(step)) for step in steps}
        backward = {step: self._reply(back, self.brief(step)) for step in reversed(steps)}
        assert forward == backward

    def test_edits_stay_in_scope_or_are_reported(self) -> None:
        """A proposal can be applied, and every edit of it is reported."""
        for step in range(self.steps):
            reply, brief = self._reply(self.make_proposer(), self.brief(step)), self.brief(step)
            if isinstance(reply, Proposal):
                applied = apply_edits(brief.incumbent, reply.edits, brief.rules)
                assert len(applied.reports) == len(reply.edits)
                for report in applied.reports:
                    assert report.fate == "applied" or report.detail, f"no word on {report.edit}"
                strangers = applied.candidate.texts.keys() - brief.incumbent.texts.keys()
                assert all(brief.rules.allows(path) for path in strangers), strangers

    def test_the_brief_stays_as_it_is(self) -> None:
        """The brief shares its state with other briefs, so a proposer must not change it."""
        brief, same = self.brief(), self.brief()
        self._reply(self.make_proposer(), brief)
        assert brief == same, "the proposer changed its brief"
        # candidates compare by id, and the id was computed before a text could be changed
        assert dict(brief.incumbent.texts) == dict(same.incumbent.texts), "it changed a text"

    def _reply(self, proposer: Proposer, brief: Brief) -> ProposerReply:
        """Final reply of the proposer, after all its requests have been answered."""
        journal = MemoryJournal()
        train = {case.id for case in brief.train}
        for _ in range(ROUNDS):
            scope = JournalScope(journal, f"propose/{brief.step}")
            reply = asyncio.run(proposer.propose(brief, scope))
            if not isinstance(reply, Ask):
                assert isinstance(reply, Proposal | Note | Skip | Failure), f"no reply: {reply}"
                return reply
            assert reply.purpose in ("feedback", "probe"), f"`{reply.purpose}` is not for it"
            assert all(pair.case in train for pair in reply.pairs), "it may see train cases only"
            brief = replace(brief, answers=(*brief.answers, self._answer(reply)))
        raise AssertionError(f"`{proposer.name}` asked {ROUNDS} times and never answered")

    def _answer(self, ask: Ask) -> Answer:
        outcomes = {pair: self.outcome(pair) for pair in ask.pairs}
        traces = {pair: (TraceItem("info", f"about {pair.case}"),) for pair in ask.pairs}
        return Answer(ask, outcomes, traces)
