"""Limits of a run, and what it has used of them.

An Ask is issued only if its worst case fits what is left. Running out is a reason to stop, never an
error.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from kept.core.text import are, count

StopKind = Literal[
    "iterations",
    "failures",
    "minutes",
    "usd",
    "rollouts",
    "nothing left to propose",
    "converged",
    "interrupted",
    "error",
]


@dataclass(frozen=True, slots=True)
class StopReason:
    """Reason why a run opens no more steps."""

    kind: StopKind
    message: str

    @property
    def resumable(self) -> bool:
        """True if the run was cut short rather than finished."""
        return self.kind in ("interrupted", "error")


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run; None is no limit."""

    max_iterations: int | None = None
    """Steps opened."""
    max_failures: int | None = None
    """Steps closed as `crash`."""
    max_minutes: float | None = None
    """Wall time, summed over the sittings of a resumed run."""
    max_usd: float | None = None
    max_rollouts: int | None = None
    max_rollouts_usd: float | None = None
    """Limit on the cost of all rollouts, where proposers have limits of their own.

    Kept's own, for readings of a refinement, which pay for each call: nobody may ask for it.
    """

    @property
    def rollouts_usd(self) -> float | None:
        """Smallest limit on the cost of all rollouts; None without any."""
        limits = [one for one in (self.max_usd, self.max_rollouts_usd) if one is not None]
        return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class Spend:
    """Rollouts, tokens and money that were used."""

    rollouts: int = 0
    """Those with an answer: what infrastructure failed is asked for again."""
    moot: int = 0
    """Of the rollouts, those a verdict made useless before it could use them."""
    cancelled: int = 0
    """Rollouts stopped in flight because a verdict made them useless; not among the rollouts."""
    retries: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    """Time spent inside rollouts, summed over workers."""
    proposing_usd: float = 0.0
    """Of the dollars, what proposers used."""

    @property
    def usd_a_rollout(self) -> float | None:
        """The mean; None while nothing is known."""
        return (self.usd - self.proposing_usd) / self.rollouts if self.rollouts else None

    def __add__(self, other: "Spend") -> "Spend":
        """Both together."""
        if other is NOTHING:
            return self
        return Spend(
            self.rollouts + other.rollouts,
            self.moot + other.moot,
            self.cancelled + other.cancelled,
            self.retries + other.retries,
            self.calls + other.calls,
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.usd + other.usd,
            self.seconds + other.seconds,
            self.proposing_usd + other.proposing_usd,
        )


NOTHING = Spend()


@dataclass(frozen=True, slots=True)
class Dearest:
    """The most that a call cost of which nobody could tell before; None while there was none."""

    proposing: float | None = None
    """Of the calls of proposers."""
    rollout: float | None = None
    """Of those inside rollouts."""

    def learn(self, usd: float, *, proposing: bool) -> "Dearest":
        """With one more such call."""
        if proposing:
            return Dearest(max(self.proposing or 0.0, usd), self.rollout)
        return Dearest(self.proposing, max(self.rollout or 0.0, usd))


NO_CALL = Dearest()

END_PART, MOST_END = 0.25, 0.6
"""Share of a budget that its end may take, of an ordinary and of a very small one."""


class Reservation(NamedTuple):
    """The worst case of something about to be started, or what was used of what it limits."""

    rollouts: int = 0
    usd: float = 0.0


def rollouts_within(budget: Budget, worst_usd: float) -> int | None:
    """Rollouts that a budget comes to, by number or by money; None where neither is limited."""
    limits = [] if budget.max_rollouts is None else [budget.max_rollouts]
    if budget.max_usd is not None and worst_usd:
        limits.append(int(budget.max_usd / worst_usd))
    return min(limits, default=None)


@dataclass(frozen=True, slots=True)
class EndMoney:
    """Cost of the end of a run, where the price of a rollout is learnt on the way."""

    max_usd: float
    rollouts: int
    """All that are set aside for the end."""
    least: int = 0
    """Of them, those without which there is none."""
    apart: bool = False
    """True if it is for rollouts alone, and proposers have limits of their own."""

    def aside(self, rollouts: int, each: float | None, least: int | None = None) -> float:
        """Dollars for so many of them at this price, but never too large a share of all.

        Without the least of them the others are for nothing: they may have a larger share.
        """
        share = END_PART * self.max_usd * rollouts / self.rollouts if self.rollouts else 0.0
        if each is None:
            return share
        # with some to spare: what is left is counted with care, and the mean moves
        needed = (self.least if least is None else least) * each / CARE**2
        few = min(MOST_END * self.max_usd, needed)
        return max(min(share, rollouts * each), few)

    def left(self, spend: Spend, aside: float = 0.0) -> int | None:
        """Rollouts that there is money for besides; None where they have no price so far."""
        each = spend.usd_a_rollout
        used = spend.usd - (spend.proposing_usd if self.apart else 0.0)
        return int(CARE * (self.max_usd - used - aside) / each) if each else None


CARE = 0.9
"""Of what a mean promises, what is counted on."""


def out_of_time(budget: Budget, elapsed: float) -> StopReason | None:
    """Reason to begin nothing more after so many seconds; None while there is time."""
    if budget.max_minutes is None or elapsed < budget.max_minutes * 60:
        return None
    minutes = budget.max_minutes
    return StopReason("minutes", f"{count(minutes, 'minute')} {are(minutes)} used")


def refusal(
    budget: Budget,
    spent: Spend | Reservation,
    reserved: Reservation,
    worst: Reservation,
    aside: int = 0,
) -> StopReason | None:
    """Limit that this much more would break; None if it fits.

    Of the rollouts that are reserved, so many are set aside for the end of the run.
    """
    rollouts = spent.rollouts + reserved.rollouts + worst.rollouts
    if budget.max_rollouts is not None and rollouts > budget.max_rollouts:
        left = max(0, budget.max_rollouts - spent.rollouts - reserved.rollouts)
        more, do = count(worst.rollouts, "more rollout"), "does" if worst.rollouts == 1 else "do"
        words = f"{more} {do} not fit: {left} of {budget.max_rollouts} {are(left)} left"
        words += f", and {aside} are set aside for the end" if aside else ""
        return StopReason("rollouts", words)
    usd = spent.usd + reserved.usd + worst.usd
    # a hair of tolerance: sums of cents in floating point must not refuse the last fitting call
    if budget.max_usd is not None and usd > budget.max_usd + 1e-9:
        left = budget.max_usd - spent.usd - reserved.usd
        return StopReason(
            "usd",
            f"up to ${worst.usd:.4f} more does not fit: ${max(0.0, left):.4f} of "
            f"${budget.max_usd:.2f} is left",
        )
    return None
