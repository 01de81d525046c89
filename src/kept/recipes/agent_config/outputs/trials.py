"""Trials: steps of coordinate descent, as lines of `trials.jsonl` and `trajectory.csv`.

A trial is a step with the state before and after it. `Trials` receives closed steps in order. The
baseline is trial 0; measurements of the run itself (confirmation, sealed test) are no trials.

Under `sigma` every field has its source's meaning. Under `race` the fields of the noise bar are
null, and `decision.numbers` holds the figures of the race (docs/reference/optimizer.md).
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from math import sqrt
from typing import Any

from kept.core.edit import Edit
from kept.core.event import StepRecords
from kept.core.llm import PASSED
from kept.core.objective import Objective
from kept.core.proposal import Proposal, Skip
from kept.core.rollout import Purpose
from kept.core.schedules.coordinate import BASELINE, cycle_of, phase_of
from kept.core.score import Evaluation
from kept.core.verdict import Verdict
from kept.gates.sigma import clears, within

_NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of a candidate on one split."""

    loss: float | None
    """None if no rollout has an answer."""
    std: float
    """Standard deviation of the means of whole sweeps."""
    runs: tuple[float, ...]
    """Mean of each sweep, in order."""
    errored: int
    """Number of rollouts without an answer because of infrastructure; they are ignored."""
    failed: int
    """Number of rollouts failed by the candidate's own fault; they count as the worst."""
    asked: int
    usd: float
    metrics: Mapping[str, float]
    """Mean of each measure."""


@dataclass(frozen=True, slots=True)
class Best:
    """Known losses of the incumbent."""

    train: float | None = None
    holdout: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the record."""

    number: int
    """Number as in `iter-NN`; 0 is the baseline."""
    step: int
    began: float
    ended: float
    cycle: int
    phase: str
    """`baseline`, `numeric`, `textual` or `demos`."""
    nth: int
    """Number among the trials of its phase and cycle, from 1."""
    axis: str
    """Axis or axes that it changes."""
    about: Mapping[str, object]
    """Details of the proposal from its proposer."""
    why: str
    edits: tuple[Edit, ...]
    """Proposed edits; empty without a proposal."""
    candidate: str | None
    incumbent: str
    """Candidate that it was compared with."""
    base: int
    """Number of the trial that made the incumbent."""
    verdict: Verdict
    train: Swept | None
    holdout: Swept | None
    before: Best
    after: Best
    usd: float
    """Cost of the whole trial: rollouts of both splits, critic and applier."""

    @property
    def accepted(self) -> bool:
        """True if the baseline changed; the first baseline counts as accepted."""
        return self.phase == BASELINE or self.verdict.outcome == "keep"

    @property
    def seconds(self) -> float:
        """Duration until the verdict."""
        return max(0.0, self.ended - self.began)

    @property
    def label(self) -> str:
        """Short name in lines: `c1/n 2`."""
        return f"c{self.cycle}/{self.phase[:1]} {self.nth}"


@dataclass(slots=True)
class Trials:
    """Converts closed steps to trials, in order."""

    rows: list[Trial] = field(default_factory=list[Trial])
    seed: dict[Purpose, Swept] = field(default_factory=dict[Purpose, Swept])
    """Result of the seed by purpose, from the largest number of rollouts."""
    _latest: dict[tuple[str, Purpose], Swept] = field(
        default_factory=dict[tuple[str, Purpose], Swept]
    )
    """Result by candidate and purpose, from the largest number of rollouts."""
    _made: dict[str, int] = field(default_factory=dict[str, int])
    """Number of the trial that made each incumbent."""
    _best: Best = field(default_factory=Best)

    @property
    def baseline(self) -> Best:
        """Losses of the seed, from the largest number of rollouts."""
        train, holdout = self.seed.get("screen"), self.seed.get("decide")
        return Best(train and train.loss, holdout and holdout.loss)

    def known_of(self, trial: Trial) -> Best:
        """Losses of an accepted trial's candidate, from all rollouts while it was the incumbent."""
        known = trial.after
        for row in self.rows[trial.number + 1 :]:
            known = row.before
            if row.accepted:
                break
        return known

    def swept(self, trial: Trial, purpose: Purpose) -> Swept | None:
        """Result of a trial's candidate with the most rollouts; None without any."""
        return self._latest.get((trial.candidate or "", purpose))

    def hear(self, step: StepRecords) -> Trial | None:
        """Trial of a closed step; None if the step is no trial."""
        self._learn(step)
        label = step.opened.turn.phase
        cycle = cycle_of(label)
        if label != BASELINE and not cycle:
            return None
        closed = step.closed
        shown = [e for e in closed.evaluations if e.candidate == closed.candidate]
        train, holdout = _swept(shown, "screen"), _swept(shown, "decide")
        before = self._before(step)
        accepted = label == BASELINE or closed.verdict.outcome == "keep"
        # trials are numbered in the order in which they closed
        number = len(self.rows)
        after = _moved(before, train, holdout) if accepted else before
        reply = step.proposed.reply if step.proposed else None
        phase = phase_of(label)
        nth = sum(row.cycle == cycle and row.phase == phase for row in self.rows) + 1
        trial = Trial(
            number=number,
            step=closed.step,
            began=step.opened.t,
            ended=closed.t,
            cycle=cycle,
            phase=phase,
            nth=nth,
            axis=_axis(step),
            about=reply.about if isinstance(reply, Proposal | Skip) else _NOTHING,
            why=reply.why if isinstance(reply, Proposal | Skip) else "",
            edits=reply.edits if isinstance(reply, Proposal) else (),
            candidate=closed.candidate,
            incumbent=closed.incumbent,
            base=self._made.get(closed.incumbent, 0),
            verdict=closed.verdict,
            train=train,
            holdout=holdout,
            before=before,
            after=after,
            usd=closed.spend.usd,
        )
        if accepted and closed.candidate is not None:
            # later trials refer to this one as their base
            self._made[closed.candidate] = number
        self._best = after
        self.rows.append(trial)
        return trial

    def _learn(self, step: StepRecords) -> None:
        """Store the result with the most rollouts of each candidate; later steps may add more."""
        for shown in step.closed.evaluations:
            swept = _swept([shown], shown.purpose)
            if swept is None or swept.loss is None:
                continue
            key = (shown.candidate, shown.purpose)
            known = self._latest.get(key)
            if known is None or swept.asked > known.asked:
                self._latest[key] = swept
                if shown.candidate == step.started.seed:
                    self.seed[shown.purpose] = swept

    def _before(self, step: StepRecords) -> Best:
        """Losses of the incumbent, from this step's own rollouts if there are any."""
        closed = step.closed
        shown = [e for e in closed.evaluations if e.candidate == closed.incumbent]
        if closed.incumbent == closed.candidate:
            return Best()  # the baseline is compared with nothing
        return _moved(self._best, _swept(shown, "screen"), _swept(shown, "decide"))


def _axis(step: StepRecords) -> str:
    said = step.opened.turn.settings.get("axis")
    if said is not None:
        return str(said)
    reply = step.proposed.reply if step.proposed else None
    about = reply.about if isinstance(reply, Proposal | Skip) else _NOTHING
    params = about.get("params")
    if isinstance(params, Mapping):
        return " + ".join(map(str, params))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] # as its author says
    return str(about.get("axis", ""))


def _swept(shown: Sequence[Evaluation], purpose: Purpose) -> Swept | None:
    found = next((e for e in shown if e.purpose == purpose), None)
    if found is None or not found.asked:
        return None
    runs = tuple(tally.mean for _, tally in sorted(found.repeats.items()) if tally.n)
    mean = sum(runs) / len(runs) if runs else 0.0
    std = sqrt(sum((run - mean) ** 2 for run in runs) / len(runs)) if runs else 0.0
    return Swept(
        loss=found.loss,
        std=std,
        runs=runs,
        errored=found.missing,
        failed=found.failed,
        asked=found.asked,
        usd=found.usd,
        metrics={name: tally.mean for name, tally in found.metrics.items() if tally.n},
    )


def _moved(best: Best, train: Swept | None, holdout: Swept | None) -> Best:
    return Best(
        best.train if train is None or train.loss is None else train.loss,
        best.holdout if holdout is None or holdout.loss is None else holdout.loss,
    )


HEADER = (
    *("trial_id", "timestamp", "cycle", "phase", "axis_target"),
    *("train_mean", "train_std", "holdout_mean", "best_train", "best_holdout", "noise_bar"),
    *("accepted", "trial_usd", "duration_sec"),
)
NONE = "—"
"""Text of a column that does not apply."""

PENALTIES: Mapping[str, str] = {"usd": "cost_per_usd", "seconds": "latency_per_sec"}
"""Penalty by the measure that is penalized."""

DIGITS = 6
"""Decimal places of a loss; further ones are rounding errors."""


def stamp(t: float) -> str:
    """Format a time stamp for these files."""
    return datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def candidate_path(number: int) -> str:
    """Path of a trial's candidate, if it was accepted."""
    return f"candidates/iter-{number:02}.yaml"


def row_of(trial: Trial, weights: Mapping[str, float], objective: Objective) -> dict[str, Any]:
    """Row of `trials.jsonl`."""
    return {
        "trial_id": trial.number,
        "timestamp": stamp(trial.began),
        "cycle": trial.cycle,
        "phase": trial.phase,
        "axis_target": trial.axis or None,
        "baseline_before_path": None if trial.phase == BASELINE else candidate_path(trial.base),
        "proposal_source": (
            None if trial.phase == BASELINE else {"kind": trial.phase, **trial.about}
        ),
        "edits": [asdict(edit) for edit in trial.edits],
        "candidate_path": candidate_path(trial.number) if trial.accepted else None,
        "repeats": len(trial.train.runs) if trial.train else None,
        "train": _split(trial.train, weights, objective, trial.seconds),
        "holdout": _split(trial.holdout, weights, objective, None),
        "decision": decision_of(trial),
        "study_state": _study(trial),
    }


def _split(
    swept: Swept | None,
    weights: Mapping[str, float],
    objective: Objective,
    seconds: float | None,
) -> dict[str, Any] | None:
    if swept is None:
        return None
    passed = swept.metrics.get(PASSED)
    told: dict[str, Any] = {
        "report_summary": {
            "pass_rate": _rounded(None if passed is None else passed * 100),  # percent
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
    """Verdict of a trial with the numbers behind it."""
    numbers, verdict = trial.verdict.numbers, trial.verdict
    told: dict[str, Any] = {"accepted": trial.accepted, "outcome": verdict.outcome}
    if trial.phase == BASELINE:
        return told | {"reason": f"the baseline: {verdict.reason}"}
    before = numbers.get("train_before", trial.before.train)
    regression, bar = numbers.get("holdout_regression"), numbers.get("holdout_noise_bar")
    gain, noise = numbers.get("gain"), numbers.get("noise_bar")
    held = None if regression is None or bar is None else within(regression, bar)
    improvement = gain
    # without a noise bar, the improvement is the difference of the train means
    if noise is None:
        loss, best = trial.train.loss if trial.train else None, trial.before.train
        improvement = None if loss is None or best is None else best - loss
    told |= {
        "best_train_mean_before": _rounded(before),
        "train_mean": _rounded(numbers.get("train", trial.train.loss if trial.train else None)),
        "train_std": _rounded(numbers.get("train_std", trial.train.std if trial.train else None)),
        "train_improvement": _rounded(improvement),
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
    """Content of `trajectory.csv`."""
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
