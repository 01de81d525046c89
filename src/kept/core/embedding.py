"""Texts as vectors: what lies near another means about the same."""

from array import array
from dataclasses import dataclass

from kept.core.rollout import FREE, Usage


@dataclass(frozen=True, slots=True)
class Embedded:
    """One vector for every text, in their order, all of one length."""

    vectors: tuple["array[float]", ...]
    """Of four bytes a number (`array("f")`), which is what everybody keeps of them."""
    usage: Usage = FREE
