"""Completion of an agent run: its checks, the critic, and repairs after a refusal.

No check is skipped for lack of budget: a run that cannot be checked is not complete. Two equal
refusals force a repair. Repairs end at their limit, or when they stop changing anything (R35).

The critic assesses a worker's result, never with a made-up score. An invalid critique is
requested once more; after that it is a `Failure`.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from kept.core.llm import Message, ModelRequest
from kept.core.ports import Scope
from kept.core.rollout import Failure
from kept.models.ask import ask
from kept.models.context_window import fenced
from kept.orchestrator.budget import Ledger, Metered
from kept.orchestrator.checks.base import Rejected, Submission
from kept.orchestrator.checks.chain import Judged, judge
from kept.orchestrator.checks.files import fixpoint
from kept.orchestrator.record import (
    Category,
    CheckOutcome,
    Critique,
    Decision,
    Defect,
    Delegation,
    Effort,
    Rejection,
    Repair,
    Severity,
)
from kept.orchestrator.state import Assignment, Course
from kept.orchestrator.toolkit import Errand, Kit, Texts, Worked, joined, place
from kept.proposers.prompt_items import Part, fitted

EMPTY = "there is nothing in output/: have a worker write what is to be delivered"
_SIGNATURE = 200
"""Characters of a reason that are compared to recognize equal refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refused completion."""

    rejection: Rejection
    hopeless: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Completing:
    """Inputs of the checks of a completion."""

    kit: Kit
    texts: Texts
    assignment: Assignment
    ledger: Ledger

    async def check(
        self, decision: Decision, course: Course, files: Mapping[str, bytes], scope: Scope
    ) -> Judged | Failure:
        """Run the checks; a `Failure` is one of infrastructure."""
        standing = course.standing()
        submission = Submission(
            task=self.assignment.task,
            plan=course.plan,
            files=files,
            previous=course.sizes,
            final_result=decision.final_result,
            confidence=decision.confidence,
            critiques=tuple(
                (one.worker_id, one.critique) for one in standing if one.critique is not None
            ),
            delegations=standing,
            rejections=tuple(one for one in course.rejections if one.completion),
            limits=self.kit.limits,
            budget=self.ledger.snapshot(),
            run=self.kit.beside(files),
            inputs=tuple(sorted(self.assignment.inputs)),
            texts=self.texts,
        )
        (account,) = self.ledger.open()
        judged = await judge(submission, Metered(scope, account), self.kit.checks)
        self.ledger.settle([account])
        course.sizes = {path: len(data) for path, data in files.items()}
        if isinstance(judged.refusal, Failure) and judged.refusal.blame == "infrastructure":
            return judged.refusal
        # a custom chain may lack the checks of files; a run without files is never complete
        if judged.complete and not any(files.values()):
            nothing = CheckOutcome(check="deliverable", passed=False, reason=EMPTY)
            return replace(
                judged, outcomes=(*judged.outcomes, nothing), refusal=Rejected(reason=EMPTY)
            )
        return judged


def refused(judged: Judged, iteration: int) -> Refused | None:
    """Return the refusal of a completion; None if it passed all checks."""
    if judged.refusal is None:
        return None
    last = judged.outcomes[-1]
    rejection = Rejection(
        iteration=iteration,
        gate=last.check,
        reason=last.reason,
        completion=True,
        findings=last.findings,
    )
    hopeless = isinstance(judged.refusal, Rejected) and judged.refusal.hopeless
    return Refused(rejection=rejection, hopeless=hopeless)


def note(course: Course, rejection: Rejection) -> None:
    """Count successive refusals with the same check and reason."""
    signature = (rejection.gate, rejection.reason[:_SIGNATURE])
    course.alike = course.alike + 1 if signature == course.signature else 1
    course.signature = signature


def repair_for(course: Course, rejection: Rejection, most: int) -> Delegation | None:
    """Return the repair that a refusal forces; None if the limit of repairs is reached."""
    # the owner is the last worker that wrote a file with a finding, else the last worker of all;
    # repairs do not count
    named = {f"output/{one.file}" for one in rejection.findings}
    able = [one for one in reversed(course.delegations) if not one.repair_of]
    wrote = (one for one in able if named & set(one.written))
    owner = next(wrote, able[0] if able else None)
    subtask, repaired = (owner.subtask_id, owner.worker_id) if owner else ("", "")
    attempt = sum(one.subtask_id == subtask for one in course.repairs) + 1
    if attempt > most:
        return None
    found = "\n".join(f"* {one.file}: {one.detail}" for one in rejection.findings[:20])
    words = (
        f"What was delivered is refused by the check `{rejection.gate}`: {rejection.reason}\n"
        f"{found}\nMend exactly that in the files below output/, and leave the rest as it is."
    )
    number = len(course.repairs) + 1
    return Delegation(
        worker_id=f"repair-{number}",
        subtask_id=subtask,
        instructions=words,
        repair_of=repaired,
        attempt=attempt,
    )


def repaired(
    course: Course, done: Delegation, files: Mapping[str, bytes], rejection: Rejection, turn: int
) -> Repair:
    """Return the record of a repair, compared with the one before it."""
    outputs = course.outputs.setdefault(done.subtask_id, [])
    result = json.dumps(done.result, sort_keys=True, ensure_ascii=False, default=str)
    texts = [files[path].decode("utf-8", "replace") for path in done.written if path in files]
    # compare the reply and all written files: either may show progress
    outputs.append("\n".join([result if done.result is not None else "", *texts]))
    rest = fixpoint(outputs)
    return Repair(
        iteration=turn,
        subtask_id=done.subtask_id,
        worker_id=done.worker_id,
        attempt=done.attempt,
        reason=f"{rejection.gate}: {rejection.reason}",
        similarity=rest.likeness if rest else None,
        fixpoint=rest is not None,
    )


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
    """Have a critic assess a worker's result."""
    rubric = place(errand.texts["critique_rubric"], {"categories": ", ".join(CATEGORIES)})
    system = joined(errand.texts["critic"], rubric)
    messages = (Message("system", system), Message("user", _shown(kit, errand, worked)))
    request = ModelRequest(messages, schema=SCHEMA, max_tokens=scope.account.longest_reply)
    reply = await ask(scope, kit.critic, request)
    if isinstance(reply, Failure):
        return reply
    return _supported(_critique(json.loads(reply.text)), errand, worked)


def _critique(said: Mapping[str, Any]) -> Critique:
    names = ("category", "location", "description", "severity")
    return Critique(
        score=float(said["score"]),
        defects=tuple(Defect(**{name: row[name] for name in names}) for row in said["defects"]),
        prescriptions=tuple(said.get("prescriptions", ())),
        reusable_patterns=tuple(said.get("reusable_patterns", ())),
        effort=said.get("effort_estimate", "moderate"),
        summary=said.get("summary", ""),
    )


def _supported(critique: Critique, errand: Errand, worked: Worked) -> Critique:
    """Drop defects that the workspace disproves: a file reported missing that exists."""
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
