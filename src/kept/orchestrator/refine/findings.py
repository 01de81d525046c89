"""What is wrong with a finished run, without asking any model (rule R36).

Defects that critics found, the last refusals of a completion, and metrics that fall short. Where
there is none of these, there is nothing to refine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.read import FinishedRun, Refusal, SeedDefect

LAST = 3
"""Refusals that are told; earlier ones were dealt with."""

SAME = 120
"""Characters by which two descriptions are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is wrong with a run."""

    run_id: str
    loss: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    defects: tuple[SeedDefect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Oldest first."""
    gaps: Mapping[str, float] = field(default_factory=dict[str, float])
    """By metric, what it lacks; none that lacks nothing."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to refine."""
        return not (self.defects or self.refusals or self.gaps)

    def told(self) -> list[tuple[str, str]]:
        """Each in words, and how bad it is."""
        return [(words, severity) for _, words, severity in self.named()]

    def named(self) -> list[tuple[str, str, str]]:
        """The name of each in other runs, its words, and how bad it is."""
        return [
            *(
                (d.summary, f"{d.summary} ({d.evidence})" if d.evidence else d.summary, d.severity)
                for d in self.defects
            ),
            *(
                (said := f"a completion was refused by {r.gate}: {r.reason}", said, "critical")
                for r in self.refusals
            ),
            *(
                (f"`{name}` falls short", f"`{name}` falls short by {gap:g}", "warning")
                for name, gap in self.gaps.items()
            ),
        ]

    def document(self) -> dict[str, Any]:
        """As the source writes it to `gradient_input.json`."""
        return {
            "prior_run_id": self.run_id,
            "prior_loss_total": self.loss,
            "prior_raw_signals": dict(self.signals),
            "defects": [one._asdict() for one in self.defects],
            "rejected_gates": [one._asdict() for one in self.refusals],
            "eval_deltas": dict(self.gaps),
        }


def findings_of(run: FinishedRun) -> Findings:
    """What is wrong with a run that was read from its folder."""
    defects = distinct(run.defects)
    signals = run.loss.signals
    measured = {"eval_score": signals.eval_score, "critique_score": signals.critique_score}
    told = {name: value for name, value in measured.items() if value is not None}
    return Findings(
        run_id=run.run_id,
        loss=round(run.loss.total, 6),
        signals={**told, "critique_defect_count": float(len(defects))},
        defects=defects,
        refusals=run.refusals[-LAST:],
        gaps=gaps_of(run.per_metric, run.thresholds),
    )


def findings_in(run: AgentRun, loss: float) -> Findings:
    """What is wrong with a run of ours."""
    said = [
        SeedDefect(defect.description, defect.severity, defect.location)
        for iteration in run.iterations
        for one in iteration.delegations
        if one.critique is not None
        for defect in one.critique.defects
    ]
    if not said and run.critique is not None:
        said = [SeedDefect(d.description, d.severity, d.location) for d in run.critique.defects]
    refused = [Refusal(one.gate, one.reason) for one in run.rejections if one.completion]
    evaluation = run.evaluation
    defects = distinct(said)
    return Findings(
        run_id=run.run_id,
        loss=round(loss, 6),
        signals={"critique_defect_count": float(len(defects))},
        defects=defects,
        refusals=tuple(refused[-LAST:]),
        gaps=gaps_of(evaluation.per_metric, evaluation.thresholds) if evaluation else {},
    )


def distinct(defects: Sequence[SeedDefect]) -> tuple[SeedDefect, ...]:
    """Each defect once, the first time it was told; those without words are none."""
    found: dict[tuple[str, str], SeedDefect] = {}
    for one in defects:
        if one.summary.strip():
            found.setdefault((one.summary[:SAME], one.severity), one)
    return tuple(found.values())


def gaps_of(observed: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
    """By metric, how much it lacks; only what lacks something."""
    gaps = {name: round(wanted[name] - observed[name], 4) for name in wanted if name in observed}
    return {name: gap for name, gap in gaps.items() if gap > 0}
