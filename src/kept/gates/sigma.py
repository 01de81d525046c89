"""The rule of the coordinate optimizer: a gain on train beyond measured noise, no loss on holdout.

Each side is swept `repeats` times; the bar is `accept_sigma` pooled standard deviations of sweep
means. Exact to its source, but for one thing: with no spread at all the bar is zero, and a tie is
still not a keep.
"""

from dataclasses import dataclass
from math import sqrt
from typing import Literal, NamedTuple

from kept.core.proposal import Ask
from kept.core.score import Evaluation
from kept.core.verdict import Verdict, View
from kept.gates._common import (
    MIN_COVERAGE,
    asks_for,
    forbidden,
    losses,
    measured,
    not_comparable,
    say_coverage,
)

EVEN = 1e-9
"""Means that differ by no more are the same: sums of thirds do not come out even."""


def clears(gain: float, bar: float) -> bool:
    """True if a train gain is above zero and reaches the bar."""
    return gain > EVEN and gain >= bar - EVEN


def within(regression: float, bar: float) -> bool:
    """True if a loss on holdout is within the noise."""
    return regression <= bar + EVEN


HoldoutPolicy = Literal["on_train_improve", "every_trial", "skip"]


@dataclass(frozen=True, slots=True)
class Sigma:
    """Keep what clears the noise on train and stays within it on holdout."""

    repeats: int = 3
    accept_sigma: float = 1.0
    holdout_policy: HoldoutPolicy = "on_train_improve"
    max_errored: float = 1 - MIN_COVERAGE
    """Share of rollouts that infrastructure may have failed: above it nothing is kept."""
    min_gain: float = 0.0
    """Smallest gain to accept, however little noise there is."""
    name: str = "sigma"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Train first; holdout only where the policy pays for it."""
        answer = self._decide(view)
        return say_coverage(answer, view) if isinstance(answer, Verdict) else answer

    def _decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        sides = (view.incumbent, view.challenger)
        asks = asks_for(sides, view.train, self.repeats, "screen")
        if self.holdout_policy == "every_trial":
            asks += asks_for(sides, view.holdout, self.repeats, "decide")
        if asks:
            return asks
        old, new = view.incumbent.known["screen"], view.challenger.known["screen"]
        if verdict := not_comparable(new, old, least=1 - self.max_errored):
            return verdict
        if verdict := forbidden(new, view.objective):
            return verdict
        if not old.repeats:
            why = "the incumbent fails; the challenger runs"
            return Verdict("keep", why, private=old.first_failure, best=True)
        train = self._train(view)
        if not clears(train["gain"], train["noise_bar"]):
            how = "is below" if train["gain"] > EVEN else "does not exceed zero, let alone"
            reason = f"train gain {train['gain']:.6g} {how} the noise bar {train['noise_bar']:.6g}"
            return Verdict("discard", reason, numbers=train)
        if self.holdout_policy == "skip":
            reason = (
                f"train gain {train['gain']:.6g} clears {train['noise_bar']:.6g}; holdout not read"
            )
            return Verdict("keep", reason, best=True, numbers=train)
        if asks := asks_for(sides, view.holdout, self.repeats, "decide"):
            return asks
        return self._holdout(view, train)

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed by itself: what the first trial is held against, and needs anyway."""
        side = (view.challenger,)
        asks = asks_for(side, view.train, self.repeats, "screen")
        if self.holdout_policy != "skip":
            asks += asks_for(side, view.holdout, self.repeats, "decide")
        return asks or measured(view)

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds: the challenger's, as the incumbent's are known."""
        return self.repeats * (train + (0 if self.holdout_policy == "skip" else holdout))

    def _train(self, view: View) -> dict[str, float]:
        old, new = view.incumbent.known["screen"], view.challenger.known["screen"]
        (old_mean, old_std), (new_mean, new_std) = both_sweeps(old, new, view.objective.worst_loss)
        return {
            "train_before": old_mean,
            "train": new_mean,
            "train_std": new_std,
            "repeats": float(len(new.repeats)),
            "gain": old_mean - new_mean,
            "pooled_std": (pooled := sqrt(new_std**2 + old_std**2)),
            "accept_sigma": self.accept_sigma,
            "noise_bar": max(self.min_gain, self.accept_sigma * pooled),
        }

    def _holdout(self, view: View, train: dict[str, float]) -> Verdict:
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        if verdict := not_comparable(new, old, least=1 - self.max_errored):
            return verdict
        if not old.repeats:
            why = "the incumbent fails on holdout; the challenger runs"
            return Verdict("keep", why, private=old.first_failure, best=True, numbers=train)
        (old_mean, old_std), (new_mean, new_std) = both_sweeps(old, new, view.objective.worst_loss)
        bar = self.accept_sigma * sqrt(new_std**2 + old_std**2)
        regression = new_mean - old_mean
        numbers = {
            **train,
            "holdout_before": old_mean,
            "holdout": new_mean,
            "holdout_regression": regression,
            "holdout_noise_bar": bar,
        }
        gained = f"train gain {train['gain']:.6g} clears the noise bar {train['noise_bar']:.6g}"
        if not within(regression, bar):
            reason = f"{gained}, but holdout lost {regression:.6g}, beyond its noise {bar:.6g}"
            return Verdict("discard", reason, numbers=numbers)
        moved = "lost nothing"
        if regression > EVEN:
            moved = f"lost {regression:.6g}, within its noise {bar:.6g}"
        elif regression < -EVEN:
            moved = f"gained {-regression:.6g}"
        return Verdict("keep", f"{gained}; holdout {moved}", best=True, numbers=numbers)


class Sweeps(NamedTuple):
    """Mean and population standard deviation of the sweep means."""

    mean: float
    std: float


def both_sweeps(old: Evaluation, new: Evaluation, worst: float | None) -> tuple[Sweeps, Sweeps]:
    """The sweeps of both sides; where answers are missing, means over the cases both have."""
    before, after = sweeps(old, worst), sweeps(new, worst)
    now, was = losses(new, old)
    if not (old.missing or new.missing) or now is None or was is None:
        return before, after
    return Sweeps(was, before.std), Sweeps(now, after.std)


def sweeps(evaluation: Evaluation, worst: float | None) -> Sweeps:
    """One side's sweeps; those that infrastructure failures emptied are left out.

    A failure enters at the worst value, which may even out the sweeps and so lower the bar. It must
    not help, so the spread is never less than that of the draws that did not fail.
    """
    tallies = [tally for tally in evaluation.repeats.values() if tally.n]
    mean, std = _spread([tally.mean for tally in tallies])
    if evaluation.failed and worst is not None:
        ran = [
            (tally.total - tally.failed * worst) / (tally.n - tally.failed)
            for tally in tallies
            if tally.n > tally.failed
        ]
        std = max(std, _spread(ran).std) if ran else std
    return Sweeps(mean, std)


def _spread(means: list[float]) -> Sweeps:
    mean = sum(means) / len(means)
    return Sweeps(mean, sqrt(sum((m - mean) ** 2 for m in means) / len(means)))
