"""What the models of all specs are made of."""

from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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


Text = Annotated[str, Field(min_length=1), AfterValidator(no_nul)]
# YAML has lists, and a strict tuple would refuse them
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
SomeTexts = Annotated[Texts, AfterValidator(some)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[Finite, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Model(BaseModel):
    """What all parts of a spec have in common: no unknown keys, no guessing at types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
