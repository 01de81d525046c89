"""From a name to an environment: a built-in one, an entry point, or `module:Class`.

Its options are checked against what its class takes: each by its type, and none that is unknown.
"""

import difflib
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, cast, get_type_hints

from kept.errors import Problem, SpecError
from kept.evaluators.environments.contract import Environment
from kept.evaluators.environments.settings import EnvSettings

GROUP = "kept.environments"
"""The group of entry points."""

BUILT_IN: Mapping[str, str] = {
    "alfworld": "kept.evaluators.environments.alfworld:AlfWorld",
    "babyvision": "kept.evaluators.environments.babyvision:BabyVision",
    "bbh": "kept.evaluators.environments.bbh:Bbh",
    "docvqa": "kept.evaluators.environments.docvqa:DocVqa",
    "gsm8k": "kept.evaluators.environments.gsm8k:Gsm8k",
    "ifeval": "kept.evaluators.environments.ifeval:IfEval",
    "jsonl": "kept.evaluators.environments.jsonl:Jsonl",
    "livemathematicianbench": "kept.evaluators.environments.livemathematicianbench:LiveMathematicianBench",
    "mathverse": "kept.evaluators.environments.mathverse:MathVerse",
    "mmrb": "kept.evaluators.environments.mmrb:Mmrb",
    "officeqa": "kept.evaluators.environments.officeqa:OfficeQa",
    "sealqa": "kept.evaluators.environments.sealqa:SealQa",
    "searchqa": "kept.evaluators.environments.searchqa:SearchQa",
    "spreadsheetbench": "kept.evaluators.environments.spreadsheetbench.spreadsheetbench:SpreadsheetBench",
    "swebench": "kept.evaluators.environments.swebench.swebench:SweBench",
}


def find_env(settings: EnvSettings) -> Environment:
    """The environment that settings name, with their options; a `SpecError` where that fails."""
    made = _class(settings)
    problems = list(_wrong_options(made, settings))
    if problems:
        raise SpecError(problems)
    hints = _hints(made)
    defaults = _defaults(made)
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
        hint = "derive from kept.evaluators.environments.contract.Environment"
        raise SpecError([settings.problem("name", message, hint)])
    return env


def names() -> list[str]:
    """The environments that can be named."""
    return sorted({*BUILT_IN, *(one.name for one in entry_points(group=GROUP))})


def option_names() -> set[str]:
    """The options of all environments that come with Kept."""
    return {
        name
        for env in BUILT_IN
        for name in _parameters(_imported(EnvSettings(name=env), BUILT_IN[env]))
    }


def missing(env: object) -> list[str]:
    """What an object lacks to be an environment."""
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
        # behind all others: a user's `json.py` must not become everybody's
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


def _defaults(made: Any) -> dict[str, Any]:  # noqa: ANN401 # a class of a user's
    """Defaults that are paths: they begin where those of the config do."""
    found = {name: one.default for name, one in _parameters(made).items()}
    return {name: value for name, value in found.items() if _is_paths(value)}


def _placed(value: Any, settings: EnvSettings) -> Any:  # noqa: ANN401 # any option
    """An option with its paths where the config means them."""
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
        return get_type_hints(made if _is_plain(made) else made.__init__)
    except (NameError, TypeError):
        return {}


def _is_plain(made: Any) -> bool:  # noqa: ANN401 # a class of a user's
    """Whether its arguments are its fields."""
    return hasattr(made, "__dataclass_fields__")


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
