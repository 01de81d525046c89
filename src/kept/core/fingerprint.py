"""Any value as one string, by which it is known again in another process."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import itemgetter
from typing import cast

MAX_OBJECTS = 10_000
"""Objects that are looked into, each as often as a way leads to it."""

Named = Callable[[object], str]
"""Maps a value that is no JSON to a name."""


def canonical(data: object, named: Named) -> str:
    """Data as JSON, in one order of its keys, with what dataclasses hold."""

    def told(value: object) -> str:
        if _has_fields(value):
            raise TypeError("what it holds is told as well")
        return named(value)

    try:
        return by_kinds(data, told)
    except TypeError:
        # objects with fields, or keys that have no order among them, or are no keys in JSON
        pass
    try:
        return json.dumps(_Teller(named).plain(data), ensure_ascii=False)
    except RecursionError:
        # objects that lead on and on: of what kind they are must do
        return by_kinds(data, named)


def by_kinds(data: object, named: Named) -> str:
    """The same where of any object nothing but its name is told."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, default=named)


class _Teller:
    """Makes plain values of objects with fields, and lists of pairs of mappings."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._above: set[int] = set()
        """Identities of the containers around the present value, to find cycles."""
        self._objects = 0
        self._depth = 0
        """Objects with fields among what we are in."""

    def plain(self, value: object) -> object:
        """A value as JSON has it; in an object, what leads back to itself is its name."""
        if value is None or isinstance(value, str | int | float):
            return value
        if not _holds(value):
            return self._named(value)
        if id(value) in self._above:
            if not self._depth:
                raise ValueError("Circular reference detected")
            return self._named(value)
        self._above.add(id(value))
        told = self._fields(value) if _has_fields(value) else self._items(value)
        self._above.discard(id(value))
        return told

    def _fields(self, value: object) -> list[object]:
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            raise RecursionError("too many ways lead through these objects")
        self._depth += 1
        # a field that is set later may not be there yet
        names = [one.name for one in fields(value)]  # pyright: ignore[reportArgumentType] # it has fields
        held = [self.plain(getattr(value, name, None)) for name in names]
        self._depth -= 1
        return [self._named(value), *held]

    def _items(self, value: object) -> list[object]:
        if not isinstance(value, Mapping):
            return [self.plain(one) for one in cast("Sequence[object]", value)]
        items = cast("Mapping[object, object]", value).items()
        pairs = sorted(((self._key(key), one) for key, one in items), key=itemgetter(0))
        return [(key, self.plain(one)) for key, one in pairs]

    def _key(self, key: object) -> str:
        told = repr(key)
        # an address is another one in every process
        return self._named(key) if " at 0x" in told else told


def _has_fields(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _holds(value: object) -> bool:
    return _has_fields(value) or isinstance(value, Mapping | list | tuple)
