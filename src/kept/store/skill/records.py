"""A step as a record of history.json, and where a run stands as runtime_state.json. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from kept.core.epochs import STEP, epoch_of
from kept.core.proposal import Proposal, Skip
from kept.core.score import Evaluation
from kept.core.stage import StepRecords

_NOTHING: Mapping[str, Any] = {}


def about_of(step: StepRecords) -> Mapping[str, Any]:
    """What a step told of itself, whether or not it came to a proposal."""
    reply = step.proposed.reply if step.proposed else None
    return reply.about if isinstance(reply, Proposal | Skip) else _NOTHING


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands after some of its steps."""

    steps: int = 0
    """Steps that reflected on a batch."""
    current: str = ""
    current_version: int = 0
    current_score: float | None = None
    current_origin: str = "initial_skill"
    best: str = ""
    best_version: int = 0
    best_score: float | None = None
    best_step: int = 0
    best_origin: str = "initial_skill"

    def after(self, step: StepRecords, metric: str) -> "Standing":
        """Where it stands when one more has closed."""
        closed, turn = step.closed, step.opened.turn
        is_step = turn.phase.endswith(f"/{STEP}") and bool(epoch_of(turn.phase))
        now = replace(self, steps=self.steps + is_step)
        scores = {e.candidate: score_of(e, metric) for e in _deciding(step)}
        if self.current in scores:
            now = replace(now, current_score=scores[self.current])
        if self.best in scores:
            now = replace(now, best_score=scores[self.best])
        made = closed.candidate
        origin = f"{turn.proposer}_{now.steps:04}"
        if closed.verdict.outcome == "keep" and made is not None:
            now = replace(
                now,
                current=made,
                current_version=now.steps,
                # None where nothing was measured: another text's score is not its own
                current_score=scores.get(made),
                current_origin=origin,
            )
        if closed.verdict.best and made is not None:
            # the step that made it: what it is proven by may come much later
            version = now.current_version if made == now.current else now.steps
            now = replace(
                now,
                best=made,
                best_version=version,
                best_score=now.current_score if made == now.current else scores.get(made),
                best_step=version,
                best_origin=now.current_origin if made == now.current else origin,
            )
        return now


def state_of(standing: Standing) -> dict[str, Any]:
    """As `runtime_state.json` has it."""
    return {
        "last_completed_step": standing.steps,
        "current_skill_path": f"skills/skill_v{standing.current_version:04}.md",
        "current_score": standing.current_score,
        "current_origin": standing.current_origin,
        "best_skill_path": "best_skill.md",
        "best_score": standing.best_score,
        "best_step": standing.best_step,
        "best_origin": standing.best_origin,
        "current_candidate": standing.current,
        "best_candidate": standing.best,
    }


def history_row(step: StepRecords, standing: Standing, accumulation: int) -> dict[str, Any]:
    """As `history.json` has it."""
    closed, about = step.closed, about_of(step)
    settings = step.opened.turn.settings
    mine = [e for e in _deciding(step) if e.candidate == closed.candidate]
    rollout = cast("Mapping[str, Any]", about.get("rollout") or _NOTHING)
    merged = cast("Mapping[str, Any]", about.get("merged") or _NOTHING)
    spend = closed.spend
    return {
        "step": standing.steps,
        "epoch": settings.get("epoch"),
        "step_in_epoch": settings.get("step"),
        "timing": {"seconds": round(closed.t - step.opened.t, 3)},
        "usage": {
            "rollouts": spend.rollouts,
            "calls": spend.calls,
            "prompt_tokens": spend.tokens_in,
            "completion_tokens": spend.tokens_out,
            "usd": round(spend.usd, 6),
        },
        "rollout_hard": rollout.get("hard"),
        "rollout_soft": rollout.get("soft"),
        "rollout_n": rollout.get("n"),
        "accumulation_batches": accumulation,
        "n_patches": len(about.get("patches", ())),
        "n_edits_merged": _size(merged),
        "n_edits_ranked": len(about.get("items", ())),
        "edit_budget": settings.get("max_edits"),
        "candidate_hash": closed.candidate,
        "edit_apply_summary": _fates(step),
        "selection_hard": mine[0].metric("hard") if mine else None,
        "selection_soft": mine[0].metric("soft") if mine else None,
        "action": action_of(step),
        "outcome": closed.verdict.outcome,
        "reason": closed.verdict.words,
        "numbers": dict(closed.verdict.numbers),
        "current_score": standing.current_score,
        "best_score": standing.best_score,
    }


def action_of(step: StepRecords) -> str:
    """What became of a step, in a word of the source's."""
    verdict = step.closed.verdict
    if verdict.outcome == "keep":
        return "accept_new_best" if verdict.best else "accept"
    if verdict.outcome == "discard":
        return "reject"
    return f"skip_{verdict.code.replace(' ', '_')}"


def score_of(evaluation: Evaluation, metric: str) -> float | None:
    """The measure that decides."""
    return evaluation.metric(metric)


def _deciding(step: StepRecords) -> list[Evaluation]:
    return [e for e in step.closed.evaluations if e.purpose == "decide"]


def _size(merged: Mapping[str, Any]) -> int:
    lists = (v for k, v in merged.items() if k not in ("said", "reasoning"))
    return next((len(one) for one in lists if isinstance(one, list)), 0)  # pyright: ignore[reportUnknownArgumentType]


def _fates(step: StepRecords) -> dict[str, int]:
    found: dict[str, int] = {}
    for report in step.closed.reports:
        found[report.fate] = found.get(report.fate, 0) + 1
    return found
