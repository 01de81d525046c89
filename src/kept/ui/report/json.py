"""The report as one JSON document."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from kept.core.event import StepClosed
from kept.core.plan import AGENT_RUN, EVALUATE
from kept.results.cases import sweep_of
from kept.results.diffs import step_diff
from kept.results.failures import failures
from kept.results.race import doubt_of, raced
from kept.results.summary import StepLine, Summary, summary
from kept.store.reader import Run
from kept.ui.report.eval_report import document as sweep_document
from kept.ui.report.format import recipe_word
from kept.ui.report.markdown import caveats
from kept.ui.report.race import conclusion

SCHEMA = 1
"""Version of these documents; within one version fields may be added, never renamed."""


def headline(told: Summary) -> dict[str, Any]:
    """Outcome alone, as printed by `kept optimize --json`."""
    return {
        "schema": SCHEMA,
        "run": told.run,
        "folder": str(told.folder.resolve()),
        "status": told.status,
        "stopped": asdict(told.stopped) if told.stopped else None,
        "metric": told.metric,
        "direction": told.direction,
        "improved": told.improved,
        "seed": {"candidate": told.seed, "value": told.seed_value},
        "best": {"candidate": told.best, "value": told.best_value, "step": told.best_step},
        "measured_on": told.measured or None,
        "conclusion": conclusion(told) or None,
        "leading": told.leading,
        "unproven": near._asdict() if (near := doubt_of(told)) else None,
        "claim": told.claim or None,
        "race": asdict(race) if (race := raced(told)) else None,
        "comparison": told.comparison.document() if told.comparison else None,
        "steps": len(told.steps),
        "proposals": told.proposals,
        "merges": told.merges,
        "keeps": told.keeps,
        "verdicts": dict(told.outcomes),
        "turns": [asdict(row) for row in told.turns],
        "spend": asdict(told.spend),
        "unmeasured": [asdict(case) for case in told.unmeasured],
        "lost": told.lost,
        "elapsed": told.elapsed,
    }


def as_json(run: Run) -> dict[str, Any]:
    """Complete report, with everything that the page shows."""
    document = DOCUMENTS.get(run.recipe or "", _run_document)
    return {"schema": SCHEMA, "run": run.id, **document(run)}


def _agent_run_document(run: Run) -> dict[str, Any]:
    from kept.recipes.agent_run.journal_view import agent_run_document

    return agent_run_document(run)


def _sweep_document(run: Run) -> dict[str, Any]:
    sweep = sweep_of(run)
    assert sweep is not None, "a run that measures"
    return {"status": run.status, **sweep_document(sweep)}


def _run_document(run: Run) -> dict[str, Any]:
    told = summary(run)
    # closed events hold the diffs; rows of the summary do not
    closed = {event.step: event for event in run.events if isinstance(event, StepClosed)}
    return {
        **headline(told),
        "asked": {
            "spec": told.spec or None,
            "recipe": recipe_word(told.recipe),
            "artifacts": sorted(run.seed.texts),
            "gate": told.gate,
            "proposers": list(told.proposers),
            "cases": dict(told.cases),
            "budget": dict(told.budget),
            "started": told.started,
            "version": told.version,
        },
        "closed": [
            {**step_row(row), "diff": step_diff(run, closed[row.step]) if row.kept else None}
            for row in told.steps
        ],
        "open": list(told.open),
        "failures": [asdict(group) for group in failures(run)],
        "caveats": caveats(told, run),
    }


DOCUMENTS: Mapping[str, Callable[[Run], dict[str, Any]]] = {
    AGENT_RUN: _agent_run_document,
    EVALUATE: _sweep_document,
}
"""Document builders of recipes without steps and verdicts."""


def step_row(row: StepLine) -> dict[str, Any]:
    """One step, in the same form in every document."""
    return {
        "step": row.step,
        "phase": row.phase,
        "proposer": row.proposer,
        "verdict": row.outcome,
        "code": row.code,
        "reason": row.reason,
        "numbers": dict(row.numbers),
        "best": row.best,
        "value": row.value,
        "candidate": row.candidate,
        "incumbent": row.incumbent,
        "why": row.why,
    }
