"""An agent.yaml as a plan: it talks with its tools, is measured, and goes on where it was cut."""

import asyncio
from pathlib import Path

import pytest

from kept.core.llm import ModelReply
from kept.core.plan import Plan
from kept.errors import SetupError, SpecError
from kept.recipes.agent_config.compile import compile_agent
from kept.recipes.evaluate.request import Wanted
from kept.results.cases import Sweep, sweep_of
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from tests.recipes.agent_config.world import answer, write_agent
from tests.recipes.cutting import check_every_cut
from tests.sampling import some_or_all

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-a-secret-that-nobody-sees")


def plan_of(path: Path, wanted: Wanted | None = None) -> Plan:
    return compile_agent(path, wanted or Wanted()).plan


def measured(plan: Plan, folder: Path) -> Sweep:
    ended = asyncio.run(start(plan, Home(folder / ".kept")))
    with Run(ended.folder) as run:
        sweep = sweep_of(run)
    assert sweep is not None
    return sweep


def test_an_agent_uses_its_tool_and_remembers_what_was_said(tmp_path: Path):
    with ModelServer(answer) as server:
        sweep = measured(plan_of(write_agent(tmp_path, server.v1)), tmp_path)
    assert [one.status for one in sweep.cases] == ["failed", "passed", "passed"] * 2
    one = sweep.cases[1]
    first, second = one.exchanges
    assert [(use.name, dict(use.arguments), use.result) for use in first.uses] == [
        ("add", {"a": 1, "b": 2}, "3")
    ]
    assert (first.response, second.response) == ("3", "6.0")
    assert one.truths == {0: "3", 1: "6"}
    assert one.usage.calls == 3
    assert sweep.means["numeric"].score == pytest.approx(10 / 12)


def test_a_score_of_zero_counts_in_the_mean(tmp_path: Path):
    with ModelServer(lambda _: "no number") as server:
        path = write_agent(tmp_path, server.v1, 4)
        sweep = measured(plan_of(path), tmp_path)
    assert sweep.means["numeric"].score == 0
    assert sweep.means["numeric"].cases == 4


def test_an_empty_answer_is_scored_as_any_other(tmp_path: Path):
    with ModelServer(lambda _: ModelReply("")) as server:
        path = write_agent(tmp_path, server.v1, 2)
        sweep = measured(plan_of(path), tmp_path)
    assert [one.status for one in sweep.cases] == ["failed", "failed"]
    assert sweep.means["numeric"].score == 0


def test_numbers_of_the_model_are_really_sent(tmp_path: Path):
    with ModelServer(answer) as server:
        path = write_agent(tmp_path, server.v1, 1)
        text = path.read_text().replace("name: gpt-5-mini", "name: gpt-4o-mini, temperature: 0.7")
        path.write_text(text.replace("temperature: 0.7", "temperature: 0.7, top_p: 0.9"))
        measured(plan_of(path), tmp_path)
        sent = server.log[0].body
    assert (sent["temperature"], sent["top_p"]) == (0.7, 0.9)
    assert 1000 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


def test_a_secret_is_sent_and_written_down_nowhere(tmp_path: Path):
    with ModelServer(answer) as server:
        measured(plan_of(write_agent(tmp_path, server.v1)), tmp_path)
        assert "sk-a-secret" in server.log[0].headers["authorization"]
    written = [path for path in (tmp_path / ".kept").rglob("*") if path.is_file()]
    assert written
    for path in written:
        assert b"sk-a-secret" not in path.read_bytes(), path


def test_what_a_model_is_asked_in_circles_is_the_agents_own_failure(tmp_path: Path):
    def always(seen: Seen) -> ModelReply | str:
        reply = answer(seen)
        return reply if isinstance(reply, ModelReply) else answer(_without_results(seen))

    with ModelServer(always) as server:
        path = write_agent(tmp_path, server.v1, 1, extra="openai: {max_turns: 3}\n")
        sweep = measured(plan_of(path), tmp_path)
    (one,) = sweep.cases
    assert one.status == "failed"
    assert one.failure is not None and one.failure.blame == "candidate"
    assert one.why == "the model wanted tools 3 times, and did not answer"
    assert len(one.exchanges[0].uses) == 3, "what happened is worth having"


def _without_results(seen: Seen) -> Seen:
    messages = [m for m in seen.body["messages"] if m["role"] in ("system", "user")]
    return Seen(
        seen.number, seen.wire, seen.path, seen.headers, {**seen.body, "messages": messages}
    )


def test_an_outage_is_tried_again_and_is_nobodys_failure(tmp_path: Path):
    down = [Fault("status", 503)] * 2
    with ModelServer(answer, faults=down) as server:
        sweep = measured(plan_of(write_agent(tmp_path, server.v1, 2)), tmp_path)
    assert [one.status for one in sweep.cases] == ["failed", "passed"]


def test_cases_are_chosen_by_name_and_number(tmp_path: Path):
    path = write_agent(tmp_path, "http://127.0.0.1:9/v1", 12)
    names = [case.id for case in plan_of(path, Wanted(filter="sum-1", limit=2)).cases.holdout]
    assert names == ["sum-1", "sum-10"]
    names = [case.id for case in plan_of(path, Wanted(filter="*-1?")).cases.holdout]
    assert names == ["sum-10", "sum-11"]
    with pytest.raises(SetupError, match="no case is called like `refund`"):
        plan_of(path, Wanted(filter="refund"))


def test_every_repeat_draws_with_a_seed_of_its_own(tmp_path: Path):
    with ModelServer(answer) as server:
        path = write_agent(tmp_path, server.v1, 2)
        path.write_text(path.read_text().replace("gpt-5-mini", "gpt-4o-mini"))
        sweep = measured(plan_of(path, Wanted(repeats=3)), tmp_path)
        seeds = {seen.body.get("seed") for seen in server.log}
    assert len(sweep.cases) == 6
    assert len(seeds) == 6


def test_what_only_looking_further_tells_is_told_at_once(tmp_path: Path):
    path = write_agent(tmp_path, "http://127.0.0.1:9/v1", 1)
    text = path.read_text().replace("file: sums.py", "file: sum.py")
    text = text.replace(
        "threshold: 1.0}\n", "threshold: 1.0}\n    - {type: code, grader: 'gone:f'}\n"
    )
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        plan_of(path)
    told = "\n".join(map(str, caught.value.problems))
    assert "tools[0].file" in told
    assert "sum.py" in told


def of_a_model(scope: str) -> bool:
    return "/tools-" not in scope


@some_or_all
def test_cut_after_anything_it_wrote_it_resumes_to_the_same_end(tmp_path: Path, everything: bool):
    with ModelServer(answer) as server:
        path = write_agent(tmp_path / "agent", server.v1, 3)
        state = check_every_cut(
            lambda: plan_of(path), server, tmp_path, everything=everything, asks=of_a_model
        )
    assert state.history[0].verdict.code == "measured"
