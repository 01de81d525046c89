"""What holodeck gets wrong, from an agent.yaml that shows it to the report."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.results.cases import Sweep
from kept.testing.server import Fault, ModelServer, Seen
from kept.ui.report.eval_report import document, exit_code
from tests.recipes.agent_config.spec.agents import write
from tests.recipes.agent_config.test_agent import measured, plan_of
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

HEAD = """\
name: original
model: {{provider: openai, name: gpt-4o-mini, endpoint: "{url}"}}
instructions: {{inline: Answer.}}
"""
JUDGE = '{{provider: openai, name: judge, endpoint: "{url}"}}'
ADD = "tools: [{type: function, name: add, description: d, file: add.py, function: add}]\n"
GRADE = json.dumps({"reason": "because", "grade": 5})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def agent(server: ModelServer, folder: Path, rest: str, **files: str) -> Path:
    text = HEAD.format(url=server.v1) + rest
    return write(
        folder, {"agent.yaml": text, **{f"{name}.py": said for name, said in files.items()}}
    )


def sweep_of(server: ModelServer, folder: Path, rest: str, **files: str) -> Sweep:
    return measured(plan_of(agent(server, folder, rest, **files)), folder)


def cases(count: int, truth: str = "42") -> str:
    rows = (f"- {{name: c{n}, input: question {n}, ground_truth: '{truth}'}}" for n in range(count))
    return "\n".join(("test_cases:", *rows)) + "\n"


def statuses(sweep: Sweep) -> list[str]:
    return [one.status for one in sweep.cases]


def test_an_agent_that_says_nothing_in_18_of_20_cases_passes_2(tmp_path: Path):
    """Bug 1: that came to 20 passes and a loss of 0."""

    def say(seen: Seen) -> str:
        return "42" if seen.text in ("question 3", "question 11") else ""

    rest = "evaluations: {metrics: [{metric: equality}, {metric: numeric}]}\n" + cases(20)
    with ModelServer(say) as server:
        sweep = sweep_of(server, tmp_path, rest)
    assert (sweep.count("passed"), sweep.count("failed")) == (2, 18)
    assert {name: (mean.score, mean.cases) for name, mean in sweep.means.items()} == {
        "equality": (0.1, 20),
        "numeric": (0.1, 20),
    }


def test_an_agent_that_comes_to_no_answer_has_the_worst_score_in_the_mean(tmp_path: Path):
    """Bug 1: what went wrong in an agent was left out of the mean, so failing paid."""

    def say(seen: Seen) -> ModelReply | str:
        if seen.text == "question 0":
            call = ToolCall(f"call-{seen.number}", "add", "{}")
            return ModelReply("", finish="tool_calls", tool_calls=(call,))
        return "42"

    rest = "openai: {max_turns: 2}\nevaluations: {metrics: [{metric: equality}]}\n" + ADD + cases(2)
    with ModelServer(say) as server:
        sweep = sweep_of(server, tmp_path, rest, add="def add() -> int:\n    return 1\n")
    assert statuses(sweep) == ["failed", "passed"]
    assert (sweep.means["equality"].score, sweep.means["equality"].cases) == (0.5, 2)


def test_ten_right_of_twenty_are_a_mean_of_one_half_and_twenty_measures(tmp_path: Path):
    """Bug 3: they were told as 1.0, and `metrics_evaluated` counted only those above 0."""

    def say(seen: Seen) -> str:
        return "42" if int(seen.text.split()[-1]) < 10 else "41"

    rest = "evaluations: {metrics: [{metric: equality}]}\n" + cases(20)
    with ModelServer(say) as server:
        summary = document(sweep_of(server, tmp_path, rest))["summary"]
    assert summary["average_scores"] == {"equality": 0.5}
    assert summary["metrics_evaluated"] == {"equality": 20}


OFFLINE = """\
import sys

def refuse(event, args):
    if event.startswith(("socket.connect", "socket.getaddrinfo", "urllib.")):
        raise SystemExit(f"{event} {args}")

sys.addaudithook(refuse)
from kept.evaluators.metrics.deterministic import likeness
texts = ("the car sat down", "the automobile sat down")
print([likeness(name, *texts).score > 0 for name in sys.argv[1:]])
"""


def test_rouge_and_meteor_fetch_nothing_when_they_run(tmp_path: Path):
    """Bug 12: both were fetched over the network in the middle of a run."""
    words = [sys.executable, "-c", OFFLINE, "bleu", "rouge", "meteor"]
    # of a home with nothing in it: no corpus that somebody has fetched before
    done = subprocess.run(
        words, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[True, True, True]\n", done.stderr


SETTINGS = """\
evaluations:
  model: {judge}
  metrics:
  - {{metric: equality, enabled: false}}
  - {{type: geval, name: off, criteria: c, enabled: false}}
  - {{type: rag, metric_type: faithfulness, enabled: false}}
  - {{type: code, grader: "nowhere:f", enabled: false}}
  - {{metric: numeric, absolute_tolerance: 0.01}}
  - {{metric: numeric, absolute_tolerance: 1.0}}
  - {{metric: fluency, custom_prompt: "Read it aloud, up to {{{{kept.scale}}}}.", scale: 10}}
"""


def test_what_a_file_says_of_a_metric_is_heeded(tmp_path: Path):
    """Bug 13: `enabled: false` and `custom_prompt` were dead, two of a name had one evaluator."""
    with ModelServer(lambda seen: GRADE if seen.model == "judge" else "42.5") as server:
        rest = SETTINGS.format(judge=JUDGE.format(url=server.v1)) + cases(1)
        sweep = sweep_of(server, tmp_path, rest)
        asked = [str(seen.body["messages"]) for seen in server.log if seen.model == "judge"]
    assert sweep.cases[0].metrics == {
        "numeric": 0.0,
        "numeric_2": 1.0,
        "fluency": 0.5,
        "passed": 0.0,
    }
    assert len(asked) == 1 and "Read it aloud, up to 10." in asked[0]


def test_a_judge_is_asked_again_as_often_as_the_file_says(tmp_path: Path):
    """Bug 13: `retry_on_failure` was dead."""

    def say(seen: Seen) -> str | Fault:
        return Fault("status", 400, "no") if seen.model == "judge" else "42"

    with ModelServer(say) as server:
        judge = JUDGE.format(url=server.v1)
        metric = f"{{metric: fluency, retry_on_failure: 3, model: {judge}}}"
        sweep = sweep_of(server, tmp_path, f"evaluations: {{metrics: [{metric}]}}\n" + cases(1))
        asked = sum(seen.model == "judge" for seen in server.log)
    assert statuses(sweep) == ["errored"]
    assert asked == 4 and sweep.cases[0].measured[0].tries == 4


def test_a_judge_that_hangs_is_given_up_when_the_file_says(tmp_path: Path):
    """Bug 13: `timeout_ms` was dead."""

    def say(seen: Seen) -> Fault | None:
        hangs = seen.model == "judge" and "question 0" in str(seen.body)
        return Fault("slow", seconds=3600) if hangs else None

    with ModelServer(
        lambda seen: GRADE if seen.model == "judge" else seen.text, faults=say
    ) as server:
        judge = JUDGE.format(url=server.v1)
        metric = f"{{metric: fluency, timeout_ms: 1500, retry_on_failure: 1, model: {judge}}}"
        sweep = sweep_of(server, tmp_path, f"evaluations: {{metrics: [{metric}]}}\n" + cases(2))
    assert statuses(sweep) == ["errored", "passed"]
    assert "did not answer within 1.5 seconds" in sweep.cases[0].measured[0].error


INDEX = """\
embedding_provider: {{provider: openai, name: text-embedding-3-small, endpoint: "{url}"}}
tools: [{{type: vectorstore, name: search, description: d, source: docs}}]
evaluations: {{metrics: [{{metric: equality}}]}}
"""


def search(seen: Seen) -> ModelReply | str:
    """Search once, and answer."""
    if seen.tool_results:
        return "42"
    call = ToolCall("call", "search", json.dumps({"query": "parcels"}))
    return ModelReply("", finish="tool_calls", tool_calls=(call,))


def test_force_ingest_takes_the_sources_in_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Bug 13: `--force-ingest` was dead."""
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"docs/a.md": "Parcels are sent.\n", "docs/b.md": "Cards are lost.\n"})
    with ModelServer(search) as server:
        agent(server, tmp_path, INDEX.format(url=server.v1) + cases(1))

        def ingests(*words: str) -> int:
            before = len(server.log)
            called = kept("test", "run", "agent.yaml", "-q", *words)
            assert called.code == 0, called.stderr
            asked = [str(s.body["input"]) for s in server.log[before:] if s.wire == "embeddings"]
            return sum("Cards are lost." in texts for texts in asked)

        assert [ingests(), ingests(), ingests("-f"), ingests("--force-ingest"), ingests()] == [
            *(1, 0),
            *(1, 1, 0),
        ]


HALF_A_JUDGE = """\
evaluations:
  model: {provider: anthropic, name: claude-haiku-4-5}
  metrics: [{metric: equality}, {metric: numeric}, {metric: bleu}, {metric: rouge}]
"""


def test_a_judge_without_a_key_is_not_needed_to_compare(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Bug 14: equality, numeric, bleu and rouge raised that Azure metrics need a key."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with ModelServer(lambda _: "42") as server:
        sweep = sweep_of(server, tmp_path, HALF_A_JUDGE + cases(2))
    assert statuses(sweep) == ["passed", "passed"]


MUST = """\
evaluations:
  metrics: [{type: code, grader: "graders:grade", fail_on_error: true}, {metric: equality}]
"""
RAISING = """\
def grade(ctx):
    if ctx.turn_input == "question 1":
        raise ValueError("no such column")
    return True
"""


def test_a_grader_that_must_not_fail_ends_its_case_and_the_others_finish(tmp_path: Path):
    """Bug 13: `fail_on_error` was dead; bug 15: where it was not, it ended the whole run."""
    with ModelServer(lambda _: "42") as server:
        sweep = sweep_of(server, tmp_path, MUST + cases(3), graders=RAISING)
    assert statuses(sweep) == ["passed", "errored", "passed"]
    assert [[one.metric for one in case.measured] for case in sweep.cases] == [
        ["grade", "equality"],
        ["grade"],
        ["grade", "equality"],
    ]


TOLD = """\
def grade(ctx):
    uses = [(use.name, use.result) for use in ctx.tool_invocations]
    return ctx.test_case_name == "c0" and uses == [("add", "1")]
"""


def test_a_grader_of_a_case_of_one_turn_knows_its_name_and_its_tools(tmp_path: Path):
    """Bug 15: the name was None, and there were no tools."""

    def say(seen: Seen) -> ModelReply | str:
        if seen.tool_results:
            return "42"
        return ModelReply("", finish="tool_calls", tool_calls=(ToolCall("call", "add", "{}"),))

    rest = "evaluations: {metrics: [{type: code, grader: 'graders:grade'}]}\n" + ADD + cases(1)
    with ModelServer(say) as server:
        sweep = sweep_of(
            server, tmp_path, rest, add="def add() -> int:\n    return 1\n", graders=TOLD
        )
    assert statuses(sweep) == ["passed"]


def test_what_went_wrong_in_a_metric_is_told_with_it(tmp_path: Path):
    """Bug 16: the evaluator's own error was thrown away."""
    with ModelServer(lambda _: "42") as server:
        sweep = sweep_of(server, tmp_path, MUST + cases(2), graders=RAISING)
    (metric,) = document(sweep)["results"][1]["metric_results"]
    assert metric["error"] == "`graders:grade` raised ValueError: no such column"
    assert metric["blame"] == "infrastructure"
    assert exit_code(sweep) == 4


MEETING = """\
import socket

def grade(ctx):
    with socket.create_connection(("127.0.0.1", {port}), 20) as door:
        return door.recv(2) == b"go"
"""


@pytest.fixture
def door() -> Iterator[int]:
    """A port where whoever comes is told to go on once there are two of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def wait() -> None:
            with suppress(OSError), server.accept()[0] as one, server.accept()[0] as other:
                one.sendall(b"go")
                other.sendall(b"go")

        threading.Thread(target=wait, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_a_grader_that_waits_holds_up_no_other_case(tmp_path: Path, door: int):
    """Bug 16: graders ran in the event loop. Of these two each waits until the other has begun."""
    with ModelServer(lambda _: "42") as server:
        rest = "evaluations: {metrics: [{type: code, grader: 'graders:grade'}]}\n" + cases(2)
        sweep = sweep_of(server, tmp_path, rest, graders=MEETING.format(port=door))
    assert statuses(sweep) == ["passed", "passed"]


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """For each file that is opened and called `notes`, whether an event loop waits for it."""
    opened: list[bool] = []
    plain: Any = Path.open

    def noted(path: Path, *args: Any, **given: Any) -> Any:
        if path.name == "notes.txt":
            opened.append(asyncio._get_running_loop() is not None)
        return plain(path, *args, **given)

    monkeypatch.setattr(Path, "open", noted)
    yield opened


def test_the_files_of_a_case_are_read_beside_the_event_loop(tmp_path: Path, reading: list[bool]):
    """Bug 16: all cases waited while one of them had its documents read."""
    rest = "evaluations: {metrics: [{metric: equality}]}\ntest_cases:\n"
    rest += "- {name: a, input: read, ground_truth: '42', files: [{path: notes.txt, type: text}]}\n"
    (tmp_path / "notes.txt").write_text("The answer is 42.\n")
    with ModelServer(lambda seen: seen.text.split()[-1].rstrip(".")) as server:
        plan = plan_of(agent(server, tmp_path, rest))
        reading.clear()
        sweep = measured(plan, tmp_path)
    assert statuses(sweep) == ["passed"]
    assert reading == [False]
