"""What a metric is told, and the key that its score is told by."""

from typing import Any

import pytest

from kept.evaluators.metrics.config import (
    CodeMetric,
    GEvalMetric,
    RagMetric,
    StandardMetric,
    keyed,
    read_metric,
    read_metrics,
)
from kept.evaluators.metrics.evaluate import faults_of, lack_of


def test_each_kind_is_read_by_the_names_of_the_yaml():
    assert read_metrics(
        [
            {"type": "standard", "metric": "numeric", "absolute_tolerance": 0.5, "threshold": None},
            {"metric": "bleu"},
            {"type": "geval", "name": "Tone", "criteria": "kind", "evaluation_params": ["input"]},
            {"type": "rag", "metric_type": "faithfulness"},
            {"type": "code", "grader": "graders:check"},
            {"type": "code", "grader": "graders:check", "name": "mine", "fail_on_error": True},
        ]
    ) == (
        StandardMetric(metric="numeric", absolute_tolerance=0.5),
        StandardMetric(metric="bleu"),
        GEvalMetric(called="Tone", criteria="kind", evaluation_params=("input",)),
        RagMetric(metric_type="faithfulness", threshold=0.5),
        CodeMetric(grader="graders:check"),
        CodeMetric(grader="graders:check", called="mine", fail_on_error=True),
    )


def test_a_kind_that_nobody_says_is_told_by_what_only_it_has():
    rows = [{"grader": "a:b"}, {"metric_type": "faithfulness"}, {"name": "n", "criteria": "c"}]
    assert [metric.kind for metric in read_metrics(rows)] == ["code", "rag", "geval"]


def test_a_key_or_a_kind_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="has no `treshold`"):
        read_metric({"metric": "bleu", "treshold": 1})
    with pytest.raises(ValueError, match="type `llm`"):
        read_metric({"type": "llm"})


def test_scores_are_told_by_the_measure_its_type_its_name_or_its_function():
    metrics = read_metrics(
        [
            {"metric": "bleu"},
            {"type": "geval", "name": "Tone", "criteria": "kind"},
            {"type": "rag", "metric_type": "faithfulness"},
            {"type": "code", "grader": "graders:check"},
            {"type": "code", "grader": "graders:check", "name": "mine"},
        ]
    )
    assert [key for key, _ in keyed(metrics)] == ["bleu", "Tone", "faithfulness", "check", "mine"]


def test_a_second_metric_of_a_name_is_told_apart_and_none_is_called_passed():
    metrics = read_metrics(
        [
            {"metric": "numeric"},
            {"type": "geval", "name": "numeric_2", "criteria": "x"},
            {"metric": "numeric", "enabled": False},
            {"metric": "numeric"},
            {"type": "geval", "name": "passed", "criteria": "x"},
        ]
    )
    assert [key for key, _ in keyed(metrics)] == ["numeric", "numeric_2", "numeric_3", "passed_2"]


def test_faults_are_found_before_anything_is_spent():
    def fault(**given: object) -> list[str]:
        return [key for key, _ in faults_of(read_metric(given))]

    assert fault(metric="fluency", scale=1) == ["scale"]
    assert fault(metric="bleu", scale=1) == []
    assert fault(type="rag", metric_type="faithfulness") == []


def test_what_a_case_lacks_is_found_before_anything_is_spent():
    def lack(turn: dict[str, object], *, retrieves: bool = True, **given: object) -> str | None:
        return lack_of(read_metric(given), turn, retrieves=retrieves)

    bare: dict[str, object] = {"input": "x"}
    assert lack(bare, metric="bleu") == "no `ground_truth`"
    assert lack({"ground_truth": "seven"}, metric="numeric") == "a `ground_truth` that is no number"
    assert lack({"ground_truth": 7}, metric="numeric") is None
    assert lack(bare, metric="fluency") is None
    assert lack(bare, type="rag", metric_type="contextual_recall") == "no `ground_truth`"
    rag: dict[str, Any] = {"type": "rag", "metric_type": "faithfulness"}
    assert lack(bare, **rag) is None
    assert "no tool that finds any" in str(lack(bare, retrieves=False, **rag))
    assert "no tool" in str(lack({"retrieval_context": []}, **rag))
    assert lack({"retrieval_context": ["x"]}, retrieves=False, **rag) is None
    wants = ["expected_output"]
    assert lack(bare, type="geval", name="g", criteria="c", evaluation_params=wants) is not None
    assert lack(bare, type="geval", name="g", criteria="c") is None
