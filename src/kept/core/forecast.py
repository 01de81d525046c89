"""The most that a run can use, known before it starts."""

from typing import NamedTuple, Protocol, runtime_checkable

from kept.core.case import Case
from kept.core.plan import Plan
from kept.core.ports import Building
from kept.core.schedule import MOST_PROOFS, OF_THE_RUN
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
    """Whether nothing but the limit of rollouts ends it."""


class Forecast(NamedTuple):
    """Upper bounds; None where nothing in the plan is one."""

    per_step: int
    """Rollouts that the gate asks of a candidate to begin with."""
    rollouts: int | None
    """Were every step kept: each keep has the open steps judged anew."""
    seconds: float | None
    """Were every try to take as long as it may, and infrastructure to fail all it can."""
    usd: float | None
    likely: Likely | None
    """None where nothing says how many steps there will be."""


@runtime_checkable
class Asker(Protocol):
    """A proposer that has rollouts made for itself."""

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """How many it asks for, at most, for each candidate that it learns of."""
        ...


@runtime_checkable
class Finite(Protocol):
    """A proposer that knows how much it has to propose."""

    def most_proposed(self) -> int:
        """Steps in which it proposes anything, at most."""
        ...


@runtime_checkable
class Sequential(Protocol):
    """A gate that asks for more as long as it cannot tell."""

    def most_asked(self, train: int, holdout: int) -> int:
        """Rollouts of both sides that one step comes to at most, with so many cases."""
        ...

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
    def sure(self) -> int:
        """Runs that must agree of it."""
        ...


def forecast(plan: Plan) -> Forecast:
    """What a plan comes to at worst; a proposer that does not say what it asks for asks nothing."""
    challenger, incumbent = _asked(plan)
    steps = _steps(plan)
    rollouts = None
    if steps is not None:
        each = challenger
        if isinstance(plan.gate, Sequential):
            # every step is a keep in the worst case, so each meets an incumbent of its own
            each = plan.gate.most_asked(len(plan.cases.train), len(plan.cases.holdout))
        # no more steps can be open at once than there are
        open_at_once = min(plan.width, max(1, steps))
        rollouts = incumbent + steps * open_at_once * each + _for_proposers(plan, steps)
        rollouts += plan.reserve
    if plan.budget.max_rollouts is not None:
        rollouts = min(plan.budget.max_rollouts, rollouts or plan.budget.max_rollouts)
    usd = plan.budget.max_usd if plan.worst_usd or plan.priced else 0.0
    if rollouts is not None and plan.worst_usd and not plan.priced:
        most = rollouts * (1 + plan.retries) * plan.worst_usd
        usd = most if usd is None else min(usd, most)
    likely = _likely(plan, challenger, incumbent, rollouts)
    return Forecast(challenger, rollouts, _seconds(plan, rollouts), usd, likely)


def _likely(plan: Plan, challenger: int, incumbent: int, most: int | None) -> Likely | None:
    steps = _steps(plan)
    if steps is None:
        # it goes on until the rollouts are used up, whatever becomes of each proposal
        return None if most is None else Likely(most, most, used_up=True)
    if isinstance(plan.gate, Sequential):
        asked = plan.gate.usual_asked(len(plan.cases.train), len(plan.cases.holdout), steps)
    else:
        asked = incumbent + steps * challenger
    useless = asked + _usually_for_proposers(plan, steps)
    again = plan.gate.sure - 1 if isinstance(plan.gate, Rerunning) else 0
    useless, kept = (
        n if most is None else min(n, most) for n in (useless, useless + again + plan.reserve)
    )
    return Likely(useless, kept)


def _usually_for_proposers(plan: Plan, steps: int) -> int:
    """Rollouts that feed proposers, while the incumbent stays the same."""
    train, most = plan.cases.train, 0
    for asker in plan.proposers:
        if isinstance(asker, Asker):
            each = steps * asker.most_asked(train)
            # who builds on the incumbent looks at it alone, and at each case once
            builds = isinstance(asker, Building) and asker.builds
            most = max(most, min(each, len(train)) if builds else each)
    return most


def enough_steps(plan: Plan) -> int:
    """How many steps must be open to keep the workers busy with what the gate first asks of each.

    Twice what fills them once: steps close in order, so a finished one may wait for its elders.
    """
    pairs, _ = _asked(plan)
    most = MOST_PRICED if plan.worst_usd or plan.dear else MOST_OPEN
    return max(1, min(most, 2 * -(-plan.workers // max(1, pairs))))


def _steps(plan: Plan) -> int | None:
    """Steps with a candidate, at most: by the budget, and by what there is to propose."""
    limits = [plan.budget.max_iterations] if plan.budget.max_iterations is not None else []
    given = [proposer for proposer in plan.proposers if proposer.name not in OF_THE_RUN]
    known = [proposer.most_proposed() for proposer in given if isinstance(proposer, Finite)]
    if known and len(known) == len(given):
        # what was nearly kept comes again, put together with others
        again = MOST_PROOFS if len(given) < len(plan.proposers) else 0
        limits.append(sum(known) + again)
    return min(limits, default=None)


def _for_proposers(plan: Plan, steps: int) -> int:
    """Rollouts that feed proposers: of each candidate, and of what each proposer began with."""
    train = plan.cases.train
    asked = [asker.most_asked(train) for asker in plan.proposers if isinstance(asker, Asker)]
    return (steps + len(asked)) * max(asked, default=0)


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
