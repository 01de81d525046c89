"""Refinement of a finished run: who works in which iteration, with how much, and when to stop.

An iteration is a step. All of it is a function of numbers that the journal holds: the losses of the
iterations so far, the time they took, and what the seed run used.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Literal, cast

from kept.core.budget import StopReason
from kept.core.event import Document
from kept.core.proposal import ClosedStep, Proposal, Turn
from kept.core.state import State
from kept.core.text import count
from kept.core.turns import AGAIN, due

RERUN = "rerun"
"""The proposer that runs the task again with what was found wrong."""

FEWEST, MOST = 1, 10
"""Iterations of a session."""

PLATEAU = 0.01
"""A loss that moves by less has not moved."""

SAME = 1e-9
"""Losses that differ by no more are equal: sums of parts do not come out even."""

STREAK = 2
"""Iterations in a row that say the same, after which they are believed."""

LONGEST = 2.0
"""Times the seed's own wall time that all iterations may take."""

LEAST_SECONDS = 60

Tier = Literal["low", "mid", "high"]
TIERS: Mapping[str, Tier] = {"low": "low", "mid": "mid", "high": "high"}


def clamped(iterations: int) -> int:
    """As many iterations as a session may have."""
    return min(MOST, max(FEWEST, iterations))


def iteration_words(k: int, n: int) -> str:
    """The name of an iteration for people: `iteration 2 of 3`."""
    return f"iteration {k} of {n}"


def iterations_in(request: Document) -> int:
    """The most iterations of the session that began with this request."""
    asked = request.get("iterations")
    return clamped(asked) if isinstance(asked, int) else MOST


def tier_of(k: int, n: int) -> Tier:
    """Model tier of iteration k of n: weak models first, strong ones last."""
    if not 1 <= k <= n:
        raise ValueError(f"there is no iteration {k} of {n}")
    if n == 1:
        return "high"
    if n == 2:
        return "low" if k == 1 else "high"
    if k <= math.ceil(n / 3):
        return "low"
    return "high" if k >= n - n // 3 + 1 else "mid"


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of one agent run."""

    loops: int
    workers: int
    tokens: int
    tool_calls: int
    wall_seconds: int
    depth: int


def halved(seed: Caps, observed_seconds: float) -> Caps:
    """Half of what the seed run could use; of its time, half of what it did use.

    Depth is a matter of structure and stays. It is the same for every iteration: halves of halves
    would soon be nothing.
    """
    seconds = observed_seconds or seed.wall_seconds
    return Caps(
        loops=_half_up(seed.loops),
        workers=_half_up(seed.workers),
        tokens=max(1, seed.tokens // 2),
        tool_calls=_half_up(seed.tool_calls),
        wall_seconds=max(LEAST_SECONDS, int(seconds * 0.5)),
        depth=seed.depth,
    )


def _half_up(cap: int) -> int:
    return max(1, math.ceil(cap / 2))


StopName = Literal[
    "max_iterations",
    "regression",
    "plateau",
    "wall_time_exhausted",
    "empty_gradient",
    "empty_gradient_midloop",
    "no_prior_deliverable",
]


def stop_of(
    losses: Sequence[float], n: int, seconds: float = 0.0, seed_seconds: float | None = None
) -> StopName | None:
    """Reason to end a session of n iterations after these losses; None while it goes on.

    Iterations are held against each other and not against the seed. What is equal is neither better
    nor worse: the same loss twice in a row is a plateau. Two moves in a row take three iterations.
    """
    moves = [now - before for before, now in pairwise(losses)][-STREAK:]
    if moves and abs(moves[-1]) <= SAME:
        return "plateau"
    if len(moves) == STREAK:
        if all(move > SAME for move in moves):
            return "regression"
        if all(abs(move) < PLATEAU for move in moves):
            return "plateau"
    if len(losses) >= n:
        return "max_iterations"
    if seed_seconds and seconds >= LONGEST * seed_seconds:
        return "wall_time_exhausted"
    return None


def reruns(state: State) -> list[ClosedStep]:
    """The iterations so far, oldest first; what was only measured is none.

    One that was judged again, because an outage took its readings, is told of once, as it ended.
    """
    found: dict[int, ClosedStep] = {}
    for step in state.history.of(RERUN):
        found.pop(step.turn.number, None)
        found[step.turn.number] = step
    return list(found.values())


def unread(done: Iterable[ClosedStep]) -> list[int]:
    """The iterations that ran, and of which nobody can tell: their readings had no answer."""
    return sorted(step.turn.number + 1 for step in done if step.verdict.code == "indecisive")


def unpaid(state: State) -> list[int]:
    """The iterations that ran, and whose readings the money did not go far enough for."""
    if state.stopped is None or state.stopped.kind != "usd":
        return []
    return [step.turn.number + 1 for step in state.open if isinstance(step.reply, Proposal)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One iteration that ran, as the journal tells of it."""

    k: int
    run_id: str
    loss: float | None
    """By the account of its own run."""
    status: str
    tier: str | None = None
    model_manager: str | None = None
    model_worker: str | None = None
    loss_breakdown: Mapping[str, float] = field(default_factory=dict[str, float])
    parent_run_id: str = ""
    """The run whose deliverable it started from."""
    step: int = 0
    seconds: float = 0.0
    measured: float | None = None
    """Its loss on the deciding cases; of a race, the mean of all readings of what it left."""


def attempts(done: Iterable[ClosedStep]) -> list[Attempt]:
    """The iterations that ran, in their order, whether or not they left anything."""
    found: list[Attempt] = []
    for step in done:
        told_by = step.proposal or step.skip
        if told_by is None or "run_id" not in told_by.about:
            continue
        told = cast("Mapping[str, Any]", told_by.about)
        found.append(
            Attempt(
                k=step.turn.setting("k", int) or 0,
                run_id=told["run_id"],
                loss=told["loss"]["total"],
                status=told["status"],
                tier=told["tier"],
                model_manager=told["manager"] or None,
                model_worker=told["worker"] or None,
                loss_breakdown=told["loss"],
                parent_run_id=told.get("parent_run_id", ""),
                step=step.step,
                seconds=told["seconds"],
                measured=step.loss,
            )
        )
    return sorted(found, key=lambda one: one.k)


def run_folder(root: str, attempt: Attempt) -> str:
    """Folder of the run of an iteration, below the folder of all iterations."""
    return f"{root}/iter_{attempt.k}/workspace/runs/{attempt.run_id}"


@dataclass(frozen=True, slots=True)
class Refining:
    """Iterations one after the other. Implements `kept.core.ports.Schedule`."""

    iterations: int
    seed_seconds: float | None = None
    """Wall time that the seed run took; None where nobody knows."""
    nothing: bool = False
    """True if nothing was found to refine."""
    tiers: bool = False
    allows_pool: ClassVar[bool] = True

    def next(self, state: State) -> Turn | StopReason:
        """The next iteration, or why there is none: its message begins with the seed's word."""
        if self.nothing:
            return _stop("empty_gradient", "nothing to refine")
        done = reruns(state)
        again = due(state.lost, RERUN)
        if again and again[0].ready:
            return self._turn(again[0].number)
        stop = self._stop(done)
        if stop is None:
            return self._turn(len(done) + len(state.open))
        if again:
            return self._turn(again[0].number)
        return _unread(done) or stop

    def most_steps(self) -> int:
        """Most steps that it opens: each may be lost to an outage and given again."""
        return 0 if self.nothing else (1 + AGAIN) * self.iterations

    def _stop(self, done: Sequence[ClosedStep]) -> StopReason | None:
        """Reason to run no further iteration; None if one follows."""
        if done and done[-1].skip is not None and done[-1].skip.ends:
            return _stop(done[-1].skip.ends, done[-1].skip.why)
        if len(done) >= STREAK and all(map(left_nothing, done[-STREAK:])):
            words = f"{count(STREAK, 'iteration')} in a row left no deliverable"
            return _stop("no_prior_deliverable", words)
        lost = unread(done)
        read = [step for step in done if step.turn.number + 1 not in lost]
        read.sort(key=lambda step: step.turn.number)
        losses = [step.loss for step in read if step.loss is not None]
        seconds = sum(map(seconds_of, done))
        name = stop_of(losses, self.iterations, seconds, self.seed_seconds)
        if name is None and len(done) >= self.iterations:
            name = "max_iterations"
        if name is None:
            return None
        return _stop(name, _WORDS[name].format(n=count(len(read), "iteration")))

    def _turn(self, number: int) -> Turn:
        k = number + 1
        settings: dict[str, object] = {"k": k}
        if self.tiers:
            settings["tier"] = tier_of(k, self.iterations)
        return Turn(RERUN, "refine", number, settings)

    def last(self, state: State) -> Turn | None:
        """Nothing more: the best is what it is."""
        return None


def left_nothing(step: ClosedStep) -> bool:
    """True of an iteration that ran and left no deliverable."""
    return step.skip is not None and "run_id" in step.skip.about


def seconds_of(step: ClosedStep) -> float:
    """Wall time that an iteration took, by its own account, also where it left nothing."""
    told_by = step.proposal or step.skip
    told = told_by.about.get("seconds") if told_by is not None else None
    return float(told) if isinstance(told, int | float) else 0.0


def stop_word(message: str) -> str:
    """The word of the seed's that a stop began with."""
    return message.partition(":")[0]


_WORDS = {
    "max_iterations": "{n} done",
    "regression": "worse than the one before it twice in a row, after {n}",
    "plateau": "the loss no longer moves, after {n}",
    "wall_time_exhausted": "twice the time of the seed run is used, after {n}",
}


def _unread(done: Sequence[ClosedStep]) -> StopReason | None:
    """An end that a resume goes on from: it judges again what nobody could read."""
    lost = unread(done)
    if not lost:
        return None
    which = f"iteration {', '.join(map(str, lost))}"
    why = next(step.verdict.reason for step in done if step.turn.number + 1 == lost[-1])
    return StopReason("error", f"error:unread: {which} ran, and could not be judged: {why}")


def _stop(name: str, words: str) -> StopReason:
    kind = "iterations" if name in ("max_iterations", "wall_time_exhausted") else "converged"
    return StopReason(kind, f"{name}: {words}")
