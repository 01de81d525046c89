"""The plan of a run as a document: its actions, decision rules and maximum cost."""

from dataclasses import asdict, is_dataclass
from typing import Any

from kept.core.forecast import Forecast, forecast
from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.schedules.round_robin import OF_THE_RUN
from kept.core.text import count
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.runners.model import ModelRunner
from kept.gates.race import Race
from kept.gates.repeats import Repeats
from kept.proposers.llm import ModelProposer
from kept.proposers.variants import Variants
from kept.recipes.base import Compiled, plan_facts
from kept.recipes.gate_choice import schedule_name, usual_call


def outline(compiled: Compiled) -> dict[str, Any]:
    """Return everything that a user wants to know before a run."""
    plan = compiled.plan
    spec, facts = plan.spec, plan_facts(plan)
    cases, most = plan.cases, forecast(plan)
    objective = plan.objective
    return {
        "spec": spec.path or None,
        "id": spec.id or None,
        "description": spec.description,
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
        "protected": sorted({str(p) for a in plan.rules.artifacts.values() for p in a.protected}),
        "guidance": sorted(plan.guidance),
        "cases": None
        if cases.implicit
        else {"train": len(cases.train), "holdout": len(cases.holdout), "test": len(cases.test)},
        "runner": spec.runner or None,
        "scorer": spec.scorer or None,
        "sandbox": spec.sandbox or None,
        "models": facts.models,
        "objective": {
            "metric": objective.metric,
            "direction": objective.direction,
            "bounds": list(objective.bounds) if objective.bounds else None,
            "constraints": [str(constraint) for constraint in objective.constraints],
            "tie_breakers": [f"{t.prefer} {t.metric}" for t in objective.tie_breakers],
        },
        "gate": {
            "name": plan.gate.name,
            "not_race": plan.not_race or None,
            "rollouts_per_candidate": most.per_step,
            "gain_above": objective.tie_tolerance,
        },
        "rule": {
            "words": _rule(plan, most.per_step),
            "numbers": asdict(plan.gate) if is_dataclass(plan.gate) else {},
        },
        # `given` leaves out what the run itself proposes; `schedule` below counts the rest
        "proposers": (given := [p.name for p in plan.proposers if p.name not in OF_THE_RUN]),
        "schedule": schedule_name(plan.schedule) if len(given) > 1 else None,
        "prompts": facts.prompts,
        "variants": {
            proposer.name: [variant.label for variant in proposer.variants]
            for proposer in plan.proposers
            if isinstance(proposer, Variants)
        },
        "editors": {
            proposer.name: proposer.model.name
            for proposer in plan.proposers
            if isinstance(proposer, ModelProposer)
        },
        "budget": {name: n for name, n in asdict(plan.budget).items() if n is not None},
        "width": plan.width,
        "workers": plan.workers,
        "retries": plan.retries,
        "at_most": {"rollouts": most.rollouts, "seconds": most.seconds, "usd": most.usd},
        "likely": _likely(plan, most),
        "seconds_a_rollout": plan.worst_seconds,
        "charges": [asdict(charge) for charge in facts.charges],
        "limited_by": list(facts.limited_by),
        "usd_per_rollout": plan.worst_usd or None,
        "seed_call_usd": _seed_call(plan),
        "warnings": list(compiled.warnings),
    }


def _likely(plan: Plan, most: Forecast) -> dict[str, Any] | None:
    """Return what most runs use; in money only the runner's calls, if their cost is known."""
    if most.likely is None:
        return None
    each = plan.worst_usd or usual_call(plan)
    found: dict[str, Any] = {"usd_a_rollout": each, "used_up": most.likely.used_up}
    for name, rollouts in (("useless", most.likely.useless), ("kept", most.likely.kept)):
        usd = None if each is None else rollouts * each
        if usd is not None and most.usd is not None and most.usd > 0:
            # the run stops at its limit, whatever the estimate
            usd = min(usd, most.usd)
        found[name] = {"rollouts": rollouts, "usd": usd}
    return found


def _seed_call(plan: Plan) -> float | None:
    """Return the highest cost of a call of the runner's model for the seed; None if not known."""
    if not isinstance(plan.runner, ModelRunner | ChatRunner):
        return None
    cases = (*plan.cases.train, *plan.cases.holdout, *plan.cases.test)
    found = [plan.runner.worst_usd(plan.seed, case) for case in cases]
    return max((usd for usd in found if usd is not None), default=None)


def _repeats_rule(gate: Repeats, objective: Objective) -> str:
    gain = f"keeps a gain above {objective.tie_tolerance:g} over one run a side"
    if objective.deterministic:
        return f"{gain}, which nothing confirms: `deterministic` is true"
    return (
        f"{gain} while repeats agree: {gate.first} of the seed first, and {gate.exact - 1} more to "
        f"confirm a keep ({gate.sure - 1} where scores are only 0 and 1); else what is better "
        f"beyond noise, in {gate.most} runs a side at most"
    )


def _rule(plan: Plan, each: int) -> str:
    """Describe in words what the gate keeps."""
    gate, train, holdout = plan.gate, len(plan.cases.train), len(plan.cases.holdout)
    if isinstance(gate, Repeats):
        return _repeats_rule(gate, plan.objective)
    if not isinstance(gate, Race):
        rollouts = count(each, "rollout")
        return f"keeps a gain above {plan.objective.tie_tolerance:g} over {rollouts} a side"
    if gate.final.among:
        return (
            f"holds a final among {count(gate.final.among, 'alternative')} on {train + holdout} "
            f"cases, train cases too, as nobody learnt from them: keeps the best that is proven, "
            f"in {max(gate.final.passes)} passes at most"
        )
    looked_at = count(min(train, gate.screen.cases), "train case")
    screened = f"screens on {looked_at}, then " if train else ""
    simpler = ""
    if plan.objective.scale is not None:
        simpler = f", and what is simpler and loses {gate.simplify.margin:g} of the scale at most"
    return (
        f"{screened}keeps what is better beyond noise on {holdout} cases{simpler}, in {gate.most} "
        f"passes at most; {plan.reserve} rollouts are set aside for the proof and the claim"
    )
