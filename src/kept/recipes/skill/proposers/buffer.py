"""What earlier steps of the epoch saw and tried, rebuilt from the closed steps each time.

Pure. A resume has the same closed steps, and so the same memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kept.core.objective import Objective
from kept.core.proposal import Brief, ClosedStep, Note
from kept.core.schedules.epochs import closed_in

META_SKILL = "meta_skill"
"""The topic of notes that carry the teacher's memory from epoch to epoch."""

UNTOLD = ("stale", "indecisive", "unaffordable", "proposer failed")
"""Codes of steps that say nothing of their edits."""

LONGEST = 600
"""Characters of one edit that are told."""


def about_of(step: ClosedStep) -> Mapping[str, Any]:
    """What a step told of itself, whether or not it came to a proposal."""
    if step.proposal is not None:
        return step.proposal.about
    return step.skip.about if step.skip is not None else {}


def step_buffer(brief: Brief) -> str:
    """The steps of this epoch before this one, oldest first; empty for the first."""
    epoch = cast("int", brief.turn.settings.get("epoch", 0))
    steps = closed_in(brief.closed, epoch)
    return "\n\n".join("\n".join(_told(step, brief.objective)) for step in steps)


def memory_of(notes: Sequence[Note]) -> str:
    """The latest memory of the teacher; empty while there is none."""
    return next((note.text for note in reversed(notes) if note.topic == META_SKILL), "")


def _told(step: ClosedStep, objective: Objective) -> Iterator[str]:
    about = about_of(step)
    digest = cast("Mapping[str, Any]", about.get("digest") or {})
    number = step.turn.settings.get("step", "?")
    seen = f"{digest.get('n_fail', 0)} of {digest.get('n_total', 0)} cases failed"
    yield f"Step {number}: {seen}; {outcome_of(step, objective)}"
    for pattern in digest.get("failure_patterns", ()):
        yield f"- failure pattern ({pattern['count']} of its minibatch): {pattern['pattern']}"
    if step.verdict.outcome == "keep" or step.verdict.code in UNTOLD:
        return
    for item in about.get("items", ()):
        yield f"- edit that was not kept: {item_line(item)}"


def outcome_of(step: ClosedStep, objective: Objective) -> str:
    """What became of a step, with its score before and after where it was measured."""
    if step.proposal is None:
        return f"nothing was proposed: {step.verdict.reason}"
    gain = step.verdict.gain
    score = ""
    if gain is not None:
        # one that is screened out has come no further
        where = "" if "gain" in step.verdict.numbers else " on train cases"
        score = f", `{objective.metric}` {gain:+.4f}{where}"
    verb = "kept" if step.verdict.outcome == "keep" else f"not kept ({step.verdict.code})"
    return f"its edits were {verb}{score}"


def item_line(item: Mapping[str, Any]) -> str:
    """An edit or a suggestion in one line."""
    if "op" in item:
        parts = [str(item["op"]), f"at `{item['target']}`" if item.get("target") else ""]
        parts.append(f"with `{item['content']}`" if item.get("content") else "")
    elif "instruction" in item:
        parts = [str(item["type"]), f"{item['title']}: {item['instruction']}"]
    else:
        parts = ["a whole skill", "; ".join(map(str, item.get("change_summary", ())))]
    line = " ".join(" ".join(filter(None, parts)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
