"""The critic: what is wrong with what a worker brought back. Never a made-up score.

An answer that is no critique is asked for once more, and then is a `Failure`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, get_args

from kept.core.model import Message, ModelRequest
from kept.core.rollout import Failure
from kept.models.ask import ask
from kept.models.fencing import fenced
from kept.orchestrator.budget import Metered
from kept.orchestrator.kit import Errand, Kit, Worked
from kept.orchestrator.record import Category, Critique, Defect, Effort, Severity
from kept.orchestrator.texts import joined, place
from kept.proposers.fitting import Part, fitted

CATEGORIES: tuple[Category, ...] = get_args(Category)

_TEXT: Mapping[str, Any] = {"type": "string"}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "defects": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "category": {"enum": list(CATEGORIES)},
                    "location": _TEXT,
                    "description": _TEXT,
                    "severity": {"enum": list(get_args(Severity))},
                },
                "required": ["category", "location", "description", "severity"],
            },
        },
        "prescriptions": {"type": "array", "items": _TEXT},
        "reusable_patterns": {"type": "array", "items": _TEXT},
        "effort_estimate": {"enum": list(get_args(Effort))},
        "summary": _TEXT,
    },
    "required": ["score", "defects"],
}


async def criticise(kit: Kit, errand: Errand, worked: Worked, scope: Metered) -> Critique | Failure:
    """What a critic says of a worker's result."""
    rubric = place(errand.texts["critique_rubric"], {"categories": ", ".join(CATEGORIES)})
    system = joined(errand.texts["critic"], rubric)
    messages = (Message("system", system), Message("user", _shown(kit, errand, worked)))
    request = ModelRequest(messages, schema=SCHEMA, max_tokens=scope.account.longest_reply)
    reply = await ask(scope, kit.critic, request)
    if isinstance(reply, Failure):
        return reply
    return _supported(_critique(json.loads(reply.text)), errand, worked)


def _critique(said: Mapping[str, Any]) -> Critique:
    return Critique(
        score=float(said["score"]),
        defects=tuple(Defect(**_only(row)) for row in said["defects"]),
        prescriptions=tuple(said.get("prescriptions", ())),
        reusable_patterns=tuple(said.get("reusable_patterns", ())),
        effort=said.get("effort_estimate", "moderate"),
        summary=said.get("summary", ""),
    )


def _only(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("category", "location", "description", "severity")}


def _supported(critique: Critique, errand: Errand, worked: Worked) -> Critique:
    """A critique without what the workspace disproves: that a file is missing which is there."""
    there = {path for path, size in errand.held.items() if size}
    there |= {path for path, data in worked.written.items() if data}
    kept = tuple(one for one in critique.defects if not _disproved(one, there))
    if kept == critique.defects:
        return critique
    return replace(critique, defects=kept)


def _disproved(defect: Defect, there: Collection[str]) -> bool:
    if defect.category != "missing_data" or defect.severity != "critical":
        return False
    named = defect.location.strip().strip("`")
    says_gone = any(word in defect.description.lower() for word in ("missing", "does not exist"))
    return says_gone and (named in there or f"output/{named}" in there)


def _shown(kit: Kit, errand: Errand, worked: Worked) -> str:
    subtask, wanted = errand.subtask, errand.delegation
    asked = (
        wanted.instructions
        if subtask is None
        else f"{subtask.description}\n\n{wanted.instructions}"
    )
    criteria = "" if subtask is None else "\n".join(subtask.success_criteria)
    result = json.dumps(worked.result, ensure_ascii=False, indent=1)
    parts = [
        Part("subtask", fenced([("subtask", asked), *([("criteria", criteria)] * bool(criteria))])),
        Part("result", fenced([("result", result)])),
        Part("account of the work", fenced([("work", worked.story)]) if worked.story else "", 3),
    ]
    parts += [Part("file", _file(path, data), 2) for path, data in worked.written.items()]
    return fitted(parts, kit.room)


def _file(path: str, data: bytes | None) -> str:
    if data is None:
        return f"`{path}` was deleted."
    try:
        return f"`{path}`:\n{fenced([('file', data.decode())])}"
    except UnicodeDecodeError:
        return f"`{path}` holds {len(data)} bytes that are no text."
