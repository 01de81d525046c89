"""Persistent append-only collections, defensive copies, and fast named tuples.

A state is folded from thousands of events, and copying a tuple at each one makes the fold
quadratic. Versions of an append-only collection therefore share storage. Appending to the newest
version is one list append; appending to an older one copies. A version never sees later
additions.

Defensive copies cover dicts, lists, sets and the tuples that hold them. Any other object is
passed on as it is, because the meaning of its copy is unknown.

Named tuples are created like plain tuples, in a third of the time; all fields are given in order.
This is for types that every rollout creates.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast, overload

T = TypeVar("T")


class Log(Sequence[T]):
    """An immutable sequence whose `add` costs O(1) on the newest version."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items: list[T] = list(items)
        self._size = len(self._items)

    def add(self, item: T) -> "Log[T]":
        """The sequence with one more item at its end."""
        grown: Log[T] = Log.__new__(Log)  # pyright: ignore[reportUnknownVariableType] # T is erased here
        # an empty one may be anybody's default, so it shares nothing
        fresh = 0 < self._size == len(self._items)
        grown._items = self._items if fresh else self._items[: self._size]
        grown._items.append(item)
        grown._size = self._size + 1
        return grown

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._size)
            return self._items[start:stop:step] if step > 0 else self._items[: self._size][index]
        at = index + self._size if index < 0 else index
        if not 0 <= at < self._size:
            raise IndexError(index)
        return self._items[at]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        for at in range(self._size):
            yield self._items[at]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType] # compared as plain objects

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Log({list(self)!r})"


class Seen:
    """An immutable set of strings whose `add` costs O(1) on the newest version."""

    __slots__ = ("_order", "_size")

    def __init__(self) -> None:
        self._order: dict[str, int] = {}
        self._size = 0

    def add(self, item: str) -> "Seen":
        """The set with one more member."""
        if item in self:
            return self
        grown = Seen()
        fresh = 0 < self._size == len(self._order)
        grown._order = self._order if fresh else {member: at for at, member in enumerate(self)}
        grown._order[item] = self._size
        grown._size = self._size + 1
        return grown

    def __contains__(self, item: str) -> bool:
        return self._order.get(item, self._size) < self._size

    def __iter__(self) -> Iterator[str]:
        for item, at in self._order.items():
            if at >= self._size:
                return
            yield item

    def __len__(self) -> int:
        return self._size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Seen({list(self)!r})"


Copier = Callable[[], object]
"""Makes a copy of the value that it was made for."""


def owned(value: object) -> object:
    """Copy a value; return the value itself if nothing in it can be changed."""
    make = copier(value)
    return value if make is None else make()


def copier(value: object) -> Copier | None:
    """Function that copies a value quickly; None if nothing in it can be changed.

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


class _Make(Protocol):
    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T: ...


make: _Make = tuple.__new__  # pyright: ignore[reportAssignmentType, reportUnknownMemberType, reportUnknownVariableType] # `kind` is a tuple, and so are its fields
