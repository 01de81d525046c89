"""A run whose seed has no score goes on, as a candidate may mend that, and says so at the end."""

from pathlib import Path

import pytest

import kept
from kept.core.budget import StopReason
from kept.core.event import RunStarted
from kept.core.objective import Objective
from kept.core.rollout import Failure, Pair
from kept.core.score import Outcome, summarize
from kept.core.state import fold
from kept.engine.stop import true_end

CASES = [f"case {n}" for n in range(20)]


def runs_when_mended(candidate: kept.Candidate) -> float:
    if "broken" in candidate.text:
        raise SyntaxError("unexpected end of file")
    return 1.0


def fails_on_odd_cases(candidate: kept.Candidate, case: str) -> float:
    if candidate.text == "seed" and int(case.split()[1]) % 2:
        raise ValueError(f"cannot read {case}")
    return 0.5


def last_run(home: Path) -> kept.Run:
    (folder,) = (home / "runs").iterdir()
    return kept.read_run(folder)


@pytest.mark.parametrize("bounds", [None, (0.0, 1.0)])
def test_where_neither_seed_nor_candidate_runs_the_end_is_an_error_that_names_the_cause(
    bounds: tuple[float, float] | None, tmp_path: Path
):
    with pytest.raises(kept.RunError) as caught:
        kept.optimize(
            "broken", runs_when_mended, proposers=["broken 2"], bounds=bounds, home=tmp_path
        )
    assert caught.value.message.startswith(
        "the seed fails, and nothing was kept (every proposer has run dry): "
        "SyntaxError: unexpected end of file ("
    )
    with last_run(tmp_path) as run:
        assert run.status == "stopped by an error"


def test_a_limit_that_ends_such_a_run_does_not_hide_the_cause(tmp_path: Path):
    texts = ["broken 2", "broken 3"]
    with pytest.raises(kept.RunError, match=r"\(the only iteration is used\): SyntaxError"):
        kept.optimize("broken", runs_when_mended, proposers=texts, budget=1, home=tmp_path)


def test_candidates_may_mend_a_seed_that_fails(tmp_path: Path):
    texts = ["broken 2", "fine"]
    result = kept.optimize("broken", runs_when_mended, proposers=texts, home=tmp_path)
    assert (result.best.text, result.seed_value, result.best_value) == ("fine", None, 1.0)


def test_candidates_that_run_and_are_worth_nothing_do_not_make_up_for_the_seed(tmp_path: Path):
    def worthless(candidate: kept.Candidate) -> float:
        return runs_when_mended(candidate) - 1

    with pytest.raises(kept.RunError, match="the seed fails, and nothing was kept"):
        kept.optimize("broken", worthless, proposers=["fine"], bounds=(0, 1), home=tmp_path)


def test_a_seed_that_fails_on_some_cases_is_compared_by_the_worst_value(tmp_path: Path):
    result = kept.optimize(
        "seed", fails_on_odd_cases, CASES, proposers=["other"], bounds=(0, 1), home=tmp_path
    )
    assert result.improved
    assert result.seed_value is not None
    assert 0 < result.seed_value < 0.5


@pytest.mark.parametrize("gate", ["strict", "race"])
def test_without_bounds_it_is_told_after_one_step_that_nothing_can_be_compared(
    gate: str, tmp_path: Path
):
    texts = [f"other {n}" for n in range(9)]
    with pytest.raises(kept.RunError) as caught:
        kept.optimize(
            "seed",
            fails_on_odd_cases,
            CASES,
            proposers=texts,
            gate="race" if gate == "race" else "strict",
            home=tmp_path,
            width=1,
        )
    assert "rollouts of the seed failed, and `score` has no bounds" in caught.value.message
    assert "ValueError: cannot read case" in caught.value.message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("pass bounds=(least, greatest)")
    with last_run(tmp_path) as run:
        assert len(run.steps) == 1


def test_a_seed_that_nothing_was_compared_with_is_no_error(tmp_path: Path):
    result = kept.optimize("broken", runs_when_mended, proposers=["broken"], home=tmp_path)
    assert result.stopped.kind == "nothing left to propose"


def test_only_what_cut_a_run_short_stays_the_reason():
    start = RunStarted(run_id="r", recipe="x", seed="s", inputs={}, version="0", t=0.0)
    crash = Outcome(failure=Failure("crash", "candidate", "exit 1"))
    seed = summarize("s", "decide", [(Pair("a", 0), crash)], Objective())
    state = fold([start])._replace(evaluations={"s": (seed,)})
    for reason in (StopReason("interrupted", "on request"), StopReason("error", "disk full")):
        assert true_end(state, reason) is reason
    assert true_end(state, StopReason("usd", "no money")).kind == "error"


def test_steps_that_roll_out_nothing_do_not_hide_that_nothing_runs(tmp_path: Path):
    # a duplicate among the first steps, as most functions propose some
    texts = ["broken 2", "broken 2", *(f"broken {n}" for n in range(3, 20))]
    with pytest.raises(kept.RunError, match="neither the seed nor any candidate runs"):
        kept.optimize("broken", runs_when_mended, proposers=texts, home=tmp_path, width=1)
    with last_run(tmp_path) as run:
        assert [step.outcome for step in run.steps] == ["crash", "skip", "crash", "crash"]


def test_a_resume_that_mends_nothing_ends_after_one_more_candidate(tmp_path: Path):
    texts = [f"broken {n}" for n in range(20)]

    def go_on(resume: str | None) -> int:
        with pytest.raises(kept.RunError, match="neither the seed nor any candidate runs"):
            kept.optimize(
                *("broken", runs_when_mended),
                proposers=texts,
                home=tmp_path,
                width=1,
                resume=resume,
            )
        with last_run(tmp_path) as run:
            return len(run.steps)

    assert go_on(None) == 3
    assert go_on("last") == 4


def test_a_candidate_that_runs_shows_that_the_crashes_are_the_candidates_doing(tmp_path: Path):
    def refuses_some(candidate: kept.Candidate) -> dict[str, float]:
        return {"score": runs_when_mended(candidate) - 1}

    texts = ["broken 2", "fine", "broken 3", "broken 4", "broken 5"]
    with pytest.raises(kept.RunError, match=r"nothing was kept \(every proposer has run dry\)"):
        kept.optimize("broken", refuses_some, proposers=texts, bounds=(0, 1), home=tmp_path)


@pytest.mark.parametrize(
    ("answer", "told", "hint"),
    [
        (7.0, "the evaluator gives no score that can be used: `score` is 7, outside", "bounds=("),
        ({"points": 0.5}, "gives no score that can be used: the scorer did not emit", "metric=…"),
        ("many", "the evaluator does not answer: evaluate returned 'many'", "kept show"),
    ],
)
def test_a_measure_that_cannot_be_used_is_told_by_its_cause(
    answer: object, told: str, hint: str, tmp_path: Path
):
    def evaluate(candidate: kept.Candidate) -> object:
        return answer

    with pytest.raises(kept.RunError) as caught:
        kept.optimize("seed", evaluate, proposers=["other"], bounds=(0, 1), home=tmp_path)
    assert told in caught.value.message
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("budget", [1, 2, 50])
def test_a_run_in_which_every_proposal_failed_is_an_error_that_names_the_proposer(
    budget: int, tmp_path: Path
):
    def wise(brief: kept.Brief) -> object:
        return 42

    def evaluate(candidate: kept.Candidate) -> float:
        return 1.0

    with pytest.raises(kept.RunError, match="the proposer `wise` failed: it returned 42"):
        kept.optimize("seed", evaluate, proposers=[wise], budget=budget, home=tmp_path)
