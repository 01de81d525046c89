"""Named tuples made as plain ones are, in a third of the time.

For those of which every rollout makes one: all fields are given, in their order.
"""

from typing import Protocol, TypeVar

T = TypeVar("T")


class _Make(Protocol):
    def __call__(self, kind: type[T], fields: tuple[object, ...], /) -> T: ...


make: _Make = tuple.__new__  # pyright: ignore[reportAssignmentType, reportUnknownMemberType, reportUnknownVariableType] # `kind` is a tuple, and so are its fields
