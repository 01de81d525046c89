"""What a task may say about scoring.

The models of every kind of scorer, told apart by `type`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from kept.evaluators.scorers.assertions.spec import AssertionsScorerSpec
from kept.evaluators.scorers.judge import JudgeScorerSpec
from kept.evaluators.scorers.rules import RulesScorerSpec
from kept.sandbox.command import TIMEOUT
from kept.spec.validate import Finite, Seconds, SpecModel, Text


def _function(text: str) -> str:
    module, _, name = text.partition(":")
    dotted = (*module.split("."), *name.split("."))
    if not all(part.isidentifier() for part in dotted):
        raise ValueError(f"`{text}` is not a function; write `module:function`")
    return text


def _part_name(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"`{text}` is not a name; write letters, digits, `-` and `_`")
    return text


class ParseSpec(SpecModel):
    """Where the score stands in what a scorer prints."""

    format: Literal["json"] = "json"
    score_field: Text | None = None
    """What becomes the primary metric, `result.score` for a nested one; by default the field that
    has the metric's own name."""
    metrics_field: Text = "metrics"
    """An object with the other metrics."""


class CommandScorerSpec(SpecModel):
    """The command that prints the score."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    parse: ParseSpec = ParseSpec()


class PythonScorerSpec(SpecModel):
    """A function that returns the score."""

    type: Literal["python"]
    function: Annotated[Text, AfterValidator(_function)]
    timeout_seconds: Seconds = TIMEOUT


class PartSpec(SpecModel):
    """One scorer of several."""

    name: Annotated[Text, AfterValidator(_part_name)]
    weight: Annotated[Finite, Field(ge=0)] = 1.0
    metric: Text = "score"
    """The one of its measures that counts."""
    bounds: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    """What of that measure counts as 0 and what as 1; without it the measure counts as it is."""
    scorer: "ScorerSpec"

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Bounds that are two."""
        bounds = said.get("bounds")
        if bounds is not None and bounds[0] == bounds[1]:
            yield "`bounds` are the same: give what counts as 0 and what as 1"


class CompositeScorerSpec(SpecModel):
    """The weighted mean of several scorers."""

    type: Literal["composite"]
    parts: Annotated[tuple[PartSpec, ...], Field(strict=False)]

    @model_validator(mode="after")
    def _can_be_weighed(self) -> "CompositeScorerSpec":
        if not self.parts:
            raise ValueError("there are no parts")
        names = [part.name for part in self.parts]
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        told = [f"two parts are named `{name}`" for name in doubled]
        if not sum(part.weight for part in self.parts):
            told.append("the weights add up to nothing")
        if told:
            raise ValueError("; ".join(told))
        return self


def _kind(value: object) -> object:
    """The `type` of a scorer; a scorer that does not say is a command, as in the first tasks."""
    if isinstance(value, Mapping):
        said = cast("Mapping[str, object]", value).get("type", "command")
        return said if isinstance(said, str) else str(said)
    return getattr(value, "type", None)


ScorerSpec = Annotated[
    Annotated[CommandScorerSpec, Tag("command")]
    | Annotated[PythonScorerSpec, Tag("python")]
    | Annotated[RulesScorerSpec, Tag("rules")]
    | Annotated[JudgeScorerSpec, Tag("judge")]
    | Annotated[AssertionsScorerSpec, Tag("assertions")]
    | Annotated[CompositeScorerSpec, Tag("composite")],
    Discriminator(_kind),
]

PartSpec.model_rebuild()
CompositeScorerSpec.model_rebuild()


def leaves_of(spec: ScorerSpec) -> Iterator[ScorerSpec]:
    """A scorer and all that it is made of."""
    yield spec
    for part in spec.parts if isinstance(spec, CompositeScorerSpec) else ():
        yield from leaves_of(part.scorer)
