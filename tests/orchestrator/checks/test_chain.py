"""The chain of checks on a completion: names, order, and what each refuses."""

import asyncio
import struct
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kept.core.rollout import Failure
from kept.orchestrator.checks import l0
from kept.orchestrator.checks.base import CheckResult, Passed, Ran, Rejected, Submission
from kept.orchestrator.checks.chain import Pure, chain, judge
from kept.orchestrator.checks.execution import ByCommand, Evaluation, Smoke, critique
from kept.orchestrator.checks.files import deliverable, deliverable_presence, file
from kept.orchestrator.checks.syntax import schema, syntax
from kept.orchestrator.checks.text import cross_reference, placeholder, structural_integrity
from tests.orchestrator.submissions import (
    Commands,
    NoScope,
    ask,
    budget,
    delegation,
    scored,
    submission,
    subtask,
)


def refused(said: CheckResult | Failure) -> str:
    assert isinstance(said, Rejected), said
    return said.reason


def names_of(of: Submission) -> list[str]:
    return [one.check for one in asyncio.run(judge(of, NoScope(), chain())).outcomes]


def test_the_chain_has_the_names_and_the_order_of_the_issue():
    assert [check.name for check in chain()] == [
        *("l0", "critique", "deliverable_presence", "placeholder", "file", "deliverable"),
        *("syntax", "schema", "cross_reference", "smoke", "structural_integrity", "eval"),
    ]


def test_what_is_right_passes_every_check_and_brings_its_evaluation():
    judged = asyncio.run(judge(submission(critiques=scored(0.9)), NoScope(), chain()))
    assert judged.complete
    assert all(one.passed for one in judged.outcomes)
    assert len(judged.outcomes) == 12
    assert judged.evaluation is not None
    assert judged.evaluation.action == "accept"


def test_r34_l0_looks_before_any_other_check():
    bad = submission({"report.md": "TODO"}, critiques=scored(0.1))
    assert names_of(bad) == ["l0"]


def test_the_first_refusal_ends_the_chain():
    assert names_of(submission(critiques=scored(0.1))) == ["l0", "critique"]


def test_checks_look_when_the_budget_is_out_all_the_same():
    out = submission({}, budget=budget(0.0), critiques=scored(0.9))
    assert names_of(out) == ["l0", "critique", "deliverable_presence"]


def test_a_check_that_cannot_tell_is_no_pass():
    broken = Failure("harness", "infrastructure", "no sandbox")
    plan = (subtask("run.sh", smoke_test="run.sh"),)
    files, run = {"run.sh": "exit 0"}, Commands({"run.sh": broken})
    of = submission(files, task="think", plan=plan, run=run)
    judged = asyncio.run(judge(of, NoScope(), chain()))
    assert not judged.complete
    assert judged.refusal is broken
    assert judged.outcomes[-1].check == "smoke"


PAGE = "# Page {n}\n\n" + "Sales of tea were {n} in May and rose again. " * 30 + "\n"


@pytest.mark.slow
def test_2400_files_are_checked_in_a_time_that_no_check_runs_out_of():
    files = {f"page-{n}.md": PAGE.format(n=n) for n in range(2_400)}
    task = "Write pages on sales, one for each month"
    many = submission(files, task=task, plan=(subtask("page-7.md"),), critiques=scored(0.9))
    undeclared = replace(many, plan=())
    took: dict[str, float] = {}
    for check in chain():
        if isinstance(check, Pure):
            began = time.process_time()
            for one in (many, undeclared):
                assert isinstance(check.judge(one), Passed), check.name
            took[check.name] = time.process_time() - began
    # cross_reference counted pictures anew for every text: 11 to 50 s each, of 60 that it may take
    assert max(took.values()) < 10, took


def test_each_check_speaks_once_of_a_submission():
    names = names_of(submission(critiques=scored(0.9)))
    assert len(names) == len(set(names))


def test_l0_looks_at_declared_deliverables_and_at_all_where_none_is():
    plan = (subtask("out.md"),)
    assert isinstance(l0(submission({"out.md": "fine", "notes.md": "TODO"}, plan=plan)), Passed)
    assert "no_placeholder" in refused(l0(submission({"notes.md": "TODO"}, task="think")))


def test_l0_holds_a_file_against_its_size_at_the_completion_before():
    of = submission({"report.md": "a " * 2000}, previous={"report.md": 1000})
    assert "file_size_delta" in refused(l0(of))


def test_critique_refuses_a_mean_below_the_bar_and_tells_the_defects():
    wrong = {
        "category": "incomplete",
        "location": "report.md",
        "description": "no totals",
        "severity": "critical",
    }
    reason = refused(critique(submission(critiques=scored(0.5, 0.69, **wrong))))
    assert "0.59" in reason or "0.60" in reason
    assert "no totals" in reason
    assert isinstance(critique(submission(critiques=scored(0.5, 0.7))), Passed)


def test_critique_is_not_bypassed_by_rejections_or_by_a_large_file():
    from kept.orchestrator.record import Rejection

    before = tuple(
        Rejection(iteration=n, gate="critique", reason="bad", completion=True) for n in range(3)
    )
    of = submission({"report.md": "a " * 600}, critiques=scored(0.2), rejections=before)
    assert "0.20" in refused(critique(of))


def test_work_that_failed_and_was_never_judged_is_not_complete():
    broken = Failure("parse", "candidate", "the output contract was broken twice")
    of = submission(delegations=(delegation(failure=broken),), critiques=scored(0.9))
    assert "w1 (s1) failed" in refused(critique(of))


def test_a_critique_that_could_not_be_read_is_a_failure_and_no_half():
    unread = Failure("parse", "candidate", "no JSON")
    of = submission(delegations=(delegation(critique_failure=unread),))
    assert critique(of) is unread


@pytest.mark.parametrize(
    ("task", "plan", "files", "passes"),
    [
        ("think", (subtask("a.md"),), {"a.md": "x"}, True),
        ("think", (subtask("a.md"),), {"a.md": ""}, False),
        ("think", (subtask("a.md", "b.md"),), {"a.md": "x"}, False),
        ("think", (subtask("output/a.md"),), {"a.md": "x"}, True),
        ("think", (subtask(description="write _output_dir/b.csv"),), {"a.md": "x"}, False),
        ("think", (subtask(success_criteria=("saves totals to b.csv",)),), {"a.md": "x"}, False),
        ("Read in.csv and write out.md", (), {"out.md": "x"}, True),
        ("Read in.csv and write out.md", (), {"other.md": "x"}, False),
        ("Write a PDF", (), {}, False),
        ("think", (), {}, False),
        ("think", (), {"a.md": "x"}, True),
    ],
)
def test_deliverable_presence_goes_by_what_plan_and_task_name(
    task: str, plan: tuple[Any, ...], files: Mapping[str, str], passes: bool
):
    said = deliverable_presence(submission(files, task=task, plan=plan))
    assert isinstance(said, Passed) == passes


def test_no_completion_without_any_deliverable_passes():
    assert "no deliverable" in refused(deliverable_presence(submission({}, task="think")))


def test_what_the_run_was_given_is_no_deliverable_that_it_owes():
    of = submission({"out.md": "x"}, task="Write a summary of data.csv to out.md")
    assert "data.csv" in refused(deliverable_presence(of))
    given = submission(
        {"out.md": "x"}, task="Write a summary of data.csv to out.md", inputs=("in/data.csv",)
    )
    assert isinstance(deliverable_presence(given), Passed)


@pytest.mark.parametrize(
    "files",
    [
        {"a.md": "grew by XX% this year"},
        {"a.md": "costs $XX"},
        {"a.md": "Dear [Your Name],"},
        {"a.md": "see <insert link>"},
        {"a.md": "Hello {{ name }}"},
    ],
)
def test_placeholder_finds_blanks_in_files(files: Mapping[str, str]):
    assert "a.md" in refused(placeholder(submission(files)))


def test_placeholder_leaves_templates_that_are_code_alone():
    assert isinstance(placeholder(submission({"t.yaml": "x: {{ name }}"})), Passed)


def test_placeholder_looks_into_the_final_result():
    of = submission(final_result={"parts": [{"share": "TBD"}]})
    assert "final_result.parts[0].share" in refused(placeholder(of))


def png(width: int, height: int, size: int) -> bytes:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR"
    head += struct.pack(">II", width, height) + b"\x08\x02\0\0\0" + b"crc!"
    end = struct.pack(">I", 0) + b"IEND" + b"\xaeB`\x82"
    return head + b"\1" * max(0, size - len(head) - len(end)) + end


@pytest.mark.parametrize(
    ("path", "data", "fine"),
    [
        ("a.png", png(100, 100, 900), True),
        ("a.png", png(100, 100, 400), False),
        ("a.png", png(5, 100, 900), False),
        ("a.png", png(100, 100, 900)[:-20], False),
        ("a.png", b"no picture" * 100, False),
        ("a.pdf", b"%PDF-1.7 ...", True),
        ("a.pdf", b"Report", False),
        ("a.csv", b"a,b\n1,2\n", True),
        ("a.csv", b"a,b\n", False),
        ("a.txt", b"", False),
        ("pkg/__init__.py", b"", True),
    ],
)
def test_file_finds_what_cannot_be_what_its_name_says(path: str, data: bytes, fine: bool):
    assert isinstance(file(submission({path: data}, task="think")), Passed) == fine


def test_an_empty_file_that_nobody_asked_for_is_a_note():
    of = submission({"report.md": "x", "log.txt": ""})
    said = file(of)
    assert isinstance(said, Passed)
    assert [note.file for note in said.notes] == ["log.txt"]


def test_deliverable_wants_a_file_of_the_kind_the_task_asks_for_however_small():
    assert "`.csv`" in refused(deliverable(submission({"a.md": "x" * 600}, task="Create a CSV")))
    assert isinstance(deliverable(submission({"a.csv": "a\n1\n"}, task="Create a CSV")), Passed)
    assert isinstance(deliverable(submission({"a.md": "x"}, task="Explain CSV to me")), Passed)


@pytest.mark.parametrize(
    ("path", "text", "fine"),
    [
        ("a.py", "x = 1\n", True),
        ("a.py", "def f(:\n", False),
        ("a.py", "x = '\\d'\n", True),
        ("a.json", "[1, 2]", True),
        ("a.json", "[1, 2", False),
        ("a.yaml", "a: [1, 2]\n---\nb: 1\n", True),
        ("a.yml", "a: [1, 2\n", False),
        ("a.yaml", "!custom x\n", True),
        ("a.md", "  \n", False),
        ("a.md", "```\nopen\n", False),
        ("a.csv", "a,b\n1,2\n3\n", False),
        ("a.csv", 'a,b\n"1,5",2\n', True),
        ("a.unknown", "((", True),
    ],
)
def test_syntax_reads_each_kind_of_file(path: str, text: str, fine: bool):
    assert isinstance(syntax(submission({path: text})), Passed) == fine


def test_syntax_names_the_line():
    assert "a.py:2" in refused(syntax(submission({"a.py": "x = 1\ndef f(:\n"})))


WANTED = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"a.json": '{"n": 1}'}, None),
        ({"a.json": '{"n": "1"}'}, "a.json"),
        ({"a.json": "{}"}, "a.json"),
        ({"b.json": "{}"}, "not there"),
    ],
)
def test_schema_holds_outputs_to_the_schemas_of_the_plan(files: dict[str, str], word: str | None):
    said = schema(submission(files, plan=(subtask(schemas={"a.json": WANTED}),)))
    assert isinstance(said, Passed) if word is None else word in refused(said)


def test_a_schema_that_is_none_is_refused_and_not_passed_over():
    plan = (subtask(schemas={"a.json": {"type": "nonsense"}}),)
    assert "its schema is none" in refused(schema(submission({"a.json": "1"}, plan=plan)))


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("So it is [1] and [2].\n\n## References\n\n[1] A\n[2] B\n", True),
        ("So it is [1] and [3].\n\n## References\n\n1. A\n2. B\n", False),
        ("So it is [1-3].\n\n# Sources\n\n[1] A\n[2] B\n[3] C\n", True),
        ("So it is [1] and [2].\n", False),
        ("`a[1]` and `b[2]`, x[3], [4](link)\n", True),
        ("See Figure 1.\n\n![x](a.png)\n", True),
        ("See Figure 2.\n\n![x](a.png)\n", False),
    ],
)
def test_cross_reference_finds_what_leads_nowhere(text: str, fine: bool):
    assert isinstance(cross_reference(submission({"a.md": text})), Passed) == fine


def test_smoke_runs_the_test_that_the_plan_names():
    commands = Commands({"check.py": Ran(1, "AssertionError: 3 != 4")})
    plan = (subtask("check.py", smoke_test="check.py"),)
    of = submission({"check.py": "assert 0"}, plan=plan, run=commands)
    assert "3 != 4" in refused(ask(Smoke(), of))
    assert commands.ran == [("python3", "check.py")]


def test_smoke_takes_what_is_no_file_for_a_command():
    commands = Commands()
    of = submission({"a.py": "x"}, plan=(subtask(smoke_test="python3 -m a"),), run=commands)
    assert isinstance(ask(Smoke(), of), Passed)
    assert commands.ran == [("sh", "-c", "python3 -m a")]


def test_smoke_refuses_a_named_test_that_does_not_end():
    commands = Commands({"a.sh": Ran(-9, "", timed_out=True)})
    plan = (subtask(smoke_test="a.sh"),)
    of = submission({"a.sh": "sleep 99"}, plan=plan, run=commands)
    assert "10 s" in refused(ask(Smoke(), of))


@pytest.mark.parametrize(
    ("end", "passes"),
    [
        (Ran(0, ""), True),
        (Ran(2, "usage: a.py FILE"), True),
        (Ran(-9, "", timed_out=True), True),
        (Ran(1, "Traceback (most recent call last):\nNameError: x"), False),
    ],
)
def test_smoke_refuses_a_script_without_a_named_test_only_if_it_breaks_down(end: Ran, passes: bool):
    of = submission({"a.py": "#!/usr/bin/env python3\n"}, run=Commands({"a.py": end}))
    assert isinstance(ask(Smoke(), of), Passed) == passes


def test_smoke_leaves_modules_alone_that_are_no_programs():
    commands = Commands()
    ask(Smoke(), submission({"lib.py": "x = 1"}, run=commands))
    assert commands.ran == []


LONG = "A long paragraph about something, " + "with words in it " * 8


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("# A part\n\nSee [it](#a-part).\n", True),
        ("# A part\n\nSee [it](#b-part).\n", False),
        ('<a id="here"></a>\n\n[x](#here)\n', True),
        ("as in [1] and [ref_smith]\n", False),
        ("as in [ref_a] and [ref_b]\n", True),
        (f"{LONG}\n\n{LONG}\n", False),
        (f"{LONG}\n\n{LONG} once more\n", True),
    ],
)
def test_structural_integrity_finds_what_does_not_hold_together(text: str, fine: bool):
    assert isinstance(structural_integrity(submission({"a.md": text})), Passed) == fine


def test_eval_records_its_parts():
    said = ask(Evaluation(), submission(confidence=0.4, budget=budget(0.5)))
    assert isinstance(said, Passed)
    assert said.evaluation is not None
    assert said.evaluation.per_metric == {
        "has_result": 1.0,
        "confidence": 0.4,
        "not_empty": 1.0,
        "efficiency": 0.5,
    }
    assert said.evaluation.thresholds == {"has_result": 1.0, "confidence": 0.6, "not_empty": 1.0}
    # (2 + 1.5 * 0.4 / 0.6 + 1 + 0.5 * 0.5) / 5
    assert said.evaluation.score == pytest.approx(0.85)


def test_eval_sends_back_what_is_middling_and_gives_up_on_what_is_hopeless():
    middling = ask(Evaluation(), submission(confidence=0.2))
    assert isinstance(middling, Rejected)
    assert not middling.hopeless
    assert middling.evaluation is not None
    assert middling.evaluation.action == "retry_with_repair"
    hopeless = ask(Evaluation(), submission({}, confidence=0.0))
    assert isinstance(hopeless, Rejected)
    assert hopeless.hopeless


@pytest.mark.parametrize(
    ("end", "score"),
    [(Ran(0, ""), 1.0), (Ran(1, "0.9"), 0.0), (Ran(0, "so far\n0.25\n"), 0.25), (Ran(0, "7"), 1.0)],
)
def test_a_test_of_the_users_own_measures_the_deliverable(end: Ran, score: float):
    test = ByCommand("quality", ("sh", "-c", "check"))
    of = submission(run=Commands({"check": end}))
    said = ask(Evaluation((test,)), of)
    assert isinstance(said, Passed | Rejected)
    assert said.evaluation is not None
    assert said.evaluation.per_metric["quality"] == score


def test_a_pure_check_has_a_name_and_looks():
    assert ask(Pure("l0", l0), submission()) == Passed()
