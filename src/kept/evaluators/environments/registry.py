"""Environment lookup by name, entry point or `module:Class`, and its construction.

Options are checked against the constructor of the class: types match, and unknown names are
refused. Settings and a student then give an environment that is ready for training.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast, get_type_hints

from kept.core.case import fault_in, too_few
from kept.core.ports import Model, Runner, Scorer
from kept.errors import Problem, SpecError
from kept.evaluators.environments.base import (
    SKILL,
    Environment,
    EnvSettings,
    Opened,
    Read,
    skill_at,
)
from kept.evaluators.environments.chat_student import PROBE, EnvScorer, probed
from kept.evaluators.environments.datasets import Parted, part

GROUP = "kept.environments"
"""Group of entry points."""

_HERE = "kept.evaluators.environments"

BUILT_IN: Mapping[str, str] = {
    "alfworld": f"{_HERE}.alfworld:AlfWorld",
    "babyvision": f"{_HERE}.babyvision:BabyVision",
    "bbh": f"{_HERE}.qa:Bbh",
    "docvqa": f"{_HERE}.docvqa:DocVqa",
    "gsm8k": f"{_HERE}.qa:Gsm8k",
    "ifeval": f"{_HERE}.ifeval:IfEval",
    "jsonl": f"{_HERE}.jsonl:Jsonl",
    "livemathematicianbench": f"{_HERE}.livemathematicianbench:LiveMathematicianBench",
    "mathverse": f"{_HERE}.mathverse:MathVerse",
    "mmrb": f"{_HERE}.mmrb:Mmrb",
    "officeqa": f"{_HERE}.officeqa:OfficeQa",
    "sealqa": f"{_HERE}.sealqa:SealQa",
    "searchqa": f"{_HERE}.qa:SearchQa",
    "spreadsheetbench": f"{_HERE}.spreadsheetbench.environment:SpreadsheetBench",
    "swebench": f"{_HERE}.swebench.environment:SweBench",
}


def find_env(settings: EnvSettings) -> Environment:
    """Make the environment that settings name; raises `SpecError` if that fails."""
    made = _class(settings)
    problems = list(_wrong_options(made, settings))
    if problems:
        raise SpecError(problems)
    hints = _hints(made)
    # defaults that are paths begin where those of the config do
    all_defaults = {name: one.default for name, one in _parameters(made).items()}
    defaults = {name: value for name, value in all_defaults.items() if _is_paths(value)}
    options = {
        key: _placed(_read(hints[key], value) if key in hints else value, settings)
        for key, value in {**defaults, **settings.options}.items()
    }
    try:
        env: Any = made(**options)
    except (TypeError, ValueError) as error:
        raise SpecError([settings.problem("", str(error))]) from error
    lacking = missing(env)
    if lacking:
        lacks = ", ".join(f"`{name}`" for name in lacking)
        message = f"`{settings.name}` is no environment: it lacks {lacks}"
        hint = "derive from kept.extend.Environment"
        raise SpecError([settings.problem("name", message, hint)])
    return env


def names() -> list[str]:
    """Names of all built-in environments and entry points."""
    return sorted({*BUILT_IN, *(one.name for one in entry_points(group=GROUP))})


def option_names() -> set[str]:
    """Option names of all built-in environments."""
    return {
        name
        for env in BUILT_IN
        for name in _parameters(_imported(EnvSettings(name=env), BUILT_IN[env]))
    }


def missing(env: object) -> list[str]:
    """Names of attributes that an object lacks to be an environment."""
    wanted = ["name", *(name for name in dir(Environment) if not name.startswith("_"))]
    # not `hasattr`, which would have every property worked out
    return [name for name in wanted if inspect.getattr_static(env, name, None) is None]


def _class(settings: EnvSettings) -> Any:  # noqa: ANN401 # a class of a user's
    name = settings.name
    if ":" in name:
        return _imported(settings, name)
    if name in BUILT_IN:
        return _imported(settings, BUILT_IN[name])
    found = [one for one in entry_points(group=GROUP) if one.name == name]
    if found:
        try:
            return found[0].load()
        except (ImportError, AttributeError) as error:
            message = f"`{name}` cannot be loaded: {error}"
            raise SpecError([settings.problem("name", message)]) from error
    known = names()
    near = difflib.get_close_matches(name, known, 1)
    hint = f"there are {', '.join(known)}; one of yours is named `module:Class`"
    hint = f"did you mean `{near[0]}`?" if near else hint
    raise SpecError([settings.problem("name", f"there is no environment `{name}`", hint)])


def _imported(settings: EnvSettings, target: str) -> Any:  # noqa: ANN401 # a class of a user's
    module, _, name = target.partition(":")
    folder = str(settings.folder.resolve())
    if folder not in sys.path:
        # last in the path: a user's `json.py` must not replace the standard one
        sys.path.append(folder)
    try:
        value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except ModuleNotFoundError as error:
        hint = f"modules are looked for in {settings.folder}"
        message = f"there is no module `{error.name}`"
        raise SpecError([settings.problem("name", message, hint)]) from error
    except (AttributeError, ImportError, SyntaxError) as error:
        message = f"`{target}` cannot be loaded: {error}"
        raise SpecError([settings.problem("name", message)]) from error
    if not callable(value):
        raise SpecError([settings.problem("name", f"`{target}` is no class")])
    return value


def _parameters(made: Any) -> dict[str, inspect.Parameter]:  # noqa: ANN401 # a class of a user's
    return dict(inspect.signature(made).parameters)


def _placed(value: Any, settings: EnvSettings) -> Any:  # noqa: ANN401 # any option
    """Option with its paths relative to the folder of the config."""
    if isinstance(value, Path):
        return settings.path(str(value))
    if _is_paths(value):
        return tuple(settings.path(str(one)) for one in value)
    return value


def _is_paths(value: Any) -> bool:  # noqa: ANN401 # any option
    if isinstance(value, tuple):
        parts = cast("tuple[object, ...]", value)
        return bool(parts) and all(isinstance(one, Path) for one in parts)
    return isinstance(value, Path)


def _hints(made: Any) -> dict[str, Any]:  # noqa: ANN401 # a class of a user's
    try:
        # the arguments of a dataclass are its fields
        is_dataclass = hasattr(made, "__dataclass_fields__")
        return get_type_hints(made if is_dataclass else made.__init__)
    except (NameError, TypeError):
        return {}


def _wrong_options(made: Any, settings: EnvSettings) -> Iterator[Problem]:  # noqa: ANN401 # a user's
    known, hints = _parameters(made), _hints(made)
    for key, value in settings.options.items():
        if key not in known:
            near = difflib.get_close_matches(key, [*known, *settings.keys], 1)
            options = ", ".join(f"`{one}`" for one in known)
            hint = f"did you mean `{near[0]}`?" if near else f"its options: {options or 'none'}"
            message = f"the environment `{settings.name}` has no such option"
            yield settings.problem(key, message, hint)
        elif key in hints:
            try:
                _read(hints[key], value)
            except ValueError as error:
                yield settings.problem(key, str(error))


def _read(hint: Any, value: object) -> Any:  # noqa: ANN401 # what the class wants
    # at use: it takes as long to import as a small command
    from pydantic import TypeAdapter, ValidationError

    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        message = error.errors()[0]["msg"].replace("valid tuple", "list, as in `[one, two]`")
        raise ValueError(message[:1].lower() + message[1:]) from error


Student = Callable[[Environment], Runner]
"""Makes the runner of an environment: a chat model's, or an agent CLI's."""


def parted(env: Environment, settings: EnvSettings, *, deciding: bool = True) -> Parted:
    """Read and check the cases of an environment; a `SpecError` lists all problems.

    `deciding` is False for a measurement, which needs neither holdout nor train cases.
    """
    problems: list[Problem] = []
    if env.needs():
        problems.append(settings.problem("name", f"`{env.name}` cannot run: {env.needs()}"))
    try:
        skill_of(env, settings)
    except SpecError as error:
        problems += error.problems
    try:
        found = part(env, settings)
    except SpecError as error:
        raise SpecError([*problems, *error.problems]) from error
    holds = bool(found.cases.holdout)
    if (deciding or holds) and (fault := fault_in(found.cases)) is not None:
        problems.append(settings.problem("", fault))
    if deciding and not found.cases.train:
        fault = "there are no train cases, and nothing can be learnt without them"
        problems.append(settings.problem("", fault))
    if problems:
        raise SpecError(problems)
    return found


def opened(
    env: Environment,
    settings: EnvSettings,
    by_split: Parted,
    student: Student,
    scorer: Scorer | None = None,
    judge: Model | None = None,
) -> Opened:
    """Open an environment with its cases, skill and student.

    `scorer` replaces the environment's own if the config names one. `judge` decides what the
    environment's rules cannot.
    """
    skill = skill_of(env, settings)
    warnings = [few] if (few := too_few(by_split.cases)) is not None else []
    if not by_split.cases.test:
        warnings.append("there is no test case: no figure will be of cases that nobody has seen")
    unseen = (
        f"`{name}` of the skill is no text: who works by the skill does not see it"
        for name in skill.left_out
    )
    return Opened(
        name=env.name,
        cases=by_split.cases,
        runner=student(env),
        scorer=scorer or env.scorer() or EnvScorer(env, judge),
        about=env.about,
        pictures=env.pictures,
        scripts=env,
        prompts=env.prompts(),
        skill=skill.texts,
        probe=probed,
        materialise=by_split.write,
        warnings=tuple(warnings),
        ignored=(*by_split.notes, *unseen),
        inputs={"cases": by_split.cases.fingerprint()},
    )


def skill_of(env: Environment, settings: EnvSettings) -> Read:
    """Initial skill: the one that the settings name, or the environment's own."""
    if not settings.skill_init:
        return Read(env.skill())
    if settings.no_skill:
        return Read({SKILL: ""})
    skill = skill_at(settings.path(settings.skill_init), settings)
    if PROBE in skill.texts:
        raise SpecError([settings.problem("skill_init", f"`{PROBE}` is a name of Kept's own")])
    return skill
