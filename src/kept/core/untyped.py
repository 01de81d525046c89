"""Type guards and defaults for JSON-like values of unknown shape.

Replies of models, files of users and events of other programs are read by these, so that a value
of another type than expected is an empty one or a branch, and never an exception.
"""

from typing import Any, TypeGuard


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    """True for a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """True for a JSON array."""
    return isinstance(value, list)


def dict_in(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if is_dict(value) else {}


def list_in(value: object) -> list[object]:
    """The value if it is a JSON array, else an empty one."""
    return value if is_list(value) else []


def dicts_in(value: object) -> list[dict[str, Any]]:
    """The JSON objects of an array, without its other members; empty for anything else."""
    return [one for one in list_in(value) if is_dict(one)]
