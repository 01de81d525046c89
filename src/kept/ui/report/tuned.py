"""The page of a run that tuned an agent: what a person reads to decide whether to adopt it."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from kept.core.plan import GATE_WHY
from kept.core.schedules.coordinate import BASELINE
from kept.core.words import count, one_line
from kept.recipes.agent_config.outputs.rows import candidate_path
from kept.recipes.agent_config.outputs.trial import Trial, Trials
from kept.results.summary import Summary, summary
from kept.store.reader import Run
from kept.ui.report.changes import best_diff
from kept.ui.report.exits import (
    Split,
    dropped_citations,
    exit_reason,
    made_by,
    of_baseline,
    phase_exits,
    trials_in,
    unused_replies,
)
from kept.ui.report.format import duration

BARS = "▁▂▃▄▅▆▇█"


def tuning_report(run: Run, folder: Path) -> str:
    """The whole page, for the folder that its files lie in."""
    told, known = summary(run), trials_in(run)
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
        steps = [step for step in run.state.closed if step.verdict.code == code]
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
    yield f"* {count(len(tried), 'trial')}, {accepted} accepted; gate `{told.gate}`" + _sweeps(run)
    if why := run.fact(GATE_WHY):
        yield f"* why `{told.gate}`: {why}"
    for one in unused_replies(known):
        yield f"* {one.who}: {one.words}"
    if dropped := dropped_citations(known):
        yield f"* critic: {dropped}"
    if run.state.incumbent != run.state.best:
        leading = made_by(known, run.state.incumbent)
        number = f" (trial {leading.number})" if leading else ""
        yield f"* what leads{number} is not proven for new cases, and is not `best.yaml`"
    yield f"* exit: `{exit_reason(run)}`" + _said(run)
    for name, why in phase_exits(run).items():
        yield f"  * {name}: `{why}`"
    rollouts = count(told.spend.rollouts, "rollout")
    yield f"* {duration(told.elapsed)}, ${told.spend.usd:.4f}, {rollouts}"


def _sweeps(run: Run) -> str:
    if run.state.fact("gate") != "sigma":
        return ""
    told = cast("dict[str, Any]", run.fact("optimizer") or {})
    return f", {count(int(told.get('repeats', 1)), 'sweep')} a trial"


def _said(run: Run) -> str:
    stopped = run.state.stopped
    return f", {stopped.message}" if stopped else ""


def _change_of(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "was not measured"
    if before == after:
        return f"{before:.4g}, as the baseline has it"
    share = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before:.4g} → {after:.4g}{share}"


def _trajectory(trials: Sequence[Trial]) -> Iterator[str]:
    """The loss of the incumbent after every trial, a bar each, with a rule between phases."""
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
        # from nothing, so that a bar half as high is a loss half as large
        shown += " " if value is None else BARS[min(7, int(value / top * 7.999))]
    return shown


def _attribution(trials: Sequence[Trial]) -> Iterator[str]:
    groups: dict[tuple[int, str, str], list[Trial]] = {}
    for trial in trials:
        if trial.phase != BASELINE:
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
    """Of both by all that was drawn of them, as in the summary."""
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
    agent = run.path_of("spec") or Path()
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
    policy = cast("dict[str, Any]", run.fact("optimizer") or {}).get("holdout_eval_policy")
    unread = policy == "skip" or not told.cases.get("holdout")
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
    if not unread and not any(step.verdict.code == "claim" for step in run.state.closed):
        yield "* no sealed test was read: the holdout figure is optimistic"
    yield (
        "* cases that resemble each other hide overfitting to their kind: holdout cases should "
        "resemble what the agent meets in use"
    )
    yield (
        "* the same file and seed propose the same points; losses differ from run to run where the "
        "model samples"
    )
