"""A brief as plain values, for a program of any language.

Holds what a proposer may know and nothing else: no holdout case, no path, no time, so that the same
brief is the same text in every sitting.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import cast

from kept.core.case import Case
from kept.core.pool import strongest
from kept.core.proposal import Brief, ClosedStep, Proposal
from kept.core.protect import Heading, Region

RECENT = 20
"""Closed steps that are told, the last ones."""


def plain_brief(brief: Brief, fields: tuple[str, ...] = ()) -> Mapping[str, object]:
    """What goes into `brief.json`; of train cases these fields, and what is expected."""
    objective = brief.objective
    return {
        "step": brief.step,
        "phase": brief.turn.phase,
        "turn": brief.turn.number,
        "seed": brief.seed,
        "objective": {
            "metric": objective.metric,
            "direction": objective.direction,
            "bounds": objective.bounds,
            "constraints": [str(constraint) for constraint in objective.constraints],
            "tie_breakers": [f"{tie.prefer} {tie.metric}" for tie in objective.tie_breakers],
        },
        "incumbent": {"id": brief.incumbent.id, "files": dict(brief.incumbent.texts)},
        "may_change": sorted(brief.rules.artifacts),
        "may_create": list(brief.rules.new_files),
        "protected": list(_protected(brief)),
        "max_files": brief.rules.max_files,
        "max_changed_lines": brief.rules.max_changed_lines,
        "train": [_train(brief, case, fields) for case in brief.train],
        "steps": [_step(step) for step in brief.closed[-RECENT:]],
        "pool": _pool(brief),
        "memory": [note.text for note in brief.memory],
        "guidance": dict(brief.guidance),
        **_parent(brief),
    }


def _train(brief: Brief, case: Case, fields: tuple[str, ...]) -> Mapping[str, object]:
    expected = brief.labels.expected_of(case) if brief.labels.shown else ""
    told = {"expected": expected} if expected else {}
    return {"id": case.id, "data": _data(case, fields), **told}


def _data(case: Case, fields: tuple[str, ...]) -> object:
    data = case.data
    if not isinstance(data, dict):
        return None  # what has no fields may be the answer as well as the question
    known = cast("dict[str, object]", data)
    return {name: known[name] for name in fields if name in known}


def _parent(brief: Brief) -> Mapping[str, object]:
    """What `incumbent` is, where it is a near miss; else nothing."""
    if brief.parent is None:
        return {}
    step, leads = brief.parent.step, brief.parent.incumbent
    about = "incumbent holds what leads with the edits of this step on top, not yet proven"
    files = {"id": leads.id, "files": dict(leads.texts)}
    return {"parent": {"about": about, **_step(step), "made_for": files}}


def _pool(brief: Brief) -> list[Mapping[str, object]]:
    """The near misses, and on which train cases each of them does best."""
    best = strongest(brief.pool)
    # steps close in order, so a step's number is its place
    made = {miss.step: brief.closed[miss.step].proposal for miss in brief.pool}
    return [
        {
            "step": miss.step,
            "why": proposal.why if (proposal := made[miss.step]) else "",
            "edits": _edits(made[miss.step]),
            "metric": {case: brief.objective.value(loss) for case, loss in miss.losses},
            "best_on": sorted(case for case, one in best.items() if one is miss),
        }
        for miss in brief.pool
    ]


def _protected(brief: Brief) -> Iterator[Mapping[str, str]]:
    """What no edit may touch, in whichever artifact it stands; as a spec says it."""
    rows = (artifact.protected for artifact in brief.rules.artifacts.values())
    for one in dict.fromkeys(one for row in rows for one in row):
        match one:
            case Region(begin, end):
                yield {"begin": begin, "end": end}
            case Heading(title):
                yield {"section": title}


def _step(step: ClosedStep) -> Mapping[str, object]:
    return {
        "step": step.step,
        "proposer": step.turn.proposer,
        "why": step.proposal.why if step.proposal else "",
        "edits": _edits(step.proposal),
        "outcome": step.verdict.outcome,
        "reason": step.verdict.reason,
        "code": step.verdict.code,
    }


def _edits(proposal: Proposal | None) -> list[Mapping[str, object]]:
    return [asdict(edit) for edit in proposal.edits] if proposal else []
