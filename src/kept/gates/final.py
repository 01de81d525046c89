"""The final: which of a few whole alternatives is best, and is it proven?

Where all that is proposed are texts that stood before the run and take each other's place, nobody
learnt from any case: train cases can decide as well as the others. All alternatives meet the
incumbent on all of them. After each look those far behind the leader are dropped, and of the rest
at most half go on, two at least. Which of the proven ones looks best needs no level of its own,
because every alternative that entered has its share of the level of the proof: a union bound, which
holds whatever they were chosen by. The case is the unit, as in any proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kept.core.near_misses import AHEAD, ENTERED
from kept.core.proposal import Ask
from kept.core.rollout import Pair
from kept.core.score import Answers
from kept.core.text import count, p_words
from kept.core.verdict import Side, Verdict, View
from kept.gates._common import forbidden, interval_figures, not_comparable
from kept.gates._pairs import draws, missing_asks, shuffled
from kept.gates._statistics import interval, risk_of

FEWEST = 2
"""Passes without which noise and luck could not be told apart, and finalists that stay."""


@dataclass(frozen=True, slots=True)
class Level:
    """Error budget of a final."""

    alpha: float
    """On each alternative that entered."""
    among: int
    """Number of alternatives that entered."""
    doubt: float
    """It ends when the best would show so much with this chance if none were better."""


@dataclass(frozen=True, slots=True)
class Final:
    """Settings of a final: most alternatives, when it looks, which ones it drops."""

    most: int = 16
    """Alternatives, at most. Of more, the screen first finds those that are worth a race."""
    passes: tuple[int, ...] = (1, 2, 4, 8)
    """Over all cases but the sealed ones: when it looks."""
    behind: float = 0.1
    """One is dropped when it would be so far behind the leader with this chance if as good."""
    among: int = 0
    """Number of alternatives, derived from the task; 0 without a final."""

    def fitted(self, among: int, cases: int, limit: int | None) -> "Final | None":
        """The final of so many within so many rollouts; None where they are too few for one."""
        if not 0 < among <= self.most:
            return None
        whole = replace(self, among=among)
        for most in range(max(self.passes), FEWEST - 1, -1):
            mine = whole.within(most)
            if limit is None or mine.first(cases) + mine.rest(cases) <= limit:
                return mine
        return None

    def within(self, passes: int) -> "Final":
        """The same with so many passes at most."""
        if passes >= max(self.passes):
            return self
        early = tuple(look for look in self.passes if look <= passes // 2)
        return replace(self, passes=(*early, passes))

    def costs(self, cases: int) -> tuple[tuple[int, int], ...]:
        """By passes, the rollouts of all looks after the first, at most."""
        every = range(FEWEST, max(self.passes) + 1)
        return tuple((passes, self.within(passes).rest(cases)) for passes in every)

    def first(self, cases: int) -> int:
        """Rollouts by which all enter."""
        return (self.among + 1) * self.passes[0] * cases

    def rest(self, cases: int) -> int:
        """Rollouts of all looks after that, at most."""
        stay, total = self.among, 0
        for early, late in pairwise(self.passes):
            stay = _half(stay)
            total += (stay + 1) * (late - early) * cases
        return total

    def enter(self, view: View, doubt: float) -> Verdict | tuple[Ask, ...]:
        """The first look at an alternative: whether it goes on to the others."""
        pairs = self._pairs(view, self.passes[0])
        sides = ((view.incumbent, pairs), (view.challenger, pairs))
        if asks := missing_asks(sides, "promote"):
            return asks
        new, old = view.challenger.known["promote"], view.incumbent.known["promote"]
        if verdict := not_comparable(new, old):
            return verdict
        if not view.incumbent.losses.get("promote"):
            why = "the incumbent fails; the challenger runs"
            kept = Verdict("keep", why, private=old.first_failure, best=True)
            return forbidden(new, view.objective) or kept
        found = _gains(view.challenger, view.incumbent, pairs)
        shown, chance = interval(found, view.objective.scale), risk_of(found)
        numbers = {**interval_figures(shown), "p": chance, "chosen": 1.0, ENTERED: 1.0}
        numbers["estimate"] = shown.mean
        words = f"{shown} on {count(len(found), 'case')}"
        if chance > doubt:
            return Verdict("discard", f"not better: {words}", numbers=numbers)
        reason = f"goes to the final: {words}"
        return Verdict("discard", reason, code="near miss", numbers=numbers)

    def settle(self, view: View, level: Level) -> Verdict | tuple[Ask, ...]:
        """Choose the finalist to promote, within the passes that can be paid."""
        if view.passes is not None and view.passes < max(self.passes):
            return self.within(max(FEWEST, view.passes)).settle(view._replace(passes=None), level)
        left = view.finalists
        for passes in self.passes:
            pairs = self._pairs(view, passes)
            sides = ((view.incumbent, pairs), *((side, pairs) for side in left))
            if asks := missing_asks(sides, "promote"):
                return asks
            old = view.incumbent.known["promote"]
            doubts = {s.id: not_comparable(s.known["promote"], old, "best") for s in left}
            if out := next((v for v in doubts.values() if v and v.code == "indecisive"), None):
                return out
            look = _Look(view, pairs, tuple(s for s in left if doubts[s.id] is None))
            if not look.sides:
                return Verdict("discard", "none in the final runs", numbers={"p": 1.0})
            last = passes == max(self.passes) or look.steady
            left = look.ahead(self.behind)
            weight = (max(self.passes) if last else passes) / sum(self.passes)
            winner = look.proven(left, level.alpha * weight)
            luck = 1 - (1 - min(map(look.chance, look.sides))) ** level.among
            if last or luck > level.doubt or (winner and len(left) == 1):
                return look.tell(winner, level, weight)
            left = left[: _half(len(look.sides))]
        raise AssertionError("the last look decides")

    def _pairs(self, view: View, passes: int) -> tuple[Pair, ...]:
        cases = shuffled((*view.holdout, *view.train))
        return draws(cases, passes * len(cases), view.ledger.promotions)


class _Look:
    """Finalists on the same rollouts, best first; those that break a constraint come last.

    A constraint on a mean of few draws may only seem broken, so that nobody is dropped for it
    before the last look.
    """

    def __init__(self, view: View, pairs: tuple[Pair, ...], sides: tuple[Side, ...]) -> None:
        self._view = view
        self._pairs = pairs
        self._gains = {side.id: _gains(side, view.incumbent, pairs) for side in sides}
        means = {id_: sum(found) / len(found) for id_, found in self._gains.items()}
        self._broken = {s.id: forbidden(s.known["promote"], view.objective) for s in sides}
        order = sorted(sides, key=lambda s: (self._broken[s.id] is not None, -means[s.id]))
        self.sides = tuple(order)

    @property
    def leader(self) -> Side:
        return self.sides[0]

    @property
    def steady(self) -> bool:
        """True if repeats always agree, for every side: a later look would see the same."""
        if self._view.still:
            return True
        repeated = len({pair.repeat for pair in self._pairs}) > 1
        sides = (self._view.incumbent, *self.sides)
        return repeated and all(_answers(side, self._pairs).alike for side in sides)

    def chance(self, side: Side) -> float:
        """Of showing so much if it were not better than the incumbent."""
        return risk_of(self._gains[side.id])

    def ahead(self, behind: float) -> tuple[Side, ...]:
        """Those that may yet be the best, the best first."""
        others = (s for s in self.sides[1:] if risk_of(self._less(s)) > behind)
        return (self.leader, *others)

    def _less(self, side: Side) -> list[float]:
        return _gains(self.leader, side, self._pairs)

    def proven(self, sides: Sequence[Side], risk: float) -> Side | None:
        """The best of them that is proven at this risk, and breaks no constraint."""
        able = (s for s in sides if self.chance(s) <= risk and self._broken[s.id] is None)
        return next(able, None)

    def tell(self, winner: Side | None, level: Level, weight: float) -> Verdict:
        """The verdict for the challenger."""
        view, me = self._view, self._view.challenger
        risk, among = level.alpha * weight, len(view.finalists)
        if winner is not None and winner.id != me.id:
            at = next(n for n, side in enumerate(view.finalists) if side.id == winner.id)
            shown = interval(self._gains[winner.id], view.objective.scale)
            words = f"another of the final is better: {shown} on all its cases"
            return Verdict("discard", words, numbers={AHEAD: float(at)})
        shown = interval(self._gains[(winner or self.leader).id], view.objective.scale)
        chance = self.chance(winner or self.leader)
        numbers = {**interval_figures(shown, chance, risk), "better": 1 - chance}
        numbers |= {"passes": float(len(self._pairs) // _count(self._pairs))}
        numbers |= {"alpha_promote_left": 0.0, "cases": float(_count(self._pairs))}
        words = f"{shown} for cases alike, {p_words(chance)} of {risk:.2g} needed"
        if winner is None and chance <= risk and (broken := self._broken[self.leader.id]):
            return replace(broken, numbers=numbers)
        if winner is None:
            best = f"the best of {among} in the final: " if among > 1 else ""
            return Verdict("discard", f"not proven: {best}{words}", numbers=numbers)
        best = f", the best of {among} in the final" if among > 1 else ""
        return Verdict("keep", f"proven{best}: {words}", best=True, numbers=numbers)


def _half(finalists: int) -> int:
    """Most finalists that go on to the next look."""
    return max(min(FEWEST, finalists), (finalists + 1) // 2)


def _count(pairs: tuple[Pair, ...]) -> int:
    return len({pair.case for pair in pairs})


def _answers(side: Side, pairs: tuple[Pair, ...]) -> Answers:
    """Of these draws alone: a look does not see what was asked for later."""
    known = side.losses.get("promote", {})
    return Answers((pair, known[pair]) for pair in pairs if pair in known)


def _gains(side: Side, other: Side, pairs: tuple[Pair, ...]) -> list[float]:
    """The gain over another on every case that both answered, in the metric's own units."""
    new, old = (_answers(one, pairs).by_case for one in (side, other))
    return [old[case] - loss for case, loss in new.items() if case in old]
