"""What the models of all specs are made of."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Self, TypeVar, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from kept.core.case import SPLITS

T = TypeVar("T", bound=tuple[object, ...])


def no_nul(text: str) -> str:
    """A text that a command line or a file name can hold."""
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def some(values: T) -> T:
    """At least one of them."""
    # not min_length: that counts what is wrong in itself as not there, and says so too
    if not values:
        raise ValueError("empty, where at least one was expected")
    return values


def _ratio(text: str) -> str:
    parts = text.split(":")
    if len(parts) != len(SPLITS) or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"`{text}` is not a split; write train:holdout:test, as in 3:5:2")
    return text


def shares_of(ratio: str) -> tuple[int, ...]:
    """A split as numbers."""
    return tuple(int(part) for part in ratio.split(":"))


def _listed(value: object) -> object:
    # one text may stand for a list of one
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1), AfterValidator(no_nul)]
# YAML has lists, and a strict tuple would refuse them
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
SomeTexts = Annotated[Texts, AfterValidator(some)]
OneOrMore = Annotated[SomeTexts, BeforeValidator(_listed)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[Finite, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Ratio = Annotated[str, AfterValidator(_ratio)]
"""Shares of train, holdout and test."""


class Model(BaseModel):
    """What all parts of a spec have in common: no unknown keys, no guessing at types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """What is wrong between values that are each right in themselves.

        Given are only such values. What was left out stands there with its default, unless a key
        is unknown and may have been meant.
        """
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _tell_all(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 # whatever a file may say
        """Pydantic by itself would look at faults between values when there are no others."""
        try:
            made = handler(data)
        except ValidationError as error:
            told = error.errors(include_url=False)
            kept = [cast("InitErrorDetails", fault) for fault in told]
            between = cls.faults(_right(cls, data, {fault["loc"][:1] for fault in told}))
            raise _error(cls, [*kept, *map(_detail, between)]) from error
        between = list(cls.faults({name: getattr(made, name) for name in cls.model_fields}))
        if between:
            raise _error(cls, map(_detail, between))
        return made


def _right(
    model: type[BaseModel], data: object, wrong: set[tuple[int | str, ...]]
) -> dict[str, object]:
    """The values of a mapping that nothing was said against."""
    if not isinstance(data, dict):
        return {}
    given = cast("dict[str, object]", data)
    names = {field.alias or name: field for name, field in model.model_fields.items()}
    if given.keys() <= names.keys():
        given = {
            **{key: field.get_default(call_default_factory=True) for key, field in names.items()},
            **given,
        }
    return {key: value for key, value in given.items() if key in names and (key,) not in wrong}


def _detail(message: str) -> InitErrorDetails:
    # what pydantic makes of a ValueError
    return InitErrorDetails(
        type="value_error", loc=(), input=None, ctx={"error": ValueError(message)}
    )


def _error(model: type[BaseModel], faults: Iterable[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data(model.__name__, list(faults))
