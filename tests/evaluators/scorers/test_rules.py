# ruff: noqa: E501 # a row of a table reads better than it wraps

import asyncio
import signal
import subprocess
import sys
import time

import pytest

from kept.core.artifact import Candidate
from kept.core.ports import Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.engine.replay import JournalScope
from kept.evaluators.scorers.rules import (
    Check,
    Format,
    Growth,
    HasSections,
    Keywords,
    Matches,
    Measured,
    Parses,
    Phrases,
    Rule,
    RulesScorer,
    Target,
    Tokens,
)
from kept.testing import MemoryJournal, ScorerSuite
from tests.evaluators.scorers.scoring import CASE, EMPTY, score

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
        (Parses("json"), "[" * 100_000, Measured(0, "not JSON: it is nested more than 100 levels deep")),
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


HOSTILE = "a" * 40 + "!"


@pytest.mark.slow
def test_a_text_that_holds_up_a_pattern_is_the_candidates_failure():
    rules = (Rule("short", Tokens(most=3)), Rule("tail", Matches("(a+)+$")))
    scorer = RulesScorer(rules, SEED, timeout=0.5)
    began = time.monotonic()
    said = score(scorer, candidate=Candidate({"a": HOSTILE}))
    assert said == Failure(
        "timeout", "candidate", "the rule `tail` took too long on this candidate"
    )
    assert time.monotonic() - began < 10
    # and the next one is none the worse for it
    said = score(scorer, candidate=Candidate({"a": "aaa"}))
    assert isinstance(said, Score)
    assert said.metrics["tail"] == 1
    asyncio.run(scorer.close())


@pytest.mark.slow
def test_the_loop_goes_on_while_a_pattern_is_at_work():
    scorer = RulesScorer((Rule("tail", Matches("(a+)+$")),), SEED, timeout=1.0)

    async def both() -> int:
        job = Job("c", "case-1", 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        slow = scorer.score(job, EMPTY, Candidate({"a": HOSTILE}), CASE, scope)
        task = asyncio.ensure_future(slow)
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await scorer.close()
        return ticks

    assert asyncio.run(both()) > 20


@pytest.mark.slow
def test_a_check_that_nobody_waits_for_any_more_ends_by_itself():
    given = {"kind": "Matches", "of": ["(a+)+$"], "text": HOSTILE}
    line = "from kept.sandbox.bounded_handler import prepare\n"
    line += "_, call, _ = prepare('', 'kept.evaluators.scorers.rules:measured')\n"
    line += f"call({{'given': {given}, 'seconds': 0.1}})"
    done = subprocess.run([sys.executable, "-c", line], check=False, timeout=60)
    assert done.returncode == -signal.SIGXCPU


BOMB = "a0: &a0 {k: 1}\n" + "".join(
    f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9)
)


@pytest.mark.slow
def test_a_document_of_a_few_lines_that_unfolds_is_the_candidates_failure():
    scorer = RulesScorer((Rule("form", Parses("yaml")),), SEED, timeout=0.5)
    said = score(scorer, candidate=Candidate({"a": BOMB}))
    assert said == Failure(
        "timeout", "candidate", "the rule `form` took too long on this candidate"
    )
    assert isinstance(score(scorer, candidate=Candidate({"a": "k: 1\n"})), Score)
    asyncio.run(scorer.close())


@pytest.mark.parametrize(
    ("pattern", "length", "quick"),
    [
        ("TODO", 1_000_000, True),
        (r"^Answer: \d+$", 4_000, True),
        (r"^Answer: \d+$", 100_000, False),
        (r"\d+-\d+-\d+", 50, True),
        (r"\d+-\d+-\d+", 1_000, False),
        ("(a+)+$", 10, False),
        ("(?:a|b)*c", 10, False),
        (r"(\w+) \1", 5_000, False),
        ("a?" * 30 + "a" * 30, 30, False),
        ("(?:ab)c(?=d)", 1_000_000, True),
    ],
)
def test_only_what_can_take_long_needs_a_process(pattern: str, length: int, quick: bool):
    assert Matches(pattern).quick("x" * length) is quick


@pytest.mark.parametrize(
    ("kind", "text", "quick"),
    [
        ("json", "[" * 100_000, True),
        ("yaml", "a: 1\n" * 100, True),
        ("yaml", "a: 1\n" * 1000, False),
        ("yaml", BOMB, False),
        ("yaml", "[" * 200, False),
        ("toml", "a = 1\n" * 1000, False),
    ],
)
def test_only_documents_that_can_take_long_need_a_process(kind: Format, text: str, quick: bool):
    assert Parses(kind).quick(text) is quick


SLOW = {r"\s+$": " " * 4000 + "x", ".*.*=": "a" * 260, "a+b": "a" * 4000}


@pytest.mark.parametrize("pattern", SLOW)
def test_what_is_taken_for_quick_is_quick_at_its_worst(pattern: str):
    check = Matches(pattern)
    assert check.quick(SLOW[pattern])
    began = time.process_time()
    check.measure(SLOW[pattern], "")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "text", ["a: !!bool foo\n", "!!int ''\n", "!!int '_'\n", "!!float ''\n", '"\\U99999999"\n']
)
def test_yaml_that_trips_its_reader_is_a_broken_rule_and_no_crash(text: str):
    found = Parses("yaml").measure(text, "")
    assert found.value == 0
    assert found.broken is not None
    assert found.broken.startswith("not YAML: ")


def test_a_verbose_pattern_is_never_taken_for_quick():
    assert not Matches(r"(?x)(a+) +$").quick("a" * 40)


def test_waiting_for_a_turn_is_not_the_candidates_time():
    slow = Rule("slow", Matches(r"^(a+)+$"))
    scorer = RulesScorer((slow,), Candidate({"a.md": ""}), timeout=1.0)

    async def both() -> list[Score | Failure]:
        job = Job("c", "case", 0, "decide")
        texts = ["a" * 40 + "b"] * 4 + ["a" * 12 + "b"] * 2
        scope = JournalScope(MemoryJournal(), job)
        made = [Candidate({"a.md": text}) for text in texts]
        try:
            return list(
                await asyncio.gather(
                    *(scorer.score(job, Rollout(), one, CASE, scope) for one in made)
                )
            )
        finally:
            await scorer.close()

    found = asyncio.run(both())
    assert all(isinstance(one, Failure) and one.blame == "candidate" for one in found[:4])
    assert all(isinstance(one, Score) for one in found[4:]), "the honest ones only waited"
