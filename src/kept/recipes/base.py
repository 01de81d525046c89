"""Recipe interface: how a kind of spec becomes a plan, and what a journal holds of that.

Nothing here is specific to a recipe; `registry.py` lists all of them.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from kept.core.event import SpecSettings
from kept.core.plan import Plan
from kept.errors import Problem
from kept.settings import program
from kept.store.reader import Run

if TYPE_CHECKING:
    from kept.recipes.agent_run.compile import Watched
    from kept.recipes.evaluate.request import Evaluation
    from kept.spec.source import Source

Payer = Literal["runner", "scorer", "proposers"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A spec, understood."""

    plan: Plan
    warnings: tuple[str, ...] = ()
    """What is allowed but should be known before a run."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A model that costs money with every call."""

    by: Payer
    model: str
    priced: bool
    """Whether it is known how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for besides the spec and what was set in it; recipes add to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a recipe found out when it compiled a run; recipes add to it."""

    models: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    """Models by role."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of own prompts, by proposer."""
    charges: tuple[Charge, ...] = ()
    limited_by: tuple[str, ...] = ()
    pass_at: float | None = None
    """Value of the metric at which a case passes."""


def plan_facts(plan: Plan) -> Facts:
    """The facts of a plan; without any where its recipe found none."""
    return plan.facts if isinstance(plan.facts, Facts) else Facts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a request is compiled in."""

    spec: Path = Path()
    source: "Source | None" = None
    """The spec, where it is parsed already."""
    overrides: Sequence[str] = ()
    workers: int | None = None
    past: Run | None = None
    """The run that goes on: its gate, its seed, its facts; None for a new run."""
    problems: Sequence[Problem] = ()
    """What is wrong with the command line that the overrides come from."""
    watched: "Watched | None" = None
    """Who hears of the moments of agent runs, and may stop them."""
    force: bool = False
    """Read the sources of indexes again, whatever is known of them."""
    strict: bool = False
    """Report a row of a case file that is no case; nothing is run."""

    @property
    def gate(self) -> str:
        """The gate that the run began with; empty for a new run."""
        return self.past.settings.gate if self.past else ""


R = TypeVar("R", bound=Request)


class Recipe(Generic[R]):
    """A kind of run: how its spec is detected, compiled, resumed and started again.

    Subclasses override what differs. A recipe says figures and settings; words, pages and exit
    codes are in tables of `kept.ui`, by the name of the recipe.
    """

    name: str
    request: type[R]
    facts: type[Facts] = Facts
    keeps: bool = True
    """Whether its runs have a best that may be kept and adopted."""

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if a spec with these keys means this recipe."""
        return False

    def compile(self, request: R, context: Context) -> Compiled:
        """The plan of a request; raises what is wrong with it, all at once."""
        raise NotImplementedError

    def measure(self, asked: "Evaluation", context: Context) -> Compiled:
        """The plan that measures what this recipe would improve; by default, the seed."""
        from kept.recipes.evaluate.compile import measure_plan

        timeout = asked.wanted.timeout
        more = (f"workers={context.workers}",) if context.workers else ()
        more += (f"runner.timeout_seconds={timeout}",) if timeout else ()
        # the gate of a measurement is none that the recipe knows
        own = replace(context, overrides=(*context.overrides, *more), past=None)
        return measure_plan(self.compile(self.request(), own), asked)

    def command(self, spec: SpecSettings, request: R) -> list[str]:
        """The words that start another such run, behind the program; empty without a command."""
        return ["optimize", spec_name(spec), *set_flags(spec)] if spec.path else []

    def resumed(self, request: R, past: Run, settings: Sequence[str]) -> R:
        """The request of a run that goes on; raises `SetupError` for what may not change."""
        return request


def spec_name(spec: SpecSettings) -> str:
    """The spec as a person in this folder types it."""
    path, here = Path(spec.path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def set_flags(spec: SpecSettings) -> list[str]:
    """The `--set` flags of a run; of what was not written down only the names are known."""
    hidden = [f"{key}=…" for key in spec.hidden]
    return [word for given in (*spec.overrides, *hidden) for word in ("--set", given)]


def flags(given: Mapping[str, object]) -> list[str]:
    """Options that were given, as they are typed; what is empty was not."""
    typed = {name: f"--{name.replace('_', '-')}" for name in given}
    return [word for name, value in given.items() if value for word in (typed[name], str(value))]


def command_line(recipe: "Recipe[R]", spec: SpecSettings, request: R) -> str:
    """The command line that starts another such run; empty where there is none."""
    words = recipe.command(spec, request)
    return shlex.join([program(), *words]) if words else ""
