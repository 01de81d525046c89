"""Manager decisions: key aliases, parsing, and one request a turn with retries.

Models use other names for parts of a decision; the aliases are known only here. An invalid
decision is sent back with its problem.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from kept.core.artifact import is_safe_path
from kept.core.llm import Message, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.core.untyped import dict_in, is_dict, is_list, list_in
from kept.evaluators.tools.files import OUTPUT
from kept.models.ask import ask
from kept.models.structured_output import ReplyRules, Unfit, fit, problem_with
from kept.orchestrator.budget import Metered
from kept.orchestrator.record import Decision, Delegation, Subtask, Wish
from kept.orchestrator.toolkit import manifest_faults, needs_of, tool_name

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
"""Kind of a decision that does not name it, by the keys it has, first match first."""

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
    """Return the kind of a decision; None if it cannot be recognized."""
    # first an explicit name, then a key like `{"plan": {...}}`, then typical keys
    for name in _NAMED_BY:
        said = found.get(name)
        if isinstance(said, str) and said.strip().lower() in _KINDS:
            return _KINDS[said.strip().lower()]
    by_itself: list[Kind] = [kind for kind in KINDS if isinstance(found.get(kind), dict | list)]
    told: list[Kind] = [kind for name, kind in _TOLD_BY if name in found]
    return next(iter((*by_itself, *told)), None)


def _renamed(found: Object, *names: str) -> dict[str, Any]:
    """Return a copy with known aliases of these keys renamed."""
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
    if not is_dict(row):
        return row
    names = ("id", "description", "dependencies", "required_outputs")
    body = _renamed(row, *names)
    body["id"] = str(body["id"]) if isinstance(body.get("id"), int) else body.get("id")
    for name in ("success_criteria", "required_outputs", "dependencies"):
        body[name] = _texts(body.get(name))
    # models mix the two up, so sort entries by type: names are tools, objects are needs
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
    if not is_dict(row):
        return row
    names = ("worker_id", "subtask_id", "instructions", "tools_allowed")
    body = _renamed(row, *names)
    contract = body.get("output_contract")
    told: Object = dict_in(contract)
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
    # the schema wants an object: wrap a bare answer
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


def _rows(value: object) -> list[object]:
    if is_dict(value):
        # an object of subtasks by id, or one with a list below `subtasks`
        inner = value.get("subtasks")
        if is_list(inner):
            return inner
        return [{"id": name, **one} for name, one in value.items() if is_dict(one)]
    return list_in(value)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value] if value.strip() else []
    found = list_in(value)
    return [one if isinstance(one, str) else json.dumps(one) for one in found]


class BadDecision(ValueError):
    """An invalid decision; the message tells the model what is wrong."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, and the delegations that follow from it."""

    decision: Decision
    delegations: tuple[Delegation, ...] = ()
    managed: frozenset[str] = frozenset()
    """Workers among those that act as managers themselves."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Context that a decision is validated against."""

    subtasks: tuple[str, ...]
    """Ids of the subtasks of the current plan."""
    tools: tuple[str, ...]
    most_workers: int
    says_tools: bool = False
    """True if a plan must name the tools or means of each subtask (R31)."""


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
"""JSON schema of each kind of decision, after aliases are renamed."""


def decided(text: str, ground: Ground) -> Decided:
    """Parse a decision; raises `BadDecision`."""
    try:
        found: dict[str, Any] = json.loads(fit(text, {"type": "object"}))
    except Unfit as error:
        raise BadDecision(f"it is not one JSON object: {error}") from error
    kind = kind_of(found)
    if kind is None:
        raise BadDecision(f"it has no `decision`, which is one of {', '.join(SCHEMAS)}")
    # the fields may be nested below the kind; aliases are renamed before the schema is checked
    inner = found.get(kind)
    body = {**found, **inner} if is_dict(inner) else found
    body = _NORMAL[kind](body)
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
    """Check that a plan uses only existing tools (R31); reports all problems at once."""
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
    # names must be safe as folder names
    plain = (re.sub(r"[^A-Za-z0-9_-]+", "-", row["worker_id"]).strip("-") for row in rows)
    workers = [name[:60] or "worker" for name in plain]
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


def _output(path: str) -> str:
    # models write the path as the sandbox shows it, or relative to the workspace
    plain = path.strip().removeprefix("./").removeprefix("/run/kept/output/")
    plain = plain.removeprefix(f"{OUTPUT}/")
    if not is_safe_path(plain):
        raise BadDecision(f"`{path}` is not a path below {OUTPUT}/")
    return plain


def _once(names: Collection[str], what: str) -> None:
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise BadDecision(f"two {what}s are called `{twice[0]}`")


MOST_ANSWERS = 3
"""Invalid answers in one turn after which the turn gives up."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Result of one turn of the manager."""

    decided: Decided | None
    """None if no answer was a valid decision, or the manager could not be asked."""
    garbage: tuple[str, ...] = ()
    """Problem of each invalid answer."""
    refused: str = ""
    """Reason why the manager could not be asked again; empty if it could."""


async def decide(
    model: Model, messages: Sequence[Message], ground: Ground, scope: Metered
) -> Turn | Failure:
    """Request a decision, with retries; a `Failure` is one of infrastructure."""

    def usable(text: str) -> bool:
        try:
            decided(text, ground)
        except BadDecision:
            return False
        return True

    said, rules = tuple(messages), ReplyRules(usable=usable)
    garbage: list[str] = []
    while len(garbage) < MOST_ANSWERS:
        request = ModelRequest(said, max_tokens=scope.account.longest_reply)
        reply = await ask(scope, model, request, rules=rules)
        if isinstance(reply, Failure) and reply.blame == "infrastructure":
            return reply
        # no budget or time: asking again would fail in the same way
        if isinstance(reply, Failure) and reply.kind in ("limit", "timeout"):
            return Turn(None, tuple(garbage), reply.message)
        if isinstance(reply, Failure):
            answer, wrong = "", reply.message
            garbage.append(wrong)
        else:
            try:
                return Turn(decided(reply.text, ground), tuple(garbage))
            except BadDecision as error:
                answer, wrong = reply.text, str(error)
                garbage.append(wrong)
        again = f"That is no decision: {wrong}\nAnswer again, with the one JSON object only."
        said = (*said, Message("assistant", answer or "(nothing)"), Message("user", again))
    return Turn(None, tuple(garbage))
