"""`kept eval` of a task with labelled cases: what it says, its exit code and its JUnit report."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.testing.server import ModelServer, Seen
from tests.ui.cli.tasks import Called, kept, write_task

pytestmark = pytest.mark.slow

ROWS = [{"text": f"mail {n}", "label": "spam" if n % 2 else "ham"} for n in range(12)]


def says_spam(seen: Seen) -> str:
    """Right about every second case."""
    return "spam"


@pytest.fixture
def task(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with ModelServer(says_spam) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        made = kept("init", "--from", "rows.jsonl", "mine", "--model", "openai/gpt-5-mini")
        assert made.code == 0, made.stderr
        monkeypatch.chdir(here / "mine")
        yield here / "mine"


def junit_of(path: Path) -> tuple[int, int, list[str]]:
    """Tests, failures, and the names of test cases that failed."""
    suite = ET.fromstring(path.read_text()).find("testsuite")
    assert suite is not None
    failed = [str(one.get("name")) for one in suite if one.find("failure") is not None]
    return int(suite.get("tests") or 0), int(suite.get("failures") or 0), failed


def rows_of(called: Called) -> list[str]:
    lines = called.stdout.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("case "))
    return lines[start : lines.index("", start)]


def test_a_task_without_pass_at_is_scored_and_shows_its_worst_cases(task: Path):
    called = kept("eval", ".", "-o", "report.xml")
    assert called.code == 0
    assert called.stdout.startswith("mine: 12 of 12 cases scored, mean score 0.5\n")
    assert "passed" not in called.stdout + called.stderr
    header, *rows = rows_of(called)
    assert header.split() == ["case", "input", "expected", "got", "score"]
    assert rows[0].split()[1:] == ["scored", "mail", "0", "ham", "spam", "0"]
    assert rows[-1] == "the worst 10 of 12: -v lists all"
    assert junit_of(task / "report.xml") == (12, 0, [])


def test_a_case_is_shown_with_its_score(task: Path):
    assert kept("eval", ".").code == 0
    shown = [line.split() for line in kept("show", "last", "0000").stdout.splitlines()]
    assert ["expected", "ham"] in shown
    assert ["metric", "score", "0"] in shown


@pytest.mark.parametrize(("least", "code"), [("0.6", 1), ("0.5", 0)])
def test_min_score_sets_exit_code_and_junit(task: Path, least: str, code: int):
    called = kept("eval", ".", "--min-score", least, "-o", "report.xml")
    assert called.code == code
    words = f"mean score 0.5 {'is below' if code else 'meets'} --min-score {least}"
    assert words in called.stdout
    failed = ["mean score"] if code else []
    assert junit_of(task / "report.xml") == (13, code, failed)
    assert words in kept("show", "last").stdout, "a later look says the same"


def test_pass_at_says_which_cases_pass(task: Path):
    text = (task / "task.yaml").read_text()
    (task / "task.yaml").write_text(text.replace("bounds: [0, 1]", "bounds: [0, 1], pass_at: 1"))
    called = kept("eval", ".", "-o", "report.xml")
    assert called.code == 1
    assert called.stdout.startswith("mine: 6 of 12 cases pass, 6 fail, mean score 0.5\n")
    tests, failures, failed = junit_of(task / "report.xml")
    assert (tests, failures, len(failed)) == (12, 6, 6)
    failure = ET.fromstring((task / "report.xml").read_text()).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "score 0, pass_at 1"
    assert "expected: ham" in str(failure.text)
    results = kept("eval", ".", "--json").json["results"]
    assert [row["passed"] for row in results].count(True) == 6
    assert {(row["test_input"], row["agent_response"]) for row in results} >= {("mail 0", "spam")}
    assert {row["ground_truth"] for row in results} == {"ham", "spam"}


def test_a_score_to_minimize_passes_at_most_at_pass_at(here: Path):
    spec = write_task(here)
    text = spec.read_text().replace("maximize, bounds: [0, 10]", "minimize, pass_at: 0.5")
    spec.write_text(text)
    assert kept("eval", ".").code == 1
    spec.write_text(text.replace("0.5", "1"))
    assert kept("eval", ".").code == 0
    assert kept("eval", ".", "--min-score", "0.5").code == 1


def test_a_metric_called_passed_is_a_score_like_any_other(here: Path):
    score = """printf '{"passed": 0.2, "findings": ["3 of 5 slugs are wrong"]}'"""
    spec = write_task(here, score=score)
    text = spec.read_text().replace("primary_metric: score", "primary_metric: passed")
    spec.write_text(text.replace("[0, 10]", "[0, 1]"))
    called = kept("eval", ".", "-o", "report.xml")
    assert called.code == 0
    assert called.stdout.splitlines()[0].endswith("1 of 1 case scored, mean passed 0.2")
    assert "3 of 5 slugs are wrong" in called.stdout
    assert junit_of(here / "report.xml") == (1, 0, [])
    assert (
        "mean passed 0.2 is below --min-score 0.5" in kept("eval", ".", "--min-score", "0.5").stdout
    )
    spec.write_text(spec.read_text().replace("[0, 1]", "[0, 1], pass_at: 0.5"))
    called = kept("eval", ".")
    assert called.code == 1
    assert called.stdout.splitlines()[0].endswith("0 of 1 case passes, 1 fails, mean passed 0.2")


def test_figures_of_thousands_keep_their_digits(here: Path):
    spec = write_task(here, score="""printf '{"score": 1002.3}'""")
    spec.write_text(spec.read_text().replace("bounds: [0, 10]", "bounds: [0, 10000]"))
    called = kept("eval", ".", "--min-score", "1002.4", "-o", "report.md")
    assert "mean score 1002\n" in called.stdout
    assert "mean score 1002.3 is below --min-score 1002.4" in called.stdout
    assert "e+03" not in called.stdout + (here / "report.md").read_text()


def test_a_pass_at_that_no_score_reaches_is_refused(here: Path):
    spec = write_task(here)
    spec.write_text(spec.read_text().replace("bounds: [0, 10]", "bounds: [0, 10], pass_at: 11"))
    assert "`pass_at` is 11, outside the `bounds` 0 … 10" in kept("check", ".").stderr
