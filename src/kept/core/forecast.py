"""The most that a run can use, known before it starts."""

from typing import NamedTuple, Protocol, runtime_checkable

from kept.core.case import Case
from kept.core.plan import Plan
from kept.core.ports import Building, Measuring
from kept.core.schedules.round_robin import MEASURE, OF_THE_RUN, Pooling
from kept.core.verdict import Side, Verdict, View

MOST_OPEN = 32
"""Steps that are open at once, unless a plan says otherwise."""

MOST_PRICED = 2
"""The same where a rollout has a price, or agents are paid: what a keep makes moot is paid for."""


class Likely(NamedTuple):
    """Rollouts of a run as most of them go, never more than it can use."""

    useless: int
    """Were no proposal better: most of them are dropped after a few draws."""
    kept: int
    """Were one of them kept besides, with all that is set aside for its proof and the claim."""
    used_up: bool = False
    """True if only the limit of rollouts ends it."""


class Forecast(NamedTuple):
    """Upper bounds; None where nothing in the plan is one."""

    per_step: int
    """Rollouts that the gate asks of a candidate to begin with."""
    rollouts: int | None
    """See `most_rollouts`."""
    seconds: float | None
    """Were every try to take as long as it may, and infrastructure to fail all it can."""
    usd: float | None
    likely: Likely | None
    """None where nothing says how many steps there will be."""


@runtime_checkable
class Asker(Protocol):
    """A proposer that has rollouts made for itself."""

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Most rollouts that it asks for, for each candidate that it learns of."""
        ...


@runtime_checkable
class Finite(Protocol):
    """A proposer that knows how much it has to propose."""

    def most_proposed(self) -> int:
        """Steps in which it proposes anything, at most."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A schedule that opens a limited number of steps."""

    def most_steps(self) -> int:
        """Most steps that it opens, unless an outage repeats one."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A gate that limits what a step may ask for."""

    def most_asked(self, train: int, holdout: int) -> int:
        """Most rollouts that a step adds, with so many cases; of a `Sequential` both sides'."""
        ...


@runtime_checkable
class Ending(Protocol):
    """A gate that measures something after the last ordinary step."""

    def most_at_end(self, cases: tuple[int, int, int], pooled: int) -> int:
        """Most rollouts of the end: by train, holdout and test cases, and steps in the pool."""
        ...


@runtime_checkable
class Sequential(Bounded, Protocol):
    """A gate that asks for more as long as it cannot tell."""

    def first_asked(self, train: int, holdout: int) -> int:
        """Rollouts of a challenger to begin with."""
        ...

    def usual_asked(self, train: int, holdout: int, steps: int) -> int:
        """Rollouts of both sides where none of so many proposals is better."""
        ...


@runtime_checkable
class Rerunning(Protocol):
    """A gate that has what it is about to keep run again."""

    @property
    def exact(self) -> int:
        """Runs that must agree of it, where they agree to the last digit."""
        ...


def most_rollouts(plan: Plan) -> int | None:
    """Upper bound on the rollouts of a run; None where the plan has none.

    Rollouts that infrastructure failed are not counted. A proposer without `most_asked` is taken
    to ask for nothing.
    """
    limits = [] if plan.budget.max_rollouts is None else [plan.budget.max_rollouts]
    steps = _steps(plan)
    if steps is not None and isinstance(plan.gate, Bounded):
        cases = tuple(len(split) for split in (plan.cases.train, plan.cases.holdout))
        each = plan.gate.most_asked(*cases)
        # the seed's; a challenger that is kept was measured, or every step counts both sides
        first = _asked(plan)[1] if isinstance(plan.gate, Sequential) else each
        # a keep has all open steps judged again
        judged = steps * min(plan.width, max(1, steps))
        train = plan.cases.train
        asked = [asker.most_asked(train) for asker in plan.proposers if isinstance(asker, Asker)]
        # for proposers: of each candidate, and of what each proposer began with
        feeding = (steps + len(asked)) * max(asked, default=0)
        rollouts = first + _baseline(plan) + judged * each + feeding
        limits.append(rollouts + _at_end(plan, steps))
    return min(limits, default=None)


def most_usd(plan: Plan) -> float | None:
    """Most dollars, where every rollout has a highest price; None where something else is paid.

    Every rollout may be tried as often as it can. The engine holds a run to it: outages may have
    rollouts asked for again without end.
    """
    rollouts = most_rollouts(plan) if plan.worst_usd and not plan.priced else None
    return None if rollouts is None else rollouts * (1 + plan.retries) * plan.worst_usd


def forecast(plan: Plan) -> Forecast:
    """Bounds and usual figures of a plan."""
    challenger, incumbent = _asked(plan)
    rollouts = most_rollouts(plan)
    usd = plan.budget.max_usd if plan.worst_usd or plan.priced else 0.0
    if (most := most_usd(plan)) is not None:
        usd = most if usd is None else min(usd, most)
    likely = _likely(plan, challenger, incumbent, rollouts)
    return Forecast(challenger, rollouts, _seconds(plan, rollouts), usd, likely)


def _likely(plan: Plan, challenger: int, incumbent: int, most: int | None) -> Likely | None:
    steps = _steps(plan)
    if steps is None:
        # it goes on until the rollouts are used up, whatever becomes of each proposal
        return None if most is None else Likely(most, most, used_up=True)
    once = isinstance(plan.gate, Rerunning) and plan.objective.deterministic
    if isinstance(plan.gate, Sequential) and not once:
        asked = plan.gate.usual_asked(len(plan.cases.train), len(plan.cases.holdout), steps)
    else:
        asked = incumbent + steps * challenger
    useless = asked + _usually_for_proposers(plan, steps)
    again = plan.gate.exact - 1 if isinstance(plan.gate, Rerunning) and not once else 0
    useless, kept = (
        n if most is None else min(n, most) for n in (useless, useless + again + plan.reserve)
    )
    return Likely(useless, kept)


def _usually_for_proposers(plan: Plan, steps: int) -> int:
    """Rollouts that feed proposers, while the incumbent stays the same."""
    train, most = plan.cases.train, 0
    for asker in plan.proposers:
        if isinstance(asker, Asker):
            # one sweep is enough, unless nothing fails in it
            each = steps * min(asker.most_asked(train), max(1, len(train)))
            # who builds on the incumbent looks at it alone, and at each case once
            builds = isinstance(asker, Building) and asker.builds
            most = max(most, min(each, len(train)) if builds else each)
    return most


def enough_steps(plan: Plan) -> int:
    """Number of open steps that keeps the workers busy with the first Ask of each gate.

    Twice what fills them once: steps close in order, so a finished one may wait for its elders.
    """
    pairs, _ = _asked(plan)
    most = MOST_PRICED if plan.worst_usd or plan.dear else MOST_OPEN
    return max(1, min(most, 2 * -(-plan.workers // max(1, pairs))))


def _steps(plan: Plan) -> int | None:
    """Steps with a candidate, at most: by the budget, and by what there is to propose."""
    limits = [plan.budget.max_iterations] if plan.budget.max_iterations is not None else []
    schedule = plan.schedule.inner if isinstance(plan.schedule, Pooling) else plan.schedule
    if isinstance(schedule, Limited):
        limits.append(schedule.most_steps())
    given = [proposer for proposer in plan.proposers if proposer.name not in OF_THE_RUN]
    known = [proposer.most_proposed() for proposer in given if isinstance(proposer, Finite)]
    if known and len(known) == len(given):
        # what was nearly kept comes again, put together with others: each time the pool shrinks
        own = plan.schedule
        merges = isinstance(own, Pooling) and own.pools and not own.final
        again = sum(known) if merges else 0
        limits.append(sum(known) + again)
    return min(limits, default=None)


def _baseline(plan: Plan) -> int:
    """Rollouts of the seed alone, where a step measures it first."""
    measures = any(proposer.name == MEASURE for proposer in plan.proposers)
    gate = plan.gate
    if not (measures and isinstance(gate, Sequential) and isinstance(gate, Measuring)):
        return 0
    return len(plan.cases.train) + len(plan.cases.holdout)


def _at_end(plan: Plan, steps: int) -> int:
    """Rollouts after the last ordinary step."""
    if not isinstance(plan.gate, Ending):
        return plan.reserve
    pooled = steps if isinstance(plan.schedule, Pooling) and plan.schedule.pools else 0
    cases = plan.cases
    return plan.gate.most_at_end((len(cases.train), len(cases.holdout), len(cases.test)), pooled)


def _asked(plan: Plan) -> tuple[int, int]:
    """Rollouts that the gate first asks of a challenger, and of an unknown incumbent."""
    new, old = Side("challenger"), Side("incumbent")
    cases = plan.cases
    train, holdout = (tuple(case.id for case in part) for part in (cases.train, cases.holdout))
    answer = plan.gate.decide(View(new, old, old, train, holdout, plan.objective))
    asks = () if isinstance(answer, Verdict) else answer
    counts = {side.id: 0 for side in (new, old)}
    for ask in asks:
        counts[ask.candidate] += len(ask.pairs)
    if isinstance(plan.gate, Sequential):
        # it may look at the incumbent first
        counts[new.id] = plan.gate.first_asked(len(train), len(holdout))
    return counts[new.id], counts[old.id]


def _seconds(plan: Plan, rollouts: int | None) -> float | None:
    each = plan.worst_seconds
    if each is None:
        return None
    found: list[float] = []
    if rollouts is not None:
        found.append(-(-rollouts * (1 + plan.retries) // plan.workers) * each)
    if plan.budget.max_minutes is not None:
        # what has begun by then may end
        found.append(plan.budget.max_minutes * 60 + each)
    return min(found, default=None)
