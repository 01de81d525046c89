"""A trial as a line of `trials.jsonl` and as a row of `trajectory.csv`.

Under `sigma` every field means what its source says. Under `race` the fields of the noise bar are
null, and `decision.numbers` holds what the race went by (docs/reference/optimizer.md).
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from kept.core.exchange import PASSED
from kept.core.objective import Objective
from kept.core.schedules.coordinate import BASELINE
from kept.gates.sigma import clears, within
from kept.recipes.agent_config.outputs.trial import Swept, Trial

HEADER = (
    *("trial_id", "timestamp", "cycle", "phase", "axis_target"),
    *("train_mean", "train_std", "holdout_mean", "best_train", "best_holdout", "noise_bar"),
    *("accepted", "trial_usd", "duration_sec"),
)
NONE = "—"
"""What a row of the table has where a column does not apply."""

PENALTIES: Mapping[str, str] = {"usd": "cost_per_usd", "seconds": "latency_per_sec"}
"""What is charged, by the measure that it is charged for."""

DIGITS = 6
"""Of a loss: what is beyond them is rounding."""


def stamp(t: float) -> str:
    """A moment as these files write it."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def candidate_path(number: int) -> str:
    """Where the candidate of a trial lies, if it was accepted."""
    return f"candidates/iter-{number:02}.yaml"


def row_of(trial: Trial, weights: Mapping[str, float], objective: Objective) -> dict[str, Any]:
    """All that is to be known of a trial."""
    return {
        "trial_id": trial.number,
        "timestamp": stamp(trial.began),
        "cycle": trial.cycle,
        "phase": trial.phase,
        "axis_target": trial.axis or None,
        "baseline_before_path": None if trial.phase == BASELINE else candidate_path(trial.base),
        "proposal_source": _source(trial),
        "edits": [asdict(edit) for edit in trial.edits],
        "candidate_path": candidate_path(trial.number) if trial.accepted else None,
        "repeats": len(trial.train.runs) if trial.train else None,
        "train": _split(trial.train, weights, objective, trial.seconds),
        "holdout": _split(trial.holdout, weights, objective, None),
        "decision": decision_of(trial),
        "study_state": _study(trial),
    }


def _source(trial: Trial) -> dict[str, Any] | None:
    if trial.phase == BASELINE:
        return None
    return {"kind": trial.phase, **trial.about} if trial.about else {"kind": trial.phase}


def _split(
    swept: Swept | None,
    weights: Mapping[str, float],
    objective: Objective,
    seconds: float | None,
) -> dict[str, Any] | None:
    if swept is None:
        return None
    told: dict[str, Any] = {
        "report_summary": {
            "pass_rate": _rounded(_percent(swept.metrics.get(PASSED))),
            "average_scores": {
                name: _rounded(value)
                for name, value in swept.metrics.items()
                if name not in (PASSED, objective.metric, *objective.own)
            },
        },
        "loss_components": {
            name: _rounded(swept.metrics[name]) for name in weights if name in swept.metrics
        },
        "penalty_components": {
            PENALTIES[one.metric]: _rounded(one.rate * swept.metrics.get(one.metric, 0.0))
            for one in objective.penalties
        },
        "loss": _rounded(swept.loss),
        "loss_std": _rounded(swept.std),
        "loss_runs": [_rounded(run) for run in swept.runs],
        "errored_runs_excluded": swept.errored,
        "failed_runs_scored_worst": swept.failed,
        "rollouts": swept.asked,
        "trial_usd": _rounded(swept.usd),
    }
    return told | ({} if seconds is None else {"duration_sec": round(seconds, 3)})


def decision_of(trial: Trial) -> dict[str, Any]:
    """Why it was accepted or not, with the figures that it was by."""
    numbers, verdict = trial.verdict.numbers, trial.verdict
    told: dict[str, Any] = {"accepted": trial.accepted, "outcome": verdict.outcome}
    if trial.phase == BASELINE:
        return told | {"reason": f"the baseline: {verdict.reason}"}
    before = numbers.get("train_before", trial.before.train)
    regression, bar = numbers.get("holdout_regression"), numbers.get("holdout_noise_bar")
    gain, noise = numbers.get("gain"), numbers.get("noise_bar")
    held = None if regression is None or bar is None else within(regression, bar)
    told |= {
        "best_train_mean_before": _rounded(before),
        "train_mean": _rounded(numbers.get("train", trial.train.loss if trial.train else None)),
        "train_std": _rounded(numbers.get("train_std", trial.train.std if trial.train else None)),
        "train_improvement": _rounded(gain if noise is not None else _gained(trial)),
        "pooled_train_std": _rounded(numbers.get("pooled_std")),
        "accept_sigma": numbers.get("accept_sigma"),
        "noise_bar": _rounded(noise),
        "improvement_clears_noise": None if gain is None or noise is None else clears(gain, noise),
        "holdout_mean": _rounded(
            numbers.get("holdout", trial.holdout.loss if trial.holdout else None)
        ),
        "best_holdout_mean_before": _rounded(numbers.get("holdout_before", trial.before.holdout)),
        "holdout_regression": _rounded(regression),
        "holdout_noise_bar": _rounded(bar),
        "holdout_within_noise": held,
        "code": verdict.code,
        "numbers": {name: _rounded(value) for name, value in numbers.items()},
        "reason": verdict.reason,
    }
    return told


def _gained(trial: Trial) -> float | None:
    if trial.train is None or trial.train.loss is None or trial.before.train is None:
        return None
    return trial.before.train - trial.train.loss


def _study(trial: Trial) -> dict[str, Any]:
    numeric = trial.phase == "numeric"
    return {
        "cycle": trial.cycle,
        "phase": trial.phase,
        "numeric_study_id": trial.about.get("numeric_study_id") if numeric else None,
        "tpe_n_observations_this_study": trial.about.get("observations") if numeric else None,
        "best_trial_id": trial.number if trial.accepted else trial.base,
    }


def csv_of(trials: Sequence[Trial]) -> str:
    """The whole table, for plotting."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(map(_columns, trials))
    return text.getvalue()


def _columns(trial: Trial) -> list[str]:
    noise = trial.verdict.numbers.get("noise_bar")
    return [
        str(trial.number),
        stamp(trial.began),
        str(trial.cycle),
        trial.phase,
        trial.axis or NONE,
        _figure(trial.train.loss if trial.train else None),
        _figure(trial.train.std if trial.train else None),
        _figure(trial.holdout.loss if trial.holdout else None),
        _figure(trial.after.train),
        _figure(trial.after.holdout),
        NONE if noise is None else _figure(noise),
        str(trial.accepted).lower(),
        f"{trial.usd:.4f}",
        f"{trial.seconds:.1f}",
    ]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100
