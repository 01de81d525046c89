"""Append-only collections that a frozen state can hold.

A state is folded from thousands of events. Copying a tuple at each event makes the fold quadratic,
so these share their storage between versions: appending to the newest version is one list append,
appending to an older one copies. A version never sees what was appended after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar, overload

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
