"""Cost of tuning an agent, estimated before anything is spent."""

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
"""Combinations of choices that are priced."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Rollouts of a run, and what one of them costs."""

    at_most: int | None
    """Were every trial of every cycle to take as many as it can; None where nothing limits them."""
    useless: int
    """Were nothing better: one cycle, most of which is dropped early."""
    kept: int
    """Were something kept in the first cycle, proven, and nothing in the second."""
    usd_a_rollout: float | None
    """Usual cost with the dearest model that the axes allow; None where a price is not known."""
    free: bool
    """True where no model that the axes allow costs anything."""
    worst_usd: float | None
    """Highest cost of a rollout, all tries included; None where nobody can tell."""
    max_usd: float | None

    def usd(self, rollouts: int) -> float | None:
        """Usual cost of so many rollouts, within the limit; None where nobody can tell."""
        return _within(self.max_usd, rollouts, self.usd_a_rollout)

    @property
    def most_usd(self) -> float | None:
        """Highest cost of the whole run; None where nothing limits it."""
        return 0.0 if self.free else _within(self.max_usd, self.at_most, self.worst_usd)


def _within(limit: float | None, rollouts: int | None, each: float | None) -> float | None:
    if rollouts is None or each is None:
        return limit
    return rollouts * each if limit is None else min(rollouts * each, limit)


def coordinate_of(plan: Plan) -> Coordinate:
    """The schedule of phases of a plan that tunes an agent."""
    schedule = plan.schedule.inner if isinstance(plan.schedule, Pooling) else plan.schedule
    assert isinstance(schedule, Coordinate), "a run that tunes goes phase by phase"
    return schedule


def expected(plan: Plan, schedule: Coordinate, read: ReadAgent, axes: Axes) -> Expected:
    """By the phases that there are, and by what a gate usually asks for."""
    whole = schedule.max_cycles * sum(phase.max_trials for phase in schedule.phases)
    # phases that keep nothing
    dry = sum(min(one.max_trials, max(one.least, one.patience)) for one in schedule.phases)
    useless, kept = (
        forecast(replace(plan, budget=replace(plan.budget, max_iterations=steps)))
        for steps in (dry, min(whole, 2 * dry))
    )
    assert useless.likely is not None and kept.likely is not None, "so many steps and no more"
    agents = [*reachable(read, axes)]
    # critics are paid besides, and what they write makes requests longer
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
    """The agent as it is, and with combinations of choices; numbers are at their highest.

    Where there are too many combinations, every choice is met in one at least.
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
    """Values of each numeric axis that may cost most."""
    domains = [axis.domain for axis in axes.numeric.axes] if axes.numeric else []
    return [(d.at(1.0),) if isinstance(d, Numbers) else tuple(d.values) for d in domains]


def _are_few(axes: Axes) -> bool:
    """True where `reachable` has every combination."""
    return prod(map(len, _values(axes))) <= MOST_AGENTS


def configs_of(read: ReadAgent, agent: ParsedAgent) -> Iterator[ModelConfig]:
    """Models that an agent asks: its own, and those of its judges and tools."""
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
    """The mean over the cases of a call a turn, with replies of middling length."""
    model = connect(agent.model_config(read.place.folder))
    found = [_usd(model, usual_usd, agent, case, REPLY * BYTES) for case in read.cases]
    known = [usd for usd in found if usd is not None]
    return fmean(known) if known else None


def _most_usd(read: ReadAgent, agent: ParsedAgent) -> float | None:
    """The dearest case with replies as long as they may be; None where others are paid, too."""
    judged = any(metric.enabled and metric.is_judged for metric in agent.spec.metrics)
    config = agent.model_config(read.place.folder)
    longest = agent.spec.model.max_tokens or config.max_tokens
    if agent.spec.tools or judged or longest is None:
        return None
    # a reply goes into the next request, which may cost a token a byte
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
    """The price of all turns of a case, each reply so many bytes long."""
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
