"""Diagnostic rollouts: a candidate that carries what the student is told besides its skill.

The instruction, and what the student had said and done before, travel as one more text of the
candidate. So a probe is an Ask like any other: journalled, and never mixed up with a rollout of
the skill itself.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.rollout import TraceItem
from kept.evaluators.environments.opened import SESSION

PROBE = ".kept-probe.json"
"""The text of a candidate that makes it a probe; no skill may have a file of that name."""

_NUMBERED = ("assistant", "tool", "step")


@dataclass(frozen=True, slots=True)
class Probing:
    """What a probe says."""

    instruction: str
    before: tuple[TraceItem, ...] = ()
    """What is taken as said and done."""
    after: int | None = None
    """The step of the earlier rollout that `before` ends with."""
    session: TraceItem | None = None


def probed(
    texts: Mapping[str, str],
    instruction: str,
    trace: Sequence[TraceItem] = (),
    after_step: int | None = None,
) -> Mapping[str, str]:
    """The texts of a candidate that is a probe; see `kept.evaluators.environments.opened.Probe`."""
    before = prefix(trace, after_step) if after_step is not None else ()
    kept = (item for item in trace if item.role == SESSION and "gzip" in item.data)
    session = next((replace(item, data={**item.data, "raw": ""}) for item in kept), None)
    said: dict[str, object] = {"instruction": instruction}
    if before:
        said |= {"after": after_step, "before": [_packed(item) for item in before]}
        said |= {"session": _packed(session)} if session is not None else {}
    return {**texts, PROBE: json.dumps(said, ensure_ascii=False)}


def probing_of(candidate: Candidate) -> Probing | None:
    """What a candidate is a probe of; None where it is none."""
    text = candidate.texts.get(PROBE)
    if text is None:
        return None
    said = cast("dict[str, Any]", json.loads(text))
    session = said.get("session")
    return Probing(
        said["instruction"],
        tuple(map(_unpacked, said.get("before", ()))),
        said.get("after"),
        _unpacked(session) if session else None,
    )


def skill_of(candidate: Candidate) -> dict[str, str]:
    """The texts of a candidate that are its skill."""
    return {path: text for path, text in candidate.texts.items() if path != PROBE}


def prefix(trace: Sequence[TraceItem], after: int) -> tuple[TraceItem, ...]:
    """What was said and done up to a step, that step with it.

    Steps are numbered from 1; those that an agent CLI or a simulator numbers, as it does.
    """
    found: list[TraceItem] = []
    number = 0
    for item in trace:
        if item.role in _NUMBERED:
            number = cast("int", item.data.get("step", number + 1))
            if number > after:
                break
        elif item.role not in ("system", "user"):
            continue
        found.append(item)
    # what was said after the last step is no part of it
    while found and found[-1].role == "user" and number > after:
        found.pop()
    return tuple(found)


def packed_session(raw: str, data: bytes | None, session: str) -> TraceItem:
    """What an agent CLI said, and what it can go on from where that is to be kept."""
    told: dict[str, object] = {"raw": raw}
    if data is not None:
        told |= {"gzip": base64.b64encode(data).decode(), "session": session}
    return TraceItem(SESSION, "", told)


def session_data(item: TraceItem) -> bytes:
    """What it can go on from, taken out again."""
    return base64.b64decode(str(item.data["gzip"]))


def _packed(item: TraceItem) -> dict[str, object]:
    return {"role": item.role, "text": item.text, "data": dict(item.data)}


def _unpacked(said: Mapping[str, Any]) -> TraceItem:
    return TraceItem(said["role"], said["text"], said["data"])
