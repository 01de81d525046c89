"""A rollout as an analyst reads it, fitted to a room by whole turns; what was cut is said.

Pure. A trace has the roles that `kept.envs.opened` names: conversations, uses of tools, steps of a
simulator, what the scorer says.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kept.core.rollout import TraceItem
from kept.core.words import count
from kept.models.window import tokens_of

VERIFICATION, SESSION, STEP = "verification", "session", "step"

SILENT = ("system", SESSION, "expected")
"""Items that are no turns: the prompt is told apart, the others to nobody."""


HIDDEN = "[the expected answer]"


class Shown(NamedTuple):
    """Turns of a trace."""

    text: str
    cut: int = 0
    """Turns that there was no room for."""


def system_prompt(trace: Sequence[TraceItem]) -> str:
    """What the student was told first."""
    return next((item.text for item in trace if item.role == "system"), "")


def user_prompt(trace: Sequence[TraceItem]) -> str:
    """What it was asked."""
    return next((item.text for item in trace if item.role == "user"), "")


def summary_of(trace: Sequence[TraceItem]) -> str:
    """The summary of what an agent CLI did; empty where nothing sums it up."""
    said = (item.data.get("summary") for item in trace if item.role == "info")
    return next((str(text) for text in said if text), "")


def steps_of(trace: Sequence[TraceItem]) -> str:
    """The numbered steps of an agent CLI, by which a probe names the one that it goes on from."""
    numbered = [item for item in trace if item.role == "tool" and "step" in item.data]
    return "\n".join(f"{item.data['step']}. {_call(item.data)}" for item in numbered)


def length_of(trace: Sequence[TraceItem]) -> int:
    """How many turns the student took: steps, uses of tools and answers."""
    steps = sum(item.role == STEP for item in trace)
    return steps or sum(item.role in ("assistant", "tool") for item in trace)


def references_of(trace: Sequence[TraceItem]) -> Iterator[str]:
    """The expected answers that a scorer wrote down."""
    for item in trace:
        if item.role == VERIFICATION and (reference := item.data.get("reference")):
            yield str(reference)


def redacted(text: str, hidden: Sequence[str]) -> str:
    """A text without expected answers: whole words, however they are spaced and written."""
    longest_first = sorted({*hidden}, key=lambda one: (-len(one), one))
    answers = [r"\s+".join(map(re.escape, one.split())) for one in longest_first if one.strip()]
    if not answers:
        return text
    # a 5 is no part of 0.5, nor of 5.2
    whole = rf"(?<!\w)(?<!\d[.,])(?:{'|'.join(answers)})(?!\w|[.,]\d)"
    return re.sub(whole, HIDDEN, text, flags=re.IGNORECASE)


def turns_of(trace: Sequence[TraceItem], hidden: Sequence[str] = ()) -> list[str]:
    """Every turn as text; the first question is told apart, and so left out."""
    found: list[str] = []
    asked = False
    for item in trace:
        if item.role == "user" and not asked:
            asked = True
            continue
        if item.role not in SILENT and (text := "\n".join(_lines(item, hidden))):
            found.append(text)
    return found


def fitted(turns: Sequence[str], room: int | None) -> Shown:
    """As many turns as there is room for: those in the middle go first, the last goes last."""
    if room is None or sum(map(tokens_of, turns)) <= room or len(turns) < 2:
        return Shown("\n".join(turns))
    head, tail, used = list[str](), list[str](), 0
    waiting = list(turns)
    while waiting:
        # the end, where it failed, has the first say, and the beginning the next
        from_end = len(tail) <= len(head)
        one = waiting[-1] if from_end else waiting[0]
        used += tokens_of(one)
        if used > room and (head or tail):
            break
        (tail if from_end else head).append(waiting.pop(-1 if from_end else 0))
    if not waiting:
        return Shown("\n".join(turns))
    gone = f"[{count(len(waiting), 'turn')} not shown, for want of room]"
    return Shown("\n".join([*head, gone, *tail[::-1]]), len(waiting))


def _lines(item: TraceItem, hidden: Sequence[str]) -> Iterator[str]:
    match item.role:
        case "tool":
            yield f"[action] {_call(item.data)}"
            yield f"[obs] {item.text}"
        case "step":
            n = item.data.get("step", "?")
            if thought := str(item.data.get("reasoning") or ""):
                yield f"[step {n} think] {thought}"
            yield f"[step {n} action] {item.data.get('action', '')}"
            yield f"[step {n} obs] {item.text}"
        case "info":
            if not item.data.get("summary"):
                yield f"[info] {item.text}"
        case "user" | "assistant":
            # what a student saw and said is not marked: it would tell which of its words are right
            yield f"[{item.role}] {item.text}"
        case _:
            yield f"[{item.role}] {redacted(item.text, hidden)}"


def _call(data: Mapping[str, object]) -> str:
    if command := data.get("command"):
        return str(command)
    arguments: Any = data.get("arguments")
    told = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    return f"{cast('str', data.get('name', ''))}({told})"
