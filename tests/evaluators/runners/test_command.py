import asyncio
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.ports import Runner
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.engine.replay import JournalScope
from kept.evaluators.runners.command import CommandRunner
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Command
from kept.sandbox.workspace import Scratch
from kept.testing import MemoryJournal, RunnerSuite
from tests.processes import is_gone, read_pid

CANDIDATE = Candidate({"prompt.md": "hello\n"})
CASE = Case("case-1", {"question": "1 + 1"})


class Setup:
    """A runner with a journal, in a folder."""

    def __init__(self, line: str, cwd: Path, *, seconds: float = 10, limit: int = 10_000) -> None:
        self.journal = MemoryJournal()
        self.scratch = Scratch()
        self.runner = CommandRunner(Command(line, cwd, seconds), self.scratch, limit)

    def run(self, case: Case = CASE, repeat: int = 0) -> Rollout | Failure:
        job = Job(CANDIDATE.id, case.id, repeat, "decide")

        async def once() -> Rollout | Failure:
            try:
                scope = JournalScope(self.journal, job)
                return await self.runner.run(job, CANDIDATE, case, scope)
            finally:
                await self.runner.close()

        return asyncio.run(once())

    def rollout(self, case: Case = CASE) -> Rollout:
        found = self.run(case)
        assert isinstance(found, Rollout), found
        return found

    def failure(self) -> Failure:
        found = self.run()
        assert isinstance(found, Failure), found
        return found


class TestCommandRunner(RunnerSuite):
    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        # found out before, for it takes longer than a command to start
        abilities()

    def make(self, line: str) -> Runner:
        return CommandRunner(Command(line, self.folder), Scratch())

    def make_runner(self) -> Runner:
        return self.make("cp $KEPT_CANDIDATE/* $KEPT_OUTPUT")

    def make_crashing_runner(self) -> Runner:
        return self.make("exit 1")

    def make_hanging_runner(self) -> Runner:
        return self.make("echo $$ > pid; sleep 100 & wait")

    def begun(self) -> bool:
        path = self.folder / "pid"
        return path.exists() and bool(path.read_text().strip())

    def still_running(self) -> object:
        return not is_gone(read_pid(self.folder / "pid"))


def test_a_command_finds_candidate_case_and_output_in_its_environment(tmp_path: Path):
    line = 'cat "$KEPT_CANDIDATE/prompt.md" "$KEPT_CASE" > "$KEPT_OUTPUT/both.txt"'
    rollout = Setup(f"{line}; echo hi; echo ho >&2", tmp_path).rollout()
    assert dict(rollout.files) == {"both.txt": b'hello\n{"question": "1 + 1"}'}
    assert rollout.output == "hi\n"
    assert rollout.trace == (TraceItem("stdout", "hi\n"), TraceItem("stderr", "ho\n"))


def test_without_cases_there_is_no_case_variable(tmp_path: Path):
    rollout = Setup('echo "${KEPT_CASE-none}"', tmp_path).rollout(IMPLICIT_CASE)
    assert rollout.output == "none\n"


def test_a_command_runs_in_the_folder_it_is_given(tmp_path: Path):
    assert Setup("pwd -P", tmp_path).rollout().output == f"{tmp_path.resolve()}\n"


def test_an_exit_status_is_the_candidates_crash(tmp_path: Path):
    failure = Setup("echo first >&2; echo 'KeyError: x' >&2; exit 7", tmp_path).failure()
    assert failure == Failure("crash", "candidate", "exit 7: KeyError: x", "first\nKeyError: x\n")


def test_a_signal_is_the_candidates_crash(tmp_path: Path):
    assert Setup("kill -KILL $$", tmp_path).failure() == Failure(
        "crash", "candidate", "killed by SIGKILL"
    )


def test_a_timeout_is_the_candidates(tmp_path: Path):
    failure = Setup("echo slow >&2; sleep 100", tmp_path, seconds=0.2).failure()
    assert failure == Failure("timeout", "candidate", "no end after 0.2 seconds", "slow\n")


@pytest.mark.parametrize(
    "line", ["no-such-command-at-all", "./not-executable", "env no-such-command-at-all"]
)
def test_a_command_that_cannot_be_run_is_no_candidates_fault_and_not_tried_again(
    line: str, tmp_path: Path
):
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    failure = Setup(line, tmp_path).failure()
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert not failure.retryable
    assert line in failure.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sh wants.sh", "exit 127: wants.sh: 1: no-such-tool: not found"),
        ("python -c 'raise SystemExit(127)'", "exit 127"),
        ("exit 126", "exit 126"),
    ],
)
def test_a_candidate_that_asks_for_what_is_not_there_is_to_blame_for_that(
    line: str, message: str, tmp_path: Path
):
    (tmp_path / "wants.sh").write_text("no-such-tool\n")
    failure = Setup(line, tmp_path).failure()
    assert (failure.kind, failure.blame, failure.message) == ("crash", "candidate", message)


def test_too_much_output_is_the_candidates_fault(tmp_path: Path):
    failure = Setup("head -c 20000 /dev/zero > $KEPT_OUTPUT/zeros", tmp_path).failure()
    assert (failure.kind, failure.blame) == ("limit", "candidate")


def test_a_link_in_the_output_is_told_in_the_trace(tmp_path: Path):
    rollout = Setup("ln -s nowhere $KEPT_OUTPUT/p", tmp_path).rollout()
    assert dict(rollout.files) == {}
    assert rollout.trace == (TraceItem("info", "left out of the output: `p`: a symbolic link"),)


def test_scratch_folders_are_gone_after_the_rollout_and_after_closing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    assert Setup("echo $KEPT_OUTPUT", tmp_path).rollout().output.startswith(str(scratch))
    assert Setup("exit 1", tmp_path).failure()
    assert list(scratch.iterdir()) == []


def test_a_full_or_missing_disk_is_an_outage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    failure = Setup("exit 0", tmp_path).failure()
    assert failure.blame == "infrastructure"
    assert failure.retryable


def test_an_execution_is_one_call_and_is_not_repeated(tmp_path: Path):
    setup = Setup("echo x >> runs; cat runs > $KEPT_OUTPUT/runs", tmp_path)
    first = setup.rollout()
    assert setup.rollout() == first
    assert (tmp_path / "runs").read_text() == "x\n"
    setup.run(repeat=1)
    assert (tmp_path / "runs").read_text() == "x\nx\n"


def test_a_crash_is_not_repeated_either(tmp_path: Path):
    setup = Setup("echo x >> runs; exit 1", tmp_path)
    assert setup.failure() == setup.failure()
    assert (tmp_path / "runs").read_text() == "x\n"


def test_what_could_not_be_run_is_tried_again_by_the_next_sitting(tmp_path: Path):
    setup = Setup("./tool", tmp_path)
    assert setup.failure().blame == "infrastructure"
    (tmp_path / "tool").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "tool").chmod(0o755)
    assert setup.rollout()


def test_the_key_of_a_call_has_no_clock_pid_or_folder_in_it(tmp_path: Path):
    first, second = (Setup("echo hi", tmp_path / name) for name in ("a", "b"))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    first.rollout()
    second.journal = first.journal
    (tmp_path / "b").rmdir()
    assert second.rollout().output == "hi\n"


@pytest.mark.parametrize(("named", "blame"), [(None, "candidate"), (75, "infrastructure")])
def test_an_exit_code_excuses_nobody_unless_the_task_names_it(
    tmp_path: Path, named: int | None, blame: str
):
    setup = Setup("exit 75", tmp_path)
    setup.runner = CommandRunner(Command("exit 75", tmp_path, 10), setup.scratch, retry_exit=named)
    assert setup.failure().blame == blame
