"""Simplifications: less text is kept where it is shown to be no worse than by a margin.

The margin is counted from the last promoted best and from all that was kept as better since, never
from the incumbent alone: else one small loss after another would add up to a large one, and what
leads could be given up for a text that is merely as good as the best. The bets are the race's own,
on gains with the margin added to each; they hold at every look, against every bar at once, at
levels of a line of their own. A simplification is never put into the pool.
"""

from dataclasses import dataclass, replace
from math import ceil, exp, isfinite, log, sqrt
from typing import NamedTuple

from kept.core.alpha import level
from kept.core.proposal import Ask
from kept.core.rollout import Purpose
from kept.core.text import count
from kept.core.verdict import Side, Verdict, View
from kept.gates._common import TIE, difference, forbidden, not_comparable
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
    Spread,
    bounds,
    case_gains,
    cases_needed,
    chance,
    chance_above,
    chance_of,
    evidence,
    noise_of,
    odds,
    share_at_most,
    variance,
)
from kept.gates.screen import GLANCE, Screen

ROUNDING = 1e-9
"""A loss that is this much above the margin is the margin."""

NOISES = (0.5, 0.2, 0.08)
"""Variances of the difference of two answers, of which a half is that of two coins."""

MOST_STAKE = 0.8
"""Of what is there, so that the worst draw cannot take all."""

FEW = 10
"""Cases that differ, below which those that differ and were not drawn are counted with."""

MOST = 10_000
"""Cases beyond which it is not said how many would do."""


class Seen(NamedTuple):
    """A simplification against one of its bars, in units of the scale."""

    name: str
    shown: Gains
    pairs: int
    """That both sides answered."""
    noise: float | None
    """Variance of the difference of two answers to one case, by the bar's own repeats."""
    won: float
    """Evidence, as a logarithm, that it is no worse than by the margin."""


@dataclass(frozen=True, slots=True)
class Simplify:
    """Non-inferiority test for simpler texts: margin, error budget and looks."""

    margin: float = 0.05
    """Share of the scale: a loss up to this is none."""
    alpha: float = 0.05
    """Chance that a run keeps one that loses more, and share of those kept that do."""
    most: int = 24
    """Passes over the deciding cases, at most."""
    patience: float = 2.0
    """It ends when a loss of the margin has become more likely than none by this (natural log)."""
    hope: float = 0.1
    """It ends when even an equal text would be shown to be one with a chance below this."""
    screen: tuple[int, ...] = (8, 16, 28)
    """Draws of train cases after which a clear loser is dropped."""
    at_once: int = 1
    """Steps that are open at once, and may be given the same level: they share it."""
    bars: int = 1
    """Most that one is compared with, as far as the plan tells; for the forecast."""

    def decide(self, view: View, screen: Screen) -> Verdict | tuple[Ask, ...]:
        """Screen it, then race it against all its bars."""
        return (self._screened(view, screen) if view.train else None) or self.race(view)

    def _screened(self, view: View, screen: Screen) -> Verdict | tuple[Ask, ...] | None:
        """A verdict, what must be known first, or None: no clear loser."""
        cases, tenure = shuffled(view.train)[: screen.cases], tenure_of(view)
        passes = 1 if view.still else screen.passes
        bar = draws(cases, passes * len(cases), tenure)
        for size in (min(GLANCE, len(cases)), len(cases)) if view.still else self.screen:
            sides = ((view.incumbent, bar), (view.challenger, draws(cases, size, tenure)))
            if asks := missing_asks(sides, "screen"):
                return asks
            new, old = view.challenger.known["screen"], view.incumbent.known["screen"]
            if new.asked > size:
                continue  # looked at before
            if verdict := not_comparable(new, old):
                return verdict
            shown = gains(view, "screen")
            # where there is no noise, what is left of the cases may still make good for it
            if not self.bearable(view, size / len(cases) if view.still else 1.0):
                reason = f"screened out: {shown.mean:+.3f} on {count(size, 'draw')} of the cases "
                reason += f"to learn from, where a simpler text may lose {self.margin:g}"
                return Verdict("discard", reason, numbers={"screen_gain": shown.mean})
        return None

    def bearable(self, view: View, part: float = 1.0) -> bool:
        """True if the train cases run so far show no loss beyond the margin."""
        shown = gains(view, "screen")
        noise = _noise(view, view.incumbent, "screen") or 0.0
        error = sqrt(noise * sum(1 / answers for answers in shown.answers if answers))
        return shown.mean * part >= -self.margin - error - ROUNDING

    def race(self, view: View) -> Verdict | tuple[Ask, ...]:
        """Against all its bars; for a tie-breaker, also against what it would take the place of."""
        cases, tenure = shuffled(view.holdout), tenure_of(view)
        for size in looks(len(cases), self.most):
            mine = draws(cases, size, tenure)
            theirs = mine
            if size >= len(cases):
                once = view.still and alike(view.challenger, "decide")
                passes = 1 if once else max(size // len(cases), min(2, self.most))
                theirs = draws(cases, passes * len(cases), tenure)
            sides = (*((bar, theirs) for bar in _rivals(view)), (view.challenger, mine))
            if asks := missing_asks(sides, "decide"):
                return asks
            if view.challenger.known["decide"].asked > size:
                continue  # looked at before
            if told := self._look(view, size):
                return told
        raise AssertionError("the last look decides")

    def _look(self, view: View, size: int) -> Verdict | None:
        """A verdict after so many draws; None when more are needed."""
        risk = self.risk(view)
        new = view.challenger.known["decide"]
        for name, bar in _named(view):
            if verdict := not_comparable(new, bar.known["decide"], name):
                # it was looked at, so its level is used up
                return replace(verdict, numbers={"margin": self.margin, "alpha_simplify": risk})
        seen = [self._seen(view, name, bar) for name, bar in _named(view)]
        least = min(seen, key=lambda one: one.won)
        shown, whole = least.shown, size % len(view.holdout) == 0
        numbers = {
            **figures(shown),
            "margin": self.margin,
            "evidence": least.won,
            "alpha_simplify": risk,
            "challenger_rollouts": float(shown.answers[0]),
            "bar_rollouts": float(sum(one.shown.answers[1] for one in seen)),
            **({} if view.simplifies else {TIE: 1.0}),
        }
        if whole and (sure := self._without_noise(view, size, numbers)):
            return sure[0]
        rates = f"odds {odds(exp(min(least.won, 700)))} to 1, {odds(1 / risk)} needed"
        words = f"gain {shown.mean:+.3f} against {least.name} on {count(size, 'draw')}, {rates}"
        if whole and least.won >= -log(risk):
            return self._kept(view, words, numbers)
        if any(map(self._unlikely, seen)):
            what = "no simpler text at no loss" if view.simplifies else "no tie"
            reason = f"{what}, which would be a loss of {self.margin:g} at most: {words}"
            return Verdict("discard", reason, numbers=numbers)
        end = self.most * len(view.holdout)
        if size >= end or any(self._hidden(one, size, end, risk) for one in seen):
            reason = f"cannot tell whether it loses more than {self.margin:g}: {words}"
            return Verdict("discard", reason, numbers=numbers)
        return None

    def risk(self, view: View) -> float:
        """Risk of this test; steps open at once may get the same level and share it."""
        return level(view.ledger.of_cuts, self.alpha) / self.at_once

    @property
    def _stakes(self) -> tuple[float, ...]:
        """The bets that pay best on an equal text, where answers differ little, much, and most."""
        return tuple(min(MOST_STAKE, self.margin / noise) for noise in NOISES)

    def _seen(self, view: View, name: str, bar: Side) -> Seen:
        pairs = pair_gains(view, "decide", bar)
        noise = _noise(view, bar, "decide")
        noise = None if noise is None else 2 * noise
        won = evidence((gain + self.margin for gain in pairs), self._stakes)
        return Seen(name, gains(view, "decide", bar), len(pairs), noise, won)

    def _without_noise(
        self, view: View, size: int, numbers: dict[str, float]
    ) -> tuple[Verdict | None] | None:
        """Decide by cases, where repeats always agree and the loss on these cases is exact.

        None where there is noise, or where so few draws may hide it. Of what is about to be kept
        every case is asked twice, and all of them as often as a loss of the margin, which comes by
        chance, would have shown: that the bars have no noise says nothing of the challenger.
        """
        bars = _bars(view)
        steady = all(view.still or never_varies(bar, "decide") for bar in bars)
        if not steady or not all(alike(side, "decide") for side in (view.challenger, *bars)):
            return None
        found = [case_gains(view, "decide", bar) for bar in bars]
        worst = min(found, key=sum)
        up, down = sum(gain > 0 for gain in worst), sum(gain < 0 for gain in worst)
        cases = f"{count(up, 'case')} better, {down} worse, no noise"
        words = f"gain {numbers['gain']:+.3f}, {cases}"
        if any(gains(view, "decide", bar).mean < -self.margin - ROUNDING for bar in bars):
            return (
                Verdict("discard", f"worse by more than {self.margin:g}: {words}", numbers=numbers),
            )
        twice = min(2, self.most) * len(view.holdout)
        enough = self._unlost(numbers["alpha_simplify"])
        if size >= twice and numbers["challenger_rollouts"] >= enough:
            return (self._kept(view, words, numbers),)
        return (None,) if size < self.most * len(view.holdout) else None

    def _unlost(self, risk: float) -> int:
        """Draws that hardly ever all go well where the margin of them, or more, does not."""
        return ceil(log(risk) / log(1 - self.margin))

    def _kept(self, view: View, words: str, numbers: dict[str, float]) -> Verdict:
        """A keep, unless a constraint forbids it, or it does not cost less after all."""
        what = "simpler"
        if not view.simplifies:
            found = difference(view, "decide", view.incumbent, numbers["alpha_simplify"])
            if found is None or not found.better:
                why = f"shown to be no better: {found}" if found else "not shown to be better"
                reason = f"as good, but what breaks ties is {why}; {words}"
                return Verdict("discard", reason, numbers=numbers)
            what = str(found)
        reason = f"{what}, and not worse than by {self.margin:g}: {words}"
        kept = Verdict("keep", reason, numbers=numbers)
        return forbidden(view.challenger.known["decide"], view.objective, numbers) or kept

    def _unlikely(self, one: Seen) -> bool:
        """True if a loss of the margin has become more likely than none."""
        if one.noise is None:
            return False
        excess = self.margin / 2 + one.shown.mean
        if one.noise == 0:
            return excess < -self.margin / 2
        return self.margin * excess / one.noise * one.pairs < -self.patience

    def _hidden(self, one: Seen, size: int, end: int, risk: float) -> bool:
        """True if noise would hide an equal text even if it scored the same from here on."""
        if one.noise is None:
            return False
        wanted = sqrt(2 * one.noise * -log(risk) / end) - self.margin
        error = sqrt(one.noise * (end - size)) / end
        return chance_above(wanted, one.shown.mean * size / end, error) < self.hope

    def proof(self, view: View, risk: float) -> Verdict:
        """Test whether the leading simpler text is no worse than the best on new cases.

        By the bounds of a comparison, with the case as the unit: where few cases differ, or none
        gains, it is also reckoned with as many losing ones as may well not have been drawn.
        """
        scale = view.objective.scale or 1.0
        found = [gain / scale for gain in case_gains(view, "promote", view.incumbent)]
        low, high = bounds(found, risk)
        lost = _lost(found)
        if lost is not None:
            low = min(low, -share_at_most(lost, len(found), risk))
        mean = sum(found) / len(found)
        numbers = {"gain": mean, "margin": self.margin, "alpha_promote": risk}
        numbers["p"] = chance([gain + self.margin for gain in found])
        costs = difference(view, "promote", view.incumbent, risk)
        shown = f"{mean:+.3f} ({_end(low)} … {_end(high)})"
        if costs is not None and not costs.better:
            words = (
                f"leading, not promoted: as good, {shown}, but worse by what breaks ties: {costs}"
            )
            return Verdict("skip", words, "not promoted", numbers=numbers)
        what = str(costs) if costs is not None else "simpler"
        if costs is None and not view.shorter:
            # it was kept for what it costs, and these draws do not show that it costs less
            words = f"leading, not proven: {shown}, and what breaks ties is not shown to be better"
            return Verdict("skip", words, "not promoted", numbers=numbers)
        if low >= -self.margin - ROUNDING:
            words = (
                f"proven: {what}, and not worse than by {self.margin:g} for cases alike: {shown}"
            )
            return Verdict("skip", words, "promoted", best=True, numbers=numbers)
        words = f"leading, not proven: {what}, and {shown} for cases alike, "
        words += f"where a loss of {self.margin:g} at most is to be shown"
        wanted = cases_needed(Spread(0.0, variance(found)), self.margin + mean, 1, risk)
        if lost is not None and wanted is not None:
            wanted = max(wanted, self._enough(lost / len(found), risk))
        if wanted is not None and len(found) < wanted < MOST:
            words += f"; about {wanted:,} cases would do"
        return Verdict("skip", words, "not promoted", numbers=numbers)

    def _enough(self, share: float, risk: float) -> int:
        """Cases that would show it, if this share of them loses."""
        if share >= self.margin:
            return MOST
        cases = self._unlost(risk)
        while chance_of(round(share * cases), cases, self.margin) > risk and cases < MOST:
            cases += max(1, cases // 20)
        return cases


def _lost(found: list[float]) -> int | None:
    """Cases that lose, where all that gains is not reckoned with; None where it is.

    Gains and losses of many cases make up for each other evenly, those of few do not. Where no case
    gains, small losses are as many whole ones as they come to.
    """
    if sum(gain != 0 for gain in found) < FEW:
        return sum(gain < 0 for gain in found)
    return None if max(found) > 0 else ceil(-sum(found) - ROUNDING)


def _bars(view: View) -> tuple[Side, ...]:
    return view.bars or (view.best,)


def _rivals(view: View) -> tuple[Side, ...]:
    """Rivals to run beside the challenger; only the bars count for the evidence."""
    bars = _bars(view)
    if view.simplifies or any(bar.id == view.incumbent.id for bar in bars):
        return bars
    return (*bars, view.incumbent)


def _named(view: View) -> list[tuple[str, Side]]:
    return [("the best" if bar.id == view.best.id else "what leads", bar) for bar in _bars(view)]


def _end(bound: float) -> str:
    return f"{bound:+.3f}" if isfinite(bound) else "?"


def _noise(view: View, side: Side, purpose: Purpose) -> float | None:
    """Variance of one answer round the mean of its case; None where no case was asked twice."""
    found, unit = noise_of(side.losses.get(purpose, {})), view.objective.scale or 1.0
    return None if found is None else found / unit**2
