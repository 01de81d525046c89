"""The rule of a run without cases: one evaluation decides, unless repeats of it differ.

What runs first runs three times. While all repeats agree, one evaluation a side says all there is
to say, and the rule is `strict`. Of what is about to be kept, one more run must agree as well, to
the last digit, or four where a run only passes or fails. As soon as any repeat differs, runs are
compared in numbers: challenger and incumbent are run as often, and the bets on each difference are
valid however often one looks. Fresh runs for every incumbent: those that made it win are never its
bar.
"""

from dataclasses import dataclass, replace
from math import exp, log

from kept.core.alpha import level
from kept.core.proposal import Ask
from kept.core.rollout import Pair, Purpose
from kept.core.text import count
from kept.core.verdict import Side, Verdict, View
from kept.gates._common import forbidden, not_comparable, unanswered
from kept.gates._pairs import TENURE, draws, missing_asks
from kept.gates._statistics import agreeing, evidence, odds, risk_of
from kept.gates.seed_rules import Strict

VARIES = {"varies": 1.0}
"""The mark of a verdict from which on repeats are known to differ."""

CHECK: Purpose = "screen"
"""Purpose of the further runs while they agree: `strict` decides by the first run alone."""

ROUNDING = 1e-9
"""Less than this, against the score, is no difference."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Strict while repeats agree, a race over repeats when they do not."""

    alpha: float = 0.05
    """Chance that a run keeps anything that is not better, and share of its keeps that are not."""
    first: int = 3
    """Runs of the seed that must agree."""
    exact: int = 2
    """Runs that must agree to the last digit of what is about to be kept."""
    sure: int = 5
    """Runs that must agree where a run passes or fails, or agrees within the tolerance only: luck
    of both sides is one keep in a hundred runs of coins then; with two it is one in ten."""
    odd: float = 0.25
    """In a race by signs, what is a wreck in such a share of its runs, or more, is taken for sure
    with no more than the chance that a step may risk: so many pairs of runs there must be. Rarer
    wrecks are not seen in so few: of runs of six proposals that are all worse in the mean, by one
    wreck in eight, about a fifth keep one. Who fears such gives bounds, or a smaller share."""
    aim: float = 0.5
    """The gain that a race looks for, in standard deviations of one run."""
    patience: float = 1.0
    """A race ends when such a gain has become less likely than none by this much (natural log)."""
    most: int = 60
    """Runs of each side, at most."""
    name: str = "repeats"

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """By one run of each side, or by as many as it takes."""
        if not view.ledger.varies:
            told = self._strictly(view)
            if told is not None:
                return told
        return self._race(view)

    def most_asked(self, train: int, holdout: int) -> int:
        """Rollouts of both sides that one step comes to at most."""
        return 2 * self.most + self.first + self.sure

    def usual_asked(self, train: int, holdout: int, steps: int) -> int:
        """Rollouts of both sides where repeats agree, and none of so many proposals is better."""
        return self.first + steps

    def first_asked(self, train: int, holdout: int) -> int:
        """Rollouts of a challenger to begin with."""
        return 1

    def _strictly(self, view: View) -> Verdict | tuple[Ask, ...] | None:
        """Verdict of `strict` if all repeats agree; None if one differs."""
        tolerance = view.objective.tie_tolerance
        if any(differs(side, tolerance) for side in (view.incumbent, view.challenger)):
            return None
        told = Strict().decide(_first_runs(view))
        if not isinstance(told, Verdict) or told.outcome not in ("keep", "discard"):
            return told  # what cannot be compared by one run is not run again
        if view.objective.deterministic:
            return told
        exact = _is_exact(view.incumbent, view.challenger)
        # an incumbent that was kept has had its confirming run; the seed has had none
        again, often = (
            tuple(Pair(case, n) for n in range(1, runs) for case in view.holdout)
            for runs in (
                self.exact if exact and view.ledger.tenure else self.first,
                self.exact if exact else self.sure,
            )
        )
        sides = ((view.incumbent, again), (view.challenger, often))
        if asks := missing_asks(sides if told.outcome == "keep" else sides[:1], CHECK):
            return asks
        if told.outcome == "discard":
            return told
        # a run that an outage took agrees with nothing
        return unanswered(view.challenger.known[CHECK], view.incumbent.known[CHECK]) or told

    def _race(self, view: View) -> Verdict | tuple[Ask, ...]:
        tenure = view.ledger.tenure
        # runs of before it was known that they differ stand beside those of this time
        before = () if view.ledger.varies or not tenure else draws(view.holdout, 1, 0)
        for size in self._looks():
            pairs = (*before, *draws(view.holdout, size, tenure))
            sides = ((view.incumbent, pairs), (view.challenger, pairs))
            if asks := missing_asks(sides, "decide"):
                return asks
            if view.challenger.known["decide"].asked > len(pairs):
                continue  # looked at before
            if told := self._look(view, size):
                return replace(told, numbers={**told.numbers, **VARIES})
        raise AssertionError("the last look decides")

    def _looks(self) -> list[int]:
        """After how many runs of each side a race looks."""
        sizes = [self.first]
        while sizes[-1] < self.most:
            sizes.append(min(self.most, sizes[-1] + max(1, sizes[-1] // 5)))
        return sizes

    def _look(self, view: View, size: int) -> Verdict | None:
        """A verdict after so many runs of each side; None when more are needed."""
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        if verdict := not_comparable(new, old):
            return verdict
        start, objective = view.ledger.tenure * TENURE, view.objective
        # the loss of every run of this time, by its number
        was, now = (
            {n: tally.mean for n, tally in one.repeats.items() if n >= start} for one in (old, new)
        )
        if not was:
            return self._kept(view, "the incumbent fails; the challenger runs", {})
        both = [(was[n], now[n]) for n in now if n in was]
        if objective.scale is None:
            # how much better is not comparable, which is better is
            won = evidence(float((a > b) - (a < b)) for a, b in both)
        else:
            won = evidence(max(-1.0, min(1.0, (a - b) / objective.scale)) for a, b in both)
        risk = level(view.ledger, self.alpha)
        means = [sum(row.values()) / len(row) for row in (was, now)]
        values = [objective.value(mean) for mean in means]
        numbers = {
            "incumbent": values[0],
            "challenger": values[1],
            "gain": means[0] - means[1],
            "evidence": won,
            "alpha": risk,
            "challenger_rollouts": float(len(now)),
            "incumbent_rollouts": float(len(was)),
        }
        change = f"`{objective.metric}` {values[0]:.6g} → {values[1]:.6g}"
        rates = f"odds {odds(exp(min(won, 700)))} to 1, {odds(1 / risk)} needed"
        words = f"{change} in the mean of {count(size, 'run')} each, which differ: {rates}"
        if objective.scale is None:
            up, down = sum(a > b for a, b in both), sum(a < b for a, b in both)
            words += f" (sign test, {up} pairs of runs better, {down} worse)"
        if won >= -log(risk) and means[1] < means[0] and self._holds(view, both, risk):
            return self._kept(view, f"better: {words}", numbers)
        if self._hopeless([*was.values()], means[0] - means[1], len(now)):
            return Verdict("discard", f"not better: {words}", numbers=numbers)
        if size >= self.most:
            return Verdict("discard", f"cannot tell: {words}", numbers=numbers)
        return None

    def _holds(self, view: View, both: list[tuple[float, float]], risk: float) -> bool:
        """True if the mean is better too; checked where bets are on signs, as in a `FixedRace`."""
        if view.objective.scale is not None:
            return True
        sure = len(both) >= agreeing(risk, self.odd)
        return sure and risk_of([before - after for before, after in both]) <= risk

    def _kept(self, view: View, words: str, numbers: dict[str, float]) -> Verdict:
        """A keep, unless a constraint forbids it."""
        private = "" if numbers else view.incumbent.known["decide"].first_failure
        kept = Verdict("keep", words, best=True, numbers=numbers, private=private)
        return forbidden(view.challenger.known["decide"], view.objective, numbers) or kept

    def _hopeless(self, was: list[float], gain: float, runs: int) -> bool:
        """True if the gain that the race looks for has become unlikely.

        By the spread of the incumbent alone: a challenger must not make itself room by being
        erratic.
        """
        mean = sum(was) / len(was)
        spread = sum((loss - mean) ** 2 for loss in was) / len(was)
        noise = spread * (1 / len(was) + 1 / runs)
        if noise == 0:
            return gain <= 0
        aim = self.aim * spread**0.5
        return (gain * aim - aim * aim / 2) / noise < -self.patience


def _first_runs(view: View) -> View:
    """The view for `strict`, without the further runs."""
    old, new = (
        side._replace(known={p: e for p, e in side.known.items() if p != CHECK})
        for side in (view.incumbent, view.challenger)
    )
    return view._replace(incumbent=old, challenger=new)


def differs(side: Side, tolerance: float) -> bool:
    """True if two runs of one candidate differ: in score, or one failed and one did not."""
    shown = [side.known[purpose] for purpose in ("decide", CHECK) if purpose in side.known]
    found = [tally.mean for one in shown for tally in one.repeats.values()]
    if found and any(one.unscored for one in shown):
        return True
    nothing = ROUNDING * max((abs(one) for one in found), default=0.0)
    return bool(found) and max(found) - min(found) > tolerance + nothing


def _is_exact(*sides: Side) -> bool:
    """True where each side's runs gave one value to the last digit, and not just pass or fail."""
    values: set[float] = set()
    for side in sides:
        shown = [side.known[purpose] for purpose in ("decide", CHECK) if purpose in side.known]
        found = {tally.mean for one in shown for tally in one.repeats.values()}
        if len(found) != 1:
            return False
        values |= found
    return not {abs(value) for value in values} <= {0.0, 1.0}
