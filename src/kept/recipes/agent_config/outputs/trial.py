"""A trial: a step of coordinate descent with what was known before it and after it.

`Trials` hears of closed steps in order. The baseline is trial 0; what the run measures by itself
(the proof, the claim) is none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt

from kept.core.edit import Edit
from kept.core.proposal import Proposal, Skip
from kept.core.rollout import Purpose
from kept.core.schedules.coordinate import BASELINE, cycle_of, phase_of
from kept.core.score import Evaluation
from kept.core.stage import StepRecords
from kept.core.verdict import Verdict

_NOTHING: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class Swept:
    """What a candidate came to on one split."""

    loss: float | None
    """None where nothing has an answer."""
    std: float
    """Of the means of whole sweeps."""
    runs: tuple[float, ...]
    """The mean of each sweep, in order."""
    errored: int
    """Rollouts that infrastructure left without an answer: they count for nothing."""
    failed: int
    """Rollouts that failed by the candidate's own fault: they count as the worst."""
    asked: int
    usd: float
    metrics: Mapping[str, float]
    """The mean of each measure."""


@dataclass(frozen=True, slots=True)
class Best:
    """What the incumbent is known by."""

    train: float | None = None
    holdout: float | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """One row of the record."""

    number: int
    """As `iter-NN` has it: 0 is the baseline."""
    step: int
    began: float
    ended: float
    cycle: int
    phase: str
    """`baseline`, `numeric`, `textual` or `demos`."""
    nth: int
    """Which of its phase, the first being 1."""
    axis: str
    """What it is about."""
    about: Mapping[str, object]
    """How the proposal came about, by its author."""
    why: str
    edits: tuple[Edit, ...]
    """What was proposed; none where nothing was."""
    candidate: str | None
    incumbent: str
    """What it was held against."""
    base: int
    """The trial that made the incumbent."""
    verdict: Verdict
    train: Swept | None
    holdout: Swept | None
    before: Best
    after: Best
    usd: float
    """Of the whole trial: rollouts of both splits, the critic and the applier."""

    @property
    def accepted(self) -> bool:
        """Whether the baseline moved; the first one is where it begins."""
        return self.phase == BASELINE or self.verdict.outcome == "keep"

    @property
    def seconds(self) -> float:
        """From its first moment to its verdict."""
        return max(0.0, self.ended - self.began)

    @property
    def label(self) -> str:
        """As a line has it: `c1/n 2`."""
        return f"c{self.cycle}/{self.phase[:1]} {self.nth}"


@dataclass(slots=True)
class Trials:
    """Makes trials of steps, in their order."""

    rows: list[Trial] = field(default_factory=list[Trial])
    seed: dict[Purpose, Swept] = field(default_factory=dict[Purpose, Swept])
    """What the seed came to by the most that was drawn of it, which trial 0 only began."""
    _latest: dict[tuple[str, Purpose], Swept] = field(
        default_factory=dict[tuple[str, Purpose], Swept]
    )
    """Of each candidate, by the most that was drawn of it."""
    _made: dict[str, int] = field(default_factory=dict[str, int])
    """The trial that made each incumbent."""
    _best: Best = field(default_factory=Best)

    @property
    def baseline(self) -> Best:
        """What the seed is known by, from the most that was drawn of it."""
        train, holdout = self.seed.get("screen"), self.seed.get("decide")
        return Best(train and train.loss, holdout and holdout.loss)

    def known_of(self, trial: Trial) -> Best:
        """Losses of the candidate of an accepted trial, by all draws while it led."""
        known = trial.after
        for row in self.rows[trial.number + 1 :]:
            known = row.before
            if row.accepted:
                break
        return known

    def swept(self, trial: Trial, purpose: Purpose) -> Swept | None:
        """The most that was drawn of the candidate of a trial; None where nothing was."""
        return self._latest.get((trial.candidate or "", purpose))

    def hear(self, step: StepRecords) -> Trial | None:
        """The trial that a step is; None for what is none."""
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
            self._made[closed.candidate] = number
        self._best = after
        self.rows.append(trial)
        return trial

    def _learn(self, step: StepRecords) -> None:
        """Remember the most that was drawn of each candidate: its first sweep is one of many."""
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
        """What is known of the incumbent: by this step's own look at it, else by an earlier one."""
        closed = step.closed
        shown = [e for e in closed.evaluations if e.candidate == closed.incumbent]
        if closed.incumbent == closed.candidate:
            return Best()  # the baseline is held against nothing
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
