"""The scorer of agent tests: which metrics are in force, what they sum up to, what passes."""

import time

import pytest

from kept.core.case import Case
from kept.core.llm import failed
from kept.core.ports import Model, Scorer
from kept.core.rollout import Failure, Rollout
from kept.models.scripted import ScriptedModel
from kept.testing import ScorerSuite
from tests.evaluators.metrics.talking import (
    Row,
    measured,
    score,
    score_or_failure,
    scorer,
    talk,
    told,
)

EQUALITY = {"metric": "equality"}
CODED = {"metric": "numeric", "response_path": "answer.value"}


class TestDialogueScorer(ScorerSuite):
    """By the rules of every scorer."""

    def make_scorer(self) -> Scorer:
        return scorer([EQUALITY, {"metric": "numeric"}, {"metric": "rouge"}])

    def rollouts(self) -> list[Rollout]:
        return [talk("7"), talk(""), talk(("x", [("t", {}, "r")]))._replace(metrics={"n": 1.0})]

    def strange_rollouts(self) -> list[Rollout]:
        return [*super().strange_rollouts(), talk("a", "b"), talk("\x00{[\ufffd")]

    def case(self) -> Case:
        return Case("case", {"input": "?", "ground_truth": "7", "expected_tools": ["t"]})


def test_an_empty_answer_is_scored_and_does_not_pass():
    """Bug 1: answering nothing on 18 of 20 cases came to a loss of 0 and 20 passes."""
    metrics = [EQUALITY, {"metric": "numeric"}, {"metric": "bleu"}, {"metric": "rouge"}]
    found = score(scorer([*metrics, {"metric": "meteor"}]), talk(""), {"ground_truth": "7"})
    assert found.failure is None
    names = ("equality", "numeric", "bleu", "rouge", "meteor", "passed")
    assert found.metrics == dict.fromkeys(names, 0.0)


@pytest.mark.parametrize("answer", ["{broken", '{"answer": {}}', "", '{"answer": {"value": [1]}}'])
def test_an_answer_without_the_value_is_the_candidates_failure_however_many_turns(answer: str):
    """Bug 2: it counted for nothing in one turn, so breaking the format paid, and 0 in several."""
    case = {"ground_truth": "7"}
    one = score(scorer([CODED]), talk(answer), case)
    assert one.metrics == {"numeric": 0.0, "passed": 0.0}
    good = '{"answer": {"value": 7}}'
    several = score(scorer([CODED]), talk(good, answer), {"turns": [case, case]})
    assert several.metrics == {"numeric": 0.5, "passed": 0.0}
    for found, exchange in ((one, 0), (several, 1)):
        row = told(found, "numeric", exchange)
        assert (row["score"], row["passed"], row["blame"]) == (0.0, False, "candidate")
        assert row["error"]
        assert found.failure is None


def test_no_threshold_lets_a_broken_answer_pass():
    found = score(scorer([{**CODED, "threshold": 0.0}]), talk("{broken"), {"ground_truth": "7"})
    assert found.metrics == {"numeric": 0.0, "passed": 0.0}


def test_a_value_is_measured_where_its_path_says():
    found = score(scorer([CODED]), talk('{"answer": {"value": 7.0}}'), {"ground_truth": "7"})
    assert found.metrics == {"numeric": 1.0, "passed": 1.0}


def test_a_score_of_0_counts_in_the_mean():
    """Bug 3: zeros were dropped, so 10 right of 20 were told as 1.0."""
    turns = [{"input": "?", "ground_truth": "7"}] * 4
    found = score(scorer([EQUALITY]), talk("7", "7", "no", "no"), {"turns": turns})
    assert found.metrics == {"equality": 0.5, "passed": 0.0}
    assert [item.data["score"] for item in measured(found)] == [1.0, 1.0, 0.0, 0.0]


def test_what_is_switched_off_is_not_measured():
    """Bug 13: `enabled: false` was ignored, except of code."""
    rows: list[Row] = [
        {"metric": "equality", "enabled": False},
        {"metric": "fluency", "enabled": False},
        {"type": "geval", "name": "g", "criteria": "c", "enabled": False},
        {"type": "rag", "metric_type": "faithfulness", "enabled": False},
        {"type": "code", "grader": "nowhere:f", "enabled": False},
    ]
    found = score(scorer(rows), talk("no"), {"ground_truth": "7"})
    assert (found.metrics, measured(found)) == ({"passed": 1.0}, [])


def test_two_metrics_of_a_name_keep_their_own_settings():
    """Bug 13: both had the tolerance of the last."""
    metrics = [{"metric": "numeric", "absolute_tolerance": far} for far in (0.01, 1.0)]
    for order in (metrics, metrics[::-1]):
        found = score(scorer(order), talk("7.5"), {"ground_truth": "7"})
        values = [float(row["absolute_tolerance"] == 1.0) for row in order]
        assert found.metrics == {"numeric": values[0], "numeric_2": values[1], "passed": 0.0}


def test_nothing_that_only_compares_asks_for_a_judge():
    """Bug 14: with `evaluations.model` half set up, equality, numeric, bleu and rouge raised."""

    def unready(own: object) -> Model | None:
        raise RuntimeError("Azure AI metrics require an endpoint and a key")

    metrics = [{"metric": name} for name in ("equality", "numeric", "bleu", "rouge", "meteor")]
    own = {"provider": "azure_openai", "name": "judge"}
    one = scorer([{**metric, "model": own} for metric in metrics], judge_of=unready)
    found = score(one, talk("7"), {"ground_truth": "7"})
    assert found.failure is None
    assert found.metrics["passed"] == 1.0 and found.metrics.keys() > {"bleu", "rouge"}


def test_metrics_of_a_turn_replace_those_of_its_case_and_these_the_agents():
    turns = [{"ground_truth": "7", "evaluations": [{"metric": "numeric"}]}, {"ground_truth": "7"}]
    case: Row = {"turns": turns, "evaluations": [{"metric": "bleu"}]}
    found = score(scorer([EQUALITY]), talk("7", "7"), case)
    assert [(item.data["metric"], item.data["exchange"]) for item in measured(found)] == [
        ("numeric", 0),
        ("bleu", 1),
    ]
    single = {"ground_truth": "7", "evaluations": [{"metric": "numeric"}]}
    assert score(scorer([EQUALITY]), talk("7"), single).metrics.keys() == {"numeric", "passed"}
    assert score(
        scorer([EQUALITY]), talk("7"), {"ground_truth": "7", "evaluations": []}
    ).metrics == {"passed": 1.0}


@pytest.mark.parametrize(
    ("metric", "answer", "passed"),
    [
        # a threshold decides alone
        ({"metric": "bleu", "threshold": 0.4}, "the cat sat", 0.0),
        ({"metric": "bleu", "threshold": 0.3}, "the cat sat", 1.0),
        ({"metric": "equality", "threshold": 0.0}, "no", 1.0),
        # without one, what the metric itself thinks
        ({"metric": "equality"}, "no", 0.0),
        # and without that, anything above 0
        ({"metric": "bleu"}, "the cat sat", 1.0),
        ({"metric": "bleu"}, "nothing", 0.0),
    ],
)
def test_a_metric_passes_by_its_threshold_else_by_itself_else_above_0(
    metric: Row, answer: str, passed: float
):
    case = {"ground_truth": "the cat sat on the mat"}
    assert score(scorer([metric]), talk(answer), case).metrics["passed"] == passed


def test_a_case_without_a_truth_is_not_measured_by_it_and_the_others_are():
    turns = [{"ground_truth": "7"}, {"input": "and?"}]
    found = score(scorer([EQUALITY]), talk("7", "8"), {"turns": turns})
    assert found.metrics == {"equality": 1.0, "passed": 1.0}
    row = told(found, "equality", 1)
    assert (row["score"], row["passed"], row["blame"]) == (None, None, "")
    assert row["error"] == ""
    assert measured(found)[1].text == "not measured: the case has no `ground_truth`"


def test_what_did_not_pass_is_found_with_its_reason():
    turns = [{"ground_truth": "7"}, {"ground_truth": "7"}]
    metrics = [EQUALITY, {"metric": "bleu", "threshold": 0.5}]
    found = score(scorer(metrics), talk("7", "8"), {"turns": turns})
    assert [(f.text, f.severity, f.metric) for f in found.findings] == [
        ("turn 2, equality 0.00: `8` is not what was expected", "high", "equality"),
        ("turn 2, bleu 0.00, 0.5 needed", "high", "bleu"),
    ]


def test_an_agent_that_came_to_no_answer_is_measured_no_further():
    own = Failure("limit", "candidate", "no answer after 20 replies")
    rollout = talk(("so far", [("t", {}, "")]))
    rollout = rollout._replace(trace=(*rollout.trace, failed(own)))
    model = ScriptedModel([])
    turns = [{"expected_tools": ["t"]}, {"input": "never said"}]
    found = score(scorer([{"metric": "fluency"}], model), rollout, {"turns": turns})
    assert found.failure == own and found.metrics == {}
    assert [item.role for item in found.details] == ["tools"]
    assert model.calls == 0


def test_a_conversation_that_is_not_that_of_its_case_is_a_failure_of_the_harness():
    for rollout in (Rollout(), talk("a", "b")):
        found = score_or_failure(scorer([EQUALITY]), rollout, {"ground_truth": "a"})
        assert isinstance(found, Failure) and found.blame == "infrastructure"


def test_measures_of_the_runner_stay():
    rollout = talk("7")._replace(metrics={"seconds": 2.0})
    found = score(scorer([EQUALITY]), rollout, {"ground_truth": "7"})
    assert found.metrics == {"seconds": 2.0, "equality": 1.0, "passed": 1.0}


def test_a_number_in_the_yaml_is_a_truth_too():
    assert score(scorer([EQUALITY]), talk("7"), {"ground_truth": 7}).metrics["passed"] == 1.0


def test_an_answer_of_50_mb_holds_nobody_up():
    huge = "1 " * 25_000_000
    metrics = [{"metric": name} for name in ("equality", "numeric", "bleu", "rouge", "meteor")]
    tools = [{"name": "t", "args": {"x": one}} for one in ({"fuzzy": "1"}, {"regex": "(1 ?)+2"}, 1)]
    case = {"ground_truth": "1", "expected_tools": tools}
    began = time.monotonic()
    found = score(scorer(metrics), talk((huge, [("t", {"x": huge}, huge)])), case)
    assert set(found.metrics.values()) == {0.0}
    assert told(found, "rouge")["error"] == "50000000 characters are too many to compare"
    assert len(str(found.findings)) + len(str(measured(found))) < 20_000
    # seconds, where comparing would take minutes
    assert time.monotonic() - began < 10
