"""Metrics that a judge decides: what it is asked, and what its answers come to."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure, Job
from kept.engine.replay import JournalScope
from kept.models.scripted import ScriptedModel
from kept.testing import MemoryJournal
from tests.evaluators.metrics.talking import (
    CANDIDATE,
    Row,
    judge,
    measured,
    score,
    scorer,
    shown,
    talk,
    told,
)

CASE = {"ground_truth": "Paris is the capital.", "retrieval_context": ["one", "two", "three"]}
OUTAGE = Failure("server", "infrastructure", "it is down")


def grade(n: int, **more: Any) -> str:
    return json.dumps({**more, "reason": "because", "grade": n})


@pytest.mark.parametrize("metric", ["groundedness", "relevance", "coherence", "fluency"])
def test_a_grade_is_a_share_of_the_greatest_and_is_kept_as_it_was_given(metric: str):
    model = ScriptedModel([grade(4)], name="judge")
    found = score(scorer([{"metric": metric, "threshold": 0.8}], model), talk("Paris."), CASE)
    assert found.metrics == {metric: 0.8, "passed": 1.0}
    row = told(found, metric)
    assert row["details"] == {"grade": 4, "scale": 5}
    assert (row["model"], row["passed"], row["threshold"]) == ("judge", True, 0.8)
    assert [item.text for item in measured(found)] == ["because"]
    system = model.requests[0].messages[0].text
    assert "from 1 (worst) to 5 (best)" in system
    seen = {"input": "question 0", "answer": "Paris."}
    if metric == "groundedness":
        seen |= {"passage-1": "one", "passage-2": "two", "passage-3": "three"}
    assert shown(model.requests[0]) == seen


def test_a_threshold_above_1_is_one_of_the_grades():
    for least, passed in ((4, 1.0), (5, 0.0)):
        model = ScriptedModel([grade(4)])
        metric = {"metric": "fluency", "threshold": least}
        assert score(scorer([metric], model), talk("x"), CASE).metrics["passed"] == passed


def test_scale_and_custom_prompt_are_used():
    """Bug 13: `custom_prompt` was dead."""
    model = ScriptedModel([grade(7)])
    metric = {"metric": "fluency", "scale": 10, "custom_prompt": "Mark up to {{kept.scale}}."}
    found = score(scorer([metric], model), talk("x"), CASE)
    assert found.metrics["fluency"] == 0.7
    assert model.requests[0].messages[0].text.startswith("Mark up to 10.")


def test_a_prompt_of_the_users_own_stands_for_kepts():
    model = ScriptedModel([grade(5)])
    one = scorer([{"metric": "fluency"}], model, prompts={"fluency": "Read it aloud."})
    score(one, talk("x"), CASE)
    assert model.requests[0].messages[0].text.startswith("Read it aloud.")


def test_geval_goes_through_the_steps_and_shows_what_it_is_told_to():
    model = ScriptedModel([grade(7)])
    metric = {
        "type": "geval",
        "name": "Correct",
        "criteria": "It agrees with what was expected.",
        "evaluation_steps": ["Read both.", "Compare them."],
        "evaluation_params": ["input", "actual_output", "expected_output", "retrieval_context"],
    }
    found = score(scorer([metric], model), talk("Paris."), CASE)
    assert found.metrics == {"Correct": 0.7, "passed": 1.0}
    system = model.requests[0].messages[0].text
    assert "It agrees with what was expected." in system
    assert "1. Read both.\n2. Compare them." in system
    assert shown(model.requests[0]) == {
        "input": "question 0",
        "answer": "Paris.",
        "expected": "Paris is the capital.",
        "passage-1": "one",
        "passage-2": "two",
        "passage-3": "three",
    }
    assert "steps" not in json.dumps(model.requests[0].schema)


def test_geval_without_steps_has_the_judge_say_them_first_and_shows_the_answer_alone():
    model = ScriptedModel([grade(4, steps=["look"])])
    metric = {"type": "geval", "name": "Kind", "criteria": "It is kind."}
    found = score(scorer([metric], model), talk("Dear friend."), CASE)
    # without a threshold half of it is enough
    assert found.metrics == {"Kind": 0.4, "passed": 0.0}
    assert list(model.requests[0].schema["properties"]) == ["steps", "reason", "grade"]  # pyright: ignore[reportArgumentType] # a mapping
    assert shown(model.requests[0]) == {"answer": "Dear friend."}


def test_strict_geval_is_all_or_nothing():
    for said, value in ((1, 1.0), (0, 0.0)):
        model = ScriptedModel([grade(said, steps=[])])
        metric = {"type": "geval", "name": "K", "criteria": "x", "strict_mode": True}
        found = score(scorer([{**metric, "threshold": 0.2}], model), talk("x"), CASE)
        assert found.metrics == {"K": value, "passed": value}
        assert '"enum": [0, 1]' in json.dumps(model.requests[0].schema)


def rag(kind: str, say: Any, answer: str = "The answer.", case: Row = CASE, **given: Any):
    model = judge(say)
    metric = {"type": "rag", "metric_type": kind, **given}
    return score(scorer([metric], model), talk(answer), case), model


def says(statements: list[str], no: set[str]):
    """A judge that finds these statements, and says no to some of them."""

    def say(seen: dict[str, str]) -> dict[str, object]:
        piece = seen.get("statement") or seen.get("passage")
        if piece is None:
            return {"statements": statements}
        return {"reason": f"{piece}?", "verdict": "no" if piece in no else "yes"}

    return say


# by hand: 3 of 4; 1 of 2; (1/1 + 2/3) / 2; 2 of 3; 1 of 4
VECTORS: list[tuple[str, list[str], set[str], float]] = [
    ("faithfulness", ["a", "b", "c", "d"], {"c"}, 3 / 4),
    ("answer_relevancy", ["a", "b"], {"a"}, 1 / 2),
    ("contextual_precision", [], {"two"}, (1 / 1 + 2 / 3) / 2),
    ("contextual_recall", ["a", "b", "c"], {"c"}, 2 / 3),
    ("contextual_relevancy", ["a", "b", "c", "d"], {"a", "b", "c"}, 1 / 4),
]


@pytest.mark.parametrize(("kind", "statements", "no", "value"), VECTORS)
def test_a_rag_metric_counts_what_a_judge_says_one_by_one(
    kind: str, statements: list[str], no: set[str], value: float
):
    found, model = rag(kind, says(statements, no))
    assert found.metrics[kind] == pytest.approx(value)
    assert found.metrics["passed"] == float(value >= 0.5)
    pieces = len(statements) or 3
    assert model.calls == pieces + bool(statements)
    verdicts = told(found, kind)["details"]["verdicts"]
    assert [one["holds"] for one in verdicts].count(False) == len(no)


@pytest.mark.parametrize(
    ("kind", "taken_apart", "beside"),
    [
        ("faithfulness", {"text"}, {"passage-1", "passage-2", "passage-3", "statement"}),
        ("answer_relevancy", {"text"}, {"input", "statement"}),
        ("contextual_recall", {"text"}, {"passage-1", "passage-2", "passage-3", "statement"}),
        ("contextual_relevancy", {"passage-1", "passage-2", "passage-3"}, {"input", "statement"}),
        ("contextual_precision", None, {"input", "expected", "passage"}),
    ],
)
def test_a_judge_sees_what_the_metric_is_about_and_no_more(
    kind: str, taken_apart: set[str] | None, beside: set[str]
):
    _, model = rag(kind, says(["a"], set()))
    seen = [shown(request) for request in model.requests]
    if taken_apart is not None:
        first = seen.pop(0)
        assert first.keys() == taken_apart
        wanted = {"contextual_recall": "Paris is the capital."}.get(kind, "The answer.")
        assert first.get("text", wanted) == wanted
    assert all(one.keys() == beside for one in seen)


@pytest.mark.parametrize(
    ("holds", "value"),
    [
        ([True, True, True], 1.0),
        ([False, False, True], 1 / 3),
        ([True, False, True], (1 + 2 / 3) / 2),
        ([False, True, True], (1 / 2 + 2 / 3) / 2),
        ([False, False], 0.0),
    ],
)
def test_precision_weighs_useful_passages_by_their_rank(holds: list[bool], value: float):
    passages = [f"p{n}" for n in range(len(holds))]
    no = {name for name, one in zip(passages, holds, strict=True) if not one}
    case = {**CASE, "retrieval_context": passages}
    found, _ = rag("contextual_precision", says([], no), case=case)
    assert found.metrics["contextual_precision"] == pytest.approx(value)


def test_saying_nothing_and_finding_nothing_do_not_pay():
    """Bug 1: an empty answer won, and so would one that claims nothing of which all is true."""
    for kind in ("faithfulness", "answer_relevancy"):
        for answer in ("", " \n", "Well."):
            found, model = rag(kind, says([], set()), answer)
            assert found.metrics == {kind: 0.0, "passed": 0.0}
            assert model.calls == bool(answer.strip())
    for kind in ("faithfulness", "contextual_precision", "contextual_relevancy"):
        found, model = rag(kind, says(["a"], set()), case={**CASE, "retrieval_context": []})
        assert found.metrics == {kind: 0.0, "passed": 0.0}
        assert model.calls == 0


def test_an_empty_answer_has_the_worst_score_of_every_judged_metric():
    """Bug 1: an empty answer was not scored, and passed."""
    metrics = [
        *({"metric": name} for name in ("groundedness", "relevance", "coherence", "fluency")),
        {"type": "geval", "name": "g", "criteria": "c"},
    ]
    found = score(scorer(metrics, ScriptedModel([])), talk(""), CASE)
    assert found.failure is None
    assert set(found.metrics.values()) == {0.0} and len(found.metrics) == 6


def test_passages_are_those_of_the_case_else_those_that_tools_found():
    def say(seen: dict[str, str]) -> dict[str, object]:
        return says([], {"second"})(seen)

    rollout = talk(("x", [("search", {}, "…", ("first", "second")), ("add", {}, "7")]))
    metric = {"type": "rag", "metric_type": "contextual_precision"}
    for own, passages in ((None, ["first", "second"]), (["own"], ["own"])):
        case = {"ground_truth": "y", "retrieval_context": own}
        model = judge(say)
        score(scorer([metric], model), rollout, case)
        assert [shown(request)["passage"] for request in model.requests] == passages


def test_reasons_are_left_out_where_nobody_wants_them_and_tell_no_expected_answer():
    found, _ = rag("faithfulness", says(["a", "b"], {"b"}))
    assert measured(found)[0].text == "1 of 2 statements of the answer are supported; b?"
    found, _ = rag("faithfulness", says(["a", "b"], {"b"}), include_reason=False)
    assert measured(found)[0].text == ""
    found, _ = rag("contextual_recall", says(["Paris is the capital"], {"Paris is the capital"}))
    assert "Paris" not in str(measured(found)) + str(found.findings)


def test_a_judge_that_fails_is_tried_again_and_then_nobodys_score():
    """Bug 13: `retry_on_failure` was dead."""
    for retries, failing in ((1, 1), (3, 3), (0, 0)):
        model = ScriptedModel([grade(5)])
        model.fail(OUTAGE, failing)
        metric = {"metric": "fluency", "retry_on_failure": retries}
        found = score(scorer([metric], model), talk("x"), CASE)
        assert found.metrics["fluency"] == 1.0
        assert told(found, "fluency")["tries"] == failing + 1
    model = ScriptedModel([grade(5)] * 9)
    model.fail(OUTAGE, 3)
    metrics = [{"metric": "fluency", "retry_on_failure": 2}, {"metric": "equality"}]
    found = score(scorer(metrics, model), talk("x"), {"ground_truth": "x"})
    row = told(found, "fluency")
    assert (row["score"], row["passed"], row["tries"]) == (None, None, 3)
    assert row["blame"] == "infrastructure" and "it is down" in row["error"]
    # the other metric is measured all the same, and the case has no verdict
    assert told(found, "equality")["score"] == 1.0
    assert found.metrics == {"equality": 1.0}
    failure = found.failure
    assert failure is not None and (failure.kind, failure.blame) == ("server", "infrastructure")
    assert failure.message.startswith("`fluency`: the judge `scripted`: ")
    assert not failure.retryable


def test_one_verdict_that_cannot_be_had_leaves_no_share_of_the_others():
    def say(request: ModelRequest) -> str | Failure:
        seen = shown(request)
        if seen.get("statement") == "b":
            return OUTAGE
        return json.dumps(says(["a", "b"], set())(seen))

    model = ScriptedModel(say)
    metric = {"type": "rag", "metric_type": "faithfulness"}
    found = score(scorer([metric], model), talk("x"), CASE)
    assert found.failure is not None and found.metrics == {}
    # the statements once, each verdict once, and the one that failed once more
    assert model.calls == 4


def test_nonsense_of_a_judge_is_not_the_candidates_failure():
    found = score(scorer([{"metric": "fluency"}], ScriptedModel(["nonsense"] * 4)), talk("x"), CASE)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.blame) == ("parse", "infrastructure")


def test_what_a_judge_said_is_written_down_and_not_asked_again():
    model = judge(says(["a", "b"], {"b"}))
    metrics = [{"type": "rag", "metric_type": "faithfulness"}, {"metric": "equality"}]
    journal = MemoryJournal()
    case, job = Case("c", CASE), Job(CANDIDATE.id, "c", 0, "decide")
    found = [
        asyncio.run(
            scorer(metrics, model).score(
                job, talk("x"), CANDIDATE, case, JournalScope(journal, job)
            )
        )
        for _ in range(2)
    ]
    assert model.calls == 3
    assert found[0] == found[1]


class Slow:
    name = "slow"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        await asyncio.sleep(30)
        raise AssertionError


def test_a_judge_that_takes_too_long_is_given_up():
    """Bug 13: `timeout_ms` was dead."""
    metric = {"metric": "fluency", "timeout_ms": 50, "retry_on_failure": 0}
    found = score(scorer([metric], Slow()), talk("x"), CASE)
    assert found.failure is not None and found.failure.kind == "timeout"
    assert told(found, "fluency")["seconds"] < 10


def test_a_metric_that_must_not_fail_ends_the_case():
    """Bug 13: `fail_on_error` was dead; bug 15: where it was not, it ended the whole suite."""
    rows = [
        {"metric": "equality"},
        {"metric": "fluency", "fail_on_error": True, "retry_on_failure": 0},
        {"metric": "coherence"},
    ]
    for must, heard in ((True, ["equality", "fluency"]), (False, [r["metric"] for r in rows])):
        model = ScriptedModel([grade(5)])
        model.fail(OUTAGE)
        metrics = [rows[0], {**rows[1], "fail_on_error": must}, rows[2]]
        found = score(scorer(metrics, model), talk("x"), CASE)
        assert [item.data["metric"] for item in measured(found)] == heard
        assert found.failure is not None


def test_without_a_judge_a_judged_metric_says_so():
    def nobody(_: Mapping[str, object] | None) -> None:
        return None

    found = score(scorer([{"metric": "fluency"}], judge_of=nobody), talk("x"), CASE)
    assert found.failure is not None and "no model to judge" in found.failure.message


def test_each_metric_is_judged_by_its_own_model_where_it_names_one():
    models = {"all": ScriptedModel([grade(5)], name="all"), "mine": ScriptedModel([grade(1)])}

    def judge_of(own: Mapping[str, object] | None) -> Model:
        return models["mine" if own == {"name": "mine"} else "all"]

    metrics = [{"metric": "fluency"}, {"metric": "coherence", "model": {"name": "mine"}}]
    found = score(scorer(metrics, judge_of=judge_of), talk("x"), CASE)
    assert found.metrics == {"fluency": 1.0, "coherence": 0.2, "passed": 1.0}
    assert told(found, "coherence")["model"] == "scripted"
