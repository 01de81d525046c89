"""The live display of a run on a terminal: step lines above, one status line below.

A thread of its own redraws it a few times a second from counters that the run keeps, so that a fast
run is not slowed down by being watched.
"""

import threading
import time
from collections import deque
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kept.core.event import RunResumed, RunStarted
from kept.core.plan import COMPARE, EVAL
from kept.core.proposal import ClosedStep
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import State
from kept.core.words import count
from kept.store.run_index import values
from kept.ui.cli.progress import Progress, case_line, opening_line, step_words
from kept.ui.report.format import number

REDRAWS = 8
"""A second."""
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
    """Draws on stderr from `__enter__` to `__exit__`."""

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
        """Show what is left to show, and give the cursor back."""
        self._done.set()
        self._thread.join()
        try:
            self._print_lines()
        finally:
            self._live.stop()

    def opening(self, event: RunStarted | RunResumed, state: State) -> None:
        """Say which run this is."""
        self._lines.append(Text(opening_line(event, state), style="dim"))

    def measured(self, job: Job, outcome: Outcome) -> None:
        """The case in one line."""
        line = Text(case_line(job, outcome, self.state))
        line.stylize(STYLES.get(str(line)[:8].strip(), ""), 0, 8)
        self._lines.append(line)

    def closed(self, step: ClosedStep) -> None:
        """The step in one line; the one of a run that measures says nothing new."""
        if self.sweeping:
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
        """Say something that is not about a step."""
        self._lines.append(Text(text, style="yellow"))

    def _redraw(self) -> None:
        while not self._done.wait(1 / REDRAWS):
            try:
                self._print_lines()
                self._live.refresh()
            except (OSError, ValueError):
                # the terminal went away: the run goes on all the same
                return

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
        """By the budget; 0 where it does not say."""
        started = self.state.started
        match started.facts.get("budget") if started else None:
            case {"max_iterations": int(most)}:
                return most
            case _:
                return 0

    def _asked(self) -> int:
        """Rollouts of a run that measures; 0 where some of them may be an earlier sitting's."""
        started = self.state.started
        match started.facts.get(EVAL) if started and not self.resumed else None:
            case {"asked": int(asked)}:
                return asked
            case _:
                return 0

    def _parts(self, elapsed: float) -> list[str]:
        state = self.state
        done, most = len(state.closed), self._most_steps()
        so_far = count(self.proposals, "proposal")
        if most:
            # merges and the test at the end come after the last iteration
            so_far = f"{min(done, most)} of {count(most, 'iteration')}"
        parts = [so_far, f"{state.keeps} kept"]
        if self.sweeping:
            parts = []
        elif state.fact(COMPARE):
            parts = [count(self.proposals, "answer")]
        seed, best = values(state)
        if best is not None:
            moved = state.best != state.seed
            shown = f"{number(seed)} → {number(best)}" if moved else number(best)
            parts.append(f"{state.fact('metric')} {shown}")
        so_far = count(self.rollouts, "rollout")
        asked = self._asked()
        parts.append(f"{self.rollouts} of {count(asked, 'rollout')}" if asked else so_far)
        workers = state.fact("workers")
        if self.seconds and elapsed and workers.isdigit():
            busy = self.seconds / (elapsed * int(workers))
            parts.append(f"busy {min(1.0, busy):.0%}")
        minutes, seconds = divmod(int(elapsed), 60)
        parts.append(f"{minutes}:{seconds:02}")
        if self.signals:
            parts.append("stopping")
        return parts
