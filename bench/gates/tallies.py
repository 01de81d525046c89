"""Evaluations out of arrays, equal to what `summarize` of the core makes of the same rollouts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bench.gates.chance import Counters, Floats, Places
from bench.gates.ground import FAILED, MISSING, SCORED, Candidate, Ground
from kept.core.objective import Objective
from kept.core.rollout import Pair, Purpose
from kept.core.score import Evaluation, Tally

OBJECTIVE = Objective("score", "maximize", bounds=(0.0, 1.0))


MESSAGES = {FAILED: "the candidate failed", MISSING: "no answer"}

K = TypeVar("K")


class Faults(NamedTuple):
    """Which pairs have an answer, and which of them failed."""

    answered: "NDArray[np.bool_]"
    failed: "NDArray[np.bool_]"


class Layout(NamedTuple):
    """Where the sums of some pairs go; the same for every candidate that is asked for them."""

    flat: Counters
    """Pair n is case n % cases, repeat n // cases."""
    cases: tuple[str, ...]
    """In the order in which they first appear, as `summarize` has them."""
    case_of: Places
    repeats: tuple[int, ...]
    repeat_of: Places


@lru_cache(maxsize=4096)
def layout_of(pairs: tuple[Pair, ...], names: tuple[str, ...]) -> Layout:
    """The layout of pairs; `names` are all cases of the run, in order."""
    place = _places(names)
    cases: dict[str, int] = {}
    repeats: dict[int, int] = {}
    case_of = [cases.setdefault(case, len(cases)) for case, _ in pairs]
    repeat_of = [repeats.setdefault(repeat, len(repeats)) for _, repeat in pairs]
    flat = [place[case] + len(names) * repeat for case, repeat in pairs]
    return Layout(
        np.array(flat, np.uint64),
        tuple(cases),
        np.array(case_of, np.intp),
        tuple(repeats),
        np.array(repeat_of, np.intp),
    )


@lru_cache(maxsize=16)
def _places(names: tuple[str, ...]) -> dict[str, int]:
    return {name: at for at, name in enumerate(names)}


@dataclass(slots=True)
class Drawn:
    """The rollouts of one candidate for one purpose; they grow by whole repeats."""

    losses: Floats = field(default_factory=lambda: np.zeros(0))
    states: "NDArray[np.int8]" = field(default_factory=lambda: np.zeros(0, np.int8))
    tries: "NDArray[np.int64]" = field(default_factory=lambda: np.zeros(0, np.int64))

    def open(self, flat: Counters) -> Counters:
        """The pairs without an answer: new ones, and those that an outage left open."""
        if not len(flat):
            return flat
        self._grow(int(flat.max()) + 1)
        states = self.states[flat]
        return flat[(states == 0) | (states == MISSING)]

    def roll_out(
        self, ground: Ground, candidate: Candidate, purpose: Purpose, flat: Counters, at: int
    ) -> None:
        """Have answers for open pairs; those tried before are drawn anew."""
        if not len(flat):
            return
        if not ground.world.missing:
            self.losses[flat], self.states[flat] = ground.draw(candidate, purpose, flat, 0, at)
            return
        tries = self.tries[flat]
        for count in np.unique(tries).tolist():
            mine = flat[tries == count]
            ended = ground.draw(candidate, purpose, mine, count, at)
            self.losses[mine], self.states[mine] = ended
        self.tries[flat] += 1

    def answered(
        self, pairs: tuple[Pair, ...], layout: "Callable[[tuple[Pair, ...]], Layout]"
    ) -> dict[Pair, float]:
        """The loss of every pair that has an answer."""
        flat = layout(pairs).flat
        losses, there = self.losses[flat].tolist(), (self.states[flat] != MISSING).tolist()
        return {pair: loss for pair, loss, known in zip(pairs, losses, there, strict=True) if known}

    def _grow(self, size: int) -> None:
        if size > len(self.losses):
            more = max(size, 2 * len(self.losses)) - len(self.losses)
            self.losses = np.concatenate([self.losses, np.zeros(more)])
            self.states = np.concatenate([self.states, np.zeros(more, np.int8)])
            self.tries = np.concatenate([self.tries, np.zeros(more, np.int64)])


def evaluation(candidate: str, purpose: Purpose, layout: Layout, drawn: Drawn) -> Evaluation:
    """Sum pairs up, in the order in which they were asked for."""
    losses, states = drawn.losses[layout.flat], drawn.states[layout.flat]
    faults = Faults(states != MISSING, states == FAILED) if (states > SCORED).any() else None
    squares = losses * losses
    cases = _sums(layout.cases, layout.case_of, losses, squares, faults)
    repeats = _sums(layout.repeats, layout.repeat_of, losses, squares, faults)
    mean = sum(tally.total / tally.n for tally in cases.values()) / len(cases) if cases else None
    scored = losses if faults is None else losses[states == SCORED]
    metrics = {OBJECTIVE.metric: _tally(-scored)} if len(scored) else {}
    asked = len(losses)
    if faults is None:
        return Evaluation(candidate, purpose, cases, repeats, metrics, asked, mean)
    return Evaluation(
        candidate,
        purpose,
        cases,
        repeats,
        metrics,
        asked,
        mean,
        missing=asked - int(faults.answered.sum()),
        failed=int(faults.failed.sum()),
        first_failure=_first_failure(layout, states),
    )


def _first_failure(layout: Layout, states: "NDArray[np.int8]") -> str:
    at = int(np.argmax(states > SCORED))
    return f"{layout.cases[layout.case_of[at]]}: {MESSAGES[int(states[at])]}"


def _tally(values: Floats) -> Tally:
    # one after the other, as `summarize` adds them: `sum` would add them in pairs
    return Tally(len(values), float(np.cumsum(values)[-1]), float(np.cumsum(values * values)[-1]))


def _sums(
    keys: tuple[K, ...], place: Places, losses: Floats, squares: Floats, faults: Faults | None
) -> dict[K, Tally]:
    """Tallies by case or by repeat; those without any answer are left out."""
    size = len(keys)
    totals = np.bincount(place, losses, size).tolist()
    square = np.bincount(place, squares, size).tolist()
    if faults is None:
        counts = np.bincount(place, minlength=size).tolist()
        return dict(zip(keys, map(Tally, counts, totals, square), strict=True))
    counts = np.bincount(place[faults.answered], minlength=size).tolist()
    failed = np.bincount(place[faults.failed], minlength=size).tolist()
    rows = list(map(Tally, counts, totals, square, failed))
    # in the order of their first answers
    return {keys[at]: rows[at] for at in dict.fromkeys(place[faults.answered].tolist())}
