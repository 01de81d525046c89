"""Briefs and replies, for proposers of every kind."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.edit import apply_edits
from kept.core.objective import Objective
from kept.core.ports import Proposer
from kept.core.proposal import (
    Brief,
    ClosedStep,
    History,
    Proposal,
    ProposerReply,
    Turn,
    derive_seed,
)
from kept.core.verdict import Verdict
from kept.engine.replay import JournalScope
from kept.testing import MemoryJournal

TIED = Verdict("discard", "tied")
GOLDEN = Path(__file__).parent / "golden"


def make_brief(
    texts: Mapping[str, str],
    step: int = 0,
    past: Sequence[ClosedStep] = (),
    train: tuple[Case, ...] = (IMPLICIT_CASE,),
    name: str = "",
) -> Brief:
    return Brief(
        step=step,
        turn=Turn(name, number=step),
        seed=derive_seed(0, "main", step),
        incumbent=Candidate(texts),
        history=History(past),
        open=(),
        train=train,
        memory=(),
        rules=Rules({path: Artifact(path) for path in texts}),
        objective=Objective(),
    )


def ask(proposer: Proposer, brief: Brief, journal: MemoryJournal | None = None) -> ProposerReply:
    scope = JournalScope(journal or MemoryJournal(), f"propose/{brief.step}")
    return asyncio.run(proposer.propose(brief, scope))


def after(brief: Brief, proposal: Proposal) -> Mapping[str, str]:
    applied = apply_edits(brief.incumbent, proposal.edits, brief.rules)
    assert applied.complete, applied.reports
    return applied.candidate.texts


def close(brief: Brief, proposal: Proposal, verdict: Verdict = TIED) -> ClosedStep:
    turn = brief.turn
    return ClosedStep(brief.step, turn, brief.incumbent.id, "c", proposal, (), verdict)


def run_dry(proposer: Proposer, texts: Mapping[str, str], train: tuple[Case, ...], most: int = 500):
    """Every proposal of a run in which nothing is kept, and the reply that ended it."""
    past: list[ClosedStep] = []
    found: list[Proposal] = []
    for step in range(most):
        brief = make_brief(texts, step, past, train, proposer.name)
        reply = ask(proposer, brief)
        if not isinstance(reply, Proposal):
            return found, reply
        found.append(reply)
        past.append(close(brief, reply))
    return found, None


def check_golden(told: str, name: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if not file.exists():
        GOLDEN.mkdir(exist_ok=True)
        file.write_text(told)
        pytest.fail(f"{file} was not there: read it, and commit it")
    assert told == file.read_text()
