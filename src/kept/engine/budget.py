"""Budget: replayed spend, reservations, fair waiting, and admission of paid calls.

Free budget goes to steps in their order, not to the quickest. Calls that an earlier session paid
for are replayed from the journal and cost nothing again.

Money is admitted before each call and counted with each reply. Where the caller knows the maximum
cost of a call, that much is reserved while it runs. Otherwise the most expensive call so far
stands for the next one, separately for proposers and rollouts. Before the first reply, one call
runs at a time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, cast

from kept.core.budget import (
    NO_CALL,
    NOTHING,
    Budget,
    EndMoney,
    Reservation,
    Spend,
    StopReason,
    out_of_time,
    refusal,
)
from kept.core.forecast import most_usd
from kept.core.plan import Plan
from kept.core.proposal import proposal_scope
from kept.core.rollout import FREE, Job, Purpose, Usage
from kept.core.score import Outcome


class Past(NamedTuple):
    """Usage of calls of an earlier session."""

    billed: dict[Job, Usage]
    """Of rollouts that came to nothing: it is on the bill already."""
    under_way: dict[str, Usage]
    """By scope, of whatever was cut off: nobody has counted it yet."""


def past_of(paid: Mapping[str, Usage], counted: Collection[Job], silent: Collection[str]) -> Past:
    """Calls at hand, with the rollouts that are counted and proposers that have not replied."""
    roots = {job.scope: job for job in counted}
    billed, under_way = dict[Job, Usage](), dict[str, Usage]()
    for scope, used in paid.items():
        job = next((roots[root] for root in _roots(scope) if root in roots), None)
        if job is not None:
            billed[job] = billed.get(job, FREE) + used
        elif in_rollout(scope) or any(below(scope, root) for root in silent):
            under_way[scope] = used
    return Past(billed, under_way)


def job_of(scope: str, cases: Collection[str]) -> Job | None:
    """The rollout of a scope, or of a branch of one; None where its case is not among these."""
    if not in_rollout(scope):
        return None
    _, candidate, purpose, *rest = scope.split("/")
    for at in range(len(rest) - 1, 0, -1):  # the name of a case may have slashes
        case, repeat = "/".join(rest[:at]), rest[at]
        if case in cases and repeat.isdecimal():
            return Job(candidate, case, int(repeat), cast("Purpose", purpose))
    return None


def _roots(scope: str) -> Iterator[str]:
    """A scope and those that it is a branch of, longest first."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def in_rollout(scope: str) -> bool:
    """True for the scope of a rollout, or a branch of one."""
    return scope.startswith("rollout/")


def below(scope: str, root: str) -> bool:
    """True if a scope is this one or a branch of it."""
    return scope == root or scope.startswith(f"{root}/")


_payer = itemgetter(0)


class Halt(Exception):
    """An Ask that will not be answered; carries the reason to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.message)
        self.reason = reason


class OutOfBudget(Halt):
    """An Ask whose worst case does not fit."""


class Meter:
    """A `Spend` in the making: plain sums, because one is added to with every rollout."""

    __slots__ = (
        "calls",
        "cancelled",
        "retries",
        "rollouts",
        "seconds",
        "tokens_in",
        "tokens_out",
        "usd",
    )

    def __init__(self) -> None:
        self.rollouts = 0
        self.cancelled = 0
        self.retries = 0
        self.calls = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.usd = 0.0
        self.seconds = 0.0

    def add(self, outcomes: Iterable[Outcome]) -> None:
        """Count rollouts; one that infrastructure failed is none, as it is asked for again."""
        for _, failure, _, usage, seconds, tries, _ in outcomes:
            self.rollouts += failure is None or failure.blame == "candidate"
            self.seconds += seconds
            if tries > 1:
                self.retries += tries - 1
            if usage is not FREE:
                self.use(usage)

    def cancel(self, usage: Usage) -> None:
        """Count a rollout that was stopped in flight, after calls that are to be paid for."""
        self.cancelled += 1
        self.use(usage)

    def use(self, usage: Usage) -> None:
        """Count calls."""
        self.calls += usage.calls
        self.tokens_in += usage.tokens_in
        self.tokens_out += usage.tokens_out
        self.usd += usage.usd

    def spend(self, moot: int = 0) -> Spend:
        """Spend so far; `moot` rollouts count as wasted."""
        return Spend(
            rollouts=self.rollouts,
            moot=moot,
            cancelled=self.cancelled,
            retries=self.retries,
            calls=self.calls,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            usd=self.usd,
            seconds=self.seconds,
        )


class Purse:
    """Reserve before, settle after."""

    def __init__(self, plan: Plan, spent: Spend, elapsed: Callable[[], float]) -> None:
        self._budget = plan.budget
        self._elapsed = elapsed
        self._worst = plan.worst_usd
        self._kept_back = plan.reserve
        self._claims = plan.claims
        self._end = EndMoney(plan.budget.rollouts_usd or 0.0, plan.reserve, plan.least_end[0])
        self._least_claim = plan.least_end[1]
        self.proving = False
        """True while the end of the run is open, even where it looks at train cases."""
        most = most_usd(plan)
        # of a run that is resumed, what is to come
        announced = None if most is None else spent.usd + most
        limits = [one for one in (plan.budget.max_usd, announced) if one is not None]
        self._limit = replace(plan.budget, max_usd=min(limits, default=None))
        """The budget, with the dollars that `kept check` says at most."""
        self._before = spent
        self.meters: dict[int, Meter] = {}
        """Usage of rollouts, by the open step that asked for them."""
        self.held = 0
        """Rollouts that are set aside for."""
        self._tries = 0
        self._calls: dict[int | Job, Usage] = {}
        """Usage of proposers without a reply yet, and of unfinished rollouts."""
        self._settled: dict[int, Usage] = {}
        """Of them, what was paid when a step closed before its proposer had replied."""
        self.first_open = 0
        """The first step that is not closed."""
        self.past: dict[str, Usage] = {}
        """The same of an earlier sitting, by scope, until they are at it again."""

    @property
    def spent(self) -> Spend:
        """All that was used."""
        return sum((meter.spend() for meter in self.meters.values()), self._before)

    @property
    def limited(self) -> bool:
        """True if anything but time limits the rollouts."""
        return self._budget.max_rollouts is not None or self._budget.max_usd is not None

    def leave(self, purposes: Collection[Purpose]) -> int:
        """Rollouts to be left for what comes after: the end, and at the end the claim."""
        if all(purpose == "test" for purpose in purposes):
            return 0
        ends = self.proving or all(purpose in ("promote", "test") for purpose in purposes)
        return self._claims if ends else self._kept_back

    def reserve(self, rollouts: int, tries: int = 0, leave: int = 0) -> None:
        """Set aside the worst case of so many rollouts, or raise `OutOfBudget`.

        Further tries of a rollout cost money again, but are no rollouts of their own. So many
        rollouts as there are to leave must fit besides.
        """
        if late := out_of_time(self._budget, self._elapsed()):
            raise OutOfBudget(late)
        limit = self._limit
        if limit.max_rollouts is not None or limit.max_usd is not None:
            others = self.held + leave
            held = Reservation(others, (others + self._tries) * self._worst)
            worst = Reservation(rollouts, (rollouts + tries) * self._worst)
            aside = min(leave, self._kept_back)
            reason = refusal(limit, self._used(), held, worst, aside)
            if reason is not None:
                raise OutOfBudget(reason)
        self.held += rollouts
        self._tries += tries

    def used_up(self) -> StopReason | None:
        """Reason to begin nothing more; None while at least one rollout may begin."""
        if (pot := self._budget.max_rollouts_usd) is not None:
            aside = self._end.aside(self._kept_back, self._each())
            mine = Reservation(usd=self._rollouts_usd())
            one = Reservation(usd=self._each() or 0.0)
            if reason := refusal(Budget(max_usd=pot), mine, Reservation(usd=aside), one):
                return reason
        if not self.limited:
            return None
        used = self._used()
        held = Reservation(self._kept_back, self._kept_back * self._worst)
        if self.by_call:
            held = held._replace(usd=self._end.aside(self._kept_back, self._each()))
        one = Reservation(1, self._worst)
        return refusal(self._budget, used, held, one, self._kept_back)

    def _used(self) -> Reservation:
        """Usage that limits apply to. Called with every Ask, so it computes no more."""
        rollouts, usd = self._before.rollouts, self._before.usd
        for meter in self.meters.values():
            rollouts += meter.rollouts
            usd += meter.usd
        for used in (*self._calls.values(), *self.past.values()):
            usd += used.usd
        return Reservation(rollouts, usd)

    def release(self, rollouts: int, tries: int = 0) -> None:
        """Give back what was set aside for so many rollouts and further tries."""
        self.held -= rollouts
        self._tries -= tries

    def meter(self, step: int) -> Meter:
        """The meter of a step that is open."""
        meter = self.meters.get(step)
        if meter is None:
            meter = self.meters[step] = Meter()
        return meter

    def count(self, rows: Sequence[tuple[int, Job, Outcome]]) -> None:
        """Count rollouts that are done, each for the step that pays for it."""
        for payer, theirs in groupby(rows, key=_payer):
            self.meter(payer).add([outcome for _, _, outcome in theirs])

    def close(self, step: int, moot: int) -> Spend:
        """Remove the meter of a step and return the spend on its rollouts."""
        meter = self.meters.pop(step, None)
        spend = meter.spend(moot) if meter is not None else Spend(moot=moot)
        if step in self._calls:
            # closed before its proposer replied: what that used is paid all the same
            self._settled[step] = used = self._calls.pop(step)
            spend += spend_on(used)
        self._before += spend
        self.first_open = max(self.first_open, step + 1)
        return spend + self.take_late()

    def take_late(self) -> Spend:
        """Take the spend of closed steps on replies that arrived after cancellation."""
        closed = [step for step in self.meters if step < self.first_open]
        late = sum((self.meters.pop(step).spend() for step in closed), NOTHING)
        for step in [who for who in self._calls if isinstance(who, int) and who < self.first_open]:
            used = self._calls.pop(step)
            late += spend_on(used - self._settled.get(step, FREE))
            self._settled[step] = used
        self._before += late
        return late

    def pay(self, spend: Spend, step: int | None = None) -> None:
        """Count what something other than a rollout used: a proposer, whose reply is in now."""
        if step is not None:
            self._calls.pop(step, None)
        self._before += spend

    def hold(self, who: int | Job, used: Usage) -> None:
        """Record the usage of an unfinished proposer or rollout."""
        # who begins again begins by hearing the replies that there were: that is no less
        if used.calls >= self._calls.get(who, FREE).calls:
            self._calls[who] = used

    def take_over(self, scope: str, who: int | Job) -> None:
        """Calls that an earlier sitting made in a scope are now those of its owner."""
        mine = [path for path in self.past if below(path, scope)]
        if mine:
            self.hold(who, sum((self.past.pop(path) for path in mine), FREE))

    def take_lost(self, cases: Collection[str], wanted: Callable[[Job], bool]) -> dict[Job, Usage]:
        """Calls that an earlier sitting made in rollouts that nobody will take up any more."""
        found: dict[Job, Usage] = {}
        for scope in list(self.past):
            job = job_of(scope, cases)
            if job is not None and not wanted(job):
                found[job] = found.get(job, FREE) + self.past.pop(scope)
        return found

    def done(self, job: Job) -> None:
        """A rollout is counted by its meter now."""
        self._calls.pop(job, None)

    def cancel(self, step: int, job: Job, used: Usage) -> None:
        """Count a rollout that came to nothing, after calls that are to be paid for."""
        self.meter(step).cancel(used)
        self.done(job)

    @property
    def by_call(self) -> bool:
        """True if rollouts pay for each call: money is limited, and none is reserved for them."""
        return self._budget.rollouts_usd is not None and not self._worst

    def money_left(self, owner: int | Job) -> float | None:
        """Beside what is used and what is set aside; None where nothing limits it."""
        whole, pot = self._budget.max_usd, self._budget.max_rollouts_usd
        left: list[float] = []
        if whole is not None:
            left.append(whole - self._used().usd - (self.held + self._tries) * self._worst)
        if pot is not None and isinstance(owner, Job):
            left.append(pot - self._rollouts_usd())
        return min(left, default=None)

    def for_the_end(self, owner: int | Job) -> float:
        """Dollars that calls of a step's proposer, or of a rollout, must leave for the end."""
        if not self.by_call or not self._kept_back:
            return 0.0
        purposes: tuple[Purpose, ...] = (owner.purpose,) if isinstance(owner, Job) else ("decide",)
        later = self.leave(purposes)
        if not later:
            return 0.0
        least = None if later == self._kept_back else self._least_claim
        return self._end.aside(later, self._each(), least)

    def _each(self) -> float | None:
        """Mean cost of a rollout; None while nothing is known."""
        rollouts = self._before.rollouts + sum(meter.rollouts for meter in self.meters.values())
        return self._done_usd() / rollouts if rollouts else None

    def _done_usd(self) -> float:
        """Cost of finished rollouts."""
        usd = self._before.usd - self._before.proposing_usd
        return usd + sum(meter.usd for meter in self.meters.values())

    def _rollouts_usd(self) -> float:
        """Cost of rollouts, unfinished ones included."""
        going = [used.usd for who, used in self._calls.items() if isinstance(who, Job)]
        past = [used.usd for scope, used in self.past.items() if in_rollout(scope)]
        return self._done_usd() + sum(going) + sum(past)


def spend_on(calls: Usage) -> Spend:
    """Spend on calls outside rollouts."""
    if calls is FREE:
        return NOTHING
    return Spend(
        calls=calls.calls,
        tokens_in=calls.tokens_in,
        tokens_out=calls.tokens_out,
        usd=calls.usd,
        proposing_usd=calls.usd,
    )


class Room:
    """Sets aside for rollouts, and has those wait whom others leave no room."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._released = asyncio.Event()
        self._waiting = 0
        """Asks that wait for what others hold."""
        self._first_open = 0
        self._asked: set[int] = set()
        """Open steps whose gate has asked."""
        self._largest = 0
        """Rollouts that one Order asked for at most."""

    def opened(self, first: int) -> None:
        """Hear which step is now the oldest that is open."""
        self._asked.difference_update(range(self._first_open, first))
        self._first_open = first
        self._released.set()

    def heard_from(self, step: int) -> None:
        """No room needs to be left for this step any more."""
        self._asked.add(step)
        self._released.set()

    async def reserve(self, rollouts: int, step: int, purposes: Collection[Purpose]) -> bool:
        """Set aside for so many rollouts; where they do not fit now, wait and tell so.

        What others hold may come back: only when nobody holds anything is it certain that they do
        not fit at all. A step leaves room for its elders that have yet to ask.
        """
        self._largest = max(self._largest, rollouts)
        elders = self._silent_elders(step) if self._purse.limited else 0
        try:
            leave = elders * self._largest + self._purse.leave(purposes)
            self._purse.reserve(rollouts, leave=leave)
        except OutOfBudget as error:
            if error.reason.kind == "minutes" or not (self._purse.held or elders):
                self.heard_from(step)
                raise
            self._released.clear()
            self._waiting += 1
            try:
                await self._released.wait()
            finally:
                self._waiting -= 1
            return False
        return True

    def give_back(self, rollouts: int) -> None:
        """So many rollouts need what was set aside for them no more."""
        self._purse.held -= rollouts
        if self._waiting and rollouts:
            self._released.set()

    def _silent_elders(self, step: int) -> int:
        elders = range(self._first_open, step)
        return len(elders) - len(self._asked.intersection(elders))


HAIR = 1e-9
"""Sums of cents in floating point must not refuse the last fitting call."""


class Till:
    """Admits calls of proposers, and calls of rollouts without a price, one by one."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self.dearest = NO_CALL
        """Of the calls that nobody could tell a worst case of."""
        self._aside = 0.0
        """The worst cases of the calls under way that have one."""
        self._known = 0
        """Calls under way whose worst case is known."""
        self._unknown: Counter[bool] = Counter()
        """The others, by whether a proposer makes them."""
        self._ended = asyncio.Event()

    async def begin(self, worst_usd: float | None, owner: int | Job = 0) -> None:
        """Wait until a call fits; raises `OutOfBudget` where it never will."""
        while (room := self._purse.money_left(owner)) is not None:
            for_end = self._purse.for_the_end(owner)
            room -= for_end
            proposing = not isinstance(owner, Job)
            if self._fits(worst_usd, room, proposing):
                break
            if self._idle:
                each = worst_usd if worst_usd is not None else self._each(proposing) or 0.0
                left = f"${max(0.0, room):.4f} is left"
                left += f", and ${for_end:.4f} are set aside for the end" if for_end else ""
                words = f"another call of up to ${each:.4f} does not fit: {left}"
                raise OutOfBudget(StopReason("usd", words))
            self._ended.clear()
            await self._ended.wait()
        if worst_usd is None:
            self._unknown[not isinstance(owner, Job)] += 1
        else:
            self._known += 1
            self._aside += worst_usd

    @property
    def _idle(self) -> bool:
        """True if no call is in flight."""
        return not self._known + self._unknown.total()

    def _each(self, proposing: bool) -> float | None:
        """Amount to reserve for a call of unknown price."""
        return self.dearest.proposing if proposing else self.dearest.rollout

    def _fits(self, worst_usd: float | None, room: float, proposing: bool) -> bool:
        if worst_usd == 0:
            return True
        asked = self._unknown + Counter({proposing: int(worst_usd is None)})
        prices = {who: self._each(who) for who in asked}
        if None in prices.values():
            # nothing is known of what is under way, or of what is to begin: it goes alone
            return room > 0 and self._idle
        needed = self._aside + sum(n * (prices[who] or 0.0) for who, n in asked.items())
        return room > 0 and room + HAIR >= needed + (worst_usd or 0.0)

    def end(self, worst_usd: float | None, usage: Usage | None, owner: int | Job = 0) -> None:
        """Such a call has its reply, which used this much; None where it has none.

        What failed teaches nothing of what a call costs.
        """
        proposing = not isinstance(owner, Job)
        if worst_usd is None:
            self._unknown[proposing] -= 1
        else:
            self._known -= 1
            self._aside = self._aside - worst_usd if self._known else 0.0
        if usage is not None and worst_usd is None:
            self.dearest = self.dearest.learn(usage.usd, proposing=proposing)
        self._ended.set()

    def learn(self, unpriced: Mapping[str, float]) -> None:
        """Take into account calls of an earlier sitting, the dearest of each scope."""
        for scope, usd in unpriced.items():
            self.dearest = self.dearest.learn(usd, proposing=not in_rollout(scope))

    def of(self, owner: int | Job) -> "OwnTill":
        """The same for the proposer of one step, or for one rollout."""
        if self._purse.past:
            scope = owner.scope if isinstance(owner, Job) else proposal_scope(owner)
            self._purse.take_over(scope, owner)
        return OwnTill(self, self._purse, owner)


class OwnTill:
    """Admits the calls of one owner."""

    def __init__(self, till: Till, purse: Purse, owner: int | Job) -> None:
        self._till = till
        self._purse = purse
        self._owner = owner

    async def begin(self, worst_usd: float | None) -> None:
        """Wait until a call fits; raises `OutOfBudget` where it never will."""
        await self._till.begin(worst_usd, self._owner)

    def end(self, worst_usd: float | None, usage: Usage | None) -> None:
        """Such a call has its reply, which used this much; None where it has none."""
        self._till.end(worst_usd, usage, self._owner)

    def count(self, usage: Usage) -> None:
        """Record the usage of the owner's calls so far."""
        self._purse.hold(self._owner, usage)
