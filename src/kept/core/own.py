"""Copies of plain data, for whoever may change what it is given.

Of dicts, lists, sets and the tuples that hold them; any other object is handed over as it is,
because nobody knows what a copy of it would be.
"""

from collections.abc import Callable, Iterable
from typing import Any, cast

Copier = Callable[[], object]
"""Makes a copy of the value that it was made for."""


def owned(value: object) -> object:
    """A copy of a value; the value itself where there is nothing in it to be changed."""
    make = copier(value)
    return value if make is None else make()


def copier(value: object) -> Copier | None:
    """What makes copies of a value, quickly; None where there is nothing in it to be changed.

    Nor is there one for what is nested hundreds of levels deep.
    """
    try:
        return _copier(value)
    except RecursionError:
        return None


def _copier(value: object) -> Copier | None:
    kind = type(value)
    if kind is set:
        return cast("set[object]", value).copy
    if kind is tuple:
        return _tuples(cast("tuple[object, ...]", value))
    if kind is dict:
        return _copies(value, cast("dict[object, object]", value).items())
    if kind is list:
        return _copies(value, enumerate(cast("list[object]", value)))
    return None


def _copies(value: Any, items: Iterable[tuple[object, object]]) -> Copier:  # noqa: ANN401 # a dict or a list
    # what is inside is looked at once, for there may be a million copies
    inner = [(key, make) for key, one in items if (make := _copier(one)) is not None]
    if not inner:
        return value.copy

    def copied() -> object:
        fresh = value.copy()
        for key, make in inner:
            fresh[key] = make()
        return fresh

    return copied


def _tuples(value: tuple[object, ...]) -> Copier | None:
    makers = [_copier(one) for one in value]
    if not any(makers):
        return None
    return lambda: tuple(
        one if make is None else make() for one, make in zip(value, makers, strict=True)
    )
