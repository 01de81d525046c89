"""Cost estimate of tuning an agent, before anything is spent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from math import prod
from statistics import fmean

from kept.core.artifact import Value
from kept.core.forecast import forecast
from kept.core.llm import Message, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Model
from kept.core.rollout import PAID_TRIES
from kept.core.schedules.coordinate import Coordinate
from kept.core.schedules.round_robin import Pooling
from kept.models.client import connect
from kept.models.prices import BYTES, REPLY, usual_usd, worst_usd
from kept.models.providers import ModelConfig
from kept.models.roles import is_free
from kept.proposers.numeric.space import Numbers
from kept.recipes.agent_config.compile import request_of
from kept.recipes.agent_config.search_space import Axes
from kept.recipes.agent_config.spec.cases import TestCaseSpec
from kept.recipes.agent_config.spec.read import ParsedAgent, ReadAgent
from kept.recipes.agent_config.tools import tool_models
from kept.recipes.agent_config.tunable import try_edits

MOST_AGENTS = 200
"""Number of combinations of choices that are priced."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected number of rollouts of a run, and the cost of one."""

    at_most: int | None
    """Rollouts if every trial of every cycle takes the maximum; None if unlimited."""
    useless: int
    """Rollouts if nothing is better: one cycle, most of which is dropped early."""
    kept: int
    """Rollouts if the first cycle keeps and confirms something, and the second nothing."""
    usd_a_rollout: float | None
    """Usual cost with the most expensive model of the axes; None without a known price."""
    free: bool
    """True if no model that the axes allow costs anything."""
    worst_usd: float | None
    """Highest cost of a rollout, with all retries; None if unknown."""
    max_usd: float | None

    def usd(self, rollouts: int) -> float | None:
        """Usual cost of a number of rollouts, within the limit; None if unknown."""
        return _within(self.max_usd, rollouts, self.usd_a_rollout)

    @property
    def most_usd(self) -> float | None:
        """Highest cost of the whole run; None if unlimited."""
        return 0.0 if self.free else _within(self.max_usd, self.at_most, self.worst_usd)


def _within(limit: float | None, rollouts: int | None, each: float | None) -> float | None:
    if rollouts is None or each is None:
        return limit
    return rollouts * each if limit is None else min(rollouts * each, limit)


def coordinate_of(plan: Plan) -> Coordinate:
    """Phase schedule of a plan that tunes an agent."""
    schedule = plan.schedule.inner if isinstance(plan.schedule, Pooling) else plan.schedule
    assert isinstance(schedule, Coordinate), "a run that tunes goes phase by phase"
    return schedule


def expected(plan: Plan, schedule: Coordinate, read: ReadAgent, axes: Axes) -> Expected:
    """Estimate from the phases of the schedule and from a gate's usual needs."""
    whole = schedule.max_cycles * sum(phase.max_trials for phase in schedule.phases)
    # trials of one cycle whose phases keep nothing
    dry = sum(min(one.max_trials, max(one.least, one.patience)) for one in schedule.phases)
    useless, kept = (
        forecast(replace(plan, budget=replace(plan.budget, max_iterations=steps)))
        for steps in (dry, min(whole, 2 * dry))
    )
    assert useless.likely is not None and kept.likely is not None, "so many steps and no more"
    agents = [*reachable(read, axes)]
    # critics cost extra, and the texts they write make requests longer
    fixed = not axes.textual and axes.demos is None and _are_few(axes)
    worst = _dearest(agents, lambda agent: _most_usd(read, agent)) if fixed else None
    return Expected(
        forecast(plan).rollouts,
        useless.likely.useless,
        kept.likely.kept,
        _dearest(agents, lambda agent: _usual_usd(read, agent)),
        fixed and all(is_free(config) for agent in agents for config in configs_of(read, agent)),
        None if worst is None else worst * PAID_TRIES * (1 + plan.retries),
        plan.budget.max_usd,
    )


def reachable(read: ReadAgent, axes: Axes) -> Iterator[ParsedAgent]:
    """The agent itself, and with combinations of choices; numbers are at their highest.

    If there are too many combinations, every choice is in at least one of them.
    """
    yield read.agent
    if axes.numeric is None:
        return
    values, start = _values(axes), axes.start
    single = (
        (*start[:at], value, *start[at + 1 :]) for at, row in enumerate(values) for value in row
    )
    points = product(*values) if _are_few(axes) else chain(single, product(*values))
    for point in dict.fromkeys(islice(points, MOST_AGENTS + sum(map(len, values)))):
        agent = try_edits(read, axes.numeric.edits(point))
        if not isinstance(agent, str):
            yield agent


def _values(axes: Axes) -> list[tuple[Value, ...]]:
    """Most expensive values of each numeric axis: the highest number, or all choices."""
    domains = [axis.domain for axis in axes.numeric.axes] if axes.numeric else []
    return [(d.at(1.0),) if isinstance(d, Numbers) else tuple(d.values) for d in domains]


def _are_few(axes: Axes) -> bool:
    """True if `reachable` yields every combination."""
    return prod(map(len, _values(axes))) <= MOST_AGENTS


def configs_of(read: ReadAgent, agent: ParsedAgent) -> Iterator[ModelConfig]:
    """Models of an agent, of its judges and of its tools."""
    folder = read.place.folder
    yield agent.model_config(folder)
    for metric in agent.spec.metrics:
        if metric.enabled and metric.is_judged:
            yield agent.spec.judge_of(metric).config(folder)
    yield from (llm.config(folder) for _, llm in tool_models(agent.spec, folder))


def _dearest(
    agents: list[ParsedAgent], cost: Callable[[ParsedAgent], float | None]
) -> float | None:
    found = [cost(agent) for agent in agents]
    known = [usd for usd in found if usd is not None]
    return max(known) if len(known) == len(found) else None


def _usual_usd(read: ReadAgent, agent: ParsedAgent) -> float | None:
    """Mean cost over the cases, with one call per turn and replies of usual length."""
    model = connect(agent.model_config(read.place.folder))
    found = [_usd(model, usual_usd, agent, case, REPLY * BYTES) for case in read.cases]
    known = [usd for usd in found if usd is not None]
    return fmean(known) if known else None


def _most_usd(read: ReadAgent, agent: ParsedAgent) -> float | None:
    """Cost of the most expensive case with maximal replies; None if tools or judges cost too."""
    judged = any(metric.enabled and metric.is_judged for metric in agent.spec.metrics)
    config = agent.model_config(read.place.folder)
    longest = agent.spec.model.max_tokens or config.max_tokens
    if agent.spec.tools or judged or longest is None:
        return None
    # a reply is part of the next request, which may cost one token per byte
    model, reply = connect(config), longest * BYTES
    found = [_usd(model, worst_usd, agent, case, reply) for case in read.cases]
    return None if None in found else max((usd for usd in found if usd is not None), default=None)


def _usd(
    model: Model,
    price: Callable[[Model, ModelRequest], float | None],
    agent: ParsedAgent,
    case: TestCaseSpec,
    reply: int,
) -> float | None:
    """Price of all turns of a case, with replies of `reply` bytes."""
    request, total = request_of(agent), 0.0
    for turn in case.exchanges:
        request = replace(request, messages=(*request.messages, Message("user", turn.input)))
        cost = price(model, request)
        if cost is None:
            return None
        total += cost
        said = Message("assistant", "x" * reply)
        request = replace(request, messages=(*request.messages, said))
    return total
