"""The axes of an optimizer on an agent: what each stands for, and that it can be moved.

Each axis is tried before anything is spent: it is set to its ends, or to each of its choices, the
agent is read again, and the value must have come to the agent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar, cast

from pydantic import BaseModel

from kept.core.values import Locator
from kept.proposers.numeric.space import Point, Space
from kept.proposers.texts import TextAxis
from kept.recipes.agent_config.numbers import space_of
from kept.recipes.agent_config.spec.axes import (
    AxesSpec,
    DemosAxisSpec,
    NumericAxisSpec,
    TextualAxisSpec,
)
from kept.recipes.agent_config.spec.optimizer import BLOCK
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.wording import text_of, texts_of
from kept.spec.load import said, section
from kept.spec.locate.locate import locate_or_insert
from kept.spec.source import Source

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Axes:
    """Everything of an agent that may change."""

    numeric: Space | None
    start: Point
    """Where the agent stands."""
    textual: tuple[TextAxis, ...]
    demos: TextAxis | None
    """The text that examples are put at the end of."""
    locate: Locator = locate_or_insert


def axes_of(read: ReadAgent, spec: AxesSpec | None = None) -> Axes:
    """The axes, with reports; without a spec, those of the block that are right in themselves."""
    source, loc = read.source, (*BLOCK, "axes")
    numeric = enumerate(spec.numeric) if spec else _rows(source, "numeric", NumericAxisSpec)
    textual = enumerate(spec.textual) if spec else _rows(source, "textual", TextualAxisSpec)
    demos = spec.demos if spec else section(source, (*loc, "demos"), DemosAxisSpec)
    found = space_of(read, numeric)
    return Axes(
        found[0] if found else None,
        found[1] if found else (),
        texts_of(read, textual),
        text_of(read, (*loc, "demos"), demos) if demos else None,
    )


def _rows(source: Source, kind: str, model: type[M]) -> Iterator[tuple[int, M]]:
    """The axes of a kind that are right in themselves, each with its place."""
    given = said(source, (*BLOCK, "axes", kind))
    for number in range(len(cast("list[object]", given)) if isinstance(given, list) else 0):
        row = section(source, (*BLOCK, "axes", kind, number), model)
        if row is not None:
            yield number, row
