"""Page of a tuning run, the basis for adopting it: ending and phases in the source's terms."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kept.core.proposal import DROPPED_CITATIONS, USELESS
from kept.core.schedules.coordinate import BASELINE, end_of, phase_of, trials_of
from kept.core.text import count, one_line
from kept.recipes.agent_config.outputs.trials import Trial, Trials, candidate_path
from kept.recipes.agent_config.request import TuningFacts
from kept.recipes.registry import facts_of
from kept.results.diffs import best_diff
from kept.results.summary import Summary, summary
from kept.store.exports import Records
from kept.store.reader import Run
from kept.ui.report.format import duration

Split = Literal["train", "holdout"]

LONGEST = 240
"""Maximum characters shown of a problem with a reply."""

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


def is_baseline(run: Run) -> bool:
    """True if a run only measures an agent."""
    facts = facts_of(run, TuningFacts)
    return facts is not None and facts.baseline_only


def exit_reason(run: Run) -> str:
    """Reason for the end: `dry_cycle`, `max_cycles`, `max_usd`, `perfect` or similar."""
    stopped = run.state.stopped
    if stopped is None:
        return "running"
    if is_baseline(run) and not stopped.resumable:
        return "baseline"
    if stopped.kind == "converged":
        return "perfect" if stopped.message.startswith("the loss is") else "dry_cycle"
    return _STOPS[stopped.kind]


def phase_exits(run: Run) -> dict[str, str]:
    """Reason for the end of each phase, by label; the last may have ended with the run."""
    facts = facts_of(run, TuningFacts)
    phases = {phase.name: phase for phase in (facts.phases if facts else ())}
    found: dict[str, str] = {}
    history = run.state.history
    labels = (step.turn.phase for step in history)
    for label in dict.fromkeys(label for label in labels if "/" in label):
        last = max(n for n, step in enumerate(history) if step.turn.phase == label)
        steps = trials_of(history[: last + 1], label)
        found[label] = end_of(phases[phase_of(label)], steps) or exit_reason(run)
    return found


def trials_in(run: Run) -> Trials:
    """Trials of a run, from its journal."""
    records, trials = Records(), Trials()
    for event in run.events:
        step = records.hear(event)
        if step is not None:
            trials.hear(step)
    return trials


def made_by(trials: Trials, candidate: str) -> Trial | None:
    """Accepted trial that made a candidate; None if there is none."""
    return next((t for t in trials.rows if t.accepted and t.candidate == candidate), None)


def of_baseline(trials: Trials, split: Split) -> str:
    """Note on the rollouts behind a baseline figure, if trial 0 shows another; otherwise empty."""
    first = trials.rows[0] if trials.rows else None
    began = first and (first.train if split == "train" else first.holdout)
    known = trials.seed.get("screen" if split == "train" else "decide")
    if began is None or known is None or began.loss is None or began.asked == known.asked:
        return ""
    return f"of the baseline {known.asked:,} draws, {began.loss:.4g} in the first {began.asked:,}"


class Unused(NamedTuple):
    """Unusable replies of the critic or of the applier."""

    who: str
    times: int
    asked: int
    last: str
    """Problem with the last one."""

    @property
    def words(self) -> str:
        """Number of unusable replies, and the last problem."""
        replies = count(self.asked, "reply", "replies")
        return f"{self.times} of {replies} could not be used, the last: {self.last}"


def unused_replies(trials: Trials) -> list[Unused]:
    """Unusable replies by helper, with their number and the last problem."""
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
    """Number of citations of missing cases by the critic, in words; empty if there are none."""
    critics = (cast("Mapping[str, Any]", trial.about.get("critic") or {}) for trial in trials.rows)
    dropped = sum(int(critic.get(DROPPED_CITATIONS, 0)) for critic in critics)
    return f"{count(dropped, 'citation')} of cases that do not exist, dropped" if dropped else ""


def helper_of(run: Run, who: str) -> str:
    """Config file of the critic or the applier; empty if unknown."""
    facts = facts_of(run, TuningFacts)
    path = facts.helpers.get(who, {}).get("agent_path", "") if facts else ""
    return str(run.moved(Path(path))) if path else ""


BARS = "▁▂▃▄▅▆▇█"


def tuning_report(run: Run, folder: Path, told: Summary | None = None) -> str:
    """Complete page, written for the folder that holds its files."""
    told, known = told or summary(run), trials_in(run)
    trials, best = known.rows, made_by(known, run.state.best)
    parts = [
        f"# Optimizer run {run.id}",
        _section("Summary", _summary(run, told, known, best)),
        _section("Trajectory", _trajectory(trials)),
        _section("What paid", _attribution(trials)),
        _section("Metrics, baseline to best", _metrics(known, best)),
        _section("The change", _change(run)),
        _section("Why texts changed", _rationales(trials)),
        _section("How to adopt", _adopt(run, folder, best)),
        _section("How to read this", _notes(run, told)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"## {title}\n\n{body}" if body else ""


def _summary(run: Run, told: Summary, known: Trials, best: Trial | None) -> Iterator[str]:
    first = known.baseline
    last = known.known_of(best) if best is not None and best.number else first
    for code, name in (("promoted", "proven"), ("claim", "sealed test")):
        steps = [step for step in run.state.history if step.verdict.code == code]
        if steps:
            yield f"* {name}: {steps[-1].verdict.reason.removeprefix('proven: ')}"
    splits: tuple[tuple[Split, float | None, float | None], ...] = (
        ("train", first.train, last.train),
        ("holdout", first.holdout, last.holdout),
    )
    for split, before, after in splits:
        drawn = of_baseline(known, split)
        yield f"* {split} loss {_change_of(before, after)}" + (f"; {drawn}" if drawn else "")
    tried = [t for t in known.rows if t.phase != BASELINE]
    accepted = sum(t.accepted for t in tried)
    sweeps = ""
    facts = facts_of(run, TuningFacts)
    if run.settings.gate == "sigma" and facts is not None:
        sweeps = f", {count(facts.optimizer['repeats'], 'sweep')} a trial"
    yield f"* {count(len(tried), 'trial')}, {accepted} accepted; gate `{told.gate}`{sweeps}"
    if why := run.settings.gate_why:
        yield f"* why `{told.gate}`: {why}"
    for one in unused_replies(known):
        yield f"* {one.who}: {one.words}"
    if dropped := dropped_citations(known):
        yield f"* critic: {dropped}"
    # a race keeps candidates before they are proven; only proven ones become best.yaml
    if run.state.incumbent != run.state.best:
        leading = made_by(known, run.state.incumbent)
        number = f" (trial {leading.number})" if leading else ""
        yield f"* what leads{number} is not proven for new cases, and is not `best.yaml`"
    stopped = run.state.stopped
    yield f"* exit: `{exit_reason(run)}`" + (f", {stopped.message}" if stopped else "")
    for name, why in phase_exits(run).items():
        yield f"  * {name}: `{why}`"
    rollouts = count(told.spend.rollouts, "rollout")
    yield f"* {duration(told.elapsed)}, ${told.spend.usd:.4f}, {rollouts}"


def _change_of(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "was not measured"
    if before == after:
        return f"{before:.4g}, as the baseline has it"
    share = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.4g} → {after:.4g}{share}"


def _trajectory(trials: Sequence[Trial]) -> Iterator[str]:
    """Bar chart of the incumbent's loss after every trial, with `|` between phases."""
    if not trials:
        return
    yield "```text"
    for name, values in (
        ("train  ", [t.after.train for t in trials]),
        ("holdout", [t.after.holdout for t in trials]),
    ):
        yield f"{name} {_sparkline(trials, values)}"
    yield "```"
    yield ""
    yield "One bar a trial, the loss of what led then; `|` between phases; lower is better."


def _sparkline(trials: Sequence[Trial], values: Sequence[float | None]) -> str:
    known = [v for v in values if v is not None]
    top = max(known, default=0.0) or 1.0
    shown, before = "", ""
    for trial, value in zip(trials, values, strict=True):
        label = f"{trial.cycle}{trial.phase}"
        shown += "|" if before and label != before else ""
        before = label
        # the scale starts at 0, so that a bar half as high is a loss half as large
        shown += " " if value is None else BARS[min(7, int(value / top * 7.999))]
    return shown


def _attribution(trials: Sequence[Trial]) -> Iterator[str]:
    groups: dict[tuple[int, str, str], list[Trial]] = {}
    for trial in trials:
        if trial.phase != BASELINE:
            # a numeric phase tunes its axes together, so they share a row
            axis = trial.axis if trial.phase != "numeric" else "all numbers"
            groups.setdefault((trial.cycle, trial.phase, axis or "—"), []).append(trial)
    if not groups:
        return
    yield "| cycle | phase | axis | trials | accepted | Δ train loss | cost |"
    yield "|---|---|---|---|---|---|---|"
    for (cycle, phase, axis), rows in groups.items():
        kept = [t for t in rows if t.accepted]
        moved = sum((t.after.train or 0) - (t.before.train or 0) for t in kept)
        shown = f"{moved:+.4f}" if kept else "—"
        usd = sum(t.usd for t in rows)
        yield (
            f"| {cycle} | {phase} | `{axis}` | {len(rows)} | {len(kept)} | {shown} | ${usd:.4f} |"
        )


def _metrics(known: Trials, best: Trial | None) -> Iterator[str]:
    """Metrics of baseline and best, over all their rollouts, as in the summary."""
    if not known.rows or best is None:
        return
    train, holdout = known.seed.get("screen"), known.seed.get("decide")
    after = (known.swept(best, "screen"), known.swept(best, "decide"))
    after = after if best.number else (train, holdout)
    yield "| split | metric | baseline | best |"
    yield "|---|---|---|---|"
    for name, old, new in (
        ("train", train, after[0]),
        ("holdout", holdout, after[1]),
    ):
        if old is None or new is None:
            continue
        for metric, value in old.metrics.items():
            found = new.metrics.get(metric)
            shown = "—" if found is None else f"{found:.4g}"
            yield f"| {name} | {metric} | {value:.4g} | {shown} |"


def _change(run: Run) -> Iterator[str]:
    text = best_diff(run)
    if text:
        yield "```diff"
        yield text.rstrip("\n")
        yield "```"
    else:
        yield "None: nothing that was tried is better than the baseline, as far as can be told."


def _rationales(trials: Sequence[Trial]) -> Iterator[str]:
    for trial in trials:
        if trial.accepted and trial.phase == "textual":
            critic = cast("dict[str, Any]", trial.about.get("critic") or {})
            yield f"* trial {trial.number}, `{trial.axis}`: {one_line(trial.why, 400)}"
            if critic.get("failing_pattern"):
                yield f"  * seen: {one_line(str(critic['failing_pattern']), 400)}"
            if critic.get("root_cause_hypothesis"):
                yield f"  * cause: {one_line(str(critic['root_cause_hypothesis']), 400)}"


def _adopt(run: Run, folder: Path, best: Trial | None) -> Iterator[str]:
    if best is None or best.number == 0:
        yield "There is nothing to adopt: the baseline is still the best."
        return
    agent = run.spec or Path()
    yield f"`kept adopt {run.id}` changes the agent's own files to the best. By hand:"
    yield ""
    yield "```sh"
    for path in sorted(run.best.texts):
        if run.best.texts[path] != run.seed.texts.get(path):
            source = run.folder / "best" / path
            yield f"cp {shlex.quote(str(source))} {shlex.quote(str(agent.parent / path))}"
    yield "```"
    yield ""
    yield f"`{folder / candidate_path(best.number)}` runs as it lies there."


def _notes(run: Run, told: Summary) -> Iterator[str]:
    cases = ", ".join(f"{n} {split}" for split, n in told.cases.items() if n)
    yield f"* cases: {cases}"
    facts = facts_of(run, TuningFacts)
    skipped = facts is not None and facts.optimizer["holdout_eval_policy"] == "skip"
    unread = skipped or not told.cases.get("holdout")
    if told.gate == "sigma" and unread:
        yield "* **holdout was not read: nothing here shows that a gain is more than overfitting**"
    elif told.gate == "sigma":
        yield (
            "* `sigma`: a gain on train must clear the spread of repeated sweeps, and holdout must "
            "not lose more than its own. Many trials against one bar keep noise now and then; "
            "the train figure of what was kept is optimistic, and so is holdout's after many looks."
        )
    else:
        yield (
            "* `race`: a trial is kept when it is better on holdout beyond noise; `best.yaml` "
            "moves only when all that was kept is proven better for cases nobody has seen."
        )
    if not unread and not any(step.verdict.code == "claim" for step in run.state.history):
        yield "* no sealed test was read: the holdout figure is optimistic"
    yield (
        "* cases that resemble each other hide overfitting to their kind: holdout cases should "
        "resemble what the agent meets in use"
    )
    yield (
        "* the same file and seed propose the same points; losses differ from run to run where the "
        "model samples"
    )
