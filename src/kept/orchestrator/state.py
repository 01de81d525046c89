"""State of a run (plan, results, refusals), and the manager's prompt made from it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kept.core.text import count, one_line, shortened
from kept.models.context_window import fenced
from kept.orchestrator.budget import Ledger
from kept.orchestrator.decision import Ground
from kept.orchestrator.record import Decision, Delegation, Evaluated, Rejection, Repair, Subtask
from kept.orchestrator.toolkit import RULE, joined, place
from kept.proposers.prompt_items import Part, fitted

_RESULT = 1_500
"""Maximum characters of a worker's result in a prompt."""

_FILES = 200
"""Maximum number of listed files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Task of a run, with its inputs and origin."""

    task: str
    run_id: str = ""
    """Id of the run; empty if only the reader of the journal knows it."""
    inputs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Input files by path below `input/`."""
    brief: str = ""
    """Text for the manager's first turn only; empty for none."""
    parent_run_id: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(slots=True)
class Course:
    """State of a run so far."""

    plan: tuple[Subtask, ...] = ()
    delegations: list[Delegation] = field(default_factory=list[Delegation])
    last: tuple[Delegation, ...] = ()
    """Delegations of the last turn that sent workers."""
    rejections: list[Rejection] = field(default_factory=list[Rejection])
    repairs: list[Repair] = field(default_factory=list[Repair])
    evaluation: Evaluated | None = None
    diagnosed: tuple[str, ...] = ()
    idle: int = 0
    """Turns in a row that only planned or diagnosed."""
    alike: int = 0
    """Completions in a row that were refused for the same reason."""
    signature: tuple[str, str] = ("", "")
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes of each deliverable at the previous completion."""
    outputs: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Outputs of the repairs in order, by subtask."""
    end: Decision | None = None
    """Last decision to complete or to fail."""

    def subtask(self, id_: str) -> Subtask | None:
        """Return a subtask of the plan; None if there is none with this id."""
        return next((one for one in self.plan if one.id == id_), None)

    def standing(self) -> tuple[Delegation, ...]:
        """Return the work whose critiques count, after the last turn that sent workers.

        A delegation that failed and changed nothing is replaced by the work before it. Otherwise a
        failed repair would remove the critique that it was sent for.
        """
        return tuple(self._stands(one) for one in self.last)

    def _stands(self, last: Delegation) -> Delegation:
        earlier = self.delegations[: len(self.delegations) - len(self.last)]
        for one in (last, *reversed(earlier)):
            mine = one is last or one.worker_id == last.repair_of
            mine = mine or bool(last.subtask_id and one.subtask_id == last.subtask_id)
            if mine and (one.failure is None or one.written):
                return one
        return last

    def before(self, subtask: Subtask | None) -> str:
        """Return the results of the subtasks that a subtask depends on, as text."""
        wanted = subtask.dependencies if subtask is not None else ()
        rows = [one for one in self.delegations if one.subtask_id in wanted]
        return "\n".join(
            f"* {one.worker_id} ({one.subtask_id}): {shortened(_json(one.result), _RESULT)}"
            for one in rows
            if one.result is not None
        )


def told(
    course: Course,
    assignment: Assignment,
    texts: Mapping[str, str],
    ledger: Ledger,
    files: Mapping[str, bytes],
    room: int | None,
) -> str:
    """Return the state of the run as a prompt for the manager."""
    first = ledger.turns <= 1
    lines = "\n".join(f"* {line}" for line in course.diagnosed)
    rows = [f"* {path} ({len(data)} bytes)" for path, data in list(files.items())[:_FILES]]
    more = [f"* [{len(files) - _FILES} more]"] if len(files) > _FILES else []
    workspace = "\n".join([*rows, *more]) or "It is empty."
    # the number is the priority when the prompt is cut: higher ones go first, 0 is never cut
    parts = [
        Part("brief", assignment.brief.strip() if first else ""),
        Part("task", f"## Task\n\n{assignment.task}"),
        Part("context", _context(assignment, texts["experiment_context_hint_template"]), 1),
        Part("plan", _plan(course.plan)),
        *(
            Part("earlier result", _result(one), 4)
            for one in course.delegations
            if one not in course.last
        ),
        *(Part("result", _result(one), 2) for one in course.last),
        Part("diagnosis", f"## Your diagnosis\n\n{lines}" if course.diagnosed else "", 3),
        *(Part("earlier refusal", _refusal(one), 4) for one in course.rejections[:-3]),
        *(Part("refusal", _refusal(one), 1) for one in course.rejections[-3:]),
        Part("files", f"## Workspace\n\n{workspace}", 3),
        Part("budget", _budget(ledger)),
        Part("question", "What is your decision? Answer with one JSON object only."),
    ]
    return fitted(parts, room)


def system(texts: Mapping[str, str], ground: Ground) -> str:
    """Return the system prompt of the manager."""
    values = {"tools": ", ".join(ground.tools), "workers": str(ground.most_workers)}
    return joined(
        place(texts["manager"], values),
        RULE if ground.says_tools else "",
        texts["manager_planning_preamble"],
        texts["pattern_library"],
    )


def _context(assignment: Assignment, template: str) -> str:
    names = sorted(assignment.inputs)
    shown = ", ".join(f"`input/{name}`" for name in names[:20])
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    inputs = f"the task came with {shown}{more}" if names else "the task came without any files"
    # without its id, which contains the time: equal runs must make equal requests
    parent = "It goes on from an earlier run." if assignment.parent_run_id else ""
    return place(template, {"inputs": inputs, "parent": parent}).strip()


def _plan(plan: Sequence[Subtask]) -> str:
    if not plan:
        return "There is no plan yet."
    rows = [
        f"* `{one.id}`: {one.description}"
        + (f" (after {', '.join(one.dependencies)})" if one.dependencies else "")
        + (
            f" -> {', '.join(f'output/{p}' for p in one.required_outputs)}"
            if one.required_outputs
            else ""
        )
        for one in plan
    ]
    return "## Plan\n\n" + "\n".join(rows)


def _result(one: Delegation) -> str:
    head = f"## Worker {one.worker_id}, subtask {one.subtask_id or 'none'}\n\n"
    if one.failure is not None:
        return f"{head}It failed ({one.failure.kind}): {one_line(one.failure.message, 400)}"
    lines = [fenced([("result", shortened(_json(one.result), _RESULT))])]
    if one.written:
        lines.append(f"It changed {', '.join(one.written[:20])}.")
    if one.critique is not None:
        lines.append(f"Its critic gives {one.critique.score:g}. {one.critique.summary}".strip())
        lines += [
            f"* {d.severity}, {d.category}, {d.location}: {d.description}"
            for d in one.critique.defects
        ]
    elif one.critique_failure is not None:
        lines.append(f"There is no critique: {one_line(one.critique_failure.message, 200)}")
    return head + "\n".join(lines)


def _refusal(one: Rejection) -> str:
    what = "The completion was refused" if one.completion else "This was refused"
    rows = [f"* {f.file}: {f.detail}" for f in one.findings[:10]]
    return "\n".join([f"## Turn {one.iteration}\n", f"{what} ({one.gate}): {one.reason}", *rows])


def _budget(ledger: Ledger) -> str:
    stands, most = ledger.snapshot(), ledger.limits
    left = [
        count(max(0, most.loops - ledger.loops), "further turn"),
        count(max(0, most.workers - ledger.workers), "worker"),
        count(max(0, most.tool_calls - ledger.tool_calls), "tool call"),
        f"{max(0, most.tokens - ledger.tokens)} tokens",
    ]
    if most.usd is not None:
        left.append(f"${max(0.0, most.usd - ledger.usd):.4f}")
    words = f"## Budget\n\nIt is {stands.phase}: {', '.join(left)} are left."
    low = stands.phase in ("low", "critical", "exhausted")
    return words + _time(ledger) + (" Finish what there is, and complete." if low else "")


def _time(ledger: Ledger) -> str:
    """Report the remaining time in steps: exact seconds would make every request different."""
    most = ledger.limits.wall_seconds
    left = 1 - ledger.elapsed / most if most > 0 else 0.0
    steps = {0.1: "a tenth", 0.25: "a quarter", 0.5: "half"}
    step = next((words for share, words in steps.items() if left < share), "")
    return f" Less than {step} of the time is left." if step else ""


def _json(result: Mapping[str, object] | None) -> str:
    return json.dumps(result, ensure_ascii=False, default=str)
