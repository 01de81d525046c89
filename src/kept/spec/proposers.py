"""What a task may say about who proposes changes.

The models of every kind of proposer, told apart by `kind`.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from kept.sandbox import TIMEOUT, Network
from kept.spec.base import Count, Finite, Model, Seconds, SomeTexts, Text, some

Whole = Annotated[int, Field(ge=0)]


def _choice(value: object) -> object:
    if not isinstance(value, str | int | float) or value != value:
        raise ValueError("a choice is a text, a number, true or false")
    return value


# not a union: a fault of it would be told once for each member
Choice = Annotated[Any, AfterValidator(_choice)]


class VariantsSpec(Model):
    """Texts that somebody already wrote."""

    kind: Literal["variants"]
    files: SomeTexts


class AxisSpec(Model):
    """One value of a file that may be tuned: within a range, or among choices."""

    file: Text
    path: Text
    """Where in the file it stands: `model.temperature`, `tools[name=x].top_k`, `KEY`."""
    type: Literal["float", "int"] | None = None
    """Of a range; not guessed from how its ends are written, since 0 and 1 may well be floats."""
    range: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    log: bool = False
    """Whether all magnitudes are alike probable, rather than all numbers."""
    step: Finite | None = None
    choices: Annotated[tuple[Choice, ...], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> "AxisSpec":
        if (self.range is None) == (self.choices is None):
            raise ValueError("an axis has either a `range` or `choices`")
        if self.choices is not None:
            self._check_choices(self.choices)
        elif self.range is not None:
            self._check_range(*self.range)
        return self

    def _check_choices(self, choices: tuple[object, ...]) -> None:
        if len(choices) < 2:
            raise ValueError("`choices` leave nothing to choose: give two or more")
        doubled = [choice for n, choice in enumerate(choices) if choice in choices[:n]]
        if doubled:
            raise ValueError(f"`{doubled[0]}` stands twice among the `choices`")
        if self.log or self.step is not None or self.type is not None:
            raise ValueError("`type`, `log` and `step` go with a `range`, not with `choices`")

    def _check_range(self, low: float, high: float) -> None:
        if low >= high:
            raise ValueError("`range` is empty: write the least value, then a greater one")
        if self.type is None:
            raise ValueError("a `range` needs a `type`: float or int")
        if self.log and low <= 0:
            raise ValueError("`log` needs a `range` above 0")
        if self.step is None:
            pass
        elif self.log:
            raise ValueError("`log` and `step` do not go together")
        elif not 0 < self.step <= high - low:
            raise ValueError(f"`step` is {self.step:g}, which does not fit into the `range`")
        if self.type == "int" and any(n != int(n) for n in (low, high, self.step or 1)):
            raise ValueError("`type` is int, so `range` and `step` are whole numbers")


class NumericSpec(Model):
    """Search over values of config files."""

    kind: Literal["numeric"]
    axes: Annotated[tuple[AxisSpec, ...], Field(strict=False), AfterValidator(some)]
    startup: Count = 5
    """Points that are drawn at random before the search learns from them."""
    train_sample: Count | None = None
    """Train cases that each point is measured on for the search; by default all."""


class PruneSpec(Model):
    """Leave something out."""

    kind: Literal["prune"]
    files: SomeTexts | None = None
    """Patterns of artifacts; by default all of them."""
    units: Annotated[
        tuple[Literal["section", "line", "sentence"], ...],
        Field(strict=False),
        AfterValidator(some),
    ] = ("section", "line", "sentence")


class DemosSpec(Model):
    """Examples in a prompt, chosen from the train cases."""

    kind: Literal["demos"]
    file: Text
    template: Text
    """Of one example, with fields of the case in braces."""
    begin: Text = "<!-- demos:start -->"
    end: Text = "<!-- demos:end -->"
    between: str = "\n\n"
    count: Annotated[tuple[Whole, Count], Field(strict=False)] = (1, 4)
    """The least and the greatest number of examples."""

    @model_validator(mode="after")
    def _in_order(self) -> "DemosSpec":
        if self.count[0] > self.count[1]:
            raise ValueError("`count` is reversed: write the least number, then the greatest")
        if self.begin == self.end:
            raise ValueError("`begin` and `end` are the same mark")
        return self


class CommandProposerSpec(Model):
    """A program that reads a brief and edits a copy of the files."""

    kind: Literal["command"]
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    network: Network | None = None
    """By default as `sandbox.network` says."""


ProposerSpec = Annotated[
    VariantsSpec | NumericSpec | PruneSpec | DemosSpec | CommandProposerSpec,
    Field(discriminator="kind"),
]
