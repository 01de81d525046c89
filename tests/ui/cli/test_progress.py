"""Progress: cheap, silent on trouble, and the terminal as it was afterwards."""

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console
from rich.text import Text

from kept.core.budget import Budget
from kept.core.event import RunResumed, RunSettings, RunStarted
from kept.core.ports import Journal, Sink
from kept.core.proposal import ClosedStep, Proposal, Turn
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.core.state import fold
from kept.core.verdict import Verdict
from kept.results.cases import Evaluated
from kept.store.codec import document_of
from kept.testing import SinkSuite
from kept.ui.cli._progress import LiveProgress, PlainProgress, Progress, progress_on, step_words

JOB = Job("c", "all", 0, "decide")
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


class Gone(io.StringIO):
    """A pipe whose reader has gone away."""

    def write(self, s: str, /) -> int:
        raise BrokenPipeError


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def console() -> Console:
    return Console(file=Terminal(), force_terminal=True, width=80, highlight=False)


def shown(live: LiveProgress) -> str:
    file = live._console.file
    assert isinstance(file, Terminal)
    return file.getvalue()


class TestQuietProgress(SinkSuite):
    def make_sink(self, journal: Journal) -> Sink:
        return Progress()


class TestPlainProgress(SinkSuite):
    def make_sink(self, journal: Journal) -> Sink:
        return PlainProgress(io.StringIO())


class TestProgressNobodyReads(SinkSuite):
    def make_sink(self, journal: Journal) -> Sink:
        return PlainProgress(Gone())


class TestLiveProgress(SinkSuite):
    def make_sink(self, journal: Journal) -> Sink:
        return LiveProgress(console())


def test_a_pipe_gets_plain_lines_and_quiet_gets_none():
    assert type(progress_on(io.StringIO(), quiet=False)) is PlainProgress
    assert type(progress_on(Terminal(), quiet=True)) is Progress


def test_a_terminal_gets_a_live_display_unless_it_is_dumb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")
    assert type(progress_on(Terminal(), quiet=False)) is LiveProgress
    monkeypatch.setenv("TERM", "dumb")
    assert type(progress_on(Terminal(), quiet=False)) is PlainProgress


def test_a_rollout_costs_next_to_nothing():
    progress = LiveProgress(console())
    outcome = Outcome({"score": 1.0})
    start = time.process_time()
    for _ in range(20_000):
        progress.on_rollout(JOB, outcome)
    assert time.process_time() - start < 1
    assert progress.rollouts == 20_000
    assert shown(progress) == ""


def test_the_cursor_comes_back_when_a_run_ends_badly():
    progress = LiveProgress(console())
    with pytest.raises(ZeroDivisionError), progress:
        raise ZeroDivisionError
    text = shown(progress)
    assert text.count(HIDE) == text.count(SHOW) == 1
    assert text.rindex(SHOW) > text.rindex(HIDE)
    assert not progress._thread.is_alive()


def test_lines_of_the_last_moment_are_shown():
    progress = LiveProgress(console())
    with progress:
        progress.say("so long [red]and[/red] thanks")
    assert "so long [red]and[/red] thanks" in shown(progress)


def test_ctrl_c_is_answered_at_once():
    stream = io.StringIO()
    progress = PlainProgress(stream)
    progress.on_signal()
    assert "Ctrl-C again stops at once" in stream.getvalue()
    progress.on_signal()
    progress.on_signal()
    assert len(stream.getvalue().splitlines()) == 2


def test_a_run_that_measures_says_how_many_there_are_to_come():
    evaluated = Evaluated(of="task", name="sums", rollouts=7, cases=())
    began = RunStarted(
        run_id="r",
        recipe="evaluate",
        seed="c",
        inputs={},
        facts={"evaluated": document_of(evaluated)},
        version="0",
        t=0.0,
    )
    progress = LiveProgress(console())
    progress.on_event(began, fold([began]))
    progress.rollouts = 3
    assert "3 of 7 rollouts" in progress._status().plain
    again = RunResumed(version="0", t=1.0)
    progress.on_event(again, fold([began, again]))
    progress.rollouts = 3
    assert "3 rollouts" in progress._status().plain, "nobody knows how many were done before"


def closed(why: str) -> ClosedStep:
    return ClosedStep(
        step=3,
        turn=Turn("variants", "main", 3),
        incumbent="a",
        candidate="b",
        proposal=Proposal((), why=why),
        reports=(),
        verdict=Verdict("keep", "strictly better: `score` 0.555556 → 0.607639", best=True),
    )


def test_on_a_narrow_terminal_the_end_of_what_was_proposed_is_still_there():
    progress = LiveProgress(console())
    with progress:
        progress.closed(closed("variant alternatives/of-this-prompt/5-phones.txt"))
    (line,) = (line for line in shown(progress).splitlines() if "step  3" in line)
    text = Text.from_ansi(line.split("step  3")[1]).plain
    assert len("step  3" + text.rstrip()) <= 80
    assert "strictly better" in text
    assert text.rstrip().endswith("5-phones.txt)")


def test_what_is_promoted_is_told_with_all_of_its_evidence_on_a_usual_terminal():
    words = "proven: +0.333 (+0.204 … +0.446) for cases alike, p = 2.4e-07 of 0.02 needed"
    verdict = Verdict("keep", words, best=True)
    promoted = replace(closed("takes up what step 6 proposed"), verdict=verdict)
    assert step_words(promoted) == f"{words}  (takes up what step 6 proposed)"
    # of 120 columns, what number, verdict and proposer leave
    told = step_words(promoted, 90)
    assert told.startswith(words)
    assert len(told) <= 90
    assert step_words(promoted, len(words) + 4) == words
    other = replace(promoted, verdict=replace(verdict, best=False))
    assert step_words(other, 90).endswith("proposed)")


def test_what_fits_is_not_cut():
    step = closed("variant b.txt")
    assert step_words(step, 80) == step_words(step)
    assert step_words(step) == f"{step.verdict.reason}  (variant b.txt)"


@pytest.mark.parametrize(("most", "told"), [(10, "0 of 10 iterations"), (None, "0 proposals")])
def test_the_status_says_how_many_steps_there_are_to_come(most: int | None, told: str):
    progress = LiveProgress(console())
    settings = RunSettings(budget=Budget(max_iterations=most))
    event = RunStarted(
        run_id="run", recipe="task", seed="seed", inputs={}, settings=settings, version="0", t=0.0
    )
    progress.on_event(event, fold([event]))
    assert progress._status().plain.split(" · ")[0].endswith(told)
