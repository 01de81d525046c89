"""What several gates need: whole passes over a split, coverage, constraints."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from kept.core.objective import Objective
from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.score import Evaluation, check_constraints
from kept.core.verdict import FOLLOWED, Side, Verdict, View

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
