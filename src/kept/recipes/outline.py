"""A plan as one document: what a run would do, how it decides, the most it can use."""

from dataclasses import asdict
from typing import Any

from kept.core.forecast import forecast
from kept.recipes import Compiled


def outline(compiled: Compiled) -> dict[str, Any]:
    """Everything a person wants to know before a run."""
    plan = compiled.plan
    facts, cases, most = plan.facts, plan.cases, forecast(plan)
    objective = plan.objective
    return {
        "spec": facts.get("spec"),
        "id": facts.get("id"),
        "description": facts.get("description"),
        "recipe": plan.recipe,
        "artifacts": [
            {
                "path": path,
                "bytes": len(text.encode("utf-8", "surrogateescape")),
                "editable": path in plan.rules.artifacts,
            }
            for path, text in sorted(plan.seed.texts.items())
        ],
        "limits": {
            "files": plan.rules.max_files,
            "changed_lines": plan.rules.max_changed_lines,
        },
        "guidance": sorted(plan.guidance),
        "cases": None
        if cases.implicit
        else {"train": len(cases.train), "holdout": len(cases.holdout), "test": len(cases.test)},
        "runner": facts.get("runner"),
        "scorer": facts.get("scorer"),
        "objective": {
            "metric": objective.metric,
            "direction": objective.direction,
            "bounds": list(objective.bounds) if objective.bounds else None,
            "constraints": [str(constraint) for constraint in objective.constraints],
            "tie_breakers": [f"{t.prefer} {t.metric}" for t in objective.tie_breakers],
        },
        "gate": {
            "name": plan.gate.name,
            "rollouts_per_candidate": most.per_step,
            "gain_above": objective.tie_tolerance,
        },
        "proposers": [proposer.name for proposer in plan.proposers],
        "budget": {name: n for name, n in asdict(plan.budget).items() if n is not None},
        "width": plan.width,
        "workers": plan.workers,
        "retries": plan.retries,
        "at_most": {"rollouts": most.rollouts, "seconds": most.seconds, "usd": most.usd},
        "warnings": list(compiled.warnings),
    }
