"""From a path to a plan: which kind of spec it is, and the recipe for that kind."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from kept.core.plan import PASS_AT, SUITE
from kept.errors import SetupError
from kept.recipes.base import Compiled
from kept.settings import program

if TYPE_CHECKING:
    from kept.recipes.evaluate.compile import Wanted

TASK = "task.yaml"
AGENT = "agent.yaml"
_NAMES = (TASK, AGENT, "skill.yaml", "suite.yaml")
"""What the spec of a folder may be called, in the order in which they are looked for."""

_SPECS = f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}"

_BROUGHT = (".py", ".jsonl", ".json", ".csv", ".md")
"""Files that `kept init --from` makes a task from."""

_TASK_KEYS = ("artifacts", "runner", "scorer")
"""A file with any of these means to be a task."""


_SKILL_KEYS = ("_base_", "gradient", "train", "optimizer", "evaluation")
"""A file with any of these, and none of the others, means to be a skill config."""


_NOT_OF_SUITES = ("_base_", "gradient", "train", "evaluation", "prompts", "instructions")
"""A file with `tasks` and none of these means to be a suite."""


def is_skill(keys: Mapping[str, object]) -> bool:
    """Whether a spec is a skill config, by its keys."""
    is_other = any(key in keys for key in _TASK_KEYS) or is_suite(keys)
    env = keys.get("env")
    named = isinstance(env, dict) and "name" in env
    return not is_other and (named or any(key in keys for key in _SKILL_KEYS))


def is_suite(keys: Mapping[str, object]) -> bool:
    """Whether a spec is a suite of tasks for agents, by its keys."""
    return "tasks" in keys and not any(key in keys for key in (*_TASK_KEYS, *_NOT_OF_SUITES))


def compile_spec(path: Path, overrides: Sequence[str] = (), began: str = "") -> Compiled:
    """The plan of a spec, or of the one in a folder.

    A spec that names no gate, for a run that goes on, has the one that the run began with.
    """
    from kept.spec.source import read_source

    file = find_spec(path)
    keys = cast("dict[str, object]", read_source(file).data)
    kind = _kind(keys)
    if kind == "suite":
        from kept.recipes.suite.compile import compile_suite

        return compile_suite(file, overrides, began)
    if kind == "skill":
        from kept.recipes.skill.compile import compile_skill

        return compile_skill(file, overrides, began)
    if kind == "agent":
        from kept.recipes.agent_config.tune import compile_coordinate

        return compile_coordinate(file, overrides, began)
    if kind is None:
        wanted = ", ".join(f"`{key}`" for key in _TASK_KEYS)
        hint = f"give a {TASK}, an {AGENT}, or a suite with `tasks`"
        if "prompts" in keys:
            hint = f"`{program()} init --from {path}` makes one of a promptfoo config"
        raise SetupError(f"{path} is not a task: it has none of {wanted}", hint=hint)
    # here, and not above: it takes longer to import than most commands to run
    from kept.recipes.task.compile import compile_task

    return compile_task(file, overrides, began)


Kind = Literal["task", "agent", "skill", "suite"]

_CALLED: dict[Kind, str] = {
    "task": "a task",
    "agent": "an agent config",
    "skill": "a skill config",
    "suite": "a suite of agent tasks",
}


def kind_words(path: Path) -> str | None:
    """`task.yaml is a task`: what a spec was taken for; None for what is no spec."""
    from kept.spec.source import read_source, shown

    file = find_spec(path)
    kind = _kind(cast("dict[str, object]", read_source(file).data))
    return f"{shown(file)} is {_CALLED[kind]}" if kind else None


def _kind(keys: Mapping[str, object]) -> Kind | None:
    from kept.recipes.agent_config.spec.agent import is_agent

    if is_suite(keys):
        return "suite"
    if is_skill(keys):
        return "skill"
    if is_agent(keys):
        return "agent"
    return "task" if any(key in keys for key in _TASK_KEYS) else None


def compile_sweep(
    path: Path,
    wanted: "Wanted",
    overrides: Sequence[str] = (),
    *,
    workers: int | None = None,
    force: bool = False,
    strict: bool = False,
) -> Compiled:
    """The plan that measures what a spec names: an agent, a skill, or the seed of a task.

    With `force` the sources of indexes are read again, whatever is known of them. Where it is
    `strict`, one row of a case file that is no case is a problem of the agent.
    """
    file = find_spec(path)
    if is_agent_spec(file):
        from kept.recipes.agent_config.compile import compile_agent

        return compile_agent(file, wanted, overrides, workers=workers, force=force, strict=strict)
    if is_skill_spec(file):
        from kept.recipes.skill.measure import compile_measure

        return compile_measure(file, wanted, overrides, workers=workers)
    from kept.evaluators.scorers.transforms import DescribedScorer
    from kept.recipes.evaluate.compile import as_sweep

    more = (f"workers={workers}",) if workers else ()
    more += (f"runner.timeout_seconds={wanted.timeout}",) if wanted.timeout else ()
    made = compile_spec(file, (*overrides, *more))
    told = {"name": made.plan.facts.get("id"), PASS_AT: made.plan.facts.get(PASS_AT)}
    plan = made.plan
    if plan.recipe == SUITE:
        # what is measured is no epoch of a registry
        plan = replace(plan, views=())
    elif not plan.cases.implicit:
        plan = replace(plan, scorer=DescribedScorer(plan.scorer, plan.labels))
    return replace(made, plan=as_sweep(plan, wanted, told))


def is_agent_spec(path: Path) -> bool:
    """Whether a path means an agent.yaml."""
    from kept.recipes.agent_config.spec.agent import is_agent
    from kept.spec.source import read_source

    keys = cast("dict[str, object]", read_source(find_spec(path)).data)
    return is_agent(keys) and not is_skill(keys)


def is_skill_spec(path: Path) -> bool:
    """Whether a path means a skill config."""
    from kept.spec.source import read_source

    return is_skill(cast("dict[str, object]", read_source(find_spec(path)).data))


def is_suite_spec(path: Path) -> bool:
    """Whether a path means a suite."""
    from kept.spec.source import read_source

    return is_suite(cast("dict[str, object]", read_source(find_spec(path)).data))


def find_spec(path: Path) -> Path:
    """The file that a path means: itself, or the spec of a folder by its usual name."""
    if path.is_dir():
        for name in _NAMES:
            if (path / name).is_file():
                return path / name
        raise SetupError(f"{path} is not a task: there is no {TASK} in it", hint=_in_folder(path))
    if not path.exists():
        raise SetupError(f"there is no {path}", hint=f"give a {_SPECS}, or a folder with one")
    if path.suffix not in (".yaml", ".yml"):
        hint = f"give a {TASK}"
        if path.suffix in _BROUGHT:
            hint = f"`{program()} init --from {path}` makes one from what you have"
        raise SetupError(f"{path} is not a spec: it is no YAML file", hint=hint)
    return path


def _in_folder(path: Path) -> str:
    """What a person may have meant by a folder."""
    if (path / "journal.jsonl").exists():
        return f"it is the folder of a run: `{program()} resume {path}` goes on with that"
    there = sorted(one.name for one in path.iterdir() if one.suffix in (".yaml", ".yml"))
    if there:
        return f"name the file: {', '.join(there[:5])}"
    return f"give a {_SPECS}, or a folder with one; `{program()} init` writes one"
