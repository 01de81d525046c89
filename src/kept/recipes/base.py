"""Interface of recipes: each compiles a kind of spec into a plan, recorded in a journal.

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
    """A plan compiled from a spec, and its warnings."""

    plan: Plan
    warnings: tuple[str, ...] = ()
    """Things that are allowed, but that the user should know before a run."""


@dataclass(frozen=True, slots=True)
class Charge:
    """A model that costs money with every call."""

    by: Payer
    model: str
    priced: bool
    """True if the price of a call is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Options of a run besides the spec and its overrides; recipes add fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts found while a run is compiled; recipes add fields."""

    models: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    """Models by role."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of the user's own prompts, by proposer."""
    charges: tuple[Charge, ...] = ()
    limited_by: tuple[str, ...] = ()
    pass_at: float | None = None
    """Value of the metric at which a case passes."""


def plan_facts(plan: Plan) -> Facts:
    """Return the facts of a plan; empty facts if its recipe found none."""
    return plan.facts if isinstance(plan.facts, Facts) else Facts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Surroundings of a request: its spec, overrides, and the run to resume."""

    spec: Path = Path()
    source: "Source | None" = None
    """The parsed spec, if it is parsed already."""
    overrides: Sequence[str] = ()
    workers: int | None = None
    past: Run | None = None
    """The run to resume, with its gate, seed and facts; None for a new run."""
    problems: Sequence[Problem] = ()
    """Problems of the command line that the overrides come from."""
    watched: "Watched | None" = None
    """Listener for the events of agent runs, which may stop them."""
    force: bool = False
    """True to read the sources of indexes again, and ignore cached ones."""
    strict: bool = False
    """Report rows of case files that are not cases; nothing is run."""

    @property
    def gate(self) -> str:
        """Name of the gate with which the resumed run began; empty for a new run."""
        return self.past.settings.gate if self.past else ""


R = TypeVar("R", bound=Request)


class Recipe(Generic[R]):
    """A kind of run: detects its specs, compiles them, and resumes or restarts its runs.

    Subclasses override what differs. A recipe gives figures and settings. Words, pages and exit
    codes are in tables of `kept.ui`, by recipe name.
    """

    name: str
    request: type[R]
    facts: type[Facts] = Facts
    keeps: bool = True
    """True if its runs have a best candidate that may be kept and adopted."""

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if a spec with these keys means this recipe."""
        return False

    def compile(self, request: R, context: Context) -> Compiled:
        """Return the plan of a request; raises all its problems at once."""
        raise NotImplementedError

    def measure(self, asked: "Evaluation", context: Context) -> Compiled:
        """Return the plan that measures what this recipe would improve; by default, the seed."""
        from kept.recipes.evaluate.compile import measure_plan

        timeout = asked.wanted.timeout
        more = (f"workers={context.workers}",) if context.workers else ()
        more += (f"runner.timeout_seconds={timeout}",) if timeout else ()
        # the recipe does not know the gate of a measurement: so it gets no past run
        own = replace(context, overrides=(*context.overrides, *more), past=None)
        return measure_plan(self.compile(self.request(), own), asked)

    def command(self, spec: SpecSettings, request: R) -> list[str]:
        """Return the words, after the program, that start another such run; empty if none can."""
        return ["optimize", spec_name(spec), *set_flags(spec)] if spec.path else []

    def resumed(self, request: R, past: Run, settings: Sequence[str]) -> R:
        """Return the request of a resumed run; raises `SetupError` for what may not change."""
        return request


def spec_name(spec: SpecSettings) -> str:
    """Return the path of the spec as the user types it in this folder."""
    path, here = Path(spec.path), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def set_flags(spec: SpecSettings) -> list[str]:
    """Return the `--set` flags of a run; of unrecorded values only the names are known."""
    hidden = [f"{key}=…" for key in spec.hidden]
    return [word for given in (*spec.overrides, *hidden) for word in ("--set", given)]


def flags(given: Mapping[str, object]) -> list[str]:
    """Return options as they are typed on the command line; empty ones are left out."""
    typed = {name: f"--{name.replace('_', '-')}" for name in given}
    return [word for name, value in given.items() if value for word in (typed[name], str(value))]


def command_line(recipe: "Recipe[R]", spec: SpecSettings, request: R) -> str:
    """Return the command line that starts another such run; empty if there is none."""
    words = recipe.command(spec, request)
    return shlex.join([program(), *words]) if words else ""
