"""Schema of an agent's test case."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.parsing import compile_pattern
from kept.core.untyped import dict_in
from kept.recipes.agent_config.spec.common import Loose, Words, one_of
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec, Metrics
from kept.spec.validate import Count, SpecModel, Text, Texts, some

MAX_CASES = 1000
MAX_FILES = 10

FileType = Literal["image", "pdf", "text", "excel", "word", "powerpoint", "csv"]
_MATCHERS = ("fuzzy", "regex")


def _matcher(value: object) -> object:
    """Parse an argument: a literal value, or a mapping with one of the matchers."""
    given = dict_in(value)
    said = next((key for key in _MATCHERS if key in given), None)
    if said is not None:
        return _said_matcher(given, said)
    return {"kind": "literal", "value": value}


def _said_matcher(given: Mapping[str, object], kind: str) -> object:
    value = given[kind]
    if len(given) > 1 or not isinstance(value, str):
        raise ValueError("an argument is a value, or `fuzzy: TEXT`, or `regex: TEXT`")
    if kind == "regex":
        try:
            compile_pattern(value)
        except ValueError as error:
            raise ValueError(f"`{value[:200]}` is not a regular expression: {error}") from error
    return {"kind": kind, "value": value}


def _named(value: object) -> object:
    # the plain name of a tool is short for a mapping with only the name
    return {"name": value} if isinstance(value, str) else value


class ArgumentSpec(SpecModel):
    """Expected value of an argument."""

    kind: Literal["literal", "fuzzy", "regex"]
    value: Any


class ExpectedToolSpec(SpecModel):
    """A tool call that is expected."""

    name: Words
    args: dict[str, Annotated[ArgumentSpec, BeforeValidator(_matcher)]] = Field(
        default_factory=dict[str, ArgumentSpec]
    )
    count: Count = 1
    match: Literal["exact", "contains"] = "exact"
    """With `contains`, part of a tool's name is enough; not a key of HoloDeck."""


class FileSpec(SpecModel):
    """A file that is attached to a message for the agent."""

    path: Words | None = None
    url: Words | None = None
    type: FileType
    description: Words | None = None
    pages: Annotated[tuple[Count, ...], Field(strict=False)] | None = None
    sheet: Text | None = None
    range: Text | None = None
    cache: bool | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a missing or second source."""
        fault = one_of(said, ("path", "url"))
        if fault:
            yield fault


ExpectedTools = Annotated[
    tuple[Annotated[ExpectedToolSpec, BeforeValidator(_named)], ...], Field(strict=False)
]
Files = Annotated[tuple[FileSpec, ...], Field(strict=False, max_length=MAX_FILES)]


class TurnSpec(SpecModel):
    """One message to the agent, and what is expected of its answer."""

    input: Words
    ground_truth: Words | None = None
    expected_tools: ExpectedTools | None = None
    files: Files = ()
    retrieval_context: Texts | None = None
    evaluations: Metrics | None = None
    turn_config: Loose | None = None
    """Passed to graders unchanged."""


_OF_ONE_TURN = ("input", "ground_truth", "expected_tools", "files", "retrieval_context")


class TestCaseSpec(SpecModel):
    """One conversation, of one or several turns."""

    __test__ = False  # keeps pytest from collecting the class

    name: Words | None = None
    input: Words | None = None
    ground_truth: Words | None = None
    expected_tools: ExpectedTools | None = None
    files: Files = ()
    retrieval_context: Texts | None = None
    evaluations: Metrics | None = None
    turns: Annotated[tuple[TurnSpec, ...], Field(strict=False), AfterValidator(some)] | None = None

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report keys beside `turns` that belong into them."""
        if said.get("turns", ()) is None and said.get("input", "") is None:
            yield "give `input`, or `turns`"
        if said.get("turns"):
            for key in _OF_ONE_TURN:
                if said.get(key):
                    yield f"`{key}` belongs to a turn, where there are `turns`"

    @cached_property
    def exchanges(self) -> tuple[TurnSpec, ...]:
        """Turns of the case; a case without `turns` has exactly one."""
        if self.turns is not None:
            return self.turns
        said = {key: getattr(self, key) for key in _OF_ONE_TURN}
        return (TurnSpec.model_construct(**said, evaluations=None, turn_config=None),)


def metrics_of(
    agent: tuple[AnyMetricSpec, ...], case: TestCaseSpec, turn: TurnSpec
) -> tuple[AnyMetricSpec, ...]:
    """The metrics of a turn: its own, else its case's, else the agent's; never a mix."""
    return turn.evaluations or case.evaluations or agent
