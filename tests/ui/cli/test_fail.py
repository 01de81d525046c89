"""Errors: told in words, with the right exit code, never as a traceback."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

import click
import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.plan import Plan
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, ProposerReply
from kept.core.rollout import Failure, Job, Pair, Rollout
from kept.errors import JournalError, KeptError, Problem, SpecError
from kept.recipes.registry import compile_spec
from kept.store.home import Home
from kept.ui.cli._command import CutShortError, exit_code_of
from kept.ui.cli._run import How, run_session, session_of
from tests.ui.cli.tasks import kept, write_task


def told(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = exit_code_of(error)
    captured = capsys.readouterr()
    assert captured.out == ""
    return code, captured.err


def test_an_error_is_told_with_its_hint_behind_a_blank_line(capsys: pytest.CaptureFixture[str]):
    error = KeptError("no such thing", hint="look elsewhere")
    assert told(error, capsys) == (2, "error: no such thing\n\nhint: look elsewhere\n")


def test_every_problem_of_a_spec_has_a_line(capsys: pytest.CaptureFixture[str]):
    error = SpecError([Problem("a.yaml:1", "x", "bad"), Problem("a.yaml:2", "", "worse", "mend")])
    assert told(error, capsys) == (
        2,
        "error: a.yaml:1 x: bad\nerror: a.yaml:2 worse (hint: mend)\n",
    )


def test_a_bug_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str]):
    code, text = told(ZeroDivisionError("by nought"), capsys)
    assert code == 2
    assert text.startswith("error: internal error: ZeroDivisionError: by nought\n\nhint: ")
    assert "KEPT_DEBUG=1" in text
    assert "Traceback" not in text


def test_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError) as caught:
        raise ZeroDivisionError("by nought")
    _, text = told(caught.value, capsys)
    assert text.startswith("Traceback")
    assert "test_fail.py" in text
    assert "hint: " not in text


def test_an_error_of_a_run_under_way_exits_with_3_and_the_resume_command(
    capsys: pytest.CaptureFixture[str],
):
    error = CutShortError(JournalError("the disk is full", hint="free some"), "kept resume x")
    assert told(error, capsys) == (
        3,
        "error: the disk is full\n\nhint: free some\nhint: `kept resume x` goes on where it"
        " stopped\n",
    )


def test_ctrl_c_outside_a_run_exits_with_130(capsys: pytest.CaptureFixture[str]):
    assert told(click.Abort(), capsys) == (130, "interrupted\n")


@dataclass(frozen=True)
class NosyProposer:
    """Asks for the cases that decide, which ends a run."""

    name: str = "variants"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        return Ask(brief.incumbent.id, (Pair("all", 0),), "decide")


class BuggyRunner:
    """Raises what no runner should."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        raise ZeroDivisionError("by nought")

    async def close(self) -> None:
        pass


def plan_here(here: Path) -> Plan:
    return compile_spec(write_task(here)).plan


@pytest.mark.parametrize("fault", ["proposer", "runner"])
def test_an_error_in_the_middle_of_a_run_leaves_a_report_and_names_the_way_on(
    here: Path, fault: str
):
    plan = plan_here(here)
    if fault == "proposer":
        plan = replace(plan, proposers=(NosyProposer(),))
    else:
        plan = replace(plan, runner=BuggyRunner())
    with pytest.raises(CutShortError) as caught:
        run_session(plan, Home.find(here), session_of(plan, How(quiet=True)))
    (folder,) = Home.find(here).folders()
    assert caught.value.resume == f"kept resume {folder.name}"
    assert "stopped by an error" in (folder / "report.md").read_text()


def test_an_error_before_the_run_began_is_not_cut_short(here: Path):
    (here / "in-the-way").write_text("")
    with pytest.raises(JournalError):
        plan = plan_here(here)
        run_session(plan, Home(here / "in-the-way"), session_of(plan, How(quiet=True)))


@pytest.mark.slow
@pytest.mark.parametrize("args", [["--help"], ["optimize", "--help"], ["optimize", "task.yaml"]])
def test_a_reader_that_goes_away_is_no_error(here: Path, args: list[str]):
    write_task(here)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kept", *args],
        cwd=here,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if line and line[:4] not in STEPS] == []


@pytest.mark.slow
def test_a_reader_of_notes_that_goes_away_stops_no_run(here: Path):
    write_task(here)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "kept", "optimize", "task.yaml"],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stdout.startswith("score 1 → 3")


@pytest.mark.slow
def test_output_that_cannot_be_written_is_an_error_in_words(here: Path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kept", "--help"],
            cwd=here,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "error: cannot write the output: No space left on device\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", ["gone", "closed"])
def test_a_command_without_readers_ends_with_the_code_of_its_work(here: Path, how: str):
    write_task(here)
    assert kept("optimize", "task.yaml", "-q").code == 0
    reader, writer = os.pipe()
    os.close(reader)
    for code, line in ((0, "runs"), (0, "eval task.yaml --json"), (2, "show no-such-run --json")):
        words = [sys.executable, "-m", "kept", *line.split()]
        if how == "closed":
            words = ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", *words]
        done = subprocess.run(words, cwd=here, stdout=writer, stderr=writer, check=False)
        assert (line, done.returncode) == (line, code)
    os.close(writer)


@pytest.mark.slow
def test_notes_that_cannot_be_written_stop_no_run(here: Path):
    write_task(here)
    command = [sys.executable, "-m", "kept", "optimize", "task.yaml"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, cwd=here, stdout=subprocess.PIPE, stderr=full, text=True, check=False
        )
    assert done.returncode == 0
    assert done.stdout.startswith("score 1 → 3")


@pytest.mark.slow
def test_pages_are_served_without_a_reader_of_the_link(here: Path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "kept", "view", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, cwd=here, stdout=writer, stderr=writer)
    os.close(writer)
    try:
        for _ in range(300):
            with suppress(OSError), closing(HTTPConnection("127.0.0.1", port, 5)) as asked:
                asked.request("GET", "/")
                assert asked.getresponse().status == 401
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


STEPS = ("task", "run ", "step")
"""What the lines of progress begin with."""
