"""From a file to a checked model: pydantic's errors in our words, each with its line."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kept.spec.place import Place, locate
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Loc

M = TypeVar("M", bound=BaseModel)

_QUOTED = re.compile(r"'([^']*)'")
"""How pydantic names what it expects."""

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
}
_BOUNDS: Mapping[str, Callable[[Any], str]] = {
    "greater_than": lambda ctx: f"more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:g} or more",
    "less_than": lambda ctx: f"less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"{ctx['le']:g} or less",
    "literal_error": lambda ctx: ctx["expected"].replace("'", "`"),
    "finite_number": lambda ctx: "a finite number",
    "string_too_short": lambda ctx: "a text that is not empty",
}


def validate(source: Source, model: type[M], loc: Loc = ()) -> M | None:
    """The model that a source spells, or one part of it; None, and reports, when it spells none."""
    return validate_given(source, model, said(source, loc), loc)


def validate_given(source: Source, model: type[M], given: object, loc: Loc) -> M | None:
    """The model that some of what a source has at a place spells; else as `validate`."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _report(source, fault, model, loc)
        return None


def section(source: Source, loc: Loc, model: type[M], unread: Collection[str] = ()) -> M | None:
    """One part of a source by itself; None when it has problems, which are not told again.

    Lets what is right in a spec be looked into although something else in it is wrong: another
    part, or a key of this one that nobody is going to read.
    """
    data = said(source, loc)
    if isinstance(data, dict):
        given = cast("dict[str, object]", data)
        data = {key: value for key, value in given.items() if key not in unread}
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def said(source: Source, loc: Loc, otherwise: object = None) -> object:
    """What a source has at a place, right or wrong."""
    data: Any = source.data
    try:
        for part in loc:
            data = data[part]
    except (LookupError, TypeError):
        return otherwise
    return data


def check_folder(source: Source, loc: Loc) -> None:
    """Report a folder for a command that is named and is not there."""
    name = said(source, loc)
    if isinstance(name, str) and name and "\0" not in name and not (source.folder / name).is_dir():
        source.report(loc, f"there is no folder `{name}`")


def _report(source: Source, fault: ErrorDetails, model: type[BaseModel], below: Loc) -> None:
    place = locate(model, fault["loc"])
    loc = (*below, *place.loc)
    kind, given = fault["type"], fault["input"]
    ctx: Mapping[str, Any] = fault.get("ctx", {})
    if kind == "missing":
        source.report(loc, "missing")
    elif kind == "extra_forbidden":
        source.report(
            loc, "unknown key", advice(str(loc[-1]), locate(model, fault["loc"][:-1]).keys)
        )
    elif kind.startswith("union_tag"):
        _report_tag(source, Place(loc, place.models), given, ctx)
    elif kind in _WANTED:
        source.report(loc, f"{kind_of(given)}, where {_WANTED[kind]} was expected")
    elif kind in _BOUNDS:
        message = f"{kind_of(given)}, where {_BOUNDS[kind](ctx)} was expected"
        source.report(loc, message, _meant(given, _QUOTED.findall(ctx.get("expected", ""))))
    elif kind == "too_long":
        source.report(loc, f"at most {ctx['max_length']} expected, {ctx['actual_length']} given")
    else:
        # our own validators raise ValueError, and pydantic puts its name in front
        source.report(loc, fault["msg"].removeprefix("Value error, "))


def _report_tag(source: Source, place: Place, given: object, ctx: Mapping[str, Any]) -> None:
    """A mapping that does not say, or says wrongly, which of several kinds it is."""
    if not isinstance(given, dict):
        source.report(place.loc, f"{kind_of(given)}, where a mapping was expected")
        return
    key = place.tag
    if key not in given:
        source.report((*place.loc, key), "missing")
        return
    said = cast("dict[str, object]", given)[key]
    known = _QUOTED.findall(str(ctx["expected_tags"]))
    message = (
        f"{kind_of(said)}, where one of {', '.join(f'`{name}`' for name in known)} was expected"
    )
    source.report((*place.loc, key), message, _BY_ITSELF.get(str(said)) or _meant(said, known))


_BY_ITSELF: dict[str, str] = {
    "merge": "a race puts near misses together by itself: leave it out",
}
"""Kinds that people know from elsewhere, and that nobody asks for here."""


def advice(key: str, known: list[str]) -> str:
    """What may be meant by a key that is unknown, or which there are."""
    return _meant(key, known) or f"known keys: {', '.join(known)}"


def _meant(word: object, known: Sequence[str]) -> str | None:
    """Which of the known words may be meant, as a hint."""
    if not isinstance(word, str) or not word:
        return None
    # the beginning of one alone, or its letters in another order
    likely = [name for name in known if name.startswith(word) or sorted(name) == sorted(word)]
    near = likely if len(likely) == 1 else get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean `{near[0]}`?" if near else None
