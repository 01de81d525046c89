"""One decision of a manager: from what a model wrote to a value, or to what is wrong with it."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from kept.core.artifact import is_safe_path
from kept.evaluators.tools.shared_files import OUTPUT
from kept.models.structured_output import Unfit, fit, problem_with
from kept.orchestrator.aliases import Kind, Object, kind_of, normal
from kept.orchestrator.manifest import manifest_faults, needs_of
from kept.orchestrator.record import Decision, Delegation, Subtask, Wish


class BadDecision(ValueError):
    """A text that is no decision; says what is wrong with it, for the model."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and what is to be delegated by it."""

    decision: Decision
    delegations: tuple[Delegation, ...] = ()
    managed: frozenset[str] = frozenset()
    """Of those, by worker, the ones that are to be managers themselves."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What a decision is held against."""

    subtasks: tuple[str, ...]
    """Of the plan so far."""
    tools: tuple[str, ...]
    most_workers: int
    says_tools: bool = False
    """Whether a plan has to say what each subtask is done with (R31)."""


_TEXT: Object = {"type": "string", "minLength": 1}
_TEXTS: Object = {"type": "array", "items": {"type": "string"}}
_SHARE: Object = {"type": "number", "minimum": 0, "maximum": 1}
_SUBTASK: Object = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "description": _TEXT,
        "dependencies": _TEXTS,
        "priority": {"type": "integer"},
        "success_criteria": _TEXTS,
        "required_outputs": _TEXTS,
        "schemas": {"type": "object", "additionalProperties": {"type": "object"}},
        "smoke_test": {"type": "string"},
        "tools": _TEXTS,
        "tool_manifest": {"type": "array"},
    },
    "required": ["id", "description"],
}
_DELEGATION: Object = {
    "type": "object",
    "properties": {
        "worker_id": _TEXT,
        "subtask_id": {"type": "string"},
        "instructions": _TEXT,
        "tools_allowed": _TEXTS,
        "required_fields": _TEXTS,
        "output_description": {"type": "string"},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "as_submanager": {"type": "boolean"},
    },
    "required": ["worker_id", "instructions"],
}
SCHEMAS: Mapping[Kind, Object] = {
    "plan": {
        "type": "object",
        "properties": {"subtasks": {"type": "array", "minItems": 1, "items": _SUBTASK}},
        "required": ["subtasks"],
    },
    "delegate": {
        "type": "object",
        "properties": {"delegations": {"type": "array", "minItems": 1, "items": _DELEGATION}},
        "required": ["delegations"],
    },
    "complete": {
        "type": "object",
        "properties": {"final_result": {"type": "object"}, "confidence": _SHARE},
        "required": ["final_result"],
    },
    "fail": {"type": "object", "properties": {"reason": _TEXT}, "required": ["reason"]},
    "diagnose": {
        "type": "object",
        "properties": {
            "failed_worker": {"type": "string"},
            "hypotheses": {**_TEXTS, "minItems": 1},
        },
        "required": ["hypotheses"],
    },
}
"""What each kind of decision looks like when the other names are taken care of."""


def decided(text: str, ground: Ground) -> Decided:
    """What a text decides; raises `BadDecision`."""
    try:
        found: dict[str, Any] = json.loads(fit(text, {"type": "object"}))
    except Unfit as error:
        raise BadDecision(f"it is not one JSON object: {error}") from error
    kind = kind_of(found)
    if kind is None:
        raise BadDecision(f"it has no `decision`, which is one of {', '.join(SCHEMAS)}")
    body = normal(kind, found)
    if problem := problem_with(body, SCHEMAS[kind]):
        raise BadDecision(f"the `{kind}` is not as it should be, {problem}")
    made = _MADE[kind](body, ground)
    why = str(body.get("reasoning") or body.get("rationale") or "")
    return replace(made, decision=replace(made.decision, why=why, raw=text))


def _made_plan(body: Object, ground: Ground) -> Decided:
    rows = cast("Sequence[Object]", body["subtasks"])
    known = [str(row["id"]) for row in rows]
    _once(known, "subtask")
    for row in rows:
        for other in row["dependencies"]:
            if other not in known or other == row["id"]:
                raise BadDecision(f"subtask `{row['id']}` depends on `{other}`, which is no other")
    _closed(rows, ground)
    made = tuple(
        Subtask(
            id=str(row["id"]),
            description=row["description"],
            dependencies=tuple(row["dependencies"]),
            priority=row.get("priority", 0),
            success_criteria=tuple(row["success_criteria"]),
            required_outputs=tuple(map(_output, row["required_outputs"])),
            schemas={_output(path): one for path, one in row.get("schemas", {}).items()},
            smoke_test=row["smoke_test"],
            tools=tuple(row["tools"]),
            needs=needs_of(row["tool_manifest"]),
        )
        for row in rows
    )
    return Decided(Decision(kind="plan", plan=made))


def _closed(rows: Sequence[Object], ground: Ground) -> None:
    """Hold a plan to the tools that there are (R31); all that is wrong is told at once."""
    there = ", ".join(ground.tools)
    wrong = [
        f"subtask `{row['id']}` names the tool `{name}`; there is {there}"
        for row in rows
        for name in row["tools"]
        if name not in ground.tools
    ]
    if ground.says_tools:
        for row in rows:
            at = row["id"], row["tool_manifest"], row["tools"], ground.tools
            wrong += manifest_faults(*at)
    if wrong:
        raise BadDecision("; ".join(wrong))


def _made_delegate(body: Object, ground: Ground) -> Decided:
    rows = cast("Sequence[Object]", body["delegations"])
    workers = [_worker_name(row["worker_id"]) for row in rows]
    _once(workers, "worker")
    if len(rows) > ground.most_workers:
        raise BadDecision(f"at most {ground.most_workers} workers can be sent at once")
    for row in rows:
        if row["subtask_id"] and ground.subtasks and row["subtask_id"] not in ground.subtasks:
            there = ", ".join(ground.subtasks)
            raise BadDecision(f"there is no subtask `{row['subtask_id']}`; there is {there}")
        if unknown := [name for name in row["tools_allowed"] if name not in ground.tools]:
            there = ", ".join(ground.tools)
            raise BadDecision(f"there is no tool `{unknown[0]}`; there is {there}")
    made = tuple(
        Delegation(
            worker_id=worker,
            subtask_id=row["subtask_id"],
            instructions=row["instructions"],
            tools_allowed=tuple(row["tools_allowed"]),
            required_fields=tuple(row["required_fields"]),
            output_description=row["output_description"],
            temperature=row.get("temperature"),
        )
        for worker, row in zip(workers, rows, strict=True)
    )
    pairs = zip(workers, rows, strict=True)
    managed = frozenset(worker for worker, row in pairs if row["as_submanager"])
    wishes = tuple(
        Wish(worker_id=one.worker_id, subtask_id=one.subtask_id, instructions=one.instructions)
        for one in made
    )
    return Decided(Decision(kind="delegate", delegations=wishes), made, managed)


def _made_complete(body: Object, ground: Ground) -> Decided:
    result, confidence = body["final_result"], body.get("confidence")
    return Decided(Decision(kind="complete", final_result=result, confidence=confidence))


def _made_fail(body: Object, ground: Ground) -> Decided:
    return Decided(Decision(kind="fail", reason=body["reason"]))


def _made_diagnose(body: Object, ground: Ground) -> Decided:
    guesses = tuple(body["hypotheses"])
    decision = Decision(kind="diagnose", failed_worker=body["failed_worker"], hypotheses=guesses)
    return Decided(decision)


_MADE: Mapping[Kind, Callable[[Object, Ground], Decided]] = {
    "plan": _made_plan,
    "delegate": _made_delegate,
    "complete": _made_complete,
    "fail": _made_fail,
    "diagnose": _made_diagnose,
}


def _worker_name(name: str) -> str:
    """A name that a folder can have."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "worker"


def _output(path: str) -> str:
    plain = path.strip().removeprefix("./").removeprefix("/run/kept/output/")
    plain = plain.removeprefix(f"{OUTPUT}/")
    if not is_safe_path(plain):
        raise BadDecision(f"`{path}` is not a path below {OUTPUT}/")
    return plain


def _once(names: Collection[str], what: str) -> None:
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise BadDecision(f"two {what}s are called `{twice[0]}`")
