"""What metrics look at: one exchange of a conversation, with what its case says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from kept.core.case import Case
from kept.core.exchange import Exchange, ToolUse


@dataclass(frozen=True, slots=True)
class Subject:
    """One exchange."""

    input: str
    response: str
    ground_truth: str | None = None
    context: tuple[str, ...] = ()
    """Passages: the case's own, else those that tools found."""
    uses: tuple[ToolUse, ...] = ()
    index: int = 0
    case_name: str = ""
    turn_config: Mapping[str, object] = field(default_factory=dict[str, object])


class Measured(NamedTuple):
    """What one metric came to; a metric that could not be measured is a `Failure` instead."""

    score: float | None
    """Between 0 and 1; None where the case has nothing to measure by."""
    passed: bool | None = None
    """What the metric itself thinks of it, which counts where there is no threshold."""
    reason: str = ""
    error: str = ""
    """What is wrong with the answer, so that it cannot be looked at."""
    details: Mapping[str, object] = {}


def unreadable(why: str) -> Measured:
    """An answer that a metric cannot make sense of: the candidate's fault, and its worst score."""
    return Measured(0.0, False, why, why)


def unmeasured(why: str) -> Measured:
    """A case that a metric has nothing to measure by: nobody's fault, and no score."""
    return Measured(None, reason=f"not measured: {why}")


def lacking(what: str) -> Measured:
    """The same for a case without this."""
    return unmeasured(f"the case has no `{what}`")


def turns_of(case: Case) -> Sequence[Mapping[str, Any]]:
    """What a case says of each exchange."""
    data = cast("Mapping[str, Any]", case.data)
    turns: Sequence[Mapping[str, Any]] | None = data.get("turns")
    return turns if turns else (data,)


def subject_of(case: Case, index: int, turn: Mapping[str, Any], exchange: Exchange) -> Subject:
    """An exchange with what its case says of it."""
    data = cast("Mapping[str, Any]", case.data)
    truth: object = turn.get("ground_truth")
    own: Sequence[str] | None = turn.get("retrieval_context")
    return Subject(
        exchange.input,
        exchange.response,
        None if truth is None else str(truth),
        exchange.context if own is None else tuple(own),
        exchange.uses,
        index,
        str(data.get("name") or case.id),
        turn.get("turn_config") or {},
    )
