"""Every assertion that a case may make: what passes, what does not, and what is said of it."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.evaluators.scorers.assertions import llm, spec
from kept.evaluators.scorers.assertions.component import faults_in
from kept.evaluators.scorers.assertions.deterministic import within
from kept.evaluators.scorers.assertions.python import MOST_PROCESSES
from kept.evaluators.scorers.assertions.scorer import AssertionsScorer
from kept.evaluators.scorers.assertions.spec import KINDS, AssertionSpec
from kept.settings import processors
from kept.testing import MemoryJournal

CITY = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
METRICS = {"latency_ms": 120.0, "cost_usd": 0.002}


class Judge:
    """Says `pass` of what has the word in it, and 7 of 10 where it is asked for a number."""

    name = "test/judge"

    def __init__(self, word: str = "good") -> None:
        self.word = word
        self.asked: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        self.asked.append(request)
        levels: list[Any] = request.schema["properties"]["verdict"]["properties"]["level"]["enum"]  # type: ignore[index, call-overload]
        good = self.word in request.messages[-1].text
        level = 7 if 7 in levels else "pass" if good else "fail"
        text = json.dumps({"verdict": {"reason": "so it seems", "level": level}})
        return ModelReply(text)


def scored(
    output: str,
    *assertions: Mapping[str, Any],
    judge: Model | None = None,
    given: Mapping[str, object] | None = None,
    folder: Path | None = None,
) -> Score:
    told = outcome(output, *assertions, judge=judge, given=given, folder=folder)
    assert isinstance(told, Score), told
    return told


def outcome(
    output: str,
    *assertions: Mapping[str, Any],
    judge: Model | None = None,
    given: Mapping[str, object] | None = None,
    folder: Path | None = None,
    timeout: float = 20.0,
) -> Score | Failure:
    seen = tuple(given or {})
    scorer = AssertionsScorer("assert", judge, timeout, folder=folder or Path.cwd(), seen=seen)
    case = Case("c", {**(given or {}), "assert": [dict(one) for one in assertions]})
    return asyncio.run(graded(scorer, (output, case)))[0]


async def graded(scorer: AssertionsScorer, *asked: tuple[str, Case]) -> list[Score | Failure]:
    job = Job("x", "c", 0, "decide")
    try:
        return [
            await scorer.score(
                job,
                Rollout(output, METRICS),
                Candidate({"p": "x"}),
                case,
                JournalScope(MemoryJournal(), job),
            )
            for output, case in asked
        ]
    finally:
        await scorer.close()


VECTORS: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "equals", "value": "Paris"}, "Paris", "paris"),
    ({"type": "equals", "value": 4}, "4", "4.0"),
    ({"type": "equals", "value": {"a": 1, "b": [True]}}, '{"b": [true], "a": 1.0}', '{"a": 1}'),
    ({"type": "equals", "value": {"a": 1}}, '{"a": 1}', '{"a": true}'),
    ({"type": "contains", "value": "par"}, "spare", "Par"),
    ({"type": "contains", "value": 42}, "it is 42.", "it is 4 2"),
    ({"type": "icontains", "value": "PAR"}, "spare", "pa r"),
    ({"type": "contains-any", "value": ["a", "b"]}, "xbx", "xAx"),
    ({"type": "contains-any", "value": "a, b"}, "xbx", ","),
    ({"type": "contains-all", "value": ["a", "b"]}, "ba", "a"),
    ({"type": "icontains-any", "value": ["A", "q"]}, "xax", "xbx"),
    ({"type": "icontains-all", "value": ["A", "Q"]}, "qa", "q"),
    ({"type": "starts-with", "value": "Yes"}, "Yes, sir", "Oh Yes"),
    ({"type": "regex", "value": r"^\d{4}$"}, "1234", "a\n1234\nb"),
    ({"type": "regex", "value": r"(?<year>\d{4})"}, "in 1999", "in 99"),
    ({"type": "is-json"}, '{"a": 1}', '{"a": 1'),
    ({"type": "is-json", "value": CITY}, '{"city": "Rome"}', '{"city": 3}'),
    ({"type": "contains-json"}, 'Here: {"a": 1}. Done', "Here: {a}"),
    ({"type": "contains-json", "value": CITY}, '{"x": 1} and {"city": "Rome"}', 'x {"x": 1} y'),
    ({"type": "levenshtein", "value": "kitten", "threshold": 3}, "sitting", "sittingly"),
    ({"type": "levenshtein", "value": "kitten"}, "mitts", "a different thing"),
    ({"type": "word-count", "value": 2}, "two words", "three whole words"),
    ({"type": "word-count", "value": {"min": 2, "max": 3}}, "a b c", "a"),
    ({"type": "word-count", "value": {"max": 3}}, "a", "a b c d"),
    ({"type": "python", "value": "len(output) < 5"}, "abc", "abcdef"),
    ({"type": "python", "value": "json.loads(output)['a'] == 1"}, '{"a": 1}', "no json at all"),
    ({"type": "python", "value": "x = len(output)\nreturn x < 5"}, "abc", "abcdef"),
    ({"type": "python", "value": "len(output) / 10", "threshold": 0.5}, "abcdef", "abcd"),
    ({"type": "llm-rubric", "value": "is kind"}, "a good answer", "a bad answer"),
    ({"type": "model-graded-closedqa", "value": "names it"}, "a good answer", "a bad answer"),
    ({"type": "factuality", "value": "Rome is in Italy"}, "a good answer", "a bad answer"),
    ({"type": "model-graded-factuality", "value": "Rome"}, "a good answer", "a bad answer"),
]


@pytest.mark.parametrize(
    ("assertion", "passes", "fails"),
    VECTORS,
    ids=[f"{n}-{v[0]['type']}" for n, v in enumerate(VECTORS)],
)
def test_an_assertion_holds_of_one_output_and_not_of_another_and_its_opposite_the_reverse(
    assertion: dict[str, Any], passes: str, fails: str, tmp_path: Path
):
    opposite = {**assertion, "type": f"not-{assertion['type']}"}
    numbered = assertion["type"] == "python" and "threshold" in assertion
    tried = (
        (assertion, passes, True),
        (assertion, fails, False),
        (opposite, passes, False),
        (opposite, fails, True),
    )
    scorer = AssertionsScorer("assert", Judge(), 20.0, folder=tmp_path)
    asked = [(output, Case("c", {"assert": [one]})) for one, output, _ in tried]
    for (one, output, holds), told in zip(tried, asyncio.run(graded(scorer, *asked)), strict=True):
        assert isinstance(told, Score), told
        raised = one["type"] == "not-python" and "no json" in output
        # what raises does not hold, and neither does its opposite
        assert told.metrics["pass"] == float(holds and not raised), (one, output)
        if not numbered:
            assert told.metrics["score"] == float(holds and not raised)
        if not holds:
            assert told.findings
            assert told.findings[0].text.startswith(f"{one['type']} does not hold: ")


def test_every_type_that_is_offered_has_a_vector():
    tried = {one["type"] for one, _, _ in VECTORS}
    assert set(KINDS) - tried == {"latency", "cost"}


@pytest.mark.parametrize(
    ("assertion", "held"),
    [
        ({"type": "latency", "threshold": 120}, True),
        ({"type": "latency", "threshold": 119}, False),
        ({"type": "not-latency", "threshold": 119}, True),
        ({"type": "cost", "threshold": 0.002}, True),
        ({"type": "cost", "threshold": 0.001}, False),
        ({"type": "not-cost", "threshold": 0.001}, True),
    ],
)
def test_what_an_answer_took_and_cost_is_compared_with_its_limit(
    assertion: dict[str, Any], held: bool
):
    assert scored("x", assertion).metrics["pass"] == float(held)


A = {"type": "contains", "value": "a"}
B = {"type": "contains", "value": "b"}


GOLD = "Zanzibar"


@pytest.mark.parametrize(
    "assertion",
    [
        {"type": "equals", "value": GOLD},
        {"type": "equals", "value": {"city": GOLD}},
        {"type": "contains", "value": GOLD},
        {"type": "icontains", "value": GOLD},
        {"type": "contains-any", "value": [GOLD, "Rome"]},
        {"type": "contains-all", "value": [GOLD, "Rome"]},
        {"type": "icontains-all", "value": f"{GOLD}, Rome"},
        {"type": "starts-with", "value": GOLD},
        {"type": "regex", "value": f"^{GOLD}$"},
        {"type": "is-json", "value": {"const": GOLD}},
        {"type": "is-json", "value": {"properties": {"city": {"enum": [GOLD]}}}},
        {"type": "contains-json", "value": {"properties": {"city": {"pattern": GOLD}}}},
        {"type": "levenshtein", "value": GOLD, "threshold": 2},
        {"type": "python", "value": f"output == '{GOLD}'"},
        {"type": "python", "value": f"x = '{GOLD}'\nreturn float(x in output)"},
    ],
)
def test_a_finding_tells_what_the_output_is_and_never_what_was_expected(
    assertion: dict[str, Any], tmp_path: Path
):
    output = '{"city": "Oslo"}'
    told = scored(output, assertion, folder=tmp_path)
    assert told.metrics["pass"] == 0.0
    (finding,) = told.findings
    assert finding.text.startswith(f"{assertion['type']} does not hold: ")
    assert GOLD.lower() not in finding.text.lower()
    assert "Rome" not in finding.text
    assert output in finding.text or "JSON that does not fit" in finding.text


def test_a_finding_tells_what_must_not_be_in_an_output_by_the_output_alone():
    told = scored("a" * 300 + GOLD, {"type": "not-contains", "value": GOLD})
    assert told.findings and GOLD not in told.findings[0].text


@pytest.mark.parametrize(
    ("output", "told"), [("a", "1 word, too few"), ("a b c d", "4 words, too")]
)
def test_a_number_of_words_is_told_by_which_side_it_is_on(output: str, told: str):
    found = scored(output, {"type": "word-count", "value": {"min": 2, "max": 3}})
    assert told in found.findings[0].text


@pytest.mark.parametrize(
    ("output", "assertions", "score", "passed"),
    [
        ("ab", [A, B], 1.0, 1.0),
        ("a", [A, B], 0.5, 0.0),
        ("a", [{**A, "weight": 3}, B], 0.75, 0.0),
        ("a", [A, {**B, "weight": 0}], 1.0, 1.0),
        ("a", [{"type": "assert-set", "threshold": 0.5, "assert": [A, B]}], 0.5, 1.0),
        ("a", [{"type": "assert-set", "threshold": 0.6, "assert": [A, B]}], 0.5, 0.0),
        ("a", [{"type": "assert-set", "assert": [A, B]}, A], 0.75, 0.0),
        ("a", [{"type": "assert-set", "threshold": 0.5, "assert": [A, B]}, A], 0.75, 1.0),
        ("a", [{"type": "assert-set", "weight": 3, "assert": [A]}, B], 0.75, 0.0),
    ],
)
def test_the_score_is_the_weighted_mean_and_a_threshold_decides_whether_it_passes(
    output: str, assertions: list[dict[str, Any]], score: float, passed: float
):
    told = scored(output, *assertions)
    assert told.metrics["score"] == score
    assert told.metrics["pass"] == passed


def test_named_metrics_are_means_of_what_counts_towards_them():
    told = scored(
        "a", {**A, "metric": "m", "weight": 3}, {**B, "metric": "m"}, {**B, "metric": "n"}
    )
    assert (told.metrics["m"], told.metrics["n"]) == (0.75, 0.0)


def test_a_python_assertion_may_say_why_and_give_a_score(tmp_path: Path):
    code = "return {'pass': False, 'score': 0.25, 'reason': 'too ' + context['vars']['tone']}"
    told = scored(
        "x", {"type": "python", "value": f"#\n{code}"}, given={"tone": "cold"}, folder=tmp_path
    )
    assert told.metrics["score"] == 0.25
    assert told.findings[0].text == "python does not hold: too cold"


def test_a_python_assertion_may_be_a_function_of_a_file(tmp_path: Path):
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "helper.py").write_text("WORD = 'yes'\n")
    (tmp_path / "checks" / "check.py").write_text(
        "from helper import WORD\n\n\n"
        "def get_assert(output, context):\n    return WORD in output\n\n\n"
        "async def most(output, context):\n    return len(output) <= context['config']['most']\n"
    )
    by_default = {"type": "python", "value": "file://checks/check.py"}
    named = {"type": "python", "value": "file://checks/check.py:most", "config": {"most": 4}}
    assert scored("yes", by_default, named, folder=tmp_path).metrics["score"] == 1.0
    assert scored("no, sir", by_default, named, folder=tmp_path).metrics["score"] == 0.0


def test_a_number_beyond_one_counts_as_one_and_says_so(tmp_path: Path):
    told = scored("abc", {"type": "python", "value": "len(output)"}, folder=tmp_path)
    assert told.metrics["score"] == 1.0
    assert "it said 3, which counts as 1" in told.findings[0].text


@pytest.mark.parametrize(
    ("code", "score", "passed"),
    [
        ("0.25", 0.75, 0.0),
        ("0", 1.0, 1.0),
        ("7", 0.0, 0.0),
        ("{'pass': True, 'score': 0.9}", 0.1, 0.0),
        ("{'pass': False, 'score': 0.25, 'reason': 'cold'}", 0.75, 1.0),
        ("{'pass': True}", 0.0, 0.0),
    ],
)
def test_what_must_not_hold_scores_the_rest_of_what_a_function_gave(
    code: str, score: float, passed: float, tmp_path: Path
):
    told = scored("x", {"type": "not-python", "value": code}, folder=tmp_path)
    assert told.metrics["score"] == pytest.approx(score)
    assert told.metrics["pass"] == passed


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("'perhaps'", "it returned 'perhaps'"),
        ("{'score': 1}", "it returned {'score': 1}"),
        ("__import__('os')._exit(3)", "its process ended with exit 3"),
        ("__import__('time').sleep(60)", "it did not answer within"),
    ],
)
def test_a_python_assertion_that_does_not_work_is_no_candidates_fault(
    code: str, why: str, tmp_path: Path
):
    limit = 2.0 if "sleep" in code else 60.0
    told = outcome("x", {"type": "python", "value": code}, folder=tmp_path, timeout=limit)
    assert isinstance(told, Failure)
    assert (told.kind, told.blame) == ("harness", "infrastructure")
    assert f"`python`: {why}" in told.message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import nowhere\n", "ModuleNotFoundError: No module named 'nowhere'"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("x = 1\n", "AttributeError"),
    ],
)
def test_a_file_of_python_that_cannot_be_loaded_is_no_candidates_fault(
    text: str, why: str, tmp_path: Path
):
    (tmp_path / "check.py").write_text(text)
    told = outcome("x", {"type": "python", "value": "file://check.py"}, folder=tmp_path)
    assert isinstance(told, Failure), told
    assert (told.kind, told.blame) == ("harness", "infrastructure")
    assert f"`python`: it cannot be loaded: {why}" in told.message


def test_no_more_processes_are_started_than_may_run_at_once(tmp_path: Path):
    most = max(MOST_PROCESSES, processors())
    told = (tmp_path / "told").as_posix()
    # pids are those of a namespace that each process may have for itself
    code = "import os; who = f'{os.getpid()}-{os.readlink(\"/proc/self/ns/pid\")}\\n'\n"
    code += f"open({told!r}, 'a').write(who)"
    slow = f"{code}\n__import__('time').sleep(0.05)\nreturn True"
    asked = [{"type": "python", "value": slow} for _ in range(most + 6)]
    assert scored("x", *asked, folder=tmp_path).metrics["score"] == 1.0
    lines = (tmp_path / "told").read_text().split()
    assert len(lines) == most + 6
    assert len(set(lines)) <= most


def test_a_rubric_with_a_threshold_is_graded_in_tenths():
    rubric = {"type": "llm-rubric", "value": "is kind", "threshold": 0.7}
    told = scored("x", rubric, judge=Judge())
    assert (told.metrics["score"], told.metrics["pass"]) == (0.7, 1.0)
    told = scored("x", {**rubric, "threshold": 0.8}, judge=Judge())
    assert told.metrics["pass"] == 0.0
    told = scored("x", {**rubric, "type": "not-llm-rubric", "threshold": 0.8}, judge=Judge())
    assert (round(told.metrics["score"], 9), told.metrics["pass"]) == (0.3, 1.0)


def test_a_judge_sees_the_output_the_variables_and_the_facts_but_not_other_assertions():
    judge = Judge()
    facts = {"type": "factuality", "value": "Rome is in Italy"}
    scored(
        "it is", facts, {"type": "equals", "value": "SECRET"}, judge=judge, given={"q": "where?"}
    )
    shown = judge.asked[0].messages[-1].text
    assert "Rome is in Italy" in shown and "where?" in shown and "it is" in shown
    assert "SECRET" not in str(judge.asked)


class Silent:
    name = "test/silent"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        return Failure("server", "infrastructure", "500")


def test_a_judge_that_does_not_answer_leaves_no_score():
    told = outcome("x", A, {"type": "llm-rubric", "value": "v"}, judge=Silent())
    assert isinstance(told, Failure)
    assert told.blame == "infrastructure"
    assert "`llm-rubric`: the judge `test/silent`: 500" in told.message


def test_an_expression_that_a_text_could_hold_up_for_ever_blames_the_candidate():
    told = outcome("a" * 40, {"type": "regex", "value": "(a+)+b"}, timeout=0.5)
    assert isinstance(told, Failure)
    assert (told.kind, told.blame) == ("timeout", "candidate")


@pytest.mark.parametrize("length", [0, 1, 7, 30])
def test_edits_are_counted_as_far_as_they_are_allowed(length: int):
    def distance(one: str, other: str) -> int:
        row = list(range(len(other) + 1))
        for down, letter in enumerate(one, 1):
            before, row[0] = row[0], down
            for at, mark in enumerate(other, 1):
                before, row[at] = (
                    row[at],
                    min(row[at] + 1, row[at - 1] + 1, before + (letter != mark)),
                )
        return row[-1]

    one = "abcabcabdabcabcabcabcabcabcabc"[:length]
    for other in ("", "abc", "bcabcabcabca", "abdabcabcabdabcaXbcabcabcabcabc", one[::-1]):
        exact = distance(one, other)
        assert [within(one, other, most) for most in range(12)] == [exact <= m for m in range(12)]


def faults(**said: Any) -> list[str]:
    spec = AssertionSpec.model_validate(said, strict=False)
    found = faults_in(spec, Path.cwd())
    return [f"{'.'.join(map(str, fault.loc))}: {fault.message}" for fault in found]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"type": "contians", "value": "x"}, "type: `contians` is no assertion that is known here"),
        ({"type": "not-javascript", "value": "x"}, "type: `not-javascript` is not supported"),
        ({"type": "contains"}, "value: nothing, where a text was expected"),
        (
            {"type": "contains-all", "value": []},
            "value: a list, where a list of texts was expected",
        ),
        ({"type": "regex", "value": "("}, "value: `(` is not a regular expression"),
        ({"type": "is-json", "value": {"type": "nope"}}, "value: is no JSON schema"),
        ({"type": "is-json", "value": "x"}, "value: the text `x`, where a JSON schema was"),
        ({"type": "python", "value": "len("}, "value: is not Python"),
        ({"type": "python", "value": "-" * 50_000 + "1"}, "value: is not Python: its expressions"),
        ({"type": "python", "value": "x" + "()" * 9_000}, "value: is not Python: its expressions"),
        ({"type": "python", "value": "file://no.py"}, "value: cannot read `no.py`"),
        ({"type": "latency"}, "threshold: missing: `latency` is compared with it"),
        ({"type": "latency", "threshold": 1, "value": 2}, "value: takes no value"),
        ({"type": "contains", "value": "x", "threshold": 1}, "threshold: `contains` holds or does"),
        ({"type": "word-count", "value": "many"}, "value: the text `many`, where a number of"),
        ({"type": "equals"}, "value: missing"),
        ({"type": "contains", "value": "x", "metric": "score"}, "metric: `score` is a measure of"),
        ({"type": "assert-set"}, "assert: missing: a set is made of assertions"),
        ({"type": "contains", "value": "x", "config": {"a": 1}}, "config: is for `python` alone"),
        (
            {"type": "assert-set", "assert": [{"type": "regex", "value": "("}]},
            "assert.0.value: `(`",
        ),
    ],
)
def test_an_assertion_that_is_wrong_says_what_is(said: dict[str, Any], told: str):
    (fault,) = faults(**said)
    assert fault.startswith(told)


def test_what_a_model_grades_is_the_same_for_a_task_and_for_its_scorer():
    assert spec.GRADED == llm.GRADED, "the two are in one layer, and cannot share it"
