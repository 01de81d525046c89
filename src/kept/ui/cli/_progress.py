"""Progress of a run on a terminal: one line per closed step, and a live status line below.

The sink never raises and is cheap: a rollout only counts. A separate thread redraws the status a
few times a second from counters, so display does not slow down a fast run.
"""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kept.core.event import Event, RunResumed, RunSettings, RunStarted, StepClosed
from kept.core.llm import PASSED
from kept.core.plan import AGENT_RUN, EVALUATE
from kept.core.proposal import ClosedStep, History
from kept.core.rollout import Job
from kept.core.schedules.refine import RERUN, iteration_words, iterations_in
from kept.core.score import Outcome
from kept.core.state import State
from kept.core.text import count, one_line, significant
from kept.results.cases import Evaluated, evaluated_in
from kept.results.compare import compared_in
from kept.results.summary import values
from kept.settings import dumb_terminal
from kept.ui.cli._output import cut_middle
from kept.ui.report.format import number

WHY_WIDTH = 60
REASON_WIDTH = 160
BETWEEN = len("  ()")
ROOMY = 70
"""Columns needed to show the evidence of a promotion."""
LEAST_WHY = 8
"""Minimum columns in which the proposal's text is readable."""


class Progress:
    """Counter of progress that shows nothing, as for `-q`."""

    def __init__(self) -> None:
        self.state = State()
        self.proposals = 0
        """Closed steps that had a proposal."""
        self.rollouts = 0
        """Rollouts of this session and of the closed steps before it."""
        self.seconds = 0.0
        """Seconds inside the rollouts of this session, summed over workers."""
        self.began = time.monotonic()
        self.signals = 0
        self.proposer_width = 0
        self.evaluated: Evaluated | None = None
        """Facts of a run that measures, whose cases are shown one by one; None for others."""
        self.step_lines = True
        """False if another object prints the lines of closed steps."""
        self._steps_before: int | None = None

    @property
    def resumed(self) -> bool:
        """True if the run was resumed."""
        return self._steps_before is not None

    @property
    def resumed_in_vain(self) -> bool:
        """True if the run was resumed with nothing left to do."""
        return len(self.state.history) == self._steps_before

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the terminal."""

    def on_event(self, event: Event, state: State) -> None:
        """Store the state and show events of interest."""
        self.state = state
        if isinstance(event, StepClosed):
            self.proposals += not event.verdict.idle
            if self.step_lines and not _says_the_same(state.history):
                # use the event's verdict: the state omits failure texts, because proposers see it
                self.closed(replace(state.history[-1], verdict=event.verdict))
        elif isinstance(event, RunStarted | RunResumed):
            self.proposals = sum(not step.verdict.idle for step in state.history)
            self.rollouts = state.spend.rollouts
            names = state.settings.proposers
            self.proposer_width = max((len(name) for name in names), default=0)
            self.evaluated = evaluated_in(state)
            if isinstance(event, RunResumed):
                self._steps_before = len(state.history)
            self.opening(event, state)

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        """Count a rollout; show it only if the run measures. There may be thousands a second."""
        self.rollouts += 1
        self.seconds += outcome.seconds
        if self.evaluated is not None:
            self.measured(job, outcome, self.evaluated)

    def on_signal(self) -> None:
        """Handle Ctrl-C: show that the run is stopping."""
        self.signals += 1
        if self.signals == 1:
            self.say("stopping: what is in flight may finish; Ctrl-C again stops at once")
        elif self.signals == 2:
            self.say("stopping at once")

    def opening(self, event: RunStarted | RunResumed, state: State) -> None:
        """Show the beginning of a session."""

    def closed(self, step: ClosedStep) -> None:
        """Show a closed step."""

    def measured(self, job: Job, outcome: Outcome, facts: Evaluated) -> None:
        """Show a finished case of a run that measures."""

    def say(self, text: str) -> None:
        """Show a message that is not about a step."""


class PlainProgress(Progress):
    """One line per closed step, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream: TextIO | None = stream

    def opening(self, event: RunStarted | RunResumed, state: State) -> None:
        """Print the name of the run."""
        self.say(opening_line(event, state))

    def closed(self, step: ClosedStep) -> None:
        """Print the step in one line, except in a run that measures."""
        if self.evaluated is None:
            self.say(step_line(step, self.proposer_width, self.state))

    def measured(self, job: Job, outcome: Outcome, facts: Evaluated) -> None:
        """Print the case in one line."""
        self.say(case_line(job, outcome, self.state.settings, facts))

    def say(self, text: str) -> None:
        """Write a line, unless the stream was closed."""
        if self._stream is None:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # the reader is gone: the run continues without output
            self._stream = None


def progress_on(stream: TextIO, *, quiet: bool) -> Progress:
    """Progress that suits the stream: none, plain lines, or a live display."""
    if quiet:
        return Progress()
    if not stream.isatty() or dumb_terminal():
        return PlainProgress(stream)
    # imported at use: rich takes longer to import than all of kept, and only terminals need it

    return LiveProgress()


def standard_progress(*, quiet: bool) -> Progress:
    """Progress on stderr."""
    return progress_on(sys.stderr, quiet=quiet)


def opening_line(event: RunStarted | RunResumed, state: State) -> str:
    """First line of a session: the run and its aim."""
    started = state.started
    assert started is not None, "the first event is `run_started`"
    verb = "resumed" if isinstance(event, RunResumed) else "started"
    return f"run {started.run_id} {verb}: {OPENINGS.get(started.recipe, _aim)(started)}"


def _aim(started: RunStarted) -> str:
    settings = started.settings
    why = f"not race: {settings.not_race}" if settings.not_race else settings.gate_why
    gate = settings.gate + (f" ({why})" if why else "")
    return f"{settings.direction} {settings.metric}, gate {gate}"


def _measured(started: RunStarted) -> str:
    facts = evaluated_in(State(started=started))
    return f"{facts.name}, {count(facts.rollouts, 'rollout')}" if facts else ""


def _task(started: RunStarted) -> str:
    return one_line(started.settings.spec.description, REASON_WIDTH)


OPENINGS: Mapping[str, Callable[[RunStarted], str]] = {EVALUATE: _measured, AGENT_RUN: _task}
"""Aim of a run, by recipe; other recipes show metric and gate."""


def _says_the_same(history: History) -> bool:
    """True if the last step proposed nothing, exactly as the step before it.

    Steps are opened before the news that a proposer has no more proposals, so several may say it.
    """
    if len(history) < 2:
        return False
    before, last = history[-2], history[-1]
    # a refinement's attempt without a deliverable was a real run, so show it
    ran = last.skip is not None and bool(last.skip.about)
    idle = last.verdict.code == "nothing proposed" and not ran
    return idle and last.verdict == before.verdict and last.turn.proposer == before.turn.proposer


def case_line(job: Job, outcome: Outcome, settings: RunSettings, facts: Evaluated) -> str:
    """Case in one line: `failed   refund-over-limit  1.2 s  equality 0.00: …`."""
    # imported at use: only a run that measures needs it, and it imports all of the report
    from kept.results.cases import grading_of, tested

    grading = grading_of(settings, facts)
    told = tested(job, outcome, (), grading)
    name = told.case if not told.repeat else f"{told.case} #{told.repeat + 1}"
    hidden = (PASSED,) if grading.metric_is_pass else ()
    shown = {name: value for name, value in told.metrics.items() if name not in hidden}
    scores = "  ".join(f"{name} {significant(value, 4)}" for name, value in shown.items())
    words = one_line(told.why, REASON_WIDTH) if told.why else scores
    return f"{told.status:<8} {name}  {told.seconds:.1f} s  {words}".rstrip()


def step_line(step: ClosedStep, proposer_width: int = 0, state: State | None = None) -> str:
    """Step in one line: `step  3  keep   variants  strictly better: `score` 0.62 → 0.71  (why)`."""
    k = step.turn.settings.get("k") if step.turn.proposer == RERUN else None
    if isinstance(k, int) and state is not None and state.started is not None:
        of = iteration_words(k, iterations_in(state.started.request))
        return f"{of}  {step.verdict.word}  {step_words(step)}"
    proposer = f"{step.turn.proposer:<{proposer_width}}"
    return f"step {step.step:>2}  {step.verdict.word:<7}  {proposer}  {step_words(step)}"


def step_words(step: ClosedStep, room: int = 0) -> str:
    """Reason of the verdict and of the proposal; both are shortened to fit `room` columns."""
    why = one_line(step.proposal.why, WHY_WIDTH) if step.proposal else ""
    words = one_line(step.verdict.words, REASON_WIDTH)
    if not why:
        return words
    over = len(words) + len(why) + BETWEEN - room
    if room and over > 0:
        # the evidence of a promotion matters most: it is shown in full if it fits
        share = 0 if step.verdict.best and room >= ROOMY else room * 2 // 5
        left = max(share, room - len(words) - BETWEEN)
        if left < LEAST_WHY:
            return one_line(words, room)
        # names differ at the end, reasons at the beginning
        why = cut_middle(why, left)
        words = one_line(words, max(1, room - len(why) - BETWEEN))
    return f"{words}  ({why})"


REDRAWS = 8
"""Redraws per second."""
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
STYLES = {
    "passed": "green",
    "scored": "green",
    "failed": "red",
    "errored": "yellow",
    "keep": "bold green",
    "better": "bold green",
    "crash": "red",
    "skip": "dim",
}


class LiveProgress(Progress):
    """Live display on stderr from `__enter__` to `__exit__`."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=self._status,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
        )
        self._lines: deque[Text] = deque()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="kept-progress", daemon=True)

    def __enter__(self) -> "LiveProgress":
        self._live.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Print pending lines and restore the cursor."""
        self._done.set()
        self._thread.join()
        try:
            self._print_lines()
        finally:
            self._live.stop()

    def opening(self, event: RunStarted | RunResumed, state: State) -> None:
        """Show the name of the run."""
        self._lines.append(Text(opening_line(event, state), style="dim"))

    def measured(self, job: Job, outcome: Outcome, facts: Evaluated) -> None:
        """Show the case in one line."""
        line = Text(case_line(job, outcome, self.state.settings, facts))
        line.stylize(STYLES.get(str(line)[:8].strip(), ""), 0, 8)
        self._lines.append(line)

    def closed(self, step: ClosedStep) -> None:
        """Show the step in one line, except in a run that measures."""
        if self.evaluated is not None:
            return
        style = STYLES.get(step.verdict.word, "")
        line = Text(f"step {step.step:>2}  ")
        line.append(f"{step.verdict.word:<7}", style=style)
        proposer = f"  {step.turn.proposer:<{self.proposer_width}}  "
        line.append(proposer, style="dim" if style == "dim" else "cyan")
        room = self._console.width - line.cell_len
        line.append(step_words(step, room), style="dim" if style == "dim" else "")
        self._lines.append(line)

    def say(self, text: str) -> None:
        """Show a message that is not about a step."""
        self._lines.append(Text(text, style="yellow"))

    def _redraw(self) -> None:
        while not self._done.wait(1 / REDRAWS):
            try:
                self._print_lines()
                self._live.refresh()
            except (OSError, ValueError):
                # the terminal is gone: the run continues without output
                return

    # deque operations are atomic, so the run's thread may append meanwhile
    def _print_lines(self) -> None:
        lines: list[Text] = []
        while self._lines:
            lines.append(self._lines.popleft())
        for line in lines:
            self._console.print(line, no_wrap=True, overflow="ellipsis")

    def _status(self) -> Text:
        elapsed = time.monotonic() - self.began
        frame = FRAMES[int(elapsed * REDRAWS) % len(FRAMES)]
        line = Text(f"{frame} {' · '.join(self._parts(elapsed))}", no_wrap=True)
        line.overflow = "ellipsis"
        line.stylize("cyan", 0, 1)
        return line

    def _most_steps(self) -> int:
        """Number of iterations in the budget; 0 without a limit."""
        return self.state.settings.budget.max_iterations or 0

    def _asked(self) -> int:
        """Rollouts of a run that measures; 0 if some may belong to an earlier session."""
        return self.evaluated.rollouts if self.evaluated and not self.resumed else 0

    def _parts(self, elapsed: float) -> list[str]:
        state = self.state
        done, most = len(state.history), self._most_steps()
        so_far = count(self.proposals, "proposal")
        if most:
            # merges and the final test come after the last iteration
            so_far = f"{min(done, most)} of {count(most, 'iteration')}"
        parts = [so_far, f"{state.keeps} kept"]
        if self.evaluated is not None:
            parts = []
        elif compared_in(state) is not None:
            parts = [count(self.proposals, "answer")]
        seed, best = values(state)
        if best is not None:
            moved = state.best != state.seed
            shown = f"{number(seed)} → {number(best)}" if moved else number(best)
            parts.append(f"{state.settings.metric} {shown}")
        so_far = count(self.rollouts, "rollout")
        asked = self._asked()
        parts.append(f"{self.rollouts} of {count(asked, 'rollout')}" if asked else so_far)
        if self.seconds and elapsed:
            busy = self.seconds / (elapsed * state.settings.workers)
            parts.append(f"busy {min(1.0, busy):.0%}")
        minutes, seconds = divmod(int(elapsed), 60)
        parts.append(f"{minutes}:{seconds:02}")
        if self.signals:
            parts.append("stopping")
        return parts
