"""R33: a deterministic phase runs a command, and nothing in it can reach a model."""

import asyncio
import inspect
from pathlib import Path

import pytest

from kept.agents.checks import deterministic
from kept.agents.checks.deterministic import DeterministicPhase, Invariant, PhaseEnd, run_phase

pytestmark = pytest.mark.slow


def run(folder: Path, command: str, *invariants: Invariant, seconds: float = 20.0) -> PhaseEnd:
    phase = DeterministicPhase(command=command, invariants=invariants, seconds=seconds)
    return asyncio.run(run_phase(phase, folder))


def test_r33_a_deterministic_phase_reaches_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-value")
    tries = (
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 2)\""
        " 2>net.txt; env > env.txt"
    )
    assert run(tmp_path, tries).status == "complete"
    assert "sk-very-secret-value" not in (tmp_path / "env.txt").read_text()
    assert "Error" in (tmp_path / "net.txt").read_text()
    # it is given nothing to ask a model with, and imports nothing that could
    assert list(inspect.signature(run_phase).parameters) == ["phase", "folder"]
    assert "kept.models" not in inspect.getsource(deterministic)


@pytest.mark.parametrize(
    ("invariant", "holds"),
    [
        (Invariant(kind="file_exists", path="a.txt"), True),
        (Invariant(kind="file_exists", path="b.txt"), False),
        (Invariant(kind="file_exists", path="../a.txt"), False),
        (Invariant(kind="file_size_range", path="a.txt", least=2, most=9), True),
        (Invariant(kind="file_size_range", path="a.txt", least=9), False),
        (Invariant(kind="file_size_range", path="a.txt", most=2), False),
        (Invariant(kind="regex_absent", path="a.txt", pattern="TODO"), True),
        (Invariant(kind="regex_absent", path="a.txt", pattern="^hello"), False),
        (Invariant(kind="regex_present", path="a.txt", pattern="^hello"), True),
        (Invariant(kind="regex_present", path="a.txt", pattern="TODO"), False),
        (Invariant(kind="exit_code", equals=0), True),
        (Invariant(kind="exit_code", equals=3), False),
        (Invariant(kind="python_predicate", expression="open('a.txt').read() == 'hello\\n'"), True),
        (Invariant(kind="python_predicate", expression="1 / 0"), False),
        (Invariant(kind="file_exist", path="a.txt"), False),
    ],
)
def test_r33_each_of_the_six_invariants_holds_or_not_and_an_unknown_one_does_not(
    tmp_path: Path, invariant: Invariant, holds: bool
):
    end = run(tmp_path, "echo hello > a.txt", invariant)
    assert end.status == ("complete" if holds else "partial")
    assert bool(end.violations) != holds


def test_r33_a_phase_that_does_not_end_is_partial(tmp_path: Path):
    assert run(tmp_path, "sleep 30", seconds=0.5).status == "partial"


def test_r33_a_phase_that_fails_has_failed(tmp_path: Path):
    end = run(tmp_path, "echo broken >&2; exit 3")
    assert (end.status, end.code) == ("failed", 3)
    assert "broken" in end.output


def test_r33_an_exit_code_that_was_expected_is_no_failure(tmp_path: Path):
    assert run(tmp_path, "exit 3", Invariant(kind="exit_code", equals=3)).status == "complete"
