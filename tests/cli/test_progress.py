"""Progress: cheap, silent on trouble, and the terminal as it was afterwards."""

import io
import time

import pytest
from rich.console import Console

from kept.cli.live import LiveProgress
from kept.cli.progress import PlainProgress, Progress, progress_on
from kept.core.ports import Journal, Sink
from kept.core.rollout import Job
from kept.core.score import Outcome
from kept.testing import SinkSuite

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
    start = time.perf_counter()
    for _ in range(20_000):
        progress.on_rollout(JOB, outcome)
    assert time.perf_counter() - start < 0.2
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
