"""The files of one step and of one epoch's end, by name. Pure."""

from collections.abc import Mapping
from typing import Any

from kept.core.score import Evaluation
from kept.core.stage import StepRecords
from kept.recipes.skill.records import Standing, about_of, action_of, score_of, scores_of

PREVIEW = 200
"""Characters of an edit that a report shows."""


def step_files(step: StepRecords, before: Standing, metric: str) -> dict[str, Any]:
    """What a step leaves behind, where the run stood so before; only what there was of it."""
    about = about_of(step)
    digest = {"step": before.steps + 1, **_digest(step, about, scores_of(step, before, metric))}
    files: dict[str, Any] = {"trajectory_digest.json": digest}
    for source, name in (("failure", "fail"), ("success", "succ")):
        patches = [one for one in about.get("patches", ()) if one["source_type"] == source]
        if patches:
            files[f"patches/minibatch_{name}.json"] = patches
    if "merged" in about:
        files["merged_patch.json"] = about["merged"]
    if "ranked" in about:
        files["ranked_edits.json"] = about["ranked"]
    if step.closed.reports:
        files["edit_apply_report.json"] = _report(step, about)
    if "rewrite" in about:
        files["rewrite_result.json"] = about["rewrite"]
    for evaluation in step.closed.evaluations:
        if evaluation.candidate == step.closed.candidate and evaluation.purpose == "decide":
            files["selection_eval/summary.json"] = _selection(evaluation, metric)
    return files


def minibatch_files(about: Mapping[str, Any]) -> dict[str, Any]:
    """One file for the reply of each analyst, as `minibatch_fail_000.json`."""
    return {f"{patch['name']}.json": patch for patch in about.get("patches", ())}


def epoch_files(step: StepRecords) -> dict[str, Any]:
    """What the end of an epoch leaves behind."""
    about = dict(about_of(step))
    verdict = step.closed.verdict
    pairs = about.pop("pairs", None)
    told: dict[str, Any] = {
        **about,
        "action": action_of(step),
        "outcome": verdict.outcome,
        "reason": verdict.words,
        "numbers": dict(verdict.numbers),
    }
    name = {"slow_update": "slow_result.json"}.get(step.opened.turn.proposer, "result.json")
    files: dict[str, Any] = {name: told}
    if pairs is not None:
        files["comparison_pairs.json"] = pairs
    if step.closed.reports:
        files["edit_apply_report.json"] = _report(step, about)
    return files


def _digest(
    step: StepRecords, about: Mapping[str, Any], scores: tuple[float | None, float | None]
) -> dict[str, Any]:
    verdict = step.closed.verdict
    told: dict[str, Any] = {"action": action_of(step), **about.get("digest", {})}
    before, after = scores
    if after is not None:
        told |= {"score_before": before, "score_after": after}
    if verdict.outcome != "keep" and "items" in about:
        told["rejected_edits"] = about["items"]
        told["score_delta"] = verdict.gain
    if about.get("said"):
        told["said"] = about["said"]
    return told


def _report(step: StepRecords, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = about.get("items", ())
    rows: list[dict[str, Any]] = []
    for n, report in enumerate(step.closed.reports):
        item: Mapping[str, Any] = items[n] if n < len(items) else {}
        rows.append(
            {
                "index": n,
                "op": item.get("op", report.edit.op),
                "file": report.edit.path,
                "target": str(item.get("target", ""))[:PREVIEW],
                "content_preview": str(item.get("content", ""))[:PREVIEW],
                "status": report.fate,
                "detail": report.detail,
                "repaired": bool(item.get("repaired")),
            }
        )
    return rows


def _selection(evaluation: Evaluation, metric: str) -> dict[str, Any]:
    """What was measured to decide; `kept show RUN CASE` prints single rollouts."""
    return {
        "candidate": evaluation.candidate,
        "metric": metric,
        "score": score_of(evaluation, metric),
        "hard": evaluation.metric("hard"),
        "soft": evaluation.metric("soft"),
        "rollouts": evaluation.asked,
        "missing": evaluation.missing,
        "failed": evaluation.failed,
        # a loss is minus the measure
        "cases": {case: -tally.mean for case, tally in evaluation.cases.items()},
    }
