"""The claim: by how much the best beats the seed, on cases that nothing was tuned on.

One paired interval with the case as its unit, whichever gate decided before.
"""

from dataclasses import replace
from math import isfinite

from kept.core.proposal import Ask
from kept.core.verdict import Verdict, VerdictCode, View
from kept.core.words import count
from kept.gates._pairs import draws, missing_asks
from kept.gates.case_level import Interval, case_gains, interval
from kept.gates.common import not_comparable


def claimed(view: View, passes: int) -> Verdict | tuple[Ask, ...]:
    """The gain of the challenger on the sealed test, in so many passes at most."""
    passes = 1 if view.still else min(passes, view.passes or passes)
    pairs = draws(view.test, passes * len(view.test), 0)
    if asks := missing_asks(((view.incumbent, pairs), (view.challenger, pairs)), "test"):
        return asks
    new, old = view.challenger.known["test"], view.incumbent.known["test"]
    if verdict := not_comparable(new, old, "seed"):
        return not_measured(verdict, "claim")
    found = case_gains(view, "test", view.incumbent)
    shown = interval(found, view.objective.scale)
    words = f"on {count(len(found), 'case')} that nothing was tuned on: {shown}"
    return Verdict("skip", words, code="claim", numbers=interval_figures(shown))


def not_measured(verdict: Verdict, code: VerdictCode) -> Verdict:
    """An outage leaves the question open; what fails by itself is an answer."""
    return verdict if verdict.code == "indecisive" else replace(verdict, outcome="skip", code=code)


def interval_figures(shown: Interval, chance: float = 0.0, risk: float = 0.0) -> dict[str, float]:
    """A gain with its interval, for a verdict."""
    figures = {"gain": shown.mean, "low": shown.low, "high": shown.high}
    figures |= {"p": chance, "alpha_promote": risk} if risk else {}
    # some have no interval, and JSON no word for what has no end
    return {name: value for name, value in figures.items() if isfinite(value)}
