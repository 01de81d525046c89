"""The plan of an agent run, in a folder of its own, cut behind every line that it wrote."""

import asyncio
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.llm import ModelReply, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Runner
from kept.core.rollout import Failure
from kept.errors import JournalError, SetupError, SpecError
from kept.models.scripted import ScriptedModel
from kept.orchestrator.checks.execution import USUAL
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import own_artifacts
from kept.orchestrator.workers import ChatWorker
from kept.recipes.agent_run.compile import Halting, compile_agent_run, measures
from kept.recipes.agent_run.journal_view import agent_run_of, changed_files, delivered_by
from kept.recipes.agent_run.request import Asked
from kept.recipes.agent_run.spec import (
    USUAL_METRICS,
    AgentRunSpec,
    InvariantSpec,
    PhaseSpec,
    RunBudgetSpec,
)
from kept.run import check_drift, inputs_of, resume, start
from kept.sandbox.capabilities import abilities
from kept.store.codec import document_of
from kept.store.home import Home
from kept.store.jsonl import decoded
from kept.store.reader import Run
from kept.testing import RunnerSuite
from kept.ui.cli._refine_run import seed_folder
from tests.orchestrator.play import (
    Play,
    complete,
    delegate,
    done,
    kit_of,
    plan,
    runner_of,
    simple,
    tools_for,
    write,
)
from tests.sampling import sample, some_or_all

needs_walls = pytest.mark.skipif(not abilities().walls, reason="no walls here")


def _asked(folder: Path, **more: object) -> Asked:
    (folder / "replies.jsonl").write_text('"never asked"\n')
    said = ("models.manager=scripted/replies.jsonl",)
    return Asked(task="Write report.md", folder=str(folder), settings=said, **more)  # pyright: ignore[reportArgumentType] # checked by the class


def _plan(folder: Path, play: Play) -> Plan:
    """As it is compiled, with our own models in the place of those that it names."""
    made = compile_agent_run(_asked(folder)).plan
    runner = runner_of(kit_of(play), Assignment(task="Write report.md"), {"a": b"\xff"}, None)
    return replace(made, runner=Halting(replace(runner, measures=measures)))


def _play() -> Play:
    workers = {"w1": [write(), done("w1")], "w2": [write("output/b.md"), done("w2")]}
    return Play([plan("report.md", "b.md"), delegate("w1", "w2"), complete()], workers)


@needs_walls
def test_a_file_of_the_run_that_was_changed_is_found_and_never_refined_from(tmp_path: Path) -> None:
    ended = asyncio.run(start(_plan(tmp_path, _play()), Home(tmp_path / ".kept")))
    with Run(ended.folder) as run:
        assert changed_files(run) == []
    path = ended.folder / "run_completion.json"
    whole = path.read_bytes()
    for name in ("run_completion.json", "FINAL/report.md"):
        data = bytearray((ended.folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (ended.folder / name).write_bytes(data)
        with Run(ended.folder) as run:
            assert name in changed_files(run)
    # the folder, as `kept refine PATH` takes it
    assert seed_folder(str(ended.folder)) == ended.folder.resolve()
    assert path.read_bytes() == whole
    with Run(ended.folder) as run:
        assert changed_files(run) == []


@needs_walls
@pytest.mark.slow
@some_or_all
def test_a_run_cut_behind_any_line_of_its_files_resumes_to_the_same_end(
    tmp_path: Path, everything: bool
) -> None:
    whole = _play()
    ended = asyncio.run(start(_plan(tmp_path, whole), Home(tmp_path / ".kept")))
    with Run(ended.folder) as run:
        record, files = agent_run_of(run), dict(delivered_by(run))
    assert (
        record is not None
        and record.status == "complete"
        and sorted(files) == ["b.md", "report.md"]
    )
    spine = (ended.folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
    lines = (ended.folder / "rollouts.jsonl").read_bytes().splitlines(keepends=True)
    opened = next(n for n, line in enumerate(spine) if b'"kind":"proposed"' in line) + 1
    cuts = [(opened, n) for n in range(len(lines) + 1)] + [(n, 0) for n in range(1, opened)]
    cuts += [(n, len(lines)) for n in range(opened, len(spine) + 1)]
    for events, written in sample(cuts, 16, everything):
        place = tmp_path / "cut"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "journal.jsonl").write_bytes(b"".join(spine[:events]))
        (place / "rollouts.jsonl").write_bytes(b"".join(lines[:written]))
        shutil.copy(ended.folder / "blobs.pack", place)
        again = _play()
        asyncio.run(resume(_plan(tmp_path, again), place))
        with Run(place) as run:
            told, left = agent_run_of(run), dict(delivered_by(run))
        assert told is not None and (told.status, left) == ("complete", files)
        # every model reply that was written is heard, and nobody is asked for it again
        heard = sum(b'/works/say-0"' in line for line in lines[:written])
        asked = sum(who in ("w1", "w2") for who, _ in again.heard)
        assert asked + heard == 4, (events, written)


@needs_walls
def test_an_outage_stops_the_run_and_leaves_it_open(tmp_path: Path) -> None:
    play = _play()
    made = _plan(tmp_path, play)
    assert isinstance(made.runner, Halting)

    async def away(request: ModelRequest) -> ModelReply | Failure:
        return Failure("server", "infrastructure", "the server is down", tried=True)

    broken = ScriptedModel(play.of_request, name="scripted/play")
    broken.complete = away  # pyright: ignore[reportAttributeAccessIssue] # a model that is away
    kit = replace(made.runner.runner.kit, works=ChatWorker(broken, tools_for))
    made = replace(made, runner=Halting(replace(made.runner.runner, kit=kit)))
    ended = asyncio.run(start(made, Home(tmp_path / ".kept")))
    assert ended.state.stopped is not None and ended.state.stopped.kind == "error"
    assert "the server is down" in ended.state.stopped.message
    again = _play()
    asyncio.run(resume(_plan(tmp_path, again), ended.folder))
    with Run(ended.folder) as run:
        record = agent_run_of(run)
    assert record is not None and record.status == "complete"
    assert [who for who, _ in again.heard][:2] == ["w1", "w2"], "the manager is not asked again"


@needs_walls
@pytest.mark.parametrize("changed", ["budget.max_loops=50", "budget.max_repairs=1"])
def test_a_run_does_not_go_on_with_another_budget(tmp_path: Path, changed: str) -> None:
    """The manager is told what is left: with another budget, all would be asked for again."""
    asked = _asked(tmp_path)
    then = inputs_of(compile_agent_run(asked).plan)
    now = inputs_of(compile_agent_run(replace(asked, settings=(*asked.settings, changed))).plan)
    with pytest.raises(JournalError, match="cannot resume r1: budget changed") as refused:
        check_drift(then, now, "r1")
    assert "start a new run" in (refused.value.hint or "")


@needs_walls
def test_a_run_notices_that_the_usual_model_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replace(_asked(tmp_path), settings=())
    monkeypatch.setenv("KEPT_MODEL", "scripted/replies.jsonl")
    then = inputs_of(compile_agent_run(asked).plan)
    (tmp_path / "others.jsonl").write_text('"never asked"\n')
    monkeypatch.setenv("KEPT_MODEL", "scripted/others.jsonl")
    with pytest.raises(JournalError, match="settings changed"):
        check_drift(then, inputs_of(compile_agent_run(asked).plan), "r1")


@needs_walls
def test_a_resume_compiles_what_was_asked(tmp_path: Path) -> None:
    asked = _asked(tmp_path, tags=("a",), brief="Mend the title.", parent_run_id="r0")
    made = compile_agent_run(asked).plan
    assert decoded(document_of(made.request), Asked, "request") == asked


@needs_walls
def test_a_budget_of_money_needs_prices(tmp_path: Path) -> None:
    asked = _asked(tmp_path)
    more = ("models.manager=openai_compatible/m", "budget.max_usd=1")
    local = "models.manager={provider: openai_compatible, model: m, base_url: http://x.example/v1}"
    with pytest.raises(SetupError, match="cannot be kept"):
        compile_agent_run(replace(asked, settings=(local, more[1])))
    agent = ("worker_agent=codex_exec", more[1])
    with pytest.raises(SpecError, match="usd_per_errand"):
        compile_agent_run(replace(asked, settings=(*asked.settings, *agent)))


@needs_walls
def test_an_agent_cli_that_nobody_knows_is_told_with_what_may_be_meant(tmp_path: Path) -> None:
    asked = _asked(tmp_path)
    with pytest.raises(SpecError, match="did you mean `codex_exec`"):
        compile_agent_run(replace(asked, settings=(*asked.settings, "worker_agent=codex")))
    phases = "phases=[{name: a, command: 'true'}, {name: a, command: 'true'}]"
    with pytest.raises(SpecError, match="did you mean `codex_exec`"):
        compile_agent_run(replace(asked, settings=(*asked.settings, "worker_agent=codex", phases)))
    with pytest.raises(SpecError, match="two `phases` are called `a`"):
        compile_agent_run(replace(asked, settings=(*asked.settings, phases)))


@needs_walls
def test_an_agent_cli_is_sent_to_no_model_that_it_cannot_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent there with the key of another, after the manager had been paid."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    asked = _asked(tmp_path)
    claude = (*asked.settings, "worker_agent=claude_code_exec")
    for model in ("openai/gpt-5-mini", "scripted/replies.jsonl"):
        with pytest.raises(SetupError, match=f"cannot ask `{model}`") as refused:
            compile_agent_run(replace(asked, settings=(*claude, f"models.worker={model}")))
        assert refused.value.hint is not None and "anthropic" in refused.value.hint
    with pytest.raises(SetupError, match="ANTHROPIC_API_KEY is not set"):
        compile_agent_run(replace(asked, settings=(*claude, "models.worker=anthropic/m")))


def test_the_guide_names_every_key_of_a_file() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guide" / "agent-runs.md").read_text()
    keys = [*AgentRunSpec.model_fields, *PhaseSpec.model_fields, *RunBudgetSpec.model_fields]
    keys += [name for name in InvariantSpec.model_fields if name not in ("kind", "path")]
    assert [key for key in keys if not re.search(rf"`(\w+\.)?{key}\b", guide)] == []


class TestAgentRunner(RunnerSuite):
    """An agent run does what every runner does."""

    def make_runner(self) -> Runner:
        return runner_of(kit_of(simple()), Assignment(task="Write report.md"), {}, None)

    def make_crashing_runner(self) -> Runner | None:
        play = simple()
        kit = kit_of(play)

        async def away(request: ModelRequest) -> ModelReply | Failure:
            return Failure("server", "infrastructure", "the server is down")

        broken = ScriptedModel(play.of_request)
        broken.complete = away  # pyright: ignore[reportAttributeAccessIssue] # a model that is away
        return runner_of(replace(kit, manager=broken), Assignment(task="Write"), {}, None)

    def make_hanging_runner(self) -> Runner | None:
        async def never(request: ModelRequest) -> ModelReply | Failure:
            await asyncio.sleep(600)
            return ModelReply("late")

        slow = ScriptedModel(simple().of_request)
        slow.complete = never  # pyright: ignore[reportAttributeAccessIssue] # a model that hangs
        kit = replace(kit_of(simple()), works=ChatWorker(slow, tools_for))
        return runner_of(kit, Assignment(task="Write"), {}, None)

    def candidate(self) -> Candidate:
        return Candidate(own_artifacts())


def test_the_names_of_usual_metrics_that_a_file_may_not_take_are_those_of_the_evaluation():
    assert tuple(one.name for one in USUAL) == USUAL_METRICS
