"""R33 in a run: phases without any model come first, each of them once."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kept.core.rollout import Failure
from kept.orchestrator.checks.execution import DeterministicPhase, Invariant
from kept.orchestrator.events import story
from kept.orchestrator.toolkit import Kit
from kept.sandbox.command import Exit
from kept.testing import MemoryJournal
from tests.orchestrator.play import Came, Play, finished, kit_of, run_agent, simple

COUNTS = DeterministicPhase(
    name="counts",
    command="wc -c input/in.txt > counts.txt",
    invariants=(Invariant(kind="file_exists", path="counts.txt"),),
)


class Shell:
    """Does what a line says, without a shell: how a phase ends is what is looked at here."""

    def __init__(self, code: int = 0, wrote: str = "counts.txt", late: bool = False) -> None:
        self.code, self.wrote, self.late = code, wrote, late
        self.ran: list[str] = []

    async def __call__(
        self, line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        self.ran.append(line)
        left = {**files, self.wrote: b"2"} if self.wrote else files
        return Exit(self.code, stdout="", stderr="", timed_out=self.late), left


def _kit(play: Play, shell: Shell, *phases: DeterministicPhase) -> Kit:
    return replace(kit_of(play), phases=phases or (COUNTS,), runs_on=shell)


def _run(kit: Kit, journal: MemoryJournal | None = None) -> Came:
    return finished(run_agent(kit, inputs={"in.txt": b"12"}, journal=journal))


def test_r33_phases_come_before_the_manager_who_sees_what_they_left() -> None:
    play, shell = simple(), Shell()
    came = _run(_kit(play, shell))
    assert came.record.status == "complete" and shell.ran == [COUNTS.command]
    assert "* counts.txt (1 bytes)" in play.heard[0][1]
    assert "phase counts is complete, changed counts.txt" in story(came.record)


@pytest.mark.parametrize(
    ("shell", "status", "reason"),
    [
        (Shell(code=3), "failed", "phase_failed: counts: exit 3"),
        (Shell(late=True), "partial", "phase_partial: counts: still running after 60 s"),
        (Shell(wrote=""), "partial", "phase_partial: counts: `counts.txt` is not there"),
    ],
)
def test_r33_a_phase_that_does_not_come_to_what_it_must_ends_the_run_before_anybody_is_asked(
    shell: Shell, status: str, reason: str
) -> None:
    play = simple()
    record = _run(_kit(play, shell, COUNTS, replace(COUNTS, name="never"))).record
    assert record.status == status and record.reason.startswith(reason)
    assert play.heard == [] and len(shell.ran) == 1


def test_r33_a_resume_does_not_run_a_phase_again() -> None:
    whole = _run(_kit(simple(), Shell()))
    for cut in range(len(whole.journal.records)):
        journal = whole.journal.reopened(cut)
        journal.tail(0)
        shell = Shell()
        again = _run(_kit(simple(), shell), journal)
        assert again.files == whole.files and again.record.phases == whole.record.phases
        assert len(shell.ran) == (cut < 3), "what was given, the beginning, and then the phase"
