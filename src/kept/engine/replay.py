"""Replay: cache of rollout outcomes, and scopes that serve journalled replies.

A finished rollout is never repeated. Outcomes are keyed by candidate content, purpose, case and
repeat: never by path, and never shared between purposes. Memory holds candidates still in play;
the journal holds all of them.

A scope serves journalled replies of calls until the first miss.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, cast

import msgspec

from kept.core.artifact import Candidate
from kept.core.ports import Journal, Priced
from kept.core.rollout import FREE, PAID_TRIES, Failure, Job, Pair, Purpose, Usage
from kept.core.score import Outcome
from kept.errors import RunError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Row = dict[Pair, Outcome]


class Known:
    """Finished pairs by candidate."""

    def __init__(self, journal: Journal, elsewhere: Iterable[str] = ()) -> None:
        self._journal = journal
        self._rows: dict[str, dict[Purpose, Row]] = {}
        self._candidates: dict[str, Candidate] = {}
        self.elsewhere = set(elsewhere)
        """Candidates that may have outcomes in the journal only."""

    def candidate(self, id_: str) -> Candidate:
        """The content of a candidate."""
        found = self._candidates.get(id_)
        if found is None:
            found = self._candidates[id_] = self._journal.load(id_)
        return found

    def save(self, candidate: Candidate) -> None:
        """Have a candidate's content at hand, and in the journal before anything depends on it."""
        if candidate.id not in self._candidates:
            if not self._journal.save(candidate) and candidate.id not in self._rows:
                # of an earlier sitting, in which a keep may have left it behind half measured
                self.elsewhere.add(candidate.id)
            self._candidates[candidate.id] = candidate

    def of(self, candidate: str, purpose: Purpose) -> Row:
        """Known outcomes of a candidate for one purpose."""
        rows = self._rows.get(candidate) or self._recall(candidate)
        row = rows.get(purpose)
        if row is None:
            row = rows[purpose] = {}
        return row

    def count(self, candidate: str) -> int:
        """Pairs of a candidate that are known, whatever they were for."""
        rows = self._rows.get(candidate) or self._recall(candidate)
        return sum(len(row) for row in rows.values())

    def _recall(self, candidate: str) -> dict[Purpose, Row]:
        rows = self._rows.setdefault(candidate, {})
        if candidate in self.elsewhere:
            for job, outcome in self._journal.outcomes([candidate]):
                if answered(outcome):
                    pair = Pair(job.case_id, job.repeat)
                    rows.setdefault(job.purpose, {})[pair] = outcome
        return rows

    def keep_only(self, candidates: set[str]) -> None:
        """Forget the others; the journal still has them."""
        for gone in self._rows.keys() - candidates:
            del self._rows[gone]
            self.elsewhere.add(gone)
        for gone in self._candidates.keys() - candidates:
            del self._candidates[gone]


def answered(outcome: Outcome) -> bool:
    """True if an outcome settles its pair; after an outage it is asked for again."""
    return outcome.failure is None or outcome.failure.blame == "candidate"


R = TypeVar("R", bound=Priced)


class Booking:
    """A call whose reply is journalled and paid for, whatever becomes of it."""

    late = False
    """Set while the reply to a cancelled call is awaited: the scope cancels it then."""

    def __init__(self, tries: int = 1) -> None:
        self.tries = tries
        """Number of this try, from 1; more after replies that could not be used."""


BOOKED: ContextVar[Booking | None] = ContextVar("booked", default=None)
"""The call that is being made; None outside of any."""


class Paid:
    """The cost of the replies to one call so far, in any session."""

    def __init__(self) -> None:
        self.usage = FREE


PAID: ContextVar[Paid | None] = ContextVar("paid", default=None)
"""Set by the payer of a call before it asks, and filled by the scope; None without a payer."""

PAUSE = 0.2
"""Seconds before a call is made again whose reply could not be used; more with each try."""


class Pays(Protocol):
    """Admits paid calls."""

    async def begin(self, worst_usd: float | None) -> None:
        """Wait until a call that costs no more than this may be made; None if nobody can tell."""
        ...

    def end(self, worst_usd: float | None, usage: Usage | None) -> None:
        """Such a call has ended, with a reply that used this much or without one."""
        ...

    def count(self, usage: Usage) -> None:
        """Record the usage of a scope so far, replayed calls included."""
        ...


class JournalScope:
    """Implements `kept.core.ports.Scope` on a journal."""

    # what is the same for all of them at first stands here: every rollout has one, few make calls
    usage: Usage = FREE
    """Of the calls made here and below, in whichever sitting they were made."""
    called = False
    """True if any call was made here or below, even a free one."""
    replayed = 0.0
    """Seconds that calls here and below took whose replies an earlier sitting heard."""
    _asked: dict[str, int] | None = None
    _earlier: bool | None = None
    """True if an earlier session, perhaps of an older Kept, has replies here; None if unknown."""
    _parent: "JournalScope | None" = None

    def __init__(self, journal: Journal, owner: str | Job, pays: "Pays | None" = None) -> None:
        self._journal = journal
        self._owner = owner
        self._pays = pays

    @property
    def path(self) -> str:
        """Path under which its calls are journalled."""
        # put together only when a call is made: most rollouts of a plain function make none
        return self._owner if isinstance(self._owner, str) else self._owner.scope

    async def call(
        self,
        request: object,
        reply: type[R],
        do: Callable[[], Awaitable[R | Failure]],
        worst_usd: float | None = None,
    ) -> R | Failure:
        """The journalled reply to the nth equal request, or a new one, journalled on arrival.

        A reply that arrived and cannot be used is journalled as well, since it is paid for, and
        the call is made again. What such replies cost is added to what the answer says it used.
        """
        self._mark()
        key = request_key(request)
        asked = self._asked = self._asked or {}
        known, at = self._known(request, key, reply), asked.get(key, 0)
        paid = PAID.get() or Paid()
        while at < len(known):
            answer = known[at]
            asked[key] = at = at + 1
            lost, answer = paid.usage, self._counted(answer, paid)
            if not _is_lost(answer):
                self._wait_for(answer)
                return _with(answer, lost)
        task = asyncio.current_task()
        before = task.cancelling() if task is not None else 0
        for tries in range(1, PAID_TRIES + 1):
            booking = Booking(tries)
            answer = await self._do(do, worst_usd, booking)
            # an outage is no reply: the next sitting asks again
            if _is_lost(answer) or not isinstance(answer, Failure) or answer.blame == "candidate":
                unpriced = worst_usd is None and _cost(answer) is not None
                answer = self._journal.record_call(self.path, key, answer, unpriced=unpriced)
                asked[key] = asked.get(key, 0) + 1
            lost, answer = paid.usage, self._counted(answer, paid)
            if booking.late and task is not None and task.cancelling() > before:
                raise asyncio.CancelledError
            if not _is_lost(answer) or answer.tried or tries == PAID_TRIES:
                return _with(answer, lost)
            await asyncio.sleep(PAUSE * tries)
        raise AssertionError("the last try returns")

    def _known(self, request: object, key: str, reply: type[R]) -> Sequence[R | Failure]:
        """Journalled replies to a request, of all sessions, oldest first."""
        path = self.path
        if self._earlier is None:
            self._earlier = self._journal.heard(path)
        known = self._journal.calls(path, key, reply)
        if self._earlier and (older := older_key(request)) != key:
            return [*self._journal.calls(path, older, reply), *known]
        return known

    async def _do(
        self, do: Callable[[], Awaitable[R | Failure]], worst_usd: float | None, booking: Booking
    ) -> R | Failure:
        if self._pays is not None:
            await self._pays.begin(worst_usd)
        used: Usage | None = None
        booked, paid = BOOKED.set(booking), PAID.set(None)
        try:
            answer = await do()
            used = _cost(answer)
        finally:
            PAID.reset(paid)
            BOOKED.reset(booked)
            if self._pays is not None:
                self._pays.end(worst_usd, used)
        return answer

    def _counted(self, answer: R | Failure, paid: Paid) -> R | Failure:
        """Count an answer; a failure is returned without its usage, or it would count twice."""
        paid.usage += answer.usage
        if not isinstance(answer, Failure):
            self._count(answer.usage)
        elif answer.usage != FREE:
            self._count(answer.usage)
            return replace(answer, usage=FREE)
        return answer

    def branch(self, name: str) -> "JournalScope":
        """A scope of its own below this one."""
        below = JournalScope(self._journal, f"{self.path}/{name}", self._pays)
        below._parent = self
        return below

    def _wait_for(self, answer: object) -> None:
        self.replayed += getattr(answer, "seconds", 0.0)
        if self._parent is not None:
            self._parent._wait_for(answer)

    def _mark(self) -> None:
        self.called = True
        if self._parent is not None:
            self._parent._mark()

    def _count(self, usage: Usage) -> None:
        self.usage += usage
        if self._parent is not None:
            self._parent._count(usage)
        elif self._pays is not None:
            self._pays.count(self.usage)


def _is_lost(answer: Priced | Failure) -> TypeGuard[Failure]:
    """True for a reply that arrived and cannot be used."""
    return isinstance(answer, Failure) and answer.arrived


def _with(answer: R | Failure, lost: Usage) -> R | Failure:
    """An answer with what the replies before it cost that could not be used."""
    if lost == FREE or isinstance(answer, Failure):
        return answer
    return replace(cast("Any", answer), usage=answer.usage + lost)


def _cost(answer: Priced | Failure) -> Usage | None:
    """Known cost of a call; None for one that failed before it used anything.

    None for an outage too, which is not journalled: a later sitting would know less than this one.
    """
    failed = isinstance(answer, Failure)
    if failed and (answer.blame != "candidate" or answer.usage == FREE):
        return None
    return answer.usage


@lru_cache(maxsize=64)
def _fields(
    kind: "type[DataclassInstance]",
) -> tuple[tuple[str, ...], Callable[[object], tuple[object, ...]]]:
    """The names of its fields, and what reads them all at once."""
    names = tuple(one.name for one in fields(kind))
    if len(names) < 2:
        return names, lambda value: tuple(getattr(value, name) for name in names)
    return names, attrgetter(*names)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        names, values = _fields(type(value))
        return dict(zip(names, values(value), strict=True))
    if isinstance(value, set | frozenset):
        return sorted(cast("set[Any]", value), key=repr)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    raise RunError(
        f"a request holds a {type(value).__qualname__}, which cannot be told from another",
        hint="make requests of texts, numbers, lists and mappings",
    )


_PACKED = msgspec.msgpack.Encoder(order="sorted", enc_hook=_plain)
_WRITTEN = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=_plain)


def request_key(request: object) -> str:
    """A hash of a request; equal requests have equal keys."""
    try:
        raw = _PACKED.encode(request)
    except (TypeError, ValueError, OverflowError):
        # half a character, a number of more than 64 bits, keys that are no texts
        return older_key(request)
    return hashlib.sha256(raw).hexdigest()[:24]


def older_key(request: object) -> str:
    """The same as journals had it at first, which takes eight times as long."""
    raw = _WRITTEN.encode(request).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:24]
