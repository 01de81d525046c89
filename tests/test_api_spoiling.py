"""What a user's code does to what it is given changes nothing that the run decides by."""

from pathlib import Path
from typing import Any, cast

import pytest

import kept
from kept.adapters import gepa
from kept.core.artifact import Candidate
from kept.core.event import Event
from kept.core.proposal import Ask
from kept.core.rollout import Job, Pair
from kept.core.score import Outcome
from kept.core.state import State
from kept.errors import RunError

CASES = [str(n) for n in range(20)]


class Evaluate:
    """Measures how long a text is, and remembers texts that are not what their id says."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def __call__(self, candidate: Candidate, case: str) -> dict[str, float]:
        if Candidate(dict(candidate.texts)).id != candidate.id:
            self.wrong.append(candidate.text)
        return {"score": len(candidate.text), "words": len(candidate.text.split())}


def run(tmp_path: Path, evaluate: Evaluate, proposer: object, **more: Any) -> kept.Result:
    terms: dict[str, Any] = {"gate": "strict", "width": 1, "budget": 2, **more}
    return kept.optimize(
        "seed", evaluate, CASES, proposers=[cast("Any", proposer)], home=tmp_path, **terms
    )


def test_a_proposer_that_uses_one_dict_for_all_it_looks_at(tmp_path: Path):
    texts = {"text": ""}

    def propose(brief: kept.Brief) -> object:
        if not brief.answers:
            texts["text"] = "seed " + "x" * (brief.step + 1)
            made = Candidate(texts)
            return Ask(made.id, (Pair(brief.train[0].id, 0),), "probe", made=made)
        return dict(texts)

    evaluate = Evaluate()
    run(tmp_path, evaluate, propose, width=3, budget=6)
    assert evaluate.wrong == []


def test_a_candidate_that_is_no_longer_what_its_id_says_is_not_measured(tmp_path: Path):
    def propose(brief: kept.Brief) -> object:
        cast("dict[str, str]", brief.incumbent.texts)["text"] += " and more"
        pairs = (Pair(brief.train[0].id, 0),)
        return Ask(brief.incumbent.id, pairs, "probe", made=brief.incumbent)

    with pytest.raises(RunError, match="made a candidate of its own") as told:
        run(tmp_path, Evaluate(), propose)
    assert "is named by its own id" in str(told.value)


def test_a_proposer_that_takes_metrics_away_from_what_it_is_told(tmp_path: Path):
    told: list[dict[str, float]] = []

    def propose(brief: kept.Brief) -> object:
        if not brief.answers:
            return Ask(brief.incumbent.id, (Pair(brief.train[0].id, 0),), "feedback")
        (outcome,) = brief.answers[0].outcomes.values()
        told.append(dict(outcome.metrics))
        cast("dict[str, float]", outcome.metrics).clear()
        return "s"

    run(tmp_path, Evaluate(), propose)
    assert told == [{"score": 4.0, "words": 1.0}] * 2


class Scribbler:
    """A sink that writes into what it hears."""

    def on_event(self, event: Event, state: State) -> None:
        """Nothing to write into."""

    def on_rollout(self, job: Job, outcome: Outcome) -> None:
        cast("dict[str, float]", outcome.metrics)["score"] = -1.0


def test_a_sink_that_writes_into_what_it_hears(tmp_path: Path):
    found = run(tmp_path, Evaluate(), "seed longer", sinks=[Scribbler(), Scribbler()])
    assert (found.seed_value, found.best_value) == (4.0, 11.0)


class Tidy:
    """A guard that tidies up what it looks at, and forgets that it is not alone with it."""

    name = "tidy"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        for one in (seed, incumbent, candidate):
            cast("dict[str, str]", one.texts)["text"] = one.text[:2]
        return None


def test_a_guard_that_tidies_up_what_it_looks_at(tmp_path: Path):
    evaluate = Evaluate()
    found = run(tmp_path, evaluate, "seed longer", guards=[Tidy()])
    assert (found.seed_value, found.best_value) == (4.0, 11.0)
    assert evaluate.wrong == []


def test_an_evaluator_of_gepa_s_that_takes_the_answer_out_of_its_example(tmp_path: Path):
    answers: list[object] = []

    def evaluate(candidate: str, example: dict[str, Any]) -> float:
        answers.append(example.pop("answer", None))
        return len(candidate)

    def write(prompt: str) -> str:
        return "<new-text>\nlonger\n</new-text>"

    gepa.optimize_anything(
        "seed",
        evaluator=evaluate,
        dataset=[{"id": n, "answer": n} for n in range(20)],
        reflection_lm=write,
        max_metric_calls=300,
        home=tmp_path,
    )
    assert len(answers) > 20
    assert None not in answers
