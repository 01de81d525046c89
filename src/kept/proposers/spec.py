"""What a task may say about who proposes changes.

The models of every kind of proposer, told apart by `kind`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kept.evaluators.runners.coding_agent import AgentProposerSpec
from kept.sandbox.command import TIMEOUT, Network
from kept.spec.shared_sections import RoleSpec
from kept.spec.validate import Count, Finite, OneOrMore, Seconds, SomeTexts, SpecModel, Text, some

Whole = Annotated[int, Field(ge=0)]


def _choice(value: object) -> object:
    if not isinstance(value, str | int | float) or value != value:
        raise ValueError("a choice is a text, a number, true or false")
    return value


# not a union: a fault of it would be told once for each member
Choice = Annotated[Any, AfterValidator(_choice)]


class VariantsSpec(SpecModel):
    """Texts that somebody already wrote."""

    kind: Literal["variants"]
    files: SomeTexts


class AxisSpec(SpecModel):
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

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A range or choices, and what goes with each."""
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
    """What is wrong with the choices of an axis, and with what else is said of it."""
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
    """What is wrong with the range of an axis, and with what else is said of it."""
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
    """Points that are drawn at random before the search learns from them."""
    train_sample: Count | None = None
    """Train cases that each point is measured on for the search; by default all."""


class PruneSpec(SpecModel):
    """Leave something out."""

    kind: Literal["prune"]
    files: SomeTexts | None = None
    """Patterns of artifacts; by default all of them."""
    units: Annotated[
        tuple[Literal["section", "line", "sentence"], ...],
        Field(strict=False),
        AfterValidator(some),
    ] = ("section", "line", "sentence")


class DemosSpec(SpecModel):
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

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """A count in order, and two marks."""
        count = said.get("count")
        if count is not None and count[0] > count[1]:
            yield "`count` is reversed: write the least number, then the greatest"
        if "begin" in said and said["begin"] == said.get("end"):
            yield "`begin` and `end` are the same mark"


class CommandProposerSpec(SpecModel):
    """A program that reads a brief and edits a copy of the files."""

    kind: Literal["command"]
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    network: Network | None = None
    """By default as `sandbox.network` says."""
    fields: OneOrMore | None = None
    """Of train cases; by default those that the runner's model or agent sees, so no answers."""


class ByModelSpec(SpecModel):
    """A model that reads the artifacts and what went wrong, and answers with a change."""

    model: RoleSpec | None = None
    """By default that of `models.optimizer`, of `models.applier`, or of KEPT_MODEL."""
    prompt: Text | None = None
    """A file to stand for Kept's own prompt."""
    cases: Whole = 8
    """Train cases on which the incumbent is run first, for the model to see."""
    fields: OneOrMore | None = None
    """Of these cases; by default those that a model which is the runner sees, so no answers."""
    traces: Whole = 3
    """Of these cases, how many are shown with their whole trace: the worst, and the best."""
    refused: Whole = 5
    """Proposals that came to nothing and are shown with their verdicts."""


class EditSpec(ByModelSpec):
    """A few precise edits."""

    kind: Literal["edit"]


class RewriteSpec(ByModelSpec):
    """Whole texts."""

    kind: Literal["rewrite"]


class SimplifySpec(ByModelSpec):
    """Less text, at no loss."""

    kind: Literal["simplify"]
    cases: Whole = 0
    traces: Whole = 0


class ReflectSpec(ByModelSpec):
    """A diagnosis of a few cases, and then edits."""

    kind: Literal["reflect"]
    cases: Whole = 24
    batch: Count = 6
    """Of these cases, how many the model is shown: those that can be won before all others."""
    traces: Whole = 6


ProposerSpec = Annotated[
    VariantsSpec
    | NumericSpec
    | PruneSpec
    | DemosSpec
    | CommandProposerSpec
    | EditSpec
    | RewriteSpec
    | SimplifySpec
    | ReflectSpec
    | AgentProposerSpec,
    Field(discriminator="kind"),
]
