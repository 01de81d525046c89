"""Session of a tuning run: terminal output, and `--progress json` events.

Events are JSON documents, one a line, and nothing else is on stdout:

    run_started baseline (cycle_started (phase_started (trial_started trial | trial)*
    phase_completed)+ cycle_completed)* run_completed

At any point `error` may be the last event. Every session is such a stream of its own. A resumed
one repeats the baseline, and opens its current cycle and phase. Cycles count from 0, as in the
stream of the source. A trial is its row of trials.jsonl.

`best_loss` is in every event the train loss of the leading candidate over all rollouts so far.
`best_yaml_loss` is the same for best.yaml, which moves in a race only to confirmed candidates.

The terminal shows a header for each phase and a line for each trial.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

from kept.core.objective import Objective
from kept.core.plan import Plan
from kept.core.rollout import Purpose
from kept.core.schedules.coordinate import BASELINE
from kept.core.state import State
from kept.core.text import encoded, one_line
from kept.errors import KeptError, SetupError
from kept.evaluators.scorers.transforms import WeightedLoss
from kept.gates.sigma import EVEN, clears
from kept.recipes.agent_config.outputs.folder import (
    BEST,
    Begun,
    CycleDone,
    Listener,
    PhaseBegun,
    PhaseDone,
    Teller,
    exit_bytes,
    prune,
)
from kept.recipes.agent_config.outputs.trials import Trial, Trials, row_of, stamp
from kept.recipes.agent_config.request import TuningFacts
from kept.recipes.registry import facts_in, facts_of, start_command
from kept.results.summary import Summary
from kept.run import Ended
from kept.store.candidate_files import make_folder, named_place, open_folder, write_whole
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._command import path_from_here
from kept.ui.cli._open_run import open_run
from kept.ui.cli._progress import Progress, standard_progress
from kept.ui.cli._run import Session
from kept.ui.cli.test import FATAL, STOPPED, TuneOptions
from kept.ui.report.format import duration
from kept.ui.report.tuning import (
    Split,
    dropped_citations,
    exit_reason,
    helper_of,
    is_baseline,
    made_by,
    of_baseline,
    phase_exits,
    trials_in,
    tuning_report,
    unused_replies,
)

SCHEMA = "holodeck.optimize.progress/v1"


class Events(Listener):
    """Writer of one JSON line per event."""

    def __init__(
        self, write: Callable[[str], None], weights: Mapping[str, float], objective: Objective
    ) -> None:
        self._write = write
        self._weights = weights
        self._objective = objective
        self._cycles = 0

    def tell(self, event: str, **what: object) -> None:
        """Write one event."""
        line = {"schema": SCHEMA, "event": event, **what}
        self._write(json.dumps(line, ensure_ascii=True, separators=(",", ":")))

    def run_started(self, run: str, state: State, *, resumed: bool) -> None:
        """Write the settings of the run."""
        started = state.started
        assert started is not None, "the first event is `run_started`"
        facts = facts_in(started, TuningFacts)
        assert facts is not None, "a run that tunes an agent"
        told = facts.optimizer
        self._cycles = int(told["budget"]["global"]["max_cycles"] or 0)
        self.tell(
            "run_started",
            run_id=run,
            agent=state.settings.spec.id,
            max_cycles=self._cycles,
            axes=told["axes"],
            loss_weights=dict(self._weights),
            gate=state.settings.gate,
            gate_reason=state.settings.gate_why,
            started_at=stamp(started.t),
            resumed=resumed,
        )

    def cycle_started(self, cycle: int) -> None:
        """Write that a cycle begins."""
        self.tell("cycle_started", cycle=cycle - 1, of=self._cycles)

    def phase_started(self, begun: PhaseBegun) -> None:
        """Write that a phase begins."""
        self.tell("phase_started", cycle=begun.cycle - 1, phase=begun.phase)

    def trial_begun(self, begun: Begun) -> None:
        """Write that a proposal is about to be measured."""
        self.tell(
            "trial_started",
            trial_id=begun.number,
            cycle=begun.cycle - 1,
            phase=begun.phase,
            baseline_loss=begun.baseline_loss,
            params=dict(begun.params),
            textual_axis=begun.axis or None,
            edit_summary=begun.summary or None,
        )

    def taken_up(self, baseline: Trial) -> None:
        """Write the baseline again: each session is a stream of its own."""
        self.trial_done(baseline)

    def trial_done(self, trial: Trial) -> None:
        """Write the row of a trial; of the baseline, its loss."""
        if trial.phase == BASELINE:
            self.tell("baseline", loss=trial.after.train, holdout_loss=trial.after.holdout)
            return
        row = row_of(trial, self._weights, self._objective)
        self.tell("trial", **row, best_loss=trial.after.train)

    def phase_done(self, done: PhaseDone) -> None:
        """Write that a phase has ended."""
        self.tell(
            "phase_completed",
            cycle=done.cycle - 1,
            phase=done.phase,
            trials=done.trials,
            accepted=done.accepted,
        )

    def cycle_done(self, done: CycleDone) -> None:
        """Write that a cycle has ended."""
        self.tell(
            "cycle_completed",
            cycle=done.cycle - 1,
            accepted=done.accepted,
            best_loss=done.best_loss,
            stop_reason="no_accepts" if done.dry else None,
        )


def tell_completed(events: Events, run: Run, folder: Path) -> None:
    """Write the last event: the result, or the error that cut the session short."""
    stopped = run.state.stopped
    if stopped is not None and stopped.resumable:
        events.tell("error", message=stopped.message, fatal=stopped.kind == "error")
        return
    known = trials_in(run)
    trials, best = known.rows, made_by(known, run.state.best)
    accepted = [t for t in trials[1:] if t.accepted]
    events.tell(
        "run_completed",
        run_id=run.id,
        baseline_loss=trials[0].after.train if trials else None,
        baseline_loss_of_all_draws=known.baseline.train,
        best_loss=trials[-1].after.train if trials else None,
        best_yaml_loss=known.known_of(best).train if best else None,
        accepted=len(accepted),
        cycles=max((t.cycle for t in trials), default=0),
        exit_reason=exit_reason(run),
        phase_exit_reasons=phase_exits(run),
        unused_replies=[one._asdict() for one in unused_replies(known)],
        artifacts={
            "best_yaml": str(folder / "best.yaml"),
            "trials_jsonl": str(folder / "trials.jsonl"),
            "report_md": str(folder / "report.md"),
        },
    )


def tell_error(message: str) -> None:
    """Write the only event of a run that could not begin or failed."""
    line = {"schema": SCHEMA, "event": "error", "message": message, "fatal": True}
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


WIDTH = 70
AXIS = 21
"""Columns for the subject of a trial."""
LEFT = AXIS + len("[c1/n 2] ")
TRAIN = len("train 0.215 ±0.009 (gain +0.019 > bar 0.013)")
HOLD = len("hold 0.243")
WHY = 60
RATIONALE = 400
DIGITS = range(3, 10)
"""Decimals of a gain: the fewest that show how it compares with its bar."""


class Lines(Listener):
    """Listener that prints one line per phase and trial."""

    def __init__(self, say: Callable[[str], None], *, verbose: bool = False) -> None:
        self._say = say
        self._verbose = verbose

    def phase_started(self, begun: PhaseBegun) -> None:
        """Print a header across the screen."""
        study = ""
        if begun.phase == "numeric":
            improved = ", vs improved prompt" if begun.improved else ""
            study = f" (fresh TPE study #{begun.nth}{improved})"
        head = f"── cycle {begun.cycle} · {begun.phase} phase{study} "
        self._say(head + "─" * max(3, WIDTH - len(head)))

    def trial_done(self, trial: Trial) -> None:
        """Print the trial's line, and with `verbose` what critic and applier wrote."""
        self._say(trial_line(trial))
        if self._verbose:
            for line in rationale_lines(trial):
                self._say(line)


def trial_line(trial: Trial) -> str:
    """`[c1/n 2] top_k  train 0.215 ±0.009 (gain +0.019 > bar 0.013)  hold 0.243  accept ✓  $1  9s`.

    At the end, in parentheses: the reason why nothing was measured, or the numbers that were
    tried.
    """
    held = trial.holdout.loss if trial.holdout else None
    hold = "——" if held is None else f"hold {held:.3f}"
    money = f"${trial.usd:.2f}" if trial.usd >= 0.1 or not trial.usd else f"${trial.usd:.3f}"
    left = BASELINE if trial.phase == BASELINE else f"[{trial.label}] {trial.axis}"
    measured = f"{_train(trial):<{TRAIN}}  {hold:<{HOLD}}"
    cost = f"{money}  {trial.seconds:.0f}s"
    note = f"  ({why})" if (why := _note(trial)) else ""
    return f"{left:<{LEFT}} {measured}  {_outcome(trial)}  {cost}{note}".rstrip()


def _note(trial: Trial) -> str:
    """Reason why nothing was measured, or the numbers tried; empty for texts."""
    if trial.phase == "numeric" and trial.train is not None:
        return trial.why
    if trial.phase == BASELINE or trial.train is not None:
        return ""
    return one_line(trial.verdict.reason if trial.edits else trial.why, WHY)


def _train(trial: Trial) -> str:
    swept = trial.train
    if swept is None or swept.loss is None:
        before = trial.before.train
        return "train —" if before is None else f"train {before:.3f} (—)"
    told = f"train {swept.loss:.3f} ±{swept.std:.3f}"
    if trial.before.train is None:
        return told
    return f"{told} ({_compared(_gain(trial), trial.verdict.numbers.get('noise_bar'))})"


def _compared(gain: float, bar: float | None) -> str:
    """`gain +0.019 > bar 0.013`, with enough decimals that rounding keeps the comparison."""
    gain = 0.0 if abs(gain) <= EVEN else gain
    if bar is not None and abs(gain - bar) <= EVEN:
        return f"gain {bar:+.3f} {'≥' if gain else '='} bar {bar:.3f}"
    shown, limit, digits = gain, bar, DIGITS[-1]
    # add decimals until the rounded figures compare like the exact ones
    for digits in DIGITS:
        shown, limit = round(gain, digits), None if bar is None else round(bar, digits)
        alike = bar is None or limit is None or (shown != limit and (shown > limit) == (gain > bar))
        if alike and bool(shown) == bool(gain):
            break
    told = f"gain {shown:+.{digits}f}"
    if bar is None or limit is None:
        return told
    return f"{told} {'>' if gain > bar else '<'} bar {limit:.{digits}f}"


def _gain(trial: Trial) -> float:
    """Gain on train cases; the gate's own figure if it decides by them."""
    numbers, before = trial.verdict.numbers, trial.before.train
    if "noise_bar" in numbers:
        return numbers["gain"]
    if trial.train is None or trial.train.loss is None or before is None:
        return 0.0
    return before - trial.train.loss


def _outcome(trial: Trial) -> str:
    if trial.phase == BASELINE:
        return ""
    if trial.accepted:
        return "accept ✓"
    if not trial.edits:
        return "crit  ✗" if trial.phase == "textual" else "skip  ✗"
    if trial.verdict.outcome == "crash":
        return "crash ✗"
    if trial.verdict.outcome == "skip":
        return "skip  ✗"
    # measured and not accepted: name the test that it failed
    if (gain := _gain(trial)) < -EVEN:
        return "worse ✗"
    if gain <= EVEN:
        return "same  ✗"
    bar = trial.verdict.numbers.get("noise_bar")
    return "hold  ✗" if bar is not None and clears(gain, bar) else "noise ✗"


def rationale_lines(trial: Trial) -> list[str]:
    """Lines with the critic's diagnosis, the applier's edit, and the reason of the verdict."""
    lines: list[str] = []
    found = (trial.about.get(name) for name in ("critic", "applier"))
    critic, applier = (
        cast("dict[str, Any]", said) if isinstance(said, dict) else {} for said in found
    )
    if critic:
        lines.append(f"    critic  ({critic.get('confidence')}): {critic.get('failing_pattern')}")
        lines.append(f"            → {critic.get('suggested_change_direction')}")
    if applier:
        lines.append(f"    applier ({applier.get('edit_type')}): {applier.get('rationale')}")
    if trial.phase == "numeric" and trial.edits:
        lines.append(f"    tried: {trial.why}")
    lines.append(f"    verdict: {trial.verdict.reason}")
    return [line[:RATIONALE].replace("\n", " ") for line in lines]


def tuning_session(plan: Plan, how: TuneOptions) -> tuple[Plan, "TuningSession"]:
    """Plan with a listener for its trials, and the session to run it in."""
    json = how.progress == "json"
    progress = standard_progress(quiet=how.quiet or json)
    listener: Listener
    if json:
        assert isinstance(plan.scorer, WeightedLoss), "what is tuned has a loss"
        listener = Events(_line_out, plan.scorer.weights, plan.objective)
    else:
        listener = Lines(progress.say, verbose=how.verbose)
    plan = replace(plan, views=(*plan.views, partial(Teller, listener)))
    return plan, TuningSession(progress, listener, keep_best_only=how.keep_best_only)


def _line_out(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class TuningSession(Session):
    """Session of `kept test optimize`, with the exit codes of its source."""

    exits: ClassVar[Mapping[str, int]] = {"interrupted": STOPPED, "error": FATAL}

    def __init__(self, progress: Progress, listener: Listener, *, keep_best_only: bool) -> None:
        super().__init__(progress, step_lines=False)
        self._listener = listener
        self._keep_best_only = keep_best_only

    def resume_command(self, folder: Path) -> str:
        """Command that resumes the run."""
        return f"kept test optimize --resume {folder.name}"

    def answer(self, ended: Ended) -> None:
        """Write the pages and print the result."""
        with Run(ended.folder) as run:
            folder = write_pages(run)
            if self._keep_best_only:
                prune(folder)
            if isinstance(self._listener, Events):
                tell_completed(self._listener, run, folder)
            else:
                _output.answer(answer_text(run, folder))
            self._unused = unused_replies(trials_in(run))
            self._helpers = {one.who: Path(helper_of(run, one.who)) for one in self._unused}
            started = run.state.started
            self._anew = start_command(started, ended.folder) if started else ""

    def error_hints(self, go_on: str) -> Sequence[str]:
        """Hints after an error; a corrected agent is another baseline, so it needs a new run."""
        return (
            f"if it is in the agent.yaml, mend it there, then `{self._anew}` starts another run",
            f"if it was the network or the like and has passed, `{go_on}` goes on where it stopped",
        )

    def finish(self) -> int:
        """Warn of helpers if most of their replies could not be used."""
        for one in self._unused:
            if 2 * one.times < one.asked:
                continue  # occasional errors are normal; the answer has their number
            file = path_from_here(self._helpers[one.who])
            _output.warn(f"the {one.who}: {one.words}")
            _output.note(
                f"hint: give it another `model`, or clearer words, in {file}, and run again"
            )
        return 0


def answer_text(run: Run, folder: Path) -> str:
    """Result of the run, and paths of its files."""
    known = trials_in(run)
    accepted = [t for t in known.rows[1:] if t.accepted]
    best = made_by(known, run.state.best)
    rows: list[tuple[str, str]] = []
    last = known.known_of(best) if best and best.number else known.baseline
    splits: tuple[tuple[Split, float | None, float | None], ...] = (
        ("train", known.baseline.train, last.train),
        ("holdout", known.baseline.holdout, last.holdout),
    )
    for name, old, new in splits:
        if old is not None:
            moved = f" → {new:.4g}" if new is not None and new != old else ""
            drawn = of_baseline(known, name)
            told = f"{old:.4g}{moved}" + (f" ({drawn})" if drawn else "")
            rows.append((f"{name} loss", told))
    for code, name in (("promoted", "proven"), ("claim", "sealed test")):
        steps = [step for step in run.state.history if step.verdict.code == code]
        if steps:
            rows.append((name, steps[-1].verdict.reason.removeprefix("proven: ")))
    if is_baseline(run):
        rows += _metrics(run, known)
    else:
        rows.append(("trials", f"{max(0, len(known.rows) - 1)}, {len(accepted)} accepted"))
    for one in unused_replies(known):
        rows.append((one.who, one.words))
    if dropped := dropped_citations(known):
        rows.append(("critic", dropped))
    if run.state.incumbent != run.state.best:
        rows.append(("leading", "what was kept is not proven for new cases yet"))
    rows.append(("exit", exit_reason(run)))
    spend = run.state.spend
    money = f", ${spend.usd:.4f}" if spend.usd else ""
    rows.append(("spend", f"{spend.rollouts} rollouts{money}, {duration(run.state.elapsed)}"))
    if (folder / BEST).exists():
        rows.append(("best", path_from_here(folder / BEST)))
    rows.append(("report", path_from_here(folder / "report.md")))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _metrics(run: Run, known: Trials) -> Iterator[tuple[str, str]]:
    """Each metric of the loss, with its weight."""
    facts = facts_of(run, TuningFacts)
    assert facts is not None, "a run that tunes an agent"
    splits: tuple[tuple[Purpose, Split], ...] = (("screen", "train"), ("decide", "holdout"))
    for name, weight in facts.optimizer["loss_weights"].items():
        means = [
            f"{swept.metrics[name]:.4g} on {split}"
            for purpose, split in splits
            if (swept := known.seed.get(purpose)) and name in swept.metrics
        ]
        yield name, f"{', '.join(means) or 'not measured'}, weight {weight:g}"


def check_place(plan: Plan) -> None:
    """Refuse an unwritable folder, or one with another run, before the run costs anything."""
    place = Path(plan.spec.results)
    try:
        with open_folder(place, named_place(place, Path(plan.spec.path).parent)):
            pass
    except OSError as error:
        raise SetupError(f"cannot write to {error.filename}: {error.strerror}") from error
    if plan.spec.named and (place / "run.json").exists():
        raise SetupError(f"{place} holds another run", hint="name another folder with -o")


def open_tuning(name: str) -> Run:
    """Open a tuning run by its name; refuse runs of other kinds."""
    run = open_run(name, _tunes, resuming=True)
    facts = facts_of(run, TuningFacts)
    if facts is None:
        raise SetupError(f"run {run.id} does not tune an agent", hint="`kept runs` lists all runs")
    if name == "last" and facts.baseline_only:
        raise SetupError(
            f"there is no run to go on with: {run.id} only measured the baseline",
            hint="`kept test optimize` starts one",
        )
    return run


def _tunes(folder: Path) -> bool:
    """True if a run tunes an agent; a run that only measured the baseline cannot be resumed."""
    with suppress(KeptError), Run(folder, resuming=True) as run:
        facts = facts_of(run, TuningFacts)
        return facts is not None and not facts.baseline_only
    return False


def write_pages(run: Run, told: Summary | None = None) -> Path:
    """Write report.md and exit.json; return their folder."""
    make_folder(run.outputs)
    for path, data in pages_of(run, told).items():
        write_whole(path, data)
    return run.outputs


def pages_of(run: Run, told: Summary | None = None) -> dict[Path, bytes]:
    """Files that `write_pages` writes, by path."""
    page = encoded(tuning_report(run, run.outputs, told))
    ended = exit_bytes(exit_reason(run), phase_exits(run))
    return {run.outputs / "report.md": page, run.outputs / "exit.json": ended}
