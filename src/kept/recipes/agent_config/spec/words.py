"""Kinds of values that only an agent.yaml has."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from kept.core.artifact import is_safe_path
from kept.spec.base import Finite, Text


def not_blank(text: str) -> str:
    """A text that says something."""
    if not text.strip():
        raise ValueError("blank, where a text was expected")
    return text


def _below(text: str) -> str:
    if not is_safe_path(text.rstrip("/")):
        raise ValueError(f"`{text}` is not a path below the agent's folder")
    return text.rstrip("/")


Words = Annotated[Text, AfterValidator(not_blank)]
Below = Annotated[Text, AfterValidator(_below)]
"""A path below the folder of the agent."""
Share = Annotated[Finite, Field(ge=0, le=1)]
Loose = dict[str, Any]
"""A mapping that is carried as it stands."""


def one_of(said: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """What is wrong where just one of some keys should be there; None when it is."""
    if not set(keys) <= said.keys():
        return None
    given = [key for key in keys if said[key] is not None]
    names = " or ".join(f"`{key}`" for key in keys)
    if len(given) == 1:
        return None
    return f"give {names}" if not given else f"give {names}, not both"
