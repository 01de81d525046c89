"""A run cut anywhere resumes to the same end, and repeats nothing whose result was written."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kept.core.near_misses import AHEAD
from kept.core.plan import Plan
from kept.core.state import State
from kept.gates._common import TIE
from kept.run import Watch, resume, start
from kept.store import codec
from kept.store.home import Home
from tests.engine.cutting import FILES, Home1, Moments, calls, cut, rows
from tests.engine.worlds import (
    CountingModel,
    CountingRunner,
    make_building,
    make_comparison,
    make_coordinate,
    make_coordinate_race,
    make_drawn,
    make_failing,
    make_final,
    make_plan,
    make_proof,
    make_race,
    make_repeats,
    make_simplification,
    make_ties,
    make_turning,
)
from tests.sampling import sample, some_or_all

pytestmark = pytest.mark.slow

SOME = 12
"""Cuts of a run that are tried in every run of the tests."""

Maker = Callable[[int, int, int], tuple[Plan, CountingRunner, CountingModel]]


class Finished(NamedTuple):
    """A run to its end, and how it is made again."""

    folder: Path
    whole: State
    moments: Moments
    how: tuple[int, int, int]
    """Width, steps and seed."""
    make: Maker

    @property
    def events(self) -> list[tuple[int, ...]]:
        """The sizes of its files after every event."""
        return [now for before, now in pairwise(self.moments.sizes) if now[0] > before[0]]

    def check_cuts(
        self, every: Iterable[tuple[int, ...]], everything: bool, size: int = SOME
    ) -> None:
        """Cut where its files had one of these sizes, it resumes to the same end."""
        for sizes in sample(every, size, everything):
            part = cut(self.folder, sizes, self.folder.parents[2] / "part")
            check_resume(part, *self.how, self.whole, self.make)


def finish(path: Path, width: int, steps: int, seed: int, make: Maker = make_plan) -> Finished:
    moments = Moments()
    plan, _, _ = make(width, steps, seed)
    folder, state = asyncio.run(start(plan, Home1(path, moments), Watch((moments,))))
    return Finished(folder, state, moments, (width, steps, seed), make)


def check_resume(
    part: Path, width: int, steps: int, seed: int, whole: State, make: Maker = make_plan
) -> None:
    before = rows(part)
    done = {row.entry()[0] for row in before if isinstance(row, codec.RolloutLine)}
    plan, runner, model = make(width, steps, seed)
    _, state = asyncio.run(resume(plan, part))
    assert state.settled() == whole.settled()
    assert not done & runner.calls.keys(), "a rollout whose result was written ran again"
    assert max(runner.finished.values(), default=0) <= 1
    after = calls(rows(part))
    assert max(after.values(), default=0) <= 1, "a call whose reply was written was made again"
    assert model.calls.total() == after.total() - calls(before).total()


@pytest.mark.parametrize("width", [1, 8])
@some_or_all
def test_a_run_cut_after_anything_it_wrote_resumes_to_the_same_end(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 14, 3
    run = finish(tmp_path / "home", width, steps, seed)
    whole = run.whole
    assert whole.keeps >= 2, "a run without keeps would not show a rebase"
    outcomes = {closed.verdict.outcome for closed in whole.history}
    assert outcomes >= {"keep", "discard", "skip"}
    inside = list(within_writes(run.folder, run.moments))
    assert inside, "no two results were written together"
    run.check_cuts(run.moments.sizes, everything, 30)
    run.check_cuts(inside, everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_a_race_cut_after_anything_it_wrote_resumes_to_the_same_end(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 16, 2
    run = finish(tmp_path / "home", width, steps, seed, make_race)
    whole = run.whole
    codes = {closed.verdict.code for closed in whole.history}
    assert codes >= {"near miss", "judged"}, codes
    assert whole.keeps, "a race without a keep would not show its proof"
    assert "prove" in {closed.turn.proposer for closed in whole.history}
    run.check_cuts(run.moments.sizes[:: 1 if width == 1 else 2], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_turns_by_what_proposers_have_brought_are_the_same_after_any_cut(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 10, 2
    run = finish(tmp_path / "home", width, steps, seed, make_drawn)
    whole = run.whole
    given = [tuple(step.turn.shares.values()) for step in whole.history if step.turn.shares]
    assert len(set(given)) > 2, "the shares moved with what came of the steps"
    assert any(row.usd and row.gain for row in whole.brought.values())
    # `settled` holds the turns of all closed steps, with their shares
    run.check_cuts(run.events[:: 1 if width == 1 else 3], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_turns_end_alike_after_any_cut_for_one_that_keeps_failing(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 10, 2
    run = finish(tmp_path / "home", width, steps, seed, make_failing)
    whole = run.whole
    assert 3 <= whole.brought["broken"].failed < 3 + width
    assert whole.history[-1].turn.proposer != "broken", "it has no more turns"
    run.check_cuts(run.events[:: 1 if width == 1 else 3], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_near_misses_are_built_on_alike_after_any_cut(width: int, everything: bool, tmp_path: Path):
    steps, seed = 14, 4
    run = finish(tmp_path / "home", width, steps, seed, make_building)
    whole = run.whole
    children = [one for one in whole.history if one.proposal and one.proposal.builds_on]
    assert children, "none was built on"
    run.check_cuts(run.events[:: 2 if width == 1 else 4], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_a_pool_that_is_proven_at_once_is_so_after_any_cut(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 10, 2
    run = finish(tmp_path / "home", width, steps, seed, make_proof)
    whole = run.whole
    (proven,) = (closed for closed in whole.history if closed.verdict.outcome == "keep")
    assert (proven.turn.proves, proven.verdict.best) == (True, True)
    assert whole.best == whole.incumbent != whole.seed
    run.check_cuts(run.moments.sizes[:: 2 if width == 1 else 3], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_a_final_has_the_same_winner_after_any_cut(width: int, everything: bool, tmp_path: Path):
    steps, seed = 5, 6
    run = finish(tmp_path / "home", width, steps, seed, make_final)
    whole = run.whole
    (kept,) = (closed for closed in whole.history if closed.verdict.outcome == "keep")
    assert (kept.turn.proves, whole.best) == (True, kept.candidate)
    told = [AHEAD in closed.verdict.numbers for closed in whole.history if closed.turn.proves]
    assert told == [True, False], "the first that is taken up hears that another won"
    assert whole.ledger.promotions == 1, "a final is one proof, however many hear of it"
    run.check_cuts(run.moments.sizes[:: 5 if width == 1 else 7], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_simplifications_are_judged_alike_after_any_cut(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 16, 2
    run = finish(tmp_path / "home", width, steps, seed, make_simplification)
    whole = run.whole
    told = {step.verdict.outcome for step in whole.history if step.turn.proposer == "trimmer"}
    assert {"discard", "keep"} <= told
    assert whole.ledger.cuts_kept, "none was kept, so that nothing is rebased on one"
    run.check_cuts(run.moments.sizes[:: 13 if width == 1 else 19], everything)


@pytest.mark.parametrize("width", [1, 3])
@some_or_all
def test_what_is_kept_for_costing_less_is_so_after_any_cut(
    width: int, everything: bool, tmp_path: Path
):
    run = finish(tmp_path / "home", width, 3, 2, make_ties)
    ties = [closed.verdict.outcome for closed in run.whole.history if TIE in closed.verdict.numbers]
    assert "keep" in ties
    run.check_cuts(run.moments.sizes[:: 17 if width == 1 else 23], everything)


@pytest.mark.parametrize("width", [1, 4])
@some_or_all
def test_a_run_without_cases_whose_runs_differ_is_the_same_after_any_cut(
    width: int, everything: bool, tmp_path: Path
):
    steps, seed = 8, 1
    run = finish(tmp_path / "home", width, steps, seed, make_repeats)
    whole = run.whole
    assert whole.keeps, "nothing was rebased"
    assert whole.ledger.varies
    run.check_cuts(run.moments.sizes[:: 7 if width == 1 else 13], everything)


@some_or_all
def test_a_run_in_which_it_shows_late_that_runs_differ_is_the_same_after_any_cut(
    everything: bool, tmp_path: Path
):
    steps, seed = 8, 8
    run = finish(tmp_path / "home", 4, steps, seed, make_turning)
    whole = run.whole
    differs = ["varies" in closed.verdict.numbers for closed in whole.history]
    assert differs == [False] + [True] * 7, "what was open is judged anew"
    assert whole.keeps
    run.check_cuts(run.moments.sizes[::11], everything)


@pytest.mark.parametrize("width", [1, 3])
@some_or_all
def test_a_comparison_cut_after_anything_it_wrote_comes_to_the_same_answers(
    width: int, everything: bool, tmp_path: Path
):
    run = finish(tmp_path / "home", width, 3, 4, make_comparison)
    whole = run.whole
    codes = [closed.verdict.code for closed in whole.history]
    assert codes == ["better", "cannot tell", "worse"]
    assert whole.incumbent == whole.best == whole.seed, "a comparison changes nothing"
    run.check_cuts(run.moments.sizes[:: 3 if width == 1 else 5], everything)


@pytest.mark.parametrize(
    ("make", "width", "every"),
    [
        (make_coordinate, 1, 1),
        (make_coordinate, 3, 3),
        (make_coordinate_race, 1, 2),
        (make_coordinate_race, 3, 4),
    ],
)
@some_or_all
def test_coordinate_descent_goes_through_the_same_phases_after_any_cut(
    make: Maker, width: int, every: int, everything: bool, tmp_path: Path
):
    run = finish(tmp_path / "home", width, 4, 3, make)
    whole = run.whole
    phases = list(dict.fromkeys(closed.turn.phase for closed in whole.history))
    assert phases[:3] == ["baseline", "c1/first", "c1/second"]
    assert whole.keeps, "nothing was kept, so that no phase began from anything but the seed"
    run.check_cuts(run.events[::every], everything)


def within_writes(folder: Path, moments: Moments) -> Iterator[tuple[int, ...]]:
    """Sizes after each line but the last of what was written in one go."""
    data = (folder / "rollouts.jsonl").read_bytes()
    for before, after in pairwise(moments.sizes):
        at = data.find(b"\n", before[1], after[1]) + 1
        while 0 < at < after[1]:
            yield (before[0], at, *after[2:])
            at = data.find(b"\n", at, after[1]) + 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3, 8])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.nightly)])
@some_or_all
def test_many_runs_cut_after_anything_they_wrote_resume_to_the_same_end(
    width: int, seed: int, everything: bool, tmp_path: Path
):
    steps = 24
    run = finish(tmp_path / "home", width, steps, seed)
    run.check_cuts(run.moments.sizes[::7], everything)


@some_or_all
def test_a_run_cut_in_the_middle_of_a_line_resumes_to_the_same_end(
    everything: bool, tmp_path: Path
):
    run = finish(tmp_path / "home", 4, 10, 1)
    folder, whole, moments = run.folder, run.whole, run.moments
    for before, sizes in sample(list(pairwise(moments.sizes))[1::4], SOME, everything):
        # a killed process tears the line it was writing: of the file that grew, the last written
        last = next(at for at in (0, 1) if sizes[at] != before[at])
        torn = tuple(size - 3 if at == last else size for at, size in enumerate(sizes))
        part = cut(folder, torn, tmp_path / "part")
        plan, _, _ = make_plan(4, 10, 1)
        _, state = asyncio.run(resume(plan, part))
        assert state.settled() == whole.settled()
        assert (part / f"{FILES[last]}.torn").exists()


@some_or_all
def test_a_run_resumed_twice_resumes_to_the_same_end(everything: bool, tmp_path: Path):
    run = finish(tmp_path / "home", 5, 12, 2)
    folder, whole, moments = run.folder, run.whole, run.moments
    third = moments.sizes[len(moments.sizes) // 3]
    part = cut(folder, third, tmp_path / "part")
    again = Moments()
    again.folder = part
    plan, _, _ = make_plan(5, 12, 2)
    asyncio.run(resume(plan, part, Watch((again,))))
    for sizes in sample(again.sizes[::5], SOME, everything):
        check_resume(cut(part, sizes, tmp_path / "second"), 5, 12, 2, whole)


def test_the_end_does_not_depend_on_how_many_rollouts_are_in_flight(tmp_path: Path):
    ends: list[State] = []
    for workers in (1, 2, 30):
        plan, _, _ = make_plan(4, 12, 5)
        object.__setattr__(plan, "workers", workers)
        ends.append(asyncio.run(start(plan, Home(tmp_path / str(workers)))).state.settled())
    assert ends[0] == ends[1] == ends[2]
