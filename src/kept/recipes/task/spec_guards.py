"""What a task may say about guards: what a candidate is refused for before it is run."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kept.spec.base import Count, Finite, Model, Text, some


def _off(value: object) -> object:
    return None if value is False else value


def _titles(value: Any) -> Any:  # noqa: ANN401 # whatever a file may say
    # one wording for what is neither `all` nor a list of titles
    if value == "all" or isinstance(value, list):
        return value  # pyright: ignore[reportUnknownVariableType] # of anything
    raise ValueError("neither `all` nor a list of titles")


class LengthGuardSpec(Model):
    """Refuses what says more rather than better."""

    max_growth: Annotated[Finite, Field(ge=1)] | None = None
    """Times the tokens of the seed; 3 when no limit is given."""
    max_tokens: Count | None = None
    max_chars: Count | None = None


class StuffingGuardSpec(Model):
    """Refuses what says the same words again and again."""

    max_density: Annotated[Finite, Field(gt=0, le=1)] = 0.25
    max_repetition: Annotated[Finite, Field(gt=0, le=1)] = 0.3


class SectionsGuardSpec(Model):
    """Refuses what drops or empties a section of the seed."""

    keep: Annotated[
        Literal["all"] | Annotated[tuple[Text, ...], Field(strict=False), AfterValidator(some)],
        BeforeValidator(_titles),
    ] = "all"
    max_level: Annotated[int, Field(ge=1, le=6)] = 6


class CopyGuardSpec(Model):
    """Refuses what has text of the cases in it."""

    allow_train: bool | None = None
    """By default only with a `demos` proposer, whose business it is."""


class GuardsSpec(Model):
    """Which guards stand before the rollouts."""

    length: Annotated[LengthGuardSpec | None, BeforeValidator(_off)] = None
    stuffing: Annotated[StuffingGuardSpec | None, BeforeValidator(_off)] = None
    sections: Annotated[SectionsGuardSpec | None, BeforeValidator(_off)] = None
    copied: Annotated[CopyGuardSpec | None, BeforeValidator(_off)] = Field(
        default=CopyGuardSpec(), alias="copy"
    )
