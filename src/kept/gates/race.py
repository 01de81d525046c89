"""The race: keep only what is real.

Four questions, each with draws of its own. Screen: is it worth paying for, on train cases, those
that the proposal cites first; it can only drop. Keep: is it better on the deciding cases beyond
noise, by bets that stay valid however often one looks. Promote: is all that was kept better for
cases nobody has seen. Claim: by how much, on the sealed test. What passes the screen but is too
small to be proven alone is a near miss: several of them are put together and raced as one.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, exp, log, sqrt
from statistics import NormalDist
from typing import ClassVar, NamedTuple

from kept.core.alpha import left, level
from kept.core.proposal import Ask
from kept.core.rollout import Purpose
from kept.core.schedules.round_robin import MOST_PROOFS
from kept.core.text import count, p_words
from kept.core.verdict import Verdict, View
from kept.gates._common import (
    SCREEN_RISK,
    claimed,
    difference,
    forbidden,
    interval_figures,
    measured,
    not_comparable,
    not_measured,
)
from kept.gates._pairs import (
    Gains,
    alike,
    draws,
    figures,
    gains,
    looks,
    missing_asks,
    never_varies,
    pair_gains,
    shuffled,
    tenure_of,
)
from kept.gates._statistics import (
    Interval,
    case_gains,
    evidence,
    interval,
    odds,
    risk_of,
    sign_test,
)
from kept.gates.final import Final, Level
from kept.gates.screen import Screen
from kept.gates.simplify import Simplify


@dataclass(frozen=True, slots=True)
class Race:
    """Screen, race, promote, claim."""

    alpha: float = 0.05
    """Chance that a run keeps anything that is not better, and share of its keeps that are not."""
    promote_alpha: float = 0.04
    """The same for what is promoted, with the case as the unit. Half of it is for the first
    promotion, a quarter for the next, and each is shared among all that was raced before: what
    leads was chosen on these very cases. A final has the whole of it, shared among all in it."""
    screen: Screen = field(default_factory=Screen)
    simplify: Simplify = field(default_factory=Simplify)
    final: Final = field(default_factory=Final)
    aim: float = 0.24
    """The gain that a race looks for, in standard deviations of one draw: 0.12 of pass or fail."""
    patience: float = 0.7
    """A race ends when such a gain has become less likely than none by this much (natural log)."""
    most: int = 24
    """Passes over the deciding cases, at most."""
    promote_passes: tuple[int, ...] = (2, 4, 8, 16)
    """When a promotion looks."""
    doubt: float = 0.7
    """A promotion ends when what it has seen would be this likely if there were no gain."""
    claim_passes: int = 3
    pool_goal: float = 1.25
    """Sum of estimates at which near misses are raced together, in rollout standard deviations."""
    pool_most: int = 20
    """Number of near misses that are raced whatever their estimates are."""
    name: str = "race"
    fixed: ClassVar[bool] = False
    """True if the question is about the deciding cases only, as in a `FixedRace`."""

    def decide(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Screen it, then race it; one that was screened before is raced at once.

        What is simpler need not be better, where the metric has a scale to say how little it loses.
        Or proven, where there will be no later proof: that says more than a race, so none is held.
        Alternatives that take each other's place meet in a final.
        """
        if view.finalists:
            return self.final.settle(view, self._level(view))
        if self.final.among and not view.merged:
            return self.final.enter(view, self.doubt)
        if view.simplifies and not view.merged and view.objective.scale is not None:
            return self.simplify.decide(view, self.screen)
        screens = bool(view.train) and not self.fixed  # or the same cases would be asked twice
        if screens and (view.merged != 1 or view.ledger.lost):
            told = self.screen.look(view)
            if told is not None:
                return self.simplify.race(view) if self._costs_less(view, told) else told
        return self._race_for_best(view) if view.proves else self._race(view)

    def _costs_less(self, view: View, told: Verdict | tuple[Ask, ...]) -> bool:
        """True if a proposal without a gain in the screen is worth a race for its tie-breakers.

        No more is asked of train cases after that, so that the screen says the same at every look.
        """
        if view.merged or isinstance(told, tuple) or told.code != "judged":
            return False
        if "screen_gain" not in told.numbers:
            return False  # it crashed
        tied = view.objective.scale is not None and self.simplify.bearable(view)
        found = difference(view, "screen", view.incumbent, SCREEN_RISK) if tied else None
        return found is not None and found.better

    def _level(self, view: View) -> Level:
        """Error budget of a final: all of it, because a final is the only proof of its run.

        Every alternative that entered has its share.
        """
        whole, among = self.promote_alpha / 2**view.ledger.promotions, max(1, view.ledger.among)
        return Level(whole / among, among, self.doubt)

    def _race(self, view: View) -> Verdict | tuple[Ask, ...]:
        cases = shuffled(view.holdout)
        tenure = tenure_of(view)
        for size in self._looks(view):
            mine = draws(cases, size, tenure)
            theirs = draws(cases, max(size, min(2, self.most) * len(cases)), tenure)
            if view.still or size < len(cases):
                theirs = mine
            asks = missing_asks(((view.incumbent, theirs), (view.challenger, mine)), "decide")
            if asks:
                return asks
            if told := self._look(view, size):
                return told
        raise AssertionError("the last look decides")

    def _looks(self, view: View) -> list[int]:
        """After how many draws of the challenger to look."""
        return looks(len(view.holdout), self.most)

    def _look(self, view: View, size: int) -> Verdict | None:
        """A verdict after so many draws; None when more are needed."""
        old, new = view.incumbent.known["decide"], view.challenger.known["decide"]
        if new.asked > size:
            return None  # looked at before
        if verdict := not_comparable(new, old):
            return verdict
        shown = gains(view, "decide")
        if not shown.answers[1]:
            why = "the incumbent fails; the challenger runs"
            kept = Verdict("keep", why, private=old.first_failure, best=True)
            return forbidden(new, view.objective) or kept
        whole = size % len(view.holdout) == 0
        won = evidence(pair_gains(view, "decide"))
        risk = level(view.ledger, self.alpha)
        numbers = {
            **(about := figures(shown)),
            "evidence": won,
            "alpha": risk,
            "alpha_left": left(view.ledger.give(), self.alpha),
            "chosen": 1.0,
            "challenger_rollouts": float(shown.answers[0]),
            "incumbent_rollouts": float(shown.answers[1]),
        }
        rates = f"odds {odds(exp(min(won, 700)))} to 1, {odds(1 / risk)} needed"
        gain = Interval(about["gain"], about["low"], about["high"])
        test = "" if view.objective.scale else " (sign test)"
        words = f"gain {gain} on {count(size, 'draw')}, {rates}{test}"
        still = view.still or never_varies(view.incumbent, "decide")
        still = still and all(alike(s, "decide") for s in (view.incumbent, view.challenger))
        # by signs alone, many small gains would outweigh a great loss
        if whole and won >= -log(risk) and shown.mean > 0 and self._holds(view, risk):
            kept = Verdict("keep", f"better: {words}", best=self.fixed, numbers=numbers)
            return forbidden(new, view.objective, numbers) or kept
        if self._hopeless(shown):
            return Verdict("discard", f"not better: {words}", numbers=numbers)
        if whole and still:
            return self._without_noise(view, numbers)
        if whole and self._ends(view, size, risk):
            return Verdict("discard", f"cannot tell: {words}", numbers=numbers)
        return None

    def _holds(self, view: View, risk: float) -> bool:
        """True if the evidence is enough for a keep; subclasses add conditions."""
        return True

    def _ends(self, view: View, size: int, risk: float) -> bool:
        """True if no more rollouts may follow."""
        return size >= self.most * len(view.holdout)

    def _without_noise(self, view: View, numbers: dict[str, float]) -> Verdict | None:
        """Compare cases by a sign test, where repeats always agree and more would show nothing.

        A gain on these cases is then a fact; the question is whether it is more than a few lucky
        cases. It is asked at the level of this race, so that it holds too where only challengers
        have noise, of which one draw a case shows nothing. What is then proven of a single proposal
        is proven for new cases as well: it was not chosen on these.
        """
        better, worse, chance = sign_test(case_gains(view, "decide", view.incumbent))
        risk = numbers["alpha"]
        numbers = {**numbers, "p": chance}
        if not view.merged:
            del numbers["chosen"]
        words = f"{better} cases better, {worse} worse, no noise (sign test, {p_words(chance)})"
        if chance <= risk and numbers["gain"] > 0:
            kept = Verdict("keep", f"better: {words}", numbers=numbers)
            return forbidden(view.challenger.known["decide"], view.objective, numbers) or kept
        return Verdict("discard", f"cannot tell: {words}", numbers=numbers)

    def _race_for_best(self, view: View) -> Verdict | tuple[Ask, ...]:
        told = self.prove(view)
        if isinstance(told, tuple) or told.code == "indecisive":
            return told
        if not told.best:
            reason = told.reason.removeprefix("leading, ")
            return replace(told, outcome="discard", reason=reason, code="judged")
        return replace(told, outcome="keep", code="judged")

    def _hopeless(self, shown: Gains) -> bool:
        """True if the gain that the race looks for has become unlikely."""
        noise = shown.spread**2 * (1 / shown.answers[0] + 1 / shown.answers[1])
        if noise == 0:
            return shown.mean <= 0
        aim = self.aim * shown.spread
        return (shown.mean * aim - aim * aim / 2) / noise < -self.patience

    def most_asked(self, train: int, holdout: int) -> int:
        """Rollouts of both sides that one step comes to at most."""
        if self.final.among:
            return 2 * self.final.passes[0] * (train + holdout)
        train = 0 if self.fixed else train
        most = max(2 * self.most, (1 + self.simplify.bars) * self.simplify.most)
        return self.screen.most_asked(train) + most * holdout

    def most_at_end(self, cases: tuple[int, int, int], pooled: int) -> int:
        """Most rollouts after the last ordinary step: races of the pool, proofs and the claim."""
        train, holdout, test = cases
        claim = 2 * self.claim_passes * test
        if self.fixed:
            return claim
        if self.final.among:
            return self.final.rest(train + holdout) + claim
        # each race of the pool that keeps nothing leaves half of it at most, or one alone
        races = pooled.bit_length() + 1 if pooled else 0
        proof = self.screen.most_asked(train) + 2 * max(self.promote_passes) * holdout
        proofs = 1 + (MOST_PROOFS if pooled else 0)
        return races * self.most_asked(train, holdout) + proofs * proof + claim

    def usual_asked(self, train: int, holdout: int, steps: int) -> int:
        """Rollouts of both sides where none of so many proposals is better."""
        if self.final.among:
            return self.final.first(train + holdout) + self.final.rest(train + holdout)
        each = raced(holdout, self.most, self.aim, self.patience)
        if not train or self.fixed:
            return ceil(steps * each.challenger + each.incumbent)
        bar = self.screen.passes * min(self.screen.cases, train)
        looked, together = (
            screened(some, bar) for some in (self.screen.steps[:2], self.screen.together)
        )
        near = int(steps * looked.share)
        worth = self.screen.worth(looked.shown, round(looked.draws), bar)
        races = max(int(near * worth / self.pool_goal), near // self.pool_most)
        merged = races * (together.draws + together.share * each.challenger)
        merged += each.incumbent if races else 0.0
        # what is left in the pool is put to the proof at the end
        proof = 2 * holdout * proof_passes(self.promote_passes, self.doubt)
        proofs = min(MOST_PROOFS, near) * proof
        return ceil(bar + steps * looked.draws + merged + proofs)

    def first_asked(self, train: int, holdout: int) -> int:
        """Rollouts of a challenger to begin with."""
        if self.final.among:
            return self.final.passes[0] * (train + holdout)
        screens = train and not self.fixed
        return self.screen.steps[0][0] if screens else min(holdout, looks(holdout, self.most)[0])

    def ending(self, passes: int, claims: int) -> "Race":
        """The same with so many passes at most for the proof, and for the claim."""
        looks = {passes, *(look for look in self.promote_passes if look <= passes // 2)}
        return replace(self, promote_passes=tuple(sorted(looks)), claim_passes=claims)

    def measure(self, view: View) -> Verdict | tuple[Ask, ...]:
        """The seed by itself, by the draws that it will be raced with."""
        asks: tuple[Ask, ...] = ()
        splits: tuple[tuple[tuple[str, ...], Purpose], ...] = (
            (view.train, "screen"),
            (view.holdout, "decide"),
        )
        for cases, purpose in splits:
            if cases:
                pairs = draws(shuffled(cases), len(cases), tenure_of(view))
                asks += missing_asks(((view.challenger, pairs),), purpose)
        return asks or measured(view)

    def prove(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Test whether the incumbent (here the challenger) beats the best on new cases."""
        if view.passes is not None and view.passes < max(self.promote_passes):
            return self.ending(view.passes, self.claim_passes).prove(view)
        cases, tenure = shuffled(view.holdout), view.ledger.promotions
        chosen = max(1, view.ledger.among)
        whole = self.promote_alpha / 2 ** (view.ledger.promotions + 1) / chosen
        for passes in (1,) if view.still else self.promote_passes:
            pairs = draws(cases, passes * len(cases), tenure)
            sides = ((view.incumbent, pairs), (view.challenger, pairs))
            if asks := missing_asks(sides, "promote"):
                return asks
            if view.challenger.known["promote"].asked > len(pairs):
                continue  # looked at before
            still = view.still or never_varies(view.incumbent, "promote")
            still = still and alike(view.challenger, "promote")
            last = still or passes == max(self.promote_passes)
            # the later look sees more, and is given more; where repeats are all alike, every later
            # look would see what this one sees
            seen = max(self.promote_passes) if last else passes
            proof = self._proof(view, whole * seen / sum(self.promote_passes), passes)
            refused = forbidden(view.challenger.known["promote"], view.objective)
            if proof.best and refused is not None:
                # a mean of few draws; later looks know it better
                if last:
                    return not_measured(refused, "not promoted")
            elif proof.best or last or proof.numbers.get("p", 1.0) > self.doubt:
                return proof
        raise AssertionError("the last look decides")

    def _proof(self, view: View, risk: float, passes: int) -> Verdict:
        new, old = view.challenger.known["promote"], view.incumbent.known["promote"]
        if verdict := not_comparable(new, old, "best"):
            return not_measured(verdict, "not promoted")
        if view.simplifies and view.objective.scale is not None:
            return self.simplify.proof(view, risk)
        found = case_gains(view, "promote", view.incumbent)
        chance, shown = risk_of(found), interval(found, view.objective.scale)
        left_over = self.promote_alpha / 2 ** (view.ledger.promotions + 1)
        numbers = {**interval_figures(shown, chance, risk), "passes": float(passes)}
        numbers |= {"better": 1 - chance, "alpha_promote_left": left_over}
        words = f"{shown} for cases alike, {p_words(chance)} of {risk:.2g} needed"
        if chance <= risk:
            return Verdict("skip", f"proven: {words}", "promoted", best=True, numbers=numbers)
        return Verdict("skip", f"leading, not proven: {words}", "not promoted", numbers=numbers)

    def claim(self, view: View) -> Verdict | tuple[Ask, ...]:
        """By how much the best (here the challenger) beats the seed (the incumbent)."""
        return claimed(view, self.claim_passes)


PRESETS = {
    "fast": Race(most=12, patience=0.5, promote_passes=(2, 4, 12), simplify=Simplify(most=12)),
    "balanced": Race(),
    "careful": Race(
        alpha=0.02,
        promote_alpha=0.02,
        patience=1.2,
        most=40,
        simplify=Simplify(alpha=0.02, most=40),
    ),
}


# Expected cost of a race in which no proposal is better: most are dropped after a few draws. By
# normal theory, with noise as large from draw to draw as from case to case, on a fixed grid of
# points in place of chance. It is shown before a run; no verdict depends on it.

POINTS = 256
"""Courses that are followed; more of them move no figure by a twentieth."""

_NORMAL = NormalDist()


class Screened(NamedTuple):
    """Expected fate of a proposal that is exactly as good as the incumbent."""

    draws: float
    """Of the proposal, on average."""
    share: float
    """Share of proposals that pass."""
    shown: float
    """The mean gain that these seem to have, in standard deviations of one draw."""


@lru_cache(maxsize=64)
def screened(steps: tuple[tuple[int, float], ...], bar: int) -> Screened:
    """By the gain that must be shown after so many draws, against so many of the incumbent."""
    draws, through, shown = 0, 0, 0.0
    for off, *luck in _courses(1 + len(steps)):
        total, at, gain = 0.0, 0, 0.0
        for (size, floor), step in zip(steps, luck, strict=True):
            total += step * sqrt(size - at)
            at, gain = size, total / size - off / sqrt(bar)
            if gain < floor:
                break
        else:
            through, shown = through + 1, shown + gain
        draws += at
    return Screened(draws / POINTS, through / POINTS, shown / max(1, through))


class Raced(NamedTuple):
    """Draws of each side on average, until a race sees that there is nothing in it."""

    challenger: float
    incumbent: float


@lru_cache(maxsize=64)
def raced(cases: int, most: int, aim: float, patience: float) -> Raced:
    """On so many deciding cases, in so many passes at most."""
    sizes = looks(cases, most)
    bars = [size if size < cases else max(size, min(2, most) * cases) for size in sizes]
    sums = [0, 0]
    for luck in _courses(2 * len(sizes)):
        new, old, at, bar = 0.0, 0.0, 0, 0
        for n, (size, wide) in enumerate(zip(sizes, bars, strict=True)):
            new += luck[2 * n] * sqrt(size - at)
            old += luck[2 * n + 1] * sqrt(max(0, wide - bar))
            at, bar = size, max(bar, wide)
            gain = new / at - old / bar
            if (gain * aim - aim * aim / 2) / (1 / at + 1 / bar) < -patience:
                break
        sums = [sums[0] + at, sums[1] + bar]
    return Raced(sums[0] / POINTS, sums[1] / POINTS)


@lru_cache(maxsize=64)
def proof_passes(passes: tuple[int, ...], doubt: float) -> float:
    """Passes of each side until a proof sees that there is nothing to prove."""
    enough, total = -_NORMAL.inv_cdf(doubt), 0
    for luck in _courses(len(passes)):
        sums, at = 0.0, 0
        for size, step in zip(passes, luck, strict=True):
            sums += step * sqrt(size - at)
            at = size
            if sums / sqrt(at) < enough:
                break
        total += at
    return total / POINTS


@lru_cache(maxsize=64)
def _courses(steps: int) -> tuple[tuple[float, ...], ...]:
    """Steps of chance, evenly spread: multiples of roots of primes, without the whole part."""
    roots = [sqrt(prime) for prime in _primes(steps)]
    return tuple(
        tuple(_NORMAL.inv_cdf((n * root + 0.5) % 1 or 0.5) for root in roots)
        for n in range(1, POINTS + 1)
    )


def _primes(most: int) -> list[int]:
    found: list[int] = []
    n = 2
    while len(found) < most:
        if all(n % prime for prime in found):
            found.append(n)
        n += 1
    return found
