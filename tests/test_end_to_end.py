"""A whole run in a world whose truth is known: what is kept must be better, and truly so.

The check is shown gates that do not look, and must fail for each of them: a test that passes
whatever the gate does would say nothing.
"""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.budget import Budget
from kept.core.case import Case
from kept.core.ports import Gate
from kept.gates.seed_rules import Selection, Strict
from kept.gates.sigma import Sigma
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import (
    AcceptAll,
    Pool,
    RejectAll,
    ScriptedEvaluator,
    ScriptedProposer,
    small_plan,
)

POOL = Pool()
MARGIN = 0.25
"""Three of the four good lines, and a rounding error."""


@dataclass(frozen=True)
class Ended:
    """Where a run left its folder."""

    seed: Candidate
    best: Candidate
    files: str
    """What stands in `best/`."""


def run(gate: Gate, home: Path, width: int = 1) -> Ended:
    """Forty proposals, drawn from good, useless and harmful lines alike."""
    runner = ScriptedEvaluator(quality=POOL.quality)
    plan = small_plan(runner, ScriptedProposer(lines=POOL.lines))
    plan = replace(plan, gate=gate, width=width, budget=Budget(max_iterations=40))
    folder, _ = asyncio.run(start(plan, Home(home)))
    reader = Run(folder)
    files = (folder / "best" / "text").read_text(encoding="utf-8")
    ended = Ended(reader.seed, reader.best, files)
    reader.close()
    return ended


def check(ended: Ended) -> None:
    """What a user is promised: the best is truly better, and no harm came with it."""
    any_case = Case("one nobody has seen")
    before = POOL.quality(ended.seed, any_case)
    after = POOL.quality(ended.best, any_case)
    assert after >= before + MARGIN, f"{before:g} → {after:g} is no real gain"
    lines = ended.best.text.splitlines()
    assert not set(lines) & set(POOL.harmful), "something harmful was kept"
    assert len(lines) == len(set(lines)), "something was added twice"
    assert ended.files == ended.best.text, "`best/` is not the best"


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("gate", [Strict(), Selection(), Sigma()], ids=lambda gate: gate.name)
def test_a_run_ends_truly_better_and_without_harm(gate: Gate, width: int, tmp_path: Path):
    ended = run(gate, tmp_path, width)
    check(ended)
    assert not set(ended.best.text.splitlines()) & set(POOL.useless), "something useless was kept"


@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_the_check_fails_for_a_gate_that_does_not_look(gate: Gate, tmp_path: Path):
    with pytest.raises(AssertionError):
        check(run(gate, tmp_path))


def test_the_seed_is_left_as_it_was(tmp_path: Path):
    assert run(Strict(), tmp_path).seed.text == "a seed\n"


def test_the_same_run_ends_the_same(tmp_path: Path):
    assert run(Strict(), tmp_path / "one") == run(Strict(), tmp_path / "two", width=4)
