"""Numeric search as a component: axes of a spec, their checks, and the search space."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from kept.core.artifact import NoSpan, Value
from kept.proposers.numeric.search import Numeric
from kept.proposers.numeric.space import Axis, Choices, Numbers, Space
from kept.proposers.registry import ProposerComponent
from kept.spec.components import BuildContext, CheckContext
from kept.spec.locate.tree import read_value
from kept.spec.source import kind_of
from kept.spec.validate import Count, Finite, SpecModel, Text, section, some


def _choice(value: object) -> object:
    if not isinstance(value, str | int | float) or value != value:
        raise ValueError("a choice is a text, a number, true or false")
    return value


# not a union: pydantic would report a wrong value once for each member
Choice = Annotated[Any, AfterValidator(_choice)]


class AxisSpec(SpecModel):
    """One value of a file that may be tuned: within a range, or among choices."""

    file: Text
    path: Text
    """Path of the value in the file: `model.temperature`, `tools[name=x].top_k`, `KEY`."""
    type: Literal["float", "int"] | None = None
    """Type of a range. It is explicit because 0 and 1 may well be floats."""
    range: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    log: bool = False
    """True to sample magnitudes uniformly (log scale), rather than numbers."""
    step: Finite | None = None
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a missing or contradictory range or choices."""
        if not {"range", "choices"} <= said.keys():
            return
        if (said["range"] is None) == (said["choices"] is None):
            yield "an axis has either a `range` or `choices`"
        elif said["choices"] is not None:
            yield from choice_faults(said["choices"], said)
        else:
            low, high = said["range"]
            yield from range_faults(low, high, said, typed=True)


def choice_faults(choices: Sequence[object], said: Mapping[str, Any]) -> Iterator[str]:
    """Problems of the choices of an axis, and of keys that do not go with choices."""
    if len(choices) < 2:
        yield "`choices` leave nothing to choose: give two or more"
    doubled = [choice for n, choice in enumerate(choices) if choice in choices[:n]]
    if doubled:
        yield f"`{doubled[0]}` stands twice among the `choices`"
    if said.get("log") or said.get("step") is not None or said.get("type") is not None:
        yield "`type`, `log` and `step` go with a `range`, not with `choices`"


def range_faults(
    low: float, high: float, said: Mapping[str, Any], *, typed: bool = False
) -> Iterator[str]:
    """Problems of the range of an axis, and of keys that do not go with a range."""
    log, step = said.get("log"), said.get("step")
    if low >= high:
        yield "`range` is empty: write the least value, then a greater one"
    if typed and "type" in said and said["type"] is None:
        yield "a `range` needs a `type`: float or int"
    if log and low <= 0:
        yield "`log` needs a `range` above 0"
    if log and step is not None:
        yield "`log` and `step` do not go together"
    elif step is not None and low < high and not 0 < step <= high - low:
        yield f"`step` is {step:g}, which does not fit into the `range`"
    if said.get("type") == "int" and any(n != int(n) for n in (low, high, step or 1)):
        yield "`type` is int, so `range` and `step` are whole numbers"


class NumericSpec(SpecModel):
    """Search over values of config files."""

    kind: Literal["numeric"]
    axes: Annotated[tuple[AxisSpec, ...], Field(strict=False), AfterValidator(some)]
    startup: Count = 5
    """Number of random points before the search learns from results."""
    train_sample: Count | None = None
    """Number of train cases that each point is measured on; all by default."""


class NumericComponent(ProposerComponent[NumericSpec]):
    """Search over values of config files."""

    Spec = NumericSpec

    def read(self, given: object) -> NumericSpec:
        """Parse the spec. Never None: each axis is checked by itself, from the source."""
        return super().read(given) or NumericSpec.model_construct(kind="numeric", axes=())

    def check(self, spec: NumericSpec, context: CheckContext) -> None:
        """Report axes of values that do not exist, and values outside their axis."""
        if context.cases is not None and not context.cases.train:
            message = "there is no train case to measure points on"
            context.report((), message, "give train a share in `cases.split`")
        places: list[tuple[str, str]] = []
        rows = context.said("axes")
        for at in range(len(cast("list[object]", rows)) if isinstance(rows, list) else 0):
            file, path = context.said("axes", at, "file"), context.said("axes", at, "path")
            if not (isinstance(file, str) and file and isinstance(path, str) and path):
                continue  # reported already
            if (file, path) in places:
                context.report(("axes", at, "path"), f"`{path}` has two axes")
            places.append((file, path))
            value = _current(context, at, file, path)
            axis = section(context.source, context.at("axes", at), AxisSpec)
            if axis is None or value is None:
                continue
            if not _domain(axis).holds(value):
                context.report(("axes", at, "path"), f"it is {kind_of(value)}, {_not_in(axis)}")

    def build(self, spec: NumericSpec, context: BuildContext) -> Numeric:
        """Build the search; it starts at the current values of the artifacts."""
        axes = tuple(Axis(axis.file, axis.path, _domain(axis)) for axis in spec.axes)
        found = [read_value(axis.file, context.texts[axis.file], axis.path) for axis in axes]
        start = tuple(value for value in found if not isinstance(value, NoSpan))
        return Numeric(Space(axes), start, context.name, spec.startup, spec.train_sample)


def _current(context: CheckContext, at: int, file: str, path: str) -> Value | None:
    """Current value of an axis; None, and a report, if there is none."""
    texts = context.texts
    if file not in texts:
        if texts:
            known = ", ".join(list(texts)[:12])
            message = f"`{file}` is no artifact"
            context.report(("axes", at, "file"), message, f"there are {known}")
        return None
    value = read_value(file, texts[file], path)
    if isinstance(value, NoSpan):
        context.report(("axes", at, "path"), value.detail)
        return None
    return value


def _domain(axis: AxisSpec) -> Numbers | Choices:
    if axis.choices is not None:
        return Choices(axis.choices)
    assert axis.range is not None, "an axis has a range or choices"
    low, high = axis.range
    return Numbers(low, high, axis.type == "int", axis.log, axis.step)


def _not_in(axis: AxisSpec) -> str:
    if axis.choices is not None:
        return "which is none of the `choices`"
    assert axis.range is not None
    kind = "whole number" if axis.type == "int" else "number"
    return f"which is no {kind} from {axis.range[0]:g} to {axis.range[1]:g}"
