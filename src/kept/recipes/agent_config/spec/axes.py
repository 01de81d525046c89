"""What an optimizer may change of an agent: values, texts, and examples in a text."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from kept.proposers.spec import Choice, choice_faults, range_faults
from kept.recipes.agent_config.spec.words import Words
from kept.spec.base import Count, Finite, Model


class NumericAxisSpec(Model):
    """One value of the agent.yaml that may be tuned."""

    path: Words
    """Where it stands: `model.temperature`, `tools[name=x].top_k`."""
    type: Literal["float", "int", "categorical"] | None = None
    """By default what the value is, and `categorical` where the range has texts."""
    range: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None
    """The least and the greatest number; of a categorical axis, all that it may be."""
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None
    """The same as a categorical `range`."""
    log: bool = False
    """Whether all magnitudes are alike probable, rather than all numbers."""
    step: Finite | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A range or choices, and what goes with each."""
        if not {"type", "range", "choices"} <= said.keys():
            return
        kind, ends, choices = said["type"], said["range"], said["choices"]
        if (ends is None) == (choices is None):
            yield "an axis has either a `range` or `choices`"
        elif choices is not None or kind == "categorical" or not _are_numbers(ends):
            others = {**said, "type": None if kind == "categorical" else kind}
            yield from choice_faults(choices if choices is not None else ends, others)
        elif not all(map(math.isfinite, ends)):
            yield "the ends of a `range` are finite numbers"
        elif len(ends) != 2:
            yield "a `range` has two ends, the least and the greatest; several values are `choices`"
        else:
            low, high = ends
            yield from range_faults(low, high, said)

    @property
    def choosing(self) -> bool:
        """Whether it is one of several values, rather than any between two."""
        return self.type == "categorical" or self.range is None or not _are_numbers(self.range)

    @property
    def values(self) -> tuple[Any, ...]:
        """The ends of its range, or all that it may be."""
        return self.choices or self.range or ()


def _are_numbers(values: object) -> bool:
    assert isinstance(values, list | tuple)
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)  # pyright: ignore[reportUnknownVariableType] # whatever a file has


class TextualAxisSpec(Model):
    """One text of the agent that may be rewritten."""

    path: Words
    """`instructions`, `tools[name=x].description` and the like."""
    max_chars: Count = 8000


class DemosAxisSpec(Model):
    """A text of the agent that examples may be put at the end of."""

    path: Words = "instructions"
    max_demos: Count = 4
    max_chars: Count = 16000
    """Of the text with its examples."""


class AxesSpec(Model):
    """Everything that may change."""

    numeric: Annotated[tuple[NumericAxisSpec, ...], Field(strict=False)] = ()
    textual: Annotated[tuple[TextualAxisSpec, ...], Field(strict=False)] = ()
    demos: DemosAxisSpec | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Something to change."""
        if {"numeric", "textual", "demos"} <= said.keys() and not any(
            (said["numeric"], said["textual"], said["demos"] is not None)
        ):
            yield "no axis: give `numeric`, `textual` or `demos`"
