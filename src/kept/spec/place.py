"""Where in a file a fault of a model stands.

Pydantic names the member of a union that it tried; the file does not, so those names are left out.
Unions of models are told apart by the one key whose values are fixed: `type` or `kind`.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kept.spec.yaml import Loc


class Place(NamedTuple):
    """A place in a file, and what a mapping there may hold."""

    loc: Loc
    models: tuple[type[BaseModel], ...]
    """More than one where a union is not yet decided; none for a plain value."""

    @property
    def keys(self) -> list[str]:
        """The keys that a mapping at this place may have."""
        return list(dict.fromkeys(key for model in self.models for key in _fields(model)))

    @property
    def tag(self) -> str:
        """The key that tells the members of a union apart."""
        return next((key for model in self.models for key in _tags(model)), "kind")


def locate(model: type[BaseModel], loc: Loc) -> Place:
    """The place that pydantic means when it says so below a model."""
    models: tuple[type[BaseModel], ...] = (model,)
    real: list[str | int] = []
    keyed = False
    for part in loc:
        if keyed:
            # a key that the user chose
            real.append(part)
            keyed = False
            continue
        chosen = tuple(m for m in models if part in _tags(m).values()) if len(models) > 1 else ()
        if chosen:
            models = chosen
            continue
        real.append(part)
        if isinstance(part, str):
            field = _fields(models[0]).get(part) if len(models) == 1 else None
            models = _models_in(field.annotation) if field else ()
            keyed = field is not None and _is_mapping(field.annotation)
    return Place(tuple(real), models)


def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """The fields of a model by the names a file has for them."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _tags(model: type[BaseModel]) -> Mapping[str, object]:
    """Keys of a model that can have one value only, with that value."""
    return {
        key: get_args(field.annotation)[0]
        for key, field in _fields(model).items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }


def _is_mapping(annotation: object) -> bool:
    """Whether a field is a mapping with keys of the user's own, be it `X | None`."""
    if get_origin(annotation) is dict:
        return True
    return any(_is_mapping(inner) for inner in get_args(annotation) if get_origin(inner) is dict)


def _models_in(annotation: object) -> tuple[type[BaseModel], ...]:
    """The models inside `X | None`, `tuple[X, ...]`, `X | Y` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for inner in get_args(annotation) for model in _models_in(inner))
