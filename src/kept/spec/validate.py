"""Validation of specs: base model, pydantic errors in plain words, with line numbers.

Pydantic's error paths name the union member that it tried. The file does not contain these names,
so they are dropped. Members of a union are distinguished by the key with fixed values: `type` or
`kind`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

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
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, InitErrorDetails

from kept.core.case import SPLITS
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Loc

T = TypeVar("T", bound=tuple[object, ...])


def no_nul(text: str) -> str:
    """Refuse a text that no command line or file name can hold."""
    if "\0" in text:
        raise ValueError("holds a NUL character")
    return text


def some(values: T) -> T:
    """Refuse an empty tuple."""
    # not `min_length`: it ignores invalid items, so it would report "too short" as well
    if not values:
        raise ValueError("empty, where at least one was expected")
    return values


def _ratio(text: str) -> str:
    parts = text.split(":")
    if len(parts) != len(SPLITS) or not all(part.strip().isdigit() for part in parts):
        raise ValueError(f"`{text}` is not a split; write train:holdout:test, as in 3:5:2")
    return text


def shares_of(ratio: str) -> tuple[int, ...]:
    """Parse a split such as `3:5:2`."""
    return tuple(int(part) for part in ratio.split(":"))


def _listed(value: object) -> object:
    # a single text is accepted as a list of one
    return [value] if isinstance(value, str) else value


Text = Annotated[str, Field(min_length=1), AfterValidator(no_nul)]
# not strict: YAML has lists, which a strict tuple refuses
Texts = Annotated[tuple[Text, ...], Field(strict=False)]
SomeTexts = Annotated[Texts, AfterValidator(some)]
OneOrMore = Annotated[SomeTexts, BeforeValidator(_listed)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[Finite, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Whole = Annotated[int, Field(ge=0)]
Ratio = Annotated[str, AfterValidator(_ratio)]
"""Shares of train, holdout and test."""


class SpecModel(BaseModel):
    """Base of all parts of a spec: unknown keys are refused, types are not converted."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Yield problems between values that are valid one by one.

        `said` holds only valid values. Omitted keys have their defaults, unless some key is
        unknown: it may be a misspelling of an omitted one.
        """
        return iter(())

    @model_validator(mode="wrap")
    @classmethod
    def _tell_all(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:  # noqa: ANN401 # a file may hold anything
        """Report faults between values even if single values are wrong; pydantic would not."""
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
    """Valid values of a mapping; with defaults, unless it has unknown keys."""
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
    # the same details that pydantic makes of a ValueError
    return InitErrorDetails(
        type="value_error", loc=(), input=None, ctx={"error": ValueError(message)}
    )


def _error(model: type[BaseModel], faults: Iterable[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data(model.__name__, list(faults))


class Components(Protocol):
    """Annotation of a field that holds the spec of a component, named by the spec itself."""

    def spec_of(self, name: object) -> type[BaseModel] | None:
        """Return the `Spec` class of a component; None for an unknown name."""
        ...


class Place(NamedTuple):
    """A place in a file, and the models of a mapping there."""

    loc: Loc
    models: tuple[type[BaseModel], ...]
    """Several if a union is not yet decided; empty for a plain value."""

    @property
    def keys(self) -> list[str]:
        """Keys that a mapping at this place may have."""
        return list(dict.fromkeys(key for model in self.models for key in _fields(model)))

    @property
    def tag(self) -> str:
        """Key that distinguishes the members of a union."""
        return next((key for model in self.models for key in _tags(model)), "kind")


def locate(model: type[BaseModel], loc: Loc) -> Place:
    """Convert an error path of pydantic into a place of the file."""
    models: tuple[type[BaseModel], ...] = (model,)
    real: list[str | int] = []
    keyed = False
    named: Components | None = None
    for part in loc:
        if named is not None and (spec := named.spec_of(part)) is not None:
            # the name of a component: in the file it is the value of a key
            models, named = (spec,), None
            continue
        if keyed:
            # a key of the user's own mapping
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
            named = _component_of(field) if field else None
            models = _models_in(field.annotation) if field else ()
            keyed = field is not None and _is_mapping(field.annotation)
    return Place(tuple(real), models)


def _fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Fields of a model, by their names in a file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _tags(model: type[BaseModel]) -> Mapping[str, object]:
    """Keys of a model that can have only one value, with that value."""
    return {
        key: get_args(field.annotation)[0]
        for key, field in _fields(model).items()
        if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
    }


def _is_mapping(annotation: object) -> bool:
    """True if a field is a mapping with the user's own keys, also as `X | None`."""
    if get_origin(annotation) is dict:
        return True
    return any(_is_mapping(inner) for inner in get_args(annotation) if get_origin(inner) is dict)


def _component_of(field: FieldInfo) -> Components | None:
    """Components of which a field names one, or a list of them; None for other fields."""
    return next(_registries((*field.metadata, field.annotation)), None)


def _registries(annotations: Iterable[object]) -> Iterator[Components]:
    for one in annotations:
        if hasattr(one, "spec_of"):
            yield cast("Components", one)
        else:
            yield from _registries((*get_args(one), *getattr(one, "__metadata__", ())))


def _models_in(annotation: object) -> tuple[type[BaseModel], ...]:
    """Models inside `X | None`, `tuple[X, ...]`, `X | Y` and the like."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for inner in get_args(annotation) for model in _models_in(inner))


M = TypeVar("M", bound=BaseModel)

_QUOTED = re.compile(r"'([^']*)'")
"""Names that pydantic's messages quote, such as expected values."""

_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
}
_BOUNDS: Mapping[str, Callable[[Any], str]] = {
    "greater_than": lambda ctx: f"more than {ctx['gt']:g}",
    "greater_than_equal": lambda ctx: f"{ctx['ge']:g} or more",
    "less_than": lambda ctx: f"less than {ctx['lt']:g}",
    "less_than_equal": lambda ctx: f"{ctx['le']:g} or less",
    "literal_error": lambda ctx: ctx["expected"].replace("'", "`"),
    "finite_number": lambda ctx: "a finite number",
    "string_too_short": lambda ctx: "a text that is not empty",
}


def validate(source: Source, model: type[M], loc: Loc = ()) -> M | None:
    """Validate a source, or the part at `loc`; None, and reports, if it has problems."""
    return validate_given(source, model, said(source, loc), loc)


def validate_given(source: Source, model: type[M], given: object, loc: Loc) -> M | None:
    """Validate a given value as if it stood at a place of the source, like `validate`."""
    try:
        return model.model_validate(given)
    except ValidationError as error:
        for fault in error.errors(include_url=False):
            _report(source, fault, model, loc)
        return None


def section(source: Source, loc: Loc, model: type[M], unread: Collection[str] = ()) -> M | None:
    """Read one part of a source; None if it has problems, which are not reported again.

    So valid parts can be checked although other parts are wrong, or keys in `unread`, which the
    caller does not use.
    """
    data = said(source, loc)
    if isinstance(data, dict):
        given = cast("dict[str, object]", data)
        data = {key: value for key, value in given.items() if key not in unread}
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def said(source: Source, loc: Loc, otherwise: object = None) -> object:
    """Value that a source has at a place, valid or not; `otherwise` if there is none."""
    data: Any = source.data
    try:
        for part in loc:
            data = data[part]
    except (LookupError, TypeError):
        return otherwise
    return data


def check_folder(source: Source, loc: Loc) -> None:
    """Report a missing folder for a command."""
    name = said(source, loc)
    if isinstance(name, str) and name and "\0" not in name and not (source.folder / name).is_dir():
        source.report(loc, f"there is no folder `{name}`")


def _report(source: Source, fault: ErrorDetails, model: type[BaseModel], below: Loc) -> None:
    place = locate(model, fault["loc"])
    loc = (*below, *place.loc)
    kind, given = fault["type"], fault["input"]
    ctx: Mapping[str, Any] = fault.get("ctx", {})
    if kind == "missing":
        source.report(loc, "missing")
    elif kind == "extra_forbidden":
        source.report(
            loc, "unknown key", advice(str(loc[-1]), locate(model, fault["loc"][:-1]).keys)
        )
    elif kind.startswith("union_tag"):
        _report_tag(source, Place(loc, place.models), given, ctx)
    elif kind in _WANTED:
        source.report(loc, f"{kind_of(given)}, where {_WANTED[kind]} was expected")
    elif kind in _BOUNDS:
        message = f"{kind_of(given)}, where {_BOUNDS[kind](ctx)} was expected"
        source.report(loc, message, _meant(given, _QUOTED.findall(ctx.get("expected", ""))))
    elif kind == "too_long":
        source.report(loc, f"at most {ctx['max_length']} expected, {ctx['actual_length']} given")
    else:
        # our own validators raise ValueError; pydantic puts a prefix before the message
        source.report(loc, fault["msg"].removeprefix("Value error, "))


def _report_tag(source: Source, place: Place, given: object, ctx: Mapping[str, Any]) -> None:
    """Report a mapping whose `type` or `kind` is missing or unknown."""
    if not isinstance(given, dict):
        source.report(place.loc, f"{kind_of(given)}, where a mapping was expected")
        return
    keys = _QUOTED.findall(str(ctx.get("discriminator", "")))
    key = keys[0] if keys else place.tag
    if key not in given:
        source.report((*place.loc, key), "missing")
        return
    said = cast("dict[str, object]", given)[key]
    known = _QUOTED.findall(str(ctx["expected_tags"]))
    message = (
        f"{kind_of(said)}, where one of {', '.join(f'`{name}`' for name in known)} was expected"
    )
    source.report((*place.loc, key), message, _BY_ITSELF.get(str(said)) or _meant(said, known))


_BY_ITSELF: dict[str, str] = {
    "merge": "a race puts near misses together by itself: leave it out",
}
"""Hints for kinds that users may expect but that Kept adds by itself."""


def advice(key: str, known: list[str]) -> str:
    """Hint for an unknown key: a similar one, else the list of known keys."""
    return _meant(key, known) or f"known keys: {', '.join(known)}"


def _meant(word: object, known: Sequence[str]) -> str | None:
    """Hint at a similar known word; None without one."""
    if not isinstance(word, str) or not word:
        return None
    # the start of exactly one word, or its letters in another order
    likely = [name for name in known if name.startswith(word) or sorted(name) == sorted(word)]
    near = likely if len(likely) == 1 else get_close_matches(word, known, n=1, cutoff=0.7)
    return f"did you mean `{near[0]}`?" if near else None
