import asyncio
import json
import math
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.engine.replay import JournalScope
from kept.evaluators.scorers.command import CommandScorer, Fields, read_score
from kept.sandbox.command import Command
from kept.sandbox.workspace import Scratch
from kept.testing import MemoryJournal, ScorerSuite

CANDIDATE = Candidate({"prompt.md": "hello\n"})
CASE = Case("case-1", {"answer": 2})
EMPTY = Rollout()


def score(line: str, cwd: Path, rollout: Rollout = EMPTY, seconds: float = 10) -> Score | Failure:
    job = Job(CANDIDATE.id, CASE.id, 0, "decide")
    scratch = Scratch()
    scorer = CommandScorer(Command(line, cwd, seconds), scratch)
    scope = JournalScope(MemoryJournal(), job)
    try:
        return asyncio.run(scorer.score(job, rollout, CANDIDATE, CASE, scope))
    finally:
        scratch.close()


class TestCommandScorer(ScorerSuite):
    @pytest.fixture(autouse=True)
    def _in_a_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = tmp_path
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make_scorer(self) -> Scorer:
        line = """printf '{"score": %d}' $(cat $KEPT_OUTPUT/* | wc -c)"""
        return CommandScorer(Command(line, self.folder), Scratch())

    def rollouts(self) -> list[Rollout]:
        return [Rollout(files={"a": b"12", "b": b"3"}), Rollout(files={"deep": b""})]


def test_a_scorer_sees_output_candidate_and_case_in_a_fresh_folder(tmp_path: Path):
    line = "cat $KEPT_OUTPUT/a/o $KEPT_CANDIDATE/* $KEPT_CASE >&2; rm -r $KEPT_OUTPUT; false"
    rollout = Rollout(files={"a/o": b"out\n"})
    failure = score(line, tmp_path, rollout)
    assert isinstance(failure, Failure)
    assert failure.detail == 'out\nhello\n{"answer": 2}'
    assert score(line, tmp_path, rollout) == failure


def test_the_object_printed_is_the_score_whatever_else_is_said(tmp_path: Path):
    line = """echo 'loading {x}'; echo '{"score": 0.5, "length": 3}'; echo 'bye {"a": 1}'"""
    assert score(line, tmp_path) == Score({"score": 0.5, "length": 3.0})


def test_what_the_runner_measured_stays_unless_the_scorer_measures_it_too(tmp_path: Path):
    rollout = Rollout(metrics={"seconds": 2.0, "score": 0.0})
    assert score("""echo '{"score": 1}'""", tmp_path, rollout) == Score(
        {"seconds": 2.0, "score": 1.0}
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("echo oops >&2; exit 2", "the scorer failed: exit 2: oops"),
        ("no-such-scorer", "exit 127"),
        ("echo nothing", "no JSON object but 'nothing'"),
        ("true", "no JSON object"),
        ("echo '[1, 2]'", "no JSON object"),
        ("""echo '{"score": 1'""", "no JSON object"),
        ("sleep 100", "did not end within 0.3 seconds"),
        ("""echo '{"metrics": 3}'""", "`metrics` is 3, not an object"),
        ("""echo '{"metrics": {"a": "x"}}'""", "`metrics.a` is 'x', not a number"),
        ("""echo '{"score": "9"}'""", "`score` is '9', not a number"),
        ("""echo '{"score": 1}'; echo '{"score": 2}'""", "printed 2 JSON objects, where one was"),
        ("""echo '{"score": 0, "score": 1}'""", "the key `score` stands twice in one object"),
        ("""echo '{"score": null}'""", "`score` is None, not a number"),
        ("""echo '{"findings": "x"}'""", "`findings` is 'x', not a list"),
        ("""echo '{"findings": [{"text": "x", "severity": "dire"}]}'""", "a finding is"),
        ("""echo '{"findings": [3]}'""", "a finding is 3"),
    ],
)
def test_a_scorer_that_does_not_work_is_no_candidates_fault(line: str, words: str, tmp_path: Path):
    failure = score(line, tmp_path, seconds=0.3 if "sleep" in line else 10)
    assert isinstance(failure, Failure)
    assert words in failure.message
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert not failure.retryable


@pytest.mark.parametrize(
    ("printed", "metrics"),
    [
        (
            {"score": 0.7, "metrics": {"length": 3, "ok": True}},
            {"score": 0.7, "length": 3, "ok": 1},
        ),
        ({"score": True, "late": False, "note": "text"}, {"score": 1, "late": 0}),
        ({"score": 1, "metrics": {"score": 2}}, {"score": 1}),
        ({}, {}),
    ],
)
def test_numbers_and_booleans_are_measures(printed: dict[str, object], metrics: dict[str, float]):
    assert read_score(printed, EMPTY) == Score(metrics)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_a_primary_metric_that_is_no_number_means_that_the_candidate_has_no_score(number: str):
    failure = read_score(json.loads(f'{{"score": {number}, "x": 1}}'), EMPTY)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("parse", "candidate")
    assert failure.message.startswith("the scorer gave ")
    assert failure.message.endswith(" for `score`, not a finite number")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_another_metric_that_is_no_number_is_left_out_and_said_so(number: str):
    found = read_score(json.loads(f'{{"score": 1, "x": {number}}}'), EMPTY)
    assert isinstance(found, Score)
    assert found.metrics == {"score": 1.0}
    assert [finding.text[:6] for finding in found.findings] == ["`x` is"]


def test_the_metric_that_counts_may_have_any_name():
    fields = Fields(score="result.f1", metric="quality")
    printed: dict[str, object] = {"result": {"f1": math.nan}}
    assert isinstance(read_score(printed, EMPTY, fields), Failure)


def test_findings_are_texts_with_or_without_severity():
    printed: dict[str, object] = {
        "findings": ["a", {"text": "b"}, {"text": "c", "severity": "high"}]
    }
    assert read_score(printed, EMPTY) == Score(
        {}, (Finding("a"), Finding("b"), Finding("c", "high"))
    )


def test_of_more_than_can_be_kept_no_part_of_an_object_is_taken_for_the_score(tmp_path: Path):
    rows = "[dict(score=9)] * 90000"
    for more in ("", ", indent=1"):
        line = f"python -c 'import json; print(json.dumps(dict(score=1, rows={rows}){more}))'"
        found = score(line, tmp_path)
        assert isinstance(found, Failure)
        assert "printed no JSON object" in found.message
        assert "the end of more than 1 MiB" in found.message


def test_much_chatter_before_the_object_does_no_harm(tmp_path: Path):
    line = """yes chatter | head -c 3000000; echo '{"score": 2}'"""
    assert score(line, tmp_path) == Score({"score": 2.0})
