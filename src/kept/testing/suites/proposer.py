"""What every proposer must do, however it comes by its edits."""

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
"""Asks in a row after which a proposer counts as never answering."""


class ProposerSuite:
    """Subclass it and make a proposer."""

    steps = 6
    """Briefs that each test goes through."""

    def make_proposer(self) -> Proposer:
        """A proposer to test; every call makes a fresh one."""
        raise NotImplementedError

    def incumbent(self) -> Candidate:
        """What is to be improved."""
        return Candidate({"text": "a seed\n"})

    def rules(self) -> Rules:
        """What may be edited."""
        return Rules({path: Artifact(path) for path in self.incumbent().texts})

    def closed(self, step: int) -> tuple[ClosedStep, ...]:
        """What the steps before this one came to."""
        return ()

    def outcome(self, pair: Pair) -> Outcome:
        """What a rollout that it asks for brings."""
        return Outcome({"score": float(pair.repeat % 2)})

    def brief(self, step: int = 0) -> Brief:
        """The brief of one step, the same whenever it is asked for."""
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
        """The loop finds it by the one and waits by the other."""
        proposer = self.make_proposer()
        assert proposer.name, "a proposer has a name"
        assert type(proposer.serial) is bool, "serial is yes or no"

    def test_the_same_brief_gets_the_same_reply(self) -> None:
        """It remembers nothing between calls, and draws by the brief's seed alone."""
        proposer = self.make_proposer()
        for step in range(self.steps):
            first = self._reply(proposer, self.brief(step))
            assert self._reply(proposer, self.brief(step)) == first, f"step {step}: two replies"

    def test_a_fresh_one_says_what_a_used_one_says(self) -> None:
        """Whatever it caches, a resumed run starts without."""
        used = self.make_proposer()
        for step in range(self.steps):
            reply = self._reply(used, self.brief(step))
            fresh = self._reply(self.make_proposer(), self.brief(step))
            assert fresh == reply, f"step {step}: {reply}, but a fresh one: {fresh}"

    def test_the_order_of_the_steps_does_not_matter(self) -> None:
        """Steps are open side by side, and may be asked for in any order."""
        there, back = self.make_proposer(), self.make_proposer()
        steps = range(self.steps)
        forward = {step: self._reply(there, self.brief(step)) for step in steps}
        backward = {step: self._reply(back, self.brief(step)) for step in reversed(steps)}
        assert forward == backward

    def test_edits_stay_in_scope_or_are_reported(self) -> None:
        """A proposal can be applied, and every edit of it has a fate."""
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
        """Others are briefed from the same state."""
        brief, same = self.brief(), self.brief()
        self._reply(self.make_proposer(), brief)
        assert brief == same, "the proposer changed its brief"
        # candidates are equal by their ids, which were made before anything could be changed
        assert dict(brief.incumbent.texts) == dict(same.incumbent.texts), "it changed a text"

    def _reply(self, proposer: Proposer, brief: Brief) -> ProposerReply:
        """What it answers in the end, with every Ask answered on the way."""
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
