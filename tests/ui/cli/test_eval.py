"""`kept eval` and `kept test run` as a person types them: answers, files, exit codes, two runs."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kept.core.llm import ModelReply
from kept.testing.server import Fault, ModelServer, Seen
from tests.recipes.agent_config.world import answer, write_agent
from tests.ui.cli.tasks import Called, kept, write_task

pytestmark = pytest.mark.slow

# Every line of a report that holodeck writes, by the research page.
RESULT = {
    *("test_name", "test_input", "processed_files", "agent_response", "tool_calls"),
    *("tool_invocations", "expected_tools", "tools_matched", "metric_results", "ground_truth"),
    *("passed", "execution_time_ms", "errors", "timestamp", "token_usage", "turns"),
}
TURN = {
    *("turn_index", "input", "response", "ground_truth", "expected_tools", "tool_calls"),
    *("tool_invocations", "tools_matched", "arg_match_details", "metric_results", "passed"),
    *("execution_time_ms", "errors", "skipped", "grader_details"),
}
METRIC = {
    *("metric_name", "kind", "score", "threshold", "passed", "scale", "error", "retry_count"),
    *("evaluation_time_ms", "model_used", "reasoning"),
}
SUMMARY = {
    *("total_tests", "passed", "failed", "pass_rate", "total_duration_ms", "metrics_evaluated"),
    "average_scores",
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "none")


def evaluate(here: Path, server: ModelServer, *words: str, cases: int = 3) -> Called:
    write_agent(here, server.v1, cases)
    return kept("eval", "agent.yaml", *words)


def test_the_answer_says_who_fails_and_why(here: Path):
    with ModelServer(answer) as server:
        called = evaluate(here, server)
    assert called.code == 1
    first, *_ = called.stdout.splitlines()
    assert first == "sums: 2 of 3 cases pass, 1 fail"
    row = next(line for line in called.stdout.splitlines() if line.startswith("sum-0"))
    assert "failed" in row and "`1` is too far from what was expected" in row
    assert "sum-1" not in called.stdout, "who passes is counted, and listed with -v"
    assert "passed   sum-1" in called.stderr


def test_a_case_says_once_what_is_wrong_with_an_answer(here: Path):
    with ModelServer(lambda seen: "who knows") as server:
        called = evaluate(here, server, cases=1)
    assert called.stdout.startswith("sums: 0 of 1 case passes, 1 fails\n")
    shown = kept("show", "last", "sum-0").stdout
    told = [line for line in shown.splitlines() if "`who knows` is not a number" in line]
    # of each turn, beside the metric and as a finding
    assert len(told) == 4


def test_the_json_has_every_name_that_readers_of_holodeck_look_for(here: Path):
    with ModelServer(answer) as server:
        told = evaluate(here, server, "--json").json
    assert {"agent_name", "agent_config_path", "results", "summary", "timestamp"} < set(told)
    assert set(told["summary"]) >= SUMMARY
    assert told["summary"]["pass_rate"] == pytest.approx(200 / 3, abs=0.01)
    assert told["summary"]["average_scores"]["numeric"] == pytest.approx(5 / 6)
    for result in told["results"]:
        assert set(result) >= RESULT
        assert [set(turn) >= TURN for turn in result["turns"]] == [True, True]
        assert all(set(metric) >= METRIC for metric in result["metric_results"])
    one = told["results"][1]
    assert one["test_input"] == "what is 1 + 2?\n---\ndouble it"
    assert one["agent_response"] == "6.0"
    assert one["ground_truth"] == "6"
    assert one["tool_invocations"][0]["args"] == {"a": 1, "b": 2}
    assert one["turns"][0]["tools_matched"] is True


def test_a_report_of_a_kind_that_nobody_writes_is_refused_before_anything_is_run(here: Path):
    """`-o out.pdf` was a file of JSON."""
    with ModelServer(answer) as server:
        for verb in (("eval",), ("test", "run")):
            write_agent(here, server.v1, 3)
            called = kept(*verb, "agent.yaml", "-o", "out.pdf")
            assert called.code == 2 and "of the kind `.pdf`" in called.stderr
            assert "ends in one of .json, .md, .xml" in called.stderr
        assert not server.log and not (here / "out.pdf").exists()
        called = kept("eval", "agent.yaml", "-o", "out.txt", "--format", "markdown")
    assert (here / "out.txt").read_text().startswith("#"), called.stderr


@pytest.mark.parametrize("name", ["report.json", "report.md", "report.xml"])
def test_a_report_is_written_by_the_name_of_its_file(here: Path, name: str):
    with ModelServer(answer) as server:
        called = evaluate(here, server, "-o", f"out/{name}")
    text = (here / "out" / name).read_text()
    assert f"out/{name} holds the report" in called.stderr
    if name.endswith("json"):
        assert json.loads(text)["summary"]["failed"] == 1
    elif name.endswith("md"):
        assert "## sum-0: failed" in text
        assert "> what is 0 + 1?" in text
    else:
        suite = ET.fromstring(text).find("testsuite")
        assert suite is not None
        assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
        failure = suite.find("testcase/failure")
        assert failure is not None and "is too far" in str(failure.get("message"))


def test_xml_takes_whatever_a_model_says(here: Path):
    with ModelServer(lambda _: "<&\x00\x1b]]>\ufffe") as server:
        called = evaluate(here, server, "--format", "junit", cases=1)
    assert ET.fromstring(called.stdout).find("testsuite/testcase/failure") is not None


def test_where_all_pass_the_exit_code_is_0(here: Path):
    with ModelServer(answer) as server:
        write_agent(here, server.v1, 6)
        assert kept("test", "run", "--filter", "sum-1").code == 0
        assert kept("test", "agent.yaml", "--filter", "sum-1").code == 0
        assert kept("test", ".", "--filter", "sum-1").code == 0
        assert kept("test", "run", "agent.yaml", "-n", "2").code == 1


def test_a_wrong_file_is_2_with_every_problem_and_no_run(here: Path):
    write_agent(here, "http://127.0.0.1:9/v1")
    text = (here / "agent.yaml").read_text()
    (here / "agent.yaml").write_text(text.replace("metric: numeric", "metric: numerics") + "x: 1\n")
    called = kept("test", "run")
    assert called.code == 2
    assert "agent.yaml:12 evaluations.metrics[0].metric: the text `numerics`" in called.stderr
    assert "did you mean `numeric`?" in called.stderr
    assert "agent.yaml:14 x: unknown key" in called.stderr
    assert not (here / ".kept").exists()


def test_a_model_that_does_not_answer_is_3_and_the_other_cases_finish(here: Path):
    def down(seen: Seen) -> Fault | None:
        return Fault("status", 500) if "0 + 1" in str(seen.body) else None

    with ModelServer(answer, faults=down) as server:
        called = evaluate(here, server, "--json", "--set", "execution.llm_timeout=1")
    assert called.code == 3
    assert [r["status"] for r in called.json["results"]] == ["errored", "passed", "passed"]
    assert called.json["summary"]["pass_rate"] == 100


def test_a_judge_that_does_not_answer_is_4_and_is_counted_apart(here: Path):
    def say(seen: Seen) -> ModelReply | str | Fault:
        return Fault("status", 400, "no") if seen.model == "gpt-4o-judge" else answer(seen)

    with ModelServer(say) as server:
        path = write_agent(here, server.v1, 3)
        judge = f'{{provider: openai, name: gpt-4o-judge, endpoint: "{server.v1}"'
        judge += ', api_key: "${KEY}"}'
        more = f"    - {{type: standard, metric: fluency, model: {judge}}}\n"
        path.write_text(path.read_text().replace("test_cases_file", more + "test_cases_file"))
        called = kept("eval", "agent.yaml", "--json")
    assert called.code == 4
    assert called.json["summary"]["errored_metrics"] == {
        "fluency": {"errored": 6, "of": 6, "share": 1.0}
    }
    assert called.json["summary"]["average_scores"]["numeric"] == pytest.approx(5 / 6)


def test_a_case_is_shown_by_its_name(here: Path):
    with ModelServer(answer) as server:
        evaluate(here, server, "-q")
    called = kept("show", "last", "sum-0")
    assert "  used      add(a=0, b=1)" in called.stdout
    assert "  expected  -1" in called.stdout
    assert kept("show", "last", "sum-9").code == 2
    assert "sums: 2 of 3 cases pass" in kept("show").stdout
    assert "2 of 3 cases pass, 1 fail" in kept("runs").stdout
    assert "| sum-0 | failed | 0.5 |" in kept("report").stdout
    assert kept("adopt").stderr.startswith("nothing to adopt: a run that only measures")


def test_two_runs_side_by_side_say_which_cases_flipped_and_whether_that_is_real(here: Path):
    with ModelServer(answer) as server:
        evaluate(here, server, "-q", cases=12)
        text = (here / "cases.yaml").read_text()
        # with its truths mended, what failed passes
        for n in range(0, 12, 3):
            text = text.replace("ground_truth: '-1'", f"ground_truth: '{2 * n + 1}'", 1)
        (here / "cases.yaml").write_text(text)
        assert kept("eval", "agent.yaml", "-q").code == 0
    first, second = sorted(path.name for path in (here / ".kept" / "runs").iterdir())
    told = kept("diff", first, second, "--json").json
    assert [flip["case"] for flip in told["better"]] == ["sum-0", "sum-3", "sum-6", "sum-9"]
    assert told["worse"] == []
    passed = told["metrics"]["passed"]
    assert passed["difference"] == pytest.approx(4 / 12)
    assert passed["low"] <= passed["difference"] <= passed["high"]
    assert kept("diff", second, first, "--json").json["worse"] == [
        {**flip, "first": flip["second"], "second": flip["first"]} for flip in told["better"]
    ]
    words = kept("diff", first, second).stdout
    assert "passed 0.666667 → 1" in words
    assert "fails" in words and "passes" in words


def test_a_task_is_measured_as_it_stands(here: Path):
    write_task(here)
    called = kept("eval", "task.yaml", "--json")
    assert called.code == 0
    assert called.json["summary"]["average_scores"] == {"score": 1.0}


def test_runs_that_did_not_measure_are_not_held_side_by_side(here: Path):
    write_task(here, iterations=1)
    assert kept("optimize", "task.yaml", "-q").code == 0
    called = kept("diff", "last", "last")
    assert called.code == 2
    assert "did not measure cases" in called.stderr


def test_a_report_is_not_written_through_a_link_to_a_file(here: Path):
    (here / "mine").write_text("mine")
    (here / "report.json").symlink_to("mine")
    with ModelServer(answer) as server:
        called = evaluate(here, server, "--output", "report.json", cases=1)
    assert (called.code, len(server.log)) == (2, 0), called.stderr
    assert "cannot write report.json: it is a link" in called.stderr
    assert (here / "mine").read_text() == "mine"
