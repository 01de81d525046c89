"""R33: a deterministic phase runs a command, and nothing in it can reach a model."""

import asyncio
import inspect
from collections.abc import Iterator, Mapping

import pytest

from kept.core.rollout import Failure
from kept.evaluators.tools.python_code import Bench
from kept.orchestrator.checks import execution
from kept.orchestrator.checks.execution import (
    DeterministicPhase,
    Invariant,
    PhaseEnd,
    RunsOn,
    run_phase,
)
from kept.recipes.agent_run.make_toolkit import runs_on
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Exit
from kept.sandbox.workspace import Scratch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


@pytest.fixture
def on() -> Iterator[RunsOn]:
    """As in an agent run: in the sandbox, on copies."""
    scratch = Scratch()
    yield runs_on(Bench(scratch=scratch))
    scratch.close()


def run(on: RunsOn, command: str, *invariants: Invariant, seconds: float = 20.0) -> PhaseEnd:
    phase = DeterministicPhase(command=command, invariants=invariants, seconds=seconds)
    end = asyncio.run(run_phase(phase, {"given.txt": b"1"}, on))
    assert isinstance(end, PhaseEnd)
    return end


def test_r33_a_deterministic_phase_reaches_no_model(on: RunsOn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret-value")
    tries = (
        "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9), 2)\""
        " 2>net.txt; env > env.txt"
    )
    end = run(on, tries)
    assert end.status == "complete"
    assert b"sk-very-secret-value" not in end.files["env.txt"]
    assert b"Error" in end.files["net.txt"] and end.files["given.txt"] == b"1"
    # it is given nothing to ask a model with, and imports nothing that could
    assert list(inspect.signature(run_phase).parameters) == ["phase", "files", "run"]
    assert "kept.models" not in inspect.getsource(execution)


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
    on: RunsOn, invariant: Invariant, holds: bool
):
    end = run(on, "echo hello > a.txt", invariant)
    assert end.status == ("complete" if holds else "partial")
    assert bool(end.violations) != holds


def test_r33_a_phase_that_does_not_end_is_partial(on: RunsOn):
    assert run(on, "sleep 30", seconds=0.5).status == "partial"


def test_r33_a_phase_that_fails_has_failed(on: RunsOn):
    end = run(on, "echo broken >&2; exit 3")
    assert (end.status, end.code) == ("failed", 3)
    assert "broken" in end.output


def test_r33_an_exit_code_that_was_expected_is_no_failure(on: RunsOn):
    assert run(on, "exit 3", Invariant(kind="exit_code", equals=3)).status == "complete"


def test_r33_a_predicate_that_could_not_be_run_is_no_broken_invariant():
    away = Failure("harness", "infrastructure", "no sandbox could be made")

    async def on(
        line: str, files: Mapping[str, bytes], seconds: float
    ) -> tuple[Exit | Failure, Mapping[str, bytes]]:
        return (Exit(0, "", "") if line == "true" else away), files

    invariant = Invariant(kind="python_predicate", expression="True")
    phase = DeterministicPhase(command="true", invariants=(invariant,))
    assert asyncio.run(run_phase(phase, {}, on)) == away


def test_a_pattern_that_never_ends_breaks_its_invariant_in_time(on: RunsOn):
    hostile = Invariant(kind="regex_absent", path="a.txt", pattern="(a+)+$")
    end = run(on, "printf '%040d!' 0 | tr 0 a > a.txt", hostile, seconds=1.0)
    assert end.status == "partial"
    assert end.violations == ("looking for `(a+)+$` in `a.txt` takes more than 1 s",)
