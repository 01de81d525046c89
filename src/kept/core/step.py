"""A step: while it is open, and what is remembered of it when it has closed."""

from dataclasses import replace
from typing import NamedTuple

from kept.core.alpha import Ledger
from kept.core.budget import NOTHING, Spend
from kept.core.event import StepClosed
from kept.core.proposal import ClosedStep, Proposal, Reply, Skip, Turn


class OpenStep(NamedTuple):
    """A step without a verdict."""

    step: int
    turn: Turn
    incumbent: str
    """What it is judged against: moves on when an earlier step is kept."""
    rollouts_at: int
    rebases: int = 0
    reply: Reply | None = None
    """None while the proposer is at work."""
    spend: Spend = NOTHING
    ledger: Ledger = Ledger()
    """As it was when this step was given its level; nothing that is open is in it. That
    repeats differ, however, is told to every open step as soon as it is known."""


def closed_step(step: OpenStep, event: StepClosed, alone: bool) -> ClosedStep:
    """What a step came to; `alone` where there is one case, which everyone may see."""
    own = [e for e in event.evaluations if e.candidate == event.candidate]
    mine = {e.purpose: e.loss for e in own}
    verdict = event.verdict
    if verdict.private and not alone:
        # the state is what briefs are made of, and a deciding case is not for proposers
        verdict = replace(verdict, private="")
    return ClosedStep(
        step=step.step,
        turn=step.turn,
        incumbent=event.incumbent,
        candidate=event.candidate,
        proposal=step.reply if isinstance(step.reply, Proposal) else None,
        reports=event.reports,
        verdict=verdict,
        loss=mine.get("decide", mine.get("measure", mine.get("promote"))),
        rollouts=sum([e.asked for e in own]),
        usd=sum([e.usd for e in own]) + step.spend.usd,
        skip=step.reply if isinstance(step.reply, Skip) else None,
    )


def screened(event: StepClosed) -> tuple[tuple[str, float], ...]:
    """The mean loss of its candidate on each train case that it was screened on."""
    mine = (e for e in event.evaluations if e.candidate == event.candidate)
    shown = next((e for e in mine if e.purpose == "screen"), None)
    return () if shown is None else tuple((case, t.mean) for case, t in shown.cases.items())
