"""How a run that tunes an agent ended, and each of its phases, in the words of its source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kept.core.grow import Log
from kept.core.proposal import DROPPED_CITATIONS, USELESS, ClosedStep
from kept.core.schedules.coordinate import Phase, end_of, phase_of, trials_of
from kept.core.words import count, one_line
from kept.recipes.agent_config.outputs.trial import Trial, Trials
from kept.store.reader import Run
from kept.store.views import Records

Split = Literal["train", "holdout"]

BASELINE_ONLY = "baseline_only"
"""The fact of a run that measures the agent as it is, and stops."""

LONGEST = 240
"""Characters of what was wrong with a reply."""

_STOPS = {
    "minutes": "max_minutes",
    "usd": "max_usd",
    "rollouts": "max_rollouts",
    "iterations": "max_cycles",
    "interrupted": "interrupted",
    "error": "error",
    "failures": "failures",
    "nothing left to propose": "exhausted",
}


def exit_reason(run: Run) -> str:
    """`dry_cycle`, `max_cycles`, `max_minutes`, `max_usd`, `perfect`, `interrupted` or so."""
    stopped = run.state.stopped
    if stopped is None:
        return "running"
    if run.fact(BASELINE_ONLY) and not stopped.resumable:
        return "baseline"
    if stopped.kind == "converged":
        return "perfect" if stopped.message.startswith("the loss is") else "dry_cycle"
    return _STOPS[stopped.kind]


def phase_exits(run: Run) -> dict[str, str]:
    """Why each phase ended, by its label; the last may have been cut short with the run."""
    rows = cast("list[dict[str, Any]]", run.fact("phases") or [])
    phases = {
        row["name"]: Phase(
            row["name"], row["proposer"], row["max_trials"], row["patience"], row["least"]
        )
        for row in rows
    }
    found: dict[str, str] = {}
    for label in _labels(run.state.closed):
        steps = trials_of(_until(run.state.closed, label), label)
        found[label] = end_of(phases[phase_of(label)], steps) or exit_reason(run)
    return found


def _labels(closed: Sequence[ClosedStep]) -> list[str]:
    labels = (step.turn.phase for step in closed)
    return list(dict.fromkeys(label for label in labels if "/" in label))


def _until(closed: Sequence[ClosedStep], label: str) -> Log[ClosedStep]:
    last = max(n for n, step in enumerate(closed) if step.turn.phase == label)
    return Log(closed[: last + 1])


def trials_in(run: Run) -> Trials:
    """The trials of a run, from its journal."""
    records, trials = Records(), Trials()
    for event in run.events:
        step = records.hear(event)
        if step is not None:
            trials.hear(step)
    return trials


def made_by(trials: Trials, candidate: str) -> Trial | None:
    """The accepted trial that made a candidate; None where none did."""
    return next((t for t in trials.rows if t.accepted and t.candidate == candidate), None)


def of_baseline(trials: Trials, split: Split) -> str:
    """Which draws of the seed a figure is of, where trial 0 shows another; else nothing."""
    first = trials.rows[0] if trials.rows else None
    began = first and (first.train if split == "train" else first.holdout)
    known = trials.seed.get("screen" if split == "train" else "decide")
    if began is None or known is None or began.loss is None or began.asked == known.asked:
        return ""
    return f"of the baseline {known.asked:,} draws, {began.loss:.4g} in the first {began.asked:,}"


class Unused(NamedTuple):
    """Replies of the critic, or of the applier, that could not be used."""

    who: str
    times: int
    asked: int
    last: str
    """What was wrong with the last of them."""

    @property
    def words(self) -> str:
        """How often, and why."""
        replies = count(self.asked, "reply", "replies")
        return f"{self.times} of {replies} could not be used, the last: {self.last}"


def unused_replies(trials: Trials) -> list[Unused]:
    """Whose replies were of no use, how often, and why the last was."""
    textual = [trial for trial in trials.rows if trial.phase == "textual" and trial.about]
    found: list[Unused] = []
    for who in ("critic", "applier"):
        useless = [trial for trial in textual if trial.about.get(USELESS) == who]
        heard = [trial for trial in textual if who in trial.about]
        if useless:
            asked = len({trial.number for trial in (*useless, *heard)})
            last = one_line(useless[-1].why, LONGEST)
            found.append(Unused(who, len(useless), asked, last))
    return found


def dropped_citations(trials: Trials) -> str:
    """How often the critic cited cases that do not exist, in words; empty where it never did."""
    critics = (cast("Mapping[str, Any]", trial.about.get("critic") or {}) for trial in trials.rows)
    dropped = sum(int(critic.get(DROPPED_CITATIONS, 0)) for critic in critics)
    return f"{count(dropped, 'citation')} of cases that do not exist, dropped" if dropped else ""


def helper_of(run: Run, who: str) -> str:
    """The file of the critic or the applier; empty where nothing says."""
    told = cast("dict[str, dict[str, str]]", run.fact("helpers") or {})
    path = told.get(who, {}).get("agent_path", "")
    return str(run.moved(Path(path))) if path else ""
