"""`${NAME}` in the values of a file, filled in from the environment.

Works on what was read, never on the text, so that the text can be kept and shown. What may be a
secret is left as it stands, for whoever uses it to fill in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from kept import settings
from kept.errors import Problem
from kept.models.config import REFERENCE, expand
from kept.spec.source import Source, set_by, split_override
from kept.spec.yaml import Loc, YamlFault, read_yaml

CARRIED = ("deployment", "observability")
"""Parts that nobody here runs: their variables need not be set."""

_SECRET = re.compile(
    r"env|headers|connection_string|(.*_)?(api_key|secret|password|token|credentials?)"
)
"""Keys whose values, and all that is in them, may be secrets."""


def may_be_secret(loc: Loc) -> bool:
    """Whether what stands at a place is left for its user to fill in."""
    return any(isinstance(part, str) and _SECRET.fullmatch(part) for part in loc)


def shown_settings(overrides: Sequence[str]) -> list[str]:
    """What was set besides a file and may be written down: no secrets, but the names of some."""
    return [given for given in overrides if not _hides(given)]


def hidden_settings(overrides: Sequence[str]) -> list[str]:
    """The keys of the others, which a resume must be given again."""
    return [split_override(given)[0] for given in overrides if _hides(given)]


def _hides(given: str) -> bool:
    try:
        loc, value = set_by(given)
    except YamlFault:
        return False  # which is told as a problem of its own
    below = dict(_places(value, loc))
    return any(may_be_secret(at) and not _is_reference(said) for at, said in below.items())


def _places(value: object, loc: Loc) -> Iterator[tuple[Loc, object]]:
    """Every single value of one, with its place."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _places(inner, (*loc, str(key)))
    elif isinstance(value, list):
        for number, inner in enumerate(cast("list[object]", value)):
            yield from _places(inner, (*loc, number))
    else:
        yield loc, value


def _is_reference(said: object) -> bool:
    return said is None or (isinstance(said, str) and REFERENCE.fullmatch(said) is not None)


def fill_in(source: Source) -> set[str]:
    """Put in what the environment has, and report what it has not; the places of the latter."""
    before = len(source.problems)
    _filled(source, source.data, ())
    return {problem.path for problem in source.problems[before:]}


def _filled(source: Source, value: object, loc: Loc) -> object:
    """A value with its variables filled in; mappings and lists are changed where they are."""
    if isinstance(value, str):
        return _text(source, value, loc) if "${" in value else value
    if loc[:1] in [(name,) for name in CARRIED]:
        return value
    if isinstance(value, dict):
        mapping = cast("dict[str, object]", value)
        for key in mapping:
            mapping[key] = _filled(source, mapping[key], (*loc, key))
    elif isinstance(value, list):
        items = cast("list[object]", value)
        for number, item in enumerate(items):
            items[number] = _filled(source, item, (*loc, number))
    return cast("object", value)


def _text(source: Source, text: str, loc: Loc) -> object:
    names = dict.fromkeys(REFERENCE.findall(text))
    unset = [name for name in names if not settings.is_set(name)]
    for name in unset:
        source.report(loc, f"the variable `{name}` is not set", f"export {name}=...")
    if unset or not names or may_be_secret(loc):
        return text
    filled = REFERENCE.sub(lambda found: settings.variable(found[1]) or "", text)
    return _plain(filled) if loc in source.templates else filled


def _plain(text: str) -> object:
    """What a text without quotes means, as if it had stood in the file."""
    try:
        value = read_yaml(text).data
    except YamlFault:
        return text
    return text if isinstance(value, dict | list) else value


def uses_of(value: object, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Every variable that values name, each with its place."""
    pairs: Any = ()
    if isinstance(value, str):
        for name in REFERENCE.findall(value) if "${" in value else ():
            yield loc, name
    elif isinstance(value, dict):
        pairs = cast("dict[str, object]", value).items()
    elif isinstance(value, list):
        pairs = enumerate(cast("list[object]", value))
    for key, inner in pairs:
        yield from uses_of(inner, (*loc, key))


def filled(value: Any) -> Any:  # noqa: ANN401 # any value of YAML
    """What may be a secret, filled in: only for the one who is about to use it."""
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {key: filled(inner) for key, inner in given.items()}
    if isinstance(value, list | tuple):
        return [filled(inner) for inner in cast("Sequence[Any]", value)]
    return value


def tell_once(source: Source, unset: Iterable[str]) -> None:
    """Leave out what else was said of values whose variables are not set."""
    places = set(unset)
    source.problems[:] = [
        problem
        for problem in source.problems
        if problem.path not in places or problem.message.startswith("the variable ")
    ]


def without_secrets(problem: Problem) -> Problem:
    """A problem that can be shown: a secret that got into the wrong place is taken out."""
    message = problem.message
    for value in settings.secrets():
        # a message shows the beginning of a long text
        message = message.replace(value, "[secret]").replace(value[:60], "[secret]")
    return Problem(problem.where, problem.path, message, problem.hint)
