"""Shared parts of gates: passes, coverage, constraints, tie-breakers, seed and sealed test.

The sealed test compares the best with the seed on cases that no decision used. It gives one
paired interval with the case as unit, whichever gate decided before.

Tie-breakers keep a candidate that is as good and costs less. Equality of two texts cannot be
shown, so a tie is a loss of at most a margin, as in `gates/simplify.py`. Tie-breakers are
compared case by case, and count only if the difference exceeds chance. The first that differs
decides.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

from kept.core.objective import Objective, TieBreaker
from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.score import Answers, Evaluation, check_constraints
from kept.core.text import count
from kept.core.verdict import FOLLOWED, Side, Verdict, VerdictCode, View
from kept.gates._pairs import draws, missing_asks
from kept.gates._statistics import Interval, case_gains, interval, risk_of

_NAMES: tuple[tuple[Purpose, str], ...] = (("screen", "train"), ("decide", "holdout"))


def measured(view: View) -> Verdict:
    """Its losses on train and on holdout, where they were asked for."""
    numbers: dict[str, float] = {}
    told: list[str] = []
    failure = ""
    for purpose, name in _NAMES:
        known = view.challenger.known.get(purpose)
        if known is None:
            continue
        failure = failure or known.first_failure
        if known.loss is None:
            told.append(f"no score on {name}")
        else:
            numbers[name] = known.loss
            told.append(f"{name} {view.objective.value(known.loss):.6g}")
    return Verdict("skip", ", ".join(told), "measured", numbers=numbers, private=failure)


NO_NUMBERS: Mapping[str, float] = {}

MIN_COVERAGE = 0.9
"""Below this share of answers, infrastructure failures leave a comparison undecided."""


@lru_cache(maxsize=64)
def passes(cases: tuple[str, ...], repeats: int) -> tuple[Pair, ...]:
    """Every case, `repeats` times over."""
    return tuple(Pair(case, repeat) for repeat in range(repeats) for case in cases)


def asks_for(
    sides: tuple[Side, ...], cases: tuple[str, ...], repeats: int, purpose: Purpose
) -> tuple[Ask, ...]:
    """The passes that are not known yet, each candidate once."""
    missing = {side.id: side for side in sides if purpose not in side.known}
    return tuple(Ask(id_, passes(cases, repeats), purpose) for id_ in missing)


def unanswered(
    challenger: Evaluation,
    other: Evaluation,
    name: str = "incumbent",
    least: float = MIN_COVERAGE,
) -> Verdict | None:
    """The verdict where an outage took too many answers of either side; None where it did not."""
    for who, evaluation in (("challenger", challenger), (name, other)):
        if evaluation.coverage < least:
            return Verdict(
                "skip",
                f"cannot tell: {evaluation.missing} of {evaluation.asked} rollouts of the {who} "
                f"{'has' if evaluation.missing == 1 else 'have'} no answer",
                private=evaluation.first_failure,
                code="indecisive",
            )
    return None


def not_comparable(
    challenger: Evaluation,
    other: Evaluation,
    name: str = "incumbent",
    least: float = MIN_COVERAGE,
) -> Verdict | None:
    """The verdict on a challenger that cannot be compared with another; None when it can."""
    if verdict := unanswered(challenger, other, name, least):
        return verdict
    if challenger.failed and challenger.failed + challenger.missing == challenger.asked:
        return Verdict("crash", "every rollout failed", private=challenger.first_failure)
    if other.unscored and other.failed + other.missing < other.asked:
        return Verdict(
            "skip",
            f"cannot tell: {other.unscored} of {other.asked} rollouts of the {name} failed and the "
            "metric has no declared bounds to count them by",
            code="unscored",
        )
    if challenger.unscored:
        return Verdict(
            "skip",
            f"{challenger.unscored} of {challenger.asked} rollouts failed and the metric has no "
            "declared bounds to count them by",
            private=challenger.first_failure,
            code="unscored",
        )
    return None


def say_coverage(verdict: Verdict, view: View, other: Side | None = None) -> Verdict:
    """The verdict, with the share of the cases that it rests on where that is not all of them."""
    if verdict.code not in ("judged", FOLLOWED) or verdict.outcome == "crash":
        return verdict
    sides = (view.challenger, other or view.incumbent)
    if not any(shown.missing for side in sides for shown in side.known.values()):
        return verdict
    told: list[str] = []
    splits: tuple[tuple[Purpose, tuple[str, ...], str], ...] = (
        ("screen", view.train, "train cases"),
        ("decide", view.holdout, "cases"),
    )
    for purpose, cases, name in splits:
        new, old = (side.known.get(purpose) for side in sides)
        if new is None or old is None or not (new.missing or old.missing):
            continue
        # a rival that fails everywhere has no case in common with anybody
        both = sum(case in old.cases for case in new.cases) if old.cases else len(new.cases)
        rollouts = f"without {new.missing + old.missing} of {new.asked + old.asked} rollouts"
        told.append(f"on {both} of {len(cases)} {name}" if both < len(cases) else rollouts)
    return replace(verdict, reason=", ".join([verdict.reason, *told])) if told else verdict


def broken_constraint(evaluation: Evaluation, objective: Objective) -> str | None:
    """The first constraint that does not hold, in words."""
    checked = check_constraints(evaluation, objective)
    return next((str(one) for one in checked if not one.holds), None)


def forbidden(
    challenger: Evaluation, objective: Objective, numbers: Mapping[str, float] = NO_NUMBERS
) -> Verdict | None:
    """The verdict on a challenger that breaks a constraint; None when it breaks none."""
    broken = broken_constraint(challenger, objective)
    if broken is None:
        return None
    # it is none of those that a proof will choose the best among
    shown = {name: number for name, number in numbers.items() if name != "chosen"}
    return Verdict("discard", f"constraint broken: {broken}", code="constraint", numbers=shown)


class Losses(NamedTuple):
    """Both sides of a comparison; None where a failure has no value to enter by."""

    challenger: float | None
    other: float | None


def losses(challenger: Evaluation, other: Evaluation) -> Losses:
    """The loss of each side over the cases that both have answers for.

    An outage that hides a hard case from one side must not make that side look better.
    """
    sides = (challenger, other)
    if not (challenger.missing or other.missing) or not other.cases:
        return Losses(*(None if side.unscored else side.loss for side in sides))
    common = [case for case in challenger.cases if case in other.cases]
    means = (sum(side.cases[case].mean for case in common) for side in sides)
    return Losses(
        *(
            None if side.unscored or not common else mean / len(common)
            for side, mean in zip(sides, means, strict=True)
        )
    )


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


SCREEN_RISK = 0.01
"""On train cases: a race for a tie costs as much as any, and few proposals are made for one."""


TIE = "tie"
"""Among the numbers of a verdict: it was raced for its tie-breakers."""


class Difference(NamedTuple):
    """A tie-breaker by which two sides differ beyond chance."""

    breaker: TieBreaker
    better: bool
    was: float
    now: float
    by: Interval
    """Of what is better, above 0."""

    def __str__(self) -> str:
        shown = f"`{self.breaker.metric}` {self.was:.4g} → {self.now:.4g}"
        if not self.by.ends:
            return shown
        low, high = sorted((-self.by.low, -self.by.high))
        if self.breaker.prefer == "higher":
            low, high = self.by.low, self.by.high
        return f"{shown} ({low:+.3g} … {high:+.3g})"


def difference(view: View, purpose: Purpose, other: Side, risk: float) -> Difference | None:
    """The first tie-breaker by which the challenger differs from another; None where none does.

    On the pairs that both sides measured: what failed is not a cheap answer.
    """
    mine, theirs = view.challenger.ties.get(purpose, ()), other.ties.get(purpose, ())
    for breaker, new, old in zip(view.objective.tie_breakers, mine, theirs, strict=False):
        both = new.keys() & old.keys()
        now = Answers({pair: value for pair, value in new.items() if pair in both}).by_case
        was = Answers({pair: value for pair, value in old.items() if pair in both}).by_case
        sign = 1.0 if breaker.prefer == "lower" else -1.0
        gains = [sign * (was[case] - value) for case, value in now.items()]
        for better in (True, False):
            if risk_of(gains if better else [-gain for gain in gains]) <= risk:
                before, after = (sum(side.values()) / len(side) for side in (was, now))
                return Difference(breaker, better, before, after, interval(gains, None))
    return None
