"""The other names that models give to the parts of a decision, known here and nowhere else."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast, get_args

from kept.orchestrator.manifest import tool_name

Kind = Literal["plan", "delegate", "complete", "fail", "diagnose"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Object = Mapping[str, Any]

_KINDS: Mapping[str, Kind] = {
    **{kind: kind for kind in KINDS},
    "planning": "plan",
    "replan": "plan",
    "delegation": "delegate",
    "assign": "delegate",
    "done": "complete",
    "finish": "complete",
    "completed": "complete",
    "final": "complete",
    "failed": "fail",
    "abort": "fail",
    "give_up": "fail",
    "diagnosis": "diagnose",
}
_NAMED_BY = ("decision", "action", "type", "kind")
_TOLD_BY: tuple[tuple[str, Kind], ...] = (
    ("delegations", "delegate"),
    ("workers", "delegate"),
    ("subtasks", "plan"),
    ("final_result", "complete"),
    ("hypotheses", "diagnose"),
    ("reason", "fail"),
)
"""What a decision is that does not say so, by what it has."""

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "subtasks": ("plan", "steps", "tasks"),
    "delegations": ("workers", "tasks", "assignments"),
    "final_result": ("result", "output", "answer"),
    "reason": ("error", "message", "why"),
    "hypotheses": ("causes",),
    "failed_worker": ("worker", "worker_id"),
    "id": ("subtask_id", "name"),
    "description": ("task", "goal", "title"),
    "dependencies": ("depends_on", "deps"),
    "required_outputs": ("outputs", "deliverables", "files"),
    "worker_id": ("worker", "id", "name"),
    "subtask_id": ("subtask", "task_id"),
    "instructions": ("instruction", "prompt", "task", "description"),
    "tools_allowed": ("tools", "allowed_tools"),
}


def kind_of(found: Object) -> Kind | None:
    """Which decision is meant; None where nothing says so."""
    for name in _NAMED_BY:
        said = found.get(name)
        if isinstance(said, str) and said.strip().lower() in _KINDS:
            return _KINDS[said.strip().lower()]
    by_itself: list[Kind] = [kind for kind in KINDS if isinstance(found.get(kind), dict | list)]
    told: list[Kind] = [kind for name, kind in _TOLD_BY if name in found]
    return next(iter((*by_itself, *told)), None)


def _renamed(found: Object, *names: str) -> dict[str, Any]:
    """The same with what these are called otherwise by their own names."""
    body = dict(found)
    for name in names:
        if name not in body:
            other = next((one for one in _OTHER_NAMES[name] if one in body), None)
            if other is not None:
                body[name] = body[other]
    return body


def _plan(found: Object) -> dict[str, Any]:
    body = _renamed(found, "subtasks")
    body["subtasks"] = [_subtask(row) for row in _rows(body.get("subtasks"))]
    return body


def _subtask(row: object) -> object:
    if not isinstance(row, dict):
        return row
    names = ("id", "description", "dependencies", "required_outputs")
    body = _renamed(cast("Object", row), *names)
    body["id"] = str(body["id"]) if isinstance(body.get("id"), int) else body.get("id")
    for name in ("success_criteria", "required_outputs", "dependencies"):
        body[name] = _texts(body.get(name))
    # either may have what belongs to the other: a list of names, or a table
    told = [*_rows(body.get("tools")), *_rows(body.get("tool_manifest"))]
    body["tools"] = [tool_name(one) for one in told if isinstance(one, str)]
    body["tool_manifest"] = [one for one in told if not isinstance(one, str)]
    body["smoke_test"] = str(body.get("smoke_test") or "")
    if not isinstance(body.get("priority"), int):
        body.pop("priority", None)
    if not isinstance(body.get("schemas"), dict):
        body.pop("schemas", None)
    return body


def _delegate(found: Object) -> dict[str, Any]:
    body = _renamed(found, "delegations")
    body["delegations"] = [_delegation(row) for row in _rows(body.get("delegations"))]
    return body


def _delegation(row: object) -> object:
    if not isinstance(row, dict):
        return row
    names = ("worker_id", "subtask_id", "instructions", "tools_allowed")
    body = _renamed(cast("Object", row), *names)
    contract = body.get("output_contract")
    told: Object = cast("Object", contract) if isinstance(contract, dict) else {}
    body["required_fields"] = _texts(body.get("required_fields") or told.get("required_fields"))
    described = body.get("output_description") or told.get("description")
    body["output_description"] = str(described or "")
    body["subtask_id"] = str(body.get("subtask_id") or "")
    body["tools_allowed"] = [tool_name(name) for name in _texts(body.get("tools_allowed"))]
    if body.get("temperature") is None:
        body.pop("temperature", None)
    body["as_submanager"] = bool(body.get("as_submanager"))
    return body


def _complete(found: Object) -> dict[str, Any]:
    body = _renamed(found, "final_result")
    result = body.get("final_result")
    if isinstance(result, str | list | int | float) and result:
        body["final_result"] = {"answer": result}
    if body.get("confidence") is None:
        body.pop("confidence", None)
    return body


def _fail(found: Object) -> dict[str, Any]:
    return _renamed(found, "reason")


def _diagnose(found: Object) -> dict[str, Any]:
    body = _renamed(found, "hypotheses", "failed_worker")
    body["failed_worker"] = str(body.get("failed_worker") or "")
    body["hypotheses"] = _texts(body.get("hypotheses"))
    return body


_NORMAL: Mapping[Kind, Callable[[Object], dict[str, Any]]] = {
    "plan": _plan,
    "delegate": _delegate,
    "complete": _complete,
    "fail": _fail,
    "diagnose": _diagnose,
}


def normal(kind: Kind, found: Object) -> dict[str, Any]:
    """A decision of this kind with everything by its own name; nothing is checked here."""
    inner = found.get(kind)
    body = {**found, **cast("Object", inner)} if isinstance(inner, dict) else found
    return _NORMAL[kind](body)


def _rows(value: object) -> list[object]:
    if isinstance(value, dict):
        # by their ids
        rows = cast("dict[str, object]", value)
        inner = rows.get("subtasks")
        if isinstance(inner, list):
            return cast("list[object]", inner)
        return [
            {"id": name, **cast("Object", one)}
            for name, one in rows.items()
            if isinstance(one, dict)
        ]
    return cast("list[object]", value) if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [one if isinstance(one, str) else json.dumps(one) for one in found]
