"""Limits of an agent run on every axis, checked before spending, and its exit status.

Parallel workers get fixed shares before they begin. So no limit depends on the speed of another
worker, and a resume computes the same figures. For the same reason time inside a branch is the
sum of its journalled reply times. Each reason for ending has its status.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar, cast

from kept.core.llm import Message, ModelReply, ToolOffer
from kept.core.ports import Priced, Scope
from kept.core.rollout import FREE, Failure, Usage
from kept.engine.replay import PAID, Paid
from kept.models.context_window import REPLY, picture_tokens, tokens_of
from kept.orchestrator.record import AgentRun, BudgetSnapshot, Limits, Phase, Status, Used

R = TypeVar("R", bound=Priced)

REASONS: Mapping[str, str] = {
    "loops": "max_loops",
    "workers": "max_total_workers",
    "tokens": "max_total_tokens",
    "tool_calls": "max_tool_calls",
    "wall_seconds": "max_wall_time",
    "depth": "max_depth",
    "usd": "max_usd",
}
"""Reason given by a run that ends because an axis is used up, by axis."""

AXES: Mapping[str, str] = {reason: axis for axis, reason in REASONS.items()}
"""Axis by reason: the inverse of `REASONS`."""

_PHASES: tuple[tuple[float, Phase], ...] = ((0.6, "ample"), (0.3, "moderate"), (0.1, "low"))
_REFUSED = "the budget has no room for it: "
_OVERTIME = "the wall time of the run was used up meanwhile"
_TIGHT = 64_000
"""Tokens left below which replies get a shorter limit, so that the reservation covers them."""
_HAIR = 1e-9
"""USD of tolerance: rounding of sums must not refuse the last call that fits."""


def most(limits: Limits, axis: str) -> float:
    """Return the limit of an axis; infinity if it has none."""
    found = getattr(limits, axis)
    return inf if found is None else found


_LEAST_SECONDS = 60.0
"""Minimum extra wall time for a run that continues."""


def _dollars(usd: float) -> str:
    return f"${usd:.4f}" if usd >= 0.001 or not usd else f"${usd:.8f}"


def enough(record: AgentRun, axis: str) -> float:
    """Return a limit with which a run that this axis ended can go on: at least twice the old one.

    The refused call is made again and more follow, so its room counts twice.
    """
    limit = most(record.limits, axis)
    stands = record.budget
    used = getattr(stands.used, axis) if stands else limit
    room = 2 * stands.wanted.get(axis, 0.0) if stands else 0.0
    if axis == "wall_seconds":
        room = _LEAST_SECONDS
    return max(2 * limit, used + limit, used + room if room else 0.0)


def is_raise(before: Limits, after: Limits) -> bool:
    """True if limits differ only in that some axes have more."""
    same = replace(after, **{axis: getattr(before, axis) for axis in REASONS})
    return same == before and all(most(after, axis) >= most(before, axis) for axis in REASONS)


@dataclass(slots=True)
class Account:
    """Budget of one branch of a run, and its use so far."""

    tokens: int
    tool_calls: int
    usd: float | None
    wall: float
    """Deadline, in seconds since the run began."""
    elapsed: float
    """Seconds of the run so far, as this branch counts them."""
    began: float = 0.0
    out: str = ""
    """First axis that refused something; empty while none has."""
    wanted: float = 0.0
    """Worst case of the first refused call, in units of the axis `out`."""
    used: Usage = FREE
    tools_used: int = 0
    loops: int = 0
    """Turns allowed to managers that replace its worker."""
    workers: int = 0
    """Workers allowed to those managers."""
    loops_used: int = 0
    workers_used: int = 0

    @property
    def seconds(self) -> float:
        """Seconds of waiting charged to this branch."""
        return self.elapsed - self.began

    @property
    def longest_reply(self) -> int | None:
        """Limit on tokens of one reply while few tokens are left; None otherwise."""
        left = self.tokens - self.used.tokens_in - self.used.tokens_out
        # a quarter of what is left, so that further requests fit
        return None if left >= _TIGHT else max(1, min(REPLY, left // 4))

    def use_tool(self) -> bool:
        """Count one use of a tool; False if none was left."""
        if self.tools_used >= self.tool_calls:
            self.out = self.out or "tool_calls"
            return False
        self.tools_used += 1
        return True

    def refusal(self, worst: Usage) -> Failure | None:
        """Return a failure if a call of this worst case does not fit; else None."""
        if self.elapsed >= self.wall:
            return self.refused("wall_seconds")
        left = self.tokens - self.used.tokens_in - self.used.tokens_out
        if worst.tokens_in > left:
            self._want(worst.tokens_in)
            return self.refused("tokens", f"up to {worst.tokens_in} more, and {left} are left")
        if self.usd is not None and self.used.usd + worst.usd > self.usd + _HAIR:
            self._want(worst.usd)
            money = _dollars(max(0.0, self.usd - self.used.usd))
            return self.refused("usd", f"up to {_dollars(worst.usd)} more, and {money} is left")
        return None

    def _want(self, room: float) -> None:
        if not self.out:
            self.wanted = room

    def refused(self, axis: str, why: str = "") -> Failure:
        """Record that an axis is used up, and return the failure that says so."""
        self.out = self.out or axis
        words = f"{_REFUSED}{REASONS[axis]}"
        return Failure("limit", "candidate", f"{words} ({why})" if why else words)

    def count(self, answer: Priced | Failure, paid: Usage, worst: Usage) -> None:
        """Charge a call with what the scope booked for it, whichever session made it.

        A failure for which nothing was booked is charged at its worst, as are the tokens of replies
        without believable counts.
        """
        if not isinstance(answer, Failure):
            paid = answer.usage
            self.elapsed += getattr(answer, "seconds", 0.0)
        elif answer.message == _OVERTIME:
            self.out, self.elapsed = self.out or "wall_seconds", self.wall
        elif answer.message.startswith(_REFUSED):
            # on a resume the refusal comes from the journal: repeat it to set `out` and `wanted`
            self.refusal(worst + paid)
        elif paid == FREE:
            paid = worst
        if paid.calls and not (paid.tokens_in or paid.tokens_out):
            # the server reported no token counts, or impossible ones: assume the worst
            paid += Usage(tokens_in=worst.tokens_in * paid.calls)
        self.used += paid


class Metered:
    """A scope whose calls are paid from an account; implements `kept.core.ports.Scope`."""

    def __init__(self, scope: Scope, account: Account) -> None:
        self.account = account
        self._scope = scope

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """Make the call if its worst case fits; else return the refusal."""
        account = self.account
        worst = Usage(tokens_in=_worst_tokens(request), usd=worst_usd or 0.0)
        # only model calls use tokens
        if reply is not ModelReply:
            worst = Usage(usd=worst.usd)
        if (refused := account.refusal(worst)) is not None:
            return refused

        paid = Paid()

        async def in_time() -> R | Failure:
            # retries of unusable replies also cost: check again before each
            if paid.usage != FREE and (refused := account.refusal(worst + paid.usage)) is not None:
                return refused
            try:
                async with asyncio.timeout(max(0.01, account.wall - account.elapsed)):
                    return await do()
            except TimeoutError:
                return Failure("timeout", "candidate", _OVERTIME)

        token = PAID.set(paid)
        try:
            answer = await self._scope.call(request, reply, in_time, worst_usd)
        finally:
            PAID.reset(token)
        account.count(answer, paid.usage, worst)
        return answer

    def branch(self, name: str) -> "Metered":
        """Return a scope below this one, paid from the same account."""
        return Metered(self._scope.branch(name), self.account)


class Ledger:
    """Use of the limits by a whole run."""

    def __init__(self, limits: Limits, *, elapsed: float = 0.0, depth: int = 1) -> None:
        self.limits = limits
        self.loops = self.workers = self.tokens = self.tool_calls = 0
        self.turns = 0
        """Turns of this manager alone; `loops` also counts those of managers below it."""
        self.usd = 0.0
        self.elapsed = elapsed
        """Seconds since the run began."""
        self.depth = depth
        self.wanted: dict[str, float] = {}
        """Worst case of the last call that was refused, by axis."""
        self.usage = FREE

    def open(self, parts: int = 1) -> list[Account]:
        """Share what is left evenly among so many new accounts."""
        limits = self.limits
        tokens = max(0, limits.tokens - self.tokens) // parts
        tools = _shares(limits.tool_calls - self.tool_calls, parts)
        loops = _shares(limits.loops - self.loops, parts)
        workers = _shares(limits.workers - self.workers, parts)
        usd = None if limits.usd is None else max(0.0, limits.usd - self.usd) / parts
        return [
            Account(
                tokens=tokens,
                tool_calls=tools[n],
                loops=loops[n],
                workers=workers[n],
                usd=usd,
                wall=limits.wall_seconds,
                elapsed=self.elapsed,
                began=self.elapsed,
            )
            for n in range(parts)
        ]

    def settle(self, accounts: Sequence[Account], side_by_side: int = 1) -> None:
        """Count the use of branches that ran `side_by_side` at a time, started in this order."""
        ends = [self.elapsed] * max(1, side_by_side)
        for account in accounts:
            self.usage += account.used
            self.tokens += account.used.tokens_in + account.used.tokens_out
            self.usd += account.used.usd
            self.tool_calls += account.tools_used
            self.loops += account.loops_used
            self.workers += account.workers_used
            if account.wanted:
                self.wanted[account.out] = account.wanted
            # the next branch starts when the first of those running ends
            first = ends.index(min(ends))
            ends[first] += account.seconds
        # the turn takes as long as its longest lane
        self.elapsed = max(ends)

    @property
    def spent(self) -> Used:
        """Use on every axis."""
        return Used(
            loops=self.loops,
            workers=self.workers,
            tokens=self.tokens,
            tool_calls=self.tool_calls,
            wall_seconds=round(self.elapsed, 3),
            depth=self.depth,
            usd=self.usd,
        )

    def snapshot(self) -> BudgetSnapshot:
        """Return use, scarcest axis and phase of the budget."""
        left = self._left()
        axis = min(left, key=lambda name: left[name])
        least: Phase = "critical" if left[axis] > 0 else "exhausted"
        # `_PHASES` is in descending order, so the first match is the right one
        phases: list[Phase] = [name for over, name in _PHASES if left[axis] > over]
        phase = phases[0] if phases else least
        return BudgetSnapshot(
            used=self.spent,
            remaining=left[axis],
            scarcest=axis,
            phase=phase,
            wanted=dict(self.wanted),
        )

    def out(self, *axes: str) -> str:
        """Return the first of these axes with nothing left; empty if all have some."""
        left = self._left()
        return next((axis for axis in axes if left.get(axis, 1.0) <= 0), "")

    def _left(self) -> dict[str, float]:
        """Fraction left, by axis."""
        limits, used = self.limits, self.spent
        rows: dict[str, tuple[float, float]] = {
            "loops": (used.loops, limits.loops),
            "workers": (used.workers, limits.workers),
            "tokens": (used.tokens, limits.tokens),
            "tool_calls": (used.tool_calls, limits.tool_calls),
            "wall_seconds": (used.wall_seconds, limits.wall_seconds),
        }
        if limits.usd:
            rows["usd"] = (used.usd, limits.usd)
        elif limits.usd is not None:
            # a limit of 0 USD: free calls continue, every paid call is refused
            rows["usd"] = (used.usd, 1.0)
        return {name: round(max(0.0, 1 - u / m), 6) if m else 0.0 for name, (u, m) in rows.items()}


def _shares(left: int, parts: int) -> list[int]:
    """Divide a count as evenly as possible, larger parts first."""
    each, spare = divmod(max(0, left), parts)
    return [each + (n < spare) for n in range(parts)]


def _worst_tokens(request: object) -> int:
    """Maximum tokens of a model request and its reply; 0 for any other request."""
    if not isinstance(request, Mapping):
        return 0
    asked = cast("Mapping[str, Any]", request)
    messages = cast("Sequence[Message]", asked.get("messages", ()))
    said = sum(
        tokens_of(m.text)
        + sum(tokens_of(c.arguments) for c in m.tool_calls)
        + sum(map(picture_tokens, m.images))
        for m in messages
    )
    offers = cast("Sequence[ToolOffer]", asked.get("tools", ()))
    offered = sum(tokens_of(o.description + json.dumps(dict(o.parameters))) for o in offers)
    return said + offered + int(asked.get("max_tokens") or REPLY)


COMPLETED = "completed"
FAILED = "manager_failed"
"""The manager decided to fail."""
GARBAGE = "manager_garbage"
"""No reply of the manager was a valid decision."""
STALLED = "stall_detected"
"""The manager only planned or diagnosed, and sent no worker."""
REJECTED = "max_rejected_completions"
HOPELESS = "eval_fail"

PHASE_FAILED, PHASE_PARTIAL = "phase_failed", "phase_partial"
"""A deterministic phase did not reach its goal (R33); no model was called."""

_FAILED = (FAILED, HOPELESS, PHASE_FAILED)


def status_of(reason: str, *, delivered: bool) -> Status:
    """Return the status of an ended run: complete only if all checks passed and files exist."""
    if reason == COMPLETED:
        return "complete" if delivered else "partial"
    if reason in _FAILED or (reason == GARBAGE and not delivered):
        return "failed"
    return "partial"


def is_limit(reason: str) -> bool:
    """True if a limit of the budget ended the run."""
    return reason in REASONS.values()
