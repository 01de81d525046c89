"""Registry of recipes by name, and detection of the recipe that a spec means.

Recipes are not a plugin point: plugins add components. A recipe is imported when a run or a spec
needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from kept.core.event import RunStarted
from kept.core.plan import (
    AGENT_CONFIG,
    AGENT_RUN,
    COMPARE,
    EVALUATE,
    FUNCTION,
    REFINE,
    SKILL,
    SUITE,
    TASK,
)
from kept.errors import SetupError
from kept.recipes.base import Compiled, Context, Facts, Recipe, Request, command_line
from kept.settings import program
from kept.store.jsonl import decoded
from kept.store.overview import Glance
from kept.store.reader import Run

if TYPE_CHECKING:
    from kept.recipes.evaluate.request import Wanted
    from kept.spec.source import Source

RECIPES: Mapping[str, str] = {
    name: f"kept.recipes.{name}.recipe"
    for name in (
        TASK,
        FUNCTION,
        AGENT_CONFIG,
        SKILL,
        AGENT_RUN,
        REFINE,
        SUITE,
        EVALUATE,
        COMPARE,
    )
}
"""Module of each recipe by name; the module has it as `RECIPE`."""

_SPECS = (SUITE, SKILL, AGENT_CONFIG, TASK)
"""Recipes that a spec can mean, in the order in which they are tried."""

_FILE = "task.yaml"
_NAMES = (_FILE, "agent.yaml", "skill.yaml", "suite.yaml")
"""File names for the spec of a folder, in the order in which they are looked for."""

_KINDS = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"

_BROUGHT = (".py", ".jsonl", ".json", ".csv", ".md")
"""Suffixes of files from which `kept init --from` makes a task."""

R = TypeVar("R", bound=Request)
F = TypeVar("F", bound=Facts)


def recipe_named(name: str) -> Recipe[Any]:
    """Return the recipe of that name; for an unknown name, one without request or facts."""
    place = RECIPES.get(name)
    return _UNKNOWN if place is None else cast("Recipe[Any]", import_module(place).RECIPE)


class _Unknown(Recipe[Request]):
    name = ""
    request = Request


_UNKNOWN = _Unknown()


def recipe_of(path: Path) -> Recipe[Any] | None:
    """Return the recipe of a spec, or of the spec in a folder; None if it is not a spec."""
    return _meant(_read(find_spec(path)))


def _read(file: Path) -> "Source":
    # imported at use: most commands read no spec
    from kept.spec.source import read_source

    return read_source(file)


def _meant(source: "Source") -> Recipe[Any] | None:
    keys = cast("dict[str, object]", source.data)
    recipes = (recipe_named(name) for name in _SPECS)
    return next((recipe for recipe in recipes if recipe.detect(keys)), None)


def means(path: Path, kind: type[Request]) -> bool:
    """True if the spec of a path belongs to the recipe with this type of request."""
    recipe = recipe_of(path)
    return recipe is not None and recipe.request is kind


def request_in(started: RunStarted | None, kind: type[R], folder: Path | None = None) -> R | None:
    """Return the request of a run, if it is of this kind; None for a run of another recipe.

    Raises a `JournalError` if it cannot be read, with the line if the folder is known.
    """
    # the type is compared first: nothing of another recipe is decoded
    own = recipe_named(started.recipe).request if started else Request
    if started is None or not issubclass(own, kind):
        return None
    return decoded(started.request, own, "request", folder)


def facts_in(started: RunStarted | None, kind: type[F], folder: Path | None = None) -> F | None:
    """Return the facts of a run, if they are of this kind; else like `request_in`."""
    own = recipe_named(started.recipe).facts if started else Facts
    if started is None or not issubclass(own, kind):
        return None
    return decoded(started.facts, own, "facts", folder)


def request_of(run: Run | Glance, kind: type[R]) -> R | None:
    """Return the request of a run, if it is of this kind; None for a run of another recipe."""
    return request_in(_started(run), kind, run.folder)


def facts_of(run: Run | Glance, kind: type[F]) -> F | None:
    """Return the facts of a run, if they are of this kind; None for a run of another recipe."""
    return facts_in(_started(run), kind, run.folder)


def check_start(started: RunStarted | None, folder: Path) -> None:
    """Decode the request and the facts of a run; raises a `JournalError` if one cannot be read."""
    request_in(started, Request, folder)
    facts_in(started, Facts, folder)


def _started(run: Run | Glance) -> RunStarted | None:
    return run.state.started if isinstance(run, Run) else run.started


def start_command(started: RunStarted, folder: Path | None = None) -> str:
    """Return the command line that starts another such run; empty for a run without one."""
    recipe = recipe_named(started.recipe)
    request = request_in(started, recipe.request, folder)
    return command_line(recipe, started.settings.spec, request)


def compile_spec(path: Path, overrides: Sequence[str] = ()) -> Compiled:
    """Compile the plan of a spec, or of the spec in a folder."""
    recipe, context = _understood(path, Context(overrides=overrides))
    return recipe.compile(recipe.request(), context)


def compile_sweep(path: Path, wanted: "Wanted", context: Context) -> Compiled:
    """Compile the plan that measures an agent, a skill, or the seed of a task."""
    from kept.recipes.evaluate.request import Evaluation

    recipe, context = _understood(path, context)
    return recipe.measure(Evaluation(of=recipe.name, wanted=wanted), context)


def _understood(path: Path, context: Context) -> tuple[Recipe[Any], Context]:
    """Return the recipe of a spec, and a context with the parsed spec."""
    file = find_spec(path)
    source = _read(file)
    recipe = _meant(source)
    if recipe is None:
        raise _no_spec(path, source)
    return recipe, replace(context, spec=file, source=source)


def compile_resumed(run: Run, context: Context, anew: Request | None = None) -> Compiled:
    """Compile the plan of a run again, to resume it; `context.overrides` are set now.

    `anew` replaces the request in the journal.
    """
    started = run.state.started
    assert started is not None, "a run that can be read has started"
    recipe = recipe_named(started.recipe)
    request = request_in(started, recipe.request, run.folder)
    assert request is not None, "a recipe has the type of its own request"
    again = anew or recipe.resumed(request, run, context.overrides)
    # the new overrides come last, so that they win
    overrides = (*started.settings.spec.overrides, *context.overrides)
    spec = run.spec or Path()
    return recipe.compile(again, replace(context, spec=spec, overrides=overrides, past=run))


def _no_spec(path: Path, source: "Source") -> SetupError:
    wanted = ", ".join(f"`{key}`" for key in ("artifacts", "runner", "scorer"))
    hint = f"give a {_FILE}, an agent.yaml, or a suite with `tasks`"
    if "prompts" in cast("dict[str, object]", source.data):
        hint = f"`{program()} init --from {path}` makes one of a promptfoo config"
    return SetupError(f"{path} is not a task: it has none of {wanted}", hint=hint)


def find_spec(path: Path) -> Path:
    """Return the file that a path means: itself, or the spec of a folder by its usual name."""
    if path.is_dir():
        for name in _NAMES:
            if (path / name).is_file():
                return path / name
        raise SetupError(f"{path} is not a task: there is no {_FILE} in it", hint=_in_folder(path))
    if not path.exists():
        raise SetupError(f"there is no {path}", hint=f"give a {_KINDS}, or a folder with one")
    if path.suffix not in (".yaml", ".yml"):
        hint = f"give a {_FILE}"
        if path.suffix in _BROUGHT:
            hint = f"`{program()} init --from {path}` makes one from what you have"
        raise SetupError(f"{path} is not a spec: it is no YAML file", hint=hint)
    return path


def _in_folder(path: Path) -> str:
    """Return a hint at what the user may have meant by a folder."""
    if (path / "journal.jsonl").exists():
        return f"it is the folder of a run: `{program()} resume {path}` goes on with that"
    there = sorted(one.name for one in path.iterdir() if one.suffix in (".yaml", ".yml"))
    if there:
        return f"name the file: {', '.join(there[:5])}"
    return f"give a {_KINDS}, or a folder with one; `{program()} init` writes one"
