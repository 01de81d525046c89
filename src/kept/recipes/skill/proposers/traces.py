"""A rollout as an analyst reads it, fitted to a room by whole turns; what was cut is said.

Pure. A trace has the roles that `base.py` names: conversations, uses of tools, steps of a
simulator, what the scorer says.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kept.core.rollout import TraceItem
from kept.core.words import count, one_line, shortened
from kept.models.window import BYTES, tokens_of

VERIFICATION, SESSION, STEP = "verification", "session", "step"

SILENT = ("system", SESSION, "expected")
"""Items that are no turns: the prompt is told apart, the others to nobody."""


HIDDEN = "[the expected answer]"

SAID = 60
"""Characters for the words that a turn was shortened."""

STEP_LINE = 160
"""Characters of a step in a list of steps, which names them; its turn has all of it."""


class Shown(NamedTuple):
    """Turns of a trace."""

    text: str
    cut: int = 0
    """Turns that there was no room for, or not for all of it."""


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
    lines = [f"{item.data['step']}. {one_line(_call(item.data), STEP_LINE)}" for item in numbered]
    return "\n".join(lines)


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


def size_of(turns: Sequence[str]) -> int:
    """Tokens that turns take, each on lines of its own."""
    return sum(tokens_of(f"{turn}\n") for turn in turns)


def fitted(turns: Sequence[str], room: int | None) -> Shown:
    """As many turns as there is room for: those in the middle go first, the last goes last."""
    if room is None or size_of(turns) <= room:
        return Shown("\n".join(turns))
    left = room - size_of([_gone(len(turns))])
    waiting, head, tail, cut = list(turns), list[str](), list[str](), 0
    # the end, where it failed, has the first say, and the beginning the next
    if size_of(waiting[-1:]) > left:
        tail.append(_shortened(waiting.pop(), left // 2 if waiting else left))
        left, cut = left - size_of(tail), 1
    ends = {-1: tail, 0: head}
    while waiting and ends:
        at = -1 if -1 in ends and (0 not in ends or len(tail) <= len(head)) else 0
        if size_of([waiting[at]]) > left:
            del ends[at]
            continue
        left -= size_of([waiting[at]])
        ends[at].append(waiting.pop(at))
    gone = [_gone(len(waiting))] if waiting else []
    return Shown("\n".join([*head, *gone, *tail[::-1]]), len(waiting) + cut)


def _gone(turns: int) -> str:
    return f"[{count(turns, 'turn')} not shown, for want of room]"


def _shortened(turn: str, room: int) -> str:
    """The beginning and the end of a turn that is longer than all the room there is."""
    share = room * BYTES / len(turn.encode("utf-8", "surrogatepass"))
    return shortened(turn, max(2, int(len(turn) * share) - SAID))


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
