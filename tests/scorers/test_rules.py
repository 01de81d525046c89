# ruff: noqa: E501 # a row of a table reads better than it wraps

import pytest

from kept.core.artifact import Candidate
from kept.core.ports import Scorer
from kept.core.rollout import Rollout
from kept.core.score import Finding, Score
from kept.scorers.checks import (
    Check,
    Growth,
    HasSections,
    Keywords,
    Matches,
    Measured,
    Parses,
    Phrases,
    Tokens,
)
from kept.scorers.rules import Rule, RulesScorer, Target
from kept.testing import ScorerSuite
from tests.scorers.scoring import score

SEED = Candidate({"text": "one two three\n"})


class TestRulesScorer(ScorerSuite):
    def make_scorer(self) -> Scorer:
        rules = (
            Rule("short", Tokens(most=3)),
            Rule("json", Parses("json"), 2.0, Target("output")),
            Rule("report", HasSections(("Steps",)), 1.0, Target("file", "out.json")),
        )
        return RulesScorer(rules, SEED)

    def rollouts(self) -> list[Rollout]:
        return [Rollout(output="{}"), Rollout(output="{", files={"out.json": b"# Steps\n1"})]


@pytest.mark.parametrize(
    ("check", "text", "measured"),
    [
        (HasSections(("Steps", "limits")), "# Steps\nx\n## LIMITS\ny", Measured(1)),
        (HasSections(("Steps", "Limits")), "# Steps\nx", Measured(0.5, "missing: `Limits`")),
        (HasSections(("Steps",)), "# Steps\n", Measured(0, "empty: `Steps`")),
        (Matches(r"^Answer: \d+$"), "x\nAnswer: 7\n", Measured(1)),
        (Matches("a"), "xyz", Measured(0, "`a` does not match")),
        (Matches("TODO", wanted=False), "done", Measured(0)),
        (Matches("TODO", wanted=False), "TODO TODO", Measured(2, "`TODO` matches 2 times")),
        (Tokens(2, 3), "one two", Measured(2)),
        (Tokens(least=3), "one two", Measured(2, "2 tokens, at least 3 wanted")),
        (Tokens(most=3), "one, two.", Measured(4, "4 tokens, 3 allowed")),
        (Phrases(("as an AI", "sorry")), "As  an\nai, no", Measured(1, "forbidden: `as an AI`")),
        (Phrases(("sorry",)), "fine", Measured(0)),
        (Parses("json"), '{"a": 1}', Measured(1)),
        (Parses("json"), "{", Measured(0, "not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")),
        (Parses("json"), "[" * 100_000, Measured(0, "not JSON: nested too deeply")),
        (Parses("yaml"), "a: [1, 2]\n", Measured(1)),
        (Parses("yaml"), "a: [1, 2\n", Measured(0, "not YAML: expected ',' or ']', but got '<stream end>'")),
        (Parses("yaml"), "a: \x07", Measured(0, "not YAML: unacceptable character #x0007: special characters are not allowed")),
        (Parses("toml"), "a = 1", Measured(1)),
        (Parses("toml"), "a =", Measured(0, "not TOML: Invalid value (at end of document)")),
        (Keywords(("best",), 0.5), "the best", Measured(0.5)),
        (Keywords(("best",), 0.4), "the best", Measured(0.5, "keywords take 50.0% of the words, 40.0% allowed")),
        (Growth(2), "one two three four", Measured(4 / 3)),
        (Growth(1.2), "one two three four", Measured(4 / 3, "1.33 times as long as the seed, 1.2 allowed")),
    ],
)  # fmt: skip
def test_a_check_measures_and_says_what_is_wrong(check: Check, text: str, measured: Measured):
    assert check.measure(text, "one two three") == measured


def test_the_score_is_the_weighted_share_of_rules_that_hold():
    rules = (
        Rule("greets", Matches("hello"), 3.0),
        Rule("length_tokens", Tokens(least=5), 1.0),
    )
    said = score(RulesScorer(rules, SEED), Rollout(metrics={"seconds": 2.0}))
    assert said == Score(
        {"seconds": 2, "greets": 1, "length_tokens": 1, "score": 0.75, "violation_count": 1},
        (Finding("length_tokens: 1 token, at least 5 wanted", metric="length_tokens"),),
    )


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Target(), "A\nB"),
        (Target("candidate", "b.md"), "B"),
        (Target("output"), "printed"),
        (Target("file", "out/x"), "left"),
    ],
)
def test_a_rule_looks_at_its_target(target: Target, text: str):
    candidate = Candidate({"b.md": "B", "a.md": "A"})
    rollout = Rollout(output="printed", files={"out/x": b"left"})
    scorer = RulesScorer((Rule("is", Matches(rf"\A{text}\Z"), 1.0, target),), SEED)
    said = score(scorer, rollout, candidate)
    assert isinstance(said, Score)
    assert said.metrics["score"] == 1


@pytest.mark.parametrize("target", [Target("file", "gone"), Target("file", "bytes")])
def test_a_text_that_is_not_there_breaks_the_rule(target: Target):
    rule = Rule("r", Matches("x", wanted=False), 1.0, target)
    said = score(RulesScorer((rule,), SEED), Rollout(files={"bytes": b"\xff"}))
    assert isinstance(said, Score)
    assert said.findings == (Finding(f"r: there is no text `{target.path}`", metric="r"),)


def test_growth_is_measured_on_the_same_file_of_the_seed():
    seed = Candidate({"a": "one", "b": "one two"})
    scorer = RulesScorer((Rule("g", Growth(1.5), 1.0, Target("candidate", "b")),), seed)
    said = score(scorer, candidate=Candidate({"a": "x " * 99, "b": "one two three"}))
    assert isinstance(said, Score)
    assert said.metrics["g"] == 1.5
