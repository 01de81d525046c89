"""The built-in runners, scorers, proposers, schedules and sinks, and the fakes, pass the suites."""

import asyncio
import random
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.edit import Append, Replace
from kept.core.llm import ToolAnswer
from kept.core.objective import Objective
from kept.core.ports import Journal, Model, Proposer, Runner, Schedule, Scorer, Sink, Tool
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply
from kept.core.rollout import Failure, Pair, Rollout
from kept.core.schedules.bandit import Bandit
from kept.core.schedules.round_robin import Pooling, RoundRobin, Turns
from kept.evaluators.runners.function import FunctionRunner, RecordedScorer
from kept.proposers.function import FunctionProposer
from kept.proposers.variants import Variant, Variants
from kept.store.candidate_files import BestFolder
from kept.store.exports import CandidateFolder, ResultsFile
from kept.testing import (
    Faults,
    ModelSuite,
    Pool,
    ProposerSuite,
    RecordingSink,
    RunnerSuite,
    ScheduleSuite,
    ScorerSuite,
    ScriptedEvaluator,
    ScriptedModel,
    ScriptedProposer,
    ScriptedTool,
    SinkSuite,
    ToolSuite,
)


def half(candidate: Candidate, case: object) -> float:
    return 0.5


def crash(candidate: Candidate) -> float:
    raise ZeroDivisionError("no such luck")


def dawdle(candidate: Candidate) -> float:
    time.sleep(0.1)
    return 0.5


async def half_async(candidate: Candidate) -> float:
    await asyncio.sleep(0)
    return 0.5


async def crash_async(candidate: Candidate) -> float:
    return crash(candidate)


async def hang_async(candidate: Candidate) -> float:
    await asyncio.get_running_loop().create_future()
    return 0.5


class TestFunctionRunnerOnAPlainFunction(RunnerSuite):
    def make_runner(self) -> Runner:
        return FunctionRunner(half, "score", 2)

    def make_crashing_runner(self) -> Runner:
        return FunctionRunner(crash, "score", 2)

    def make_hanging_runner(self) -> Runner:
        # a thread in the user's code cannot be stopped, only left: it ends by itself
        return FunctionRunner(dawdle, "score", 2)

    def still_running(self) -> object:
        left = [t for t in threading.enumerate() if "kept-evaluate" in t.name]
        for thread in left:
            thread.join(timeout=5)
        return [thread for thread in left if thread.is_alive()]


class TestFunctionRunnerOnAnAsyncFunction(RunnerSuite):
    def make_runner(self) -> Runner:
        return FunctionRunner(half_async, "score", 2)

    def make_crashing_runner(self) -> Runner:
        return FunctionRunner(crash_async, "score", 2)

    def make_hanging_runner(self) -> Runner:
        return FunctionRunner(hang_async, "score", 2)


class TestFunctionRunnerWithATimeout(TestFunctionRunnerOnAnAsyncFunction):
    def make_runner(self) -> Runner:
        return FunctionRunner(half_async, "score", 2, timeout=60)

    def make_crashing_runner(self) -> Runner:
        return FunctionRunner(hang_async, "score", 2, timeout=0.01)

    def make_hanging_runner(self) -> Runner:
        return FunctionRunner(hang_async, "score", 2, timeout=60)


class TestScriptedEvaluator(RunnerSuite):
    def make_runner(self) -> Runner:
        return ScriptedEvaluator(quality=half, noise="pass/fail", seconds=lambda job: 1.0)

    def make_crashing_runner(self) -> Runner:
        return ScriptedEvaluator(quality=half, faults=Faults(crashes=1.0))

    def make_hanging_runner(self) -> Runner:
        return ScriptedEvaluator(quality=half, hangs=lambda job: True)


class TestRecordedScorer(ScorerSuite):
    def make_scorer(self) -> Scorer:
        return RecordedScorer()

    def rollouts(self) -> Sequence[Rollout]:
        return (Rollout(metrics={"score": 0.5}), Rollout(metrics={"a": 1.0, "b": -2.0}))


class TestScriptedModel(ModelSuite):
    def make_model(self) -> Model:
        return ScriptedModel(["yes"] * 4)

    def make_failing_model(self) -> Model:
        model = ScriptedModel(["yes"])
        model.fail(Failure("rate_limit", "infrastructure", "429"))
        return model


class TestScriptedModelFromAFunction(ModelSuite):
    def make_model(self) -> Model:
        return ScriptedModel(lambda request: request.messages[-1].text.upper())

    def make_failing_model(self) -> Model:
        return ScriptedModel([])


class TestScriptedTool(ToolSuite):
    async def open_tool(self) -> Tool:
        async def answer(arguments: Mapping[str, object]) -> ToolAnswer:
            return ToolAnswer("what?", wrong=True) if "odd" in arguments else ToolAnswer("yes")

        return ScriptedTool("ask", answer)

    async def open_hanging_tool(self) -> Tool | None:
        async def answer(arguments: Mapping[str, object]) -> ToolAnswer:
            await asyncio.sleep(60)
            return ToolAnswer("late")

        return ScriptedTool("wait", answer)

    def arguments(self) -> Mapping[str, object]:
        return {"a": 1}

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {"odd": 1}


class TestVariants(ProposerSuite):
    def make_proposer(self) -> Proposer:
        texts = ("one\n", "two\n", "a seed\n")
        return Variants(tuple(Variant({"text": text}, text.strip()) for text in texts))


class TestVariantsOutsideTheScope(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return Variants((Variant({"../elsewhere": "x"}, "1"), Variant({"/etc/passwd": "x"}, "2")))


def shuffled(brief: Brief) -> str:
    letters = list(brief.incumbent.text)
    random.Random(brief.seed).shuffle(letters)
    return "".join(letters)


async def asks_first(brief: Brief) -> ProposerReply:
    if len(brief.answers) < 2:
        pairs = tuple(Pair(case.id, len(brief.answers)) for case in brief.train)
        return Ask(brief.incumbent.id, pairs, "feedback")
    scores = [o.metrics["score"] for a in brief.answers for o in a.outcomes.values()]
    return Proposal((Append("text", f"{scores}\n"), Replace("text", "nowhere", "x")))


def seven(brief: Brief) -> int:
    return 7


class TestFunctionProposer(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return FunctionProposer(shuffled)


class TestFunctionProposerThatAsks(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return FunctionProposer(asks_first)


class TestFunctionProposerThatIsWrong(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return FunctionProposer(seven)


class TestScriptedProposer(ProposerSuite):
    def make_proposer(self) -> Proposer:
        return ScriptedProposer(lines=Pool().lines)


class TestScriptedProposerWithAModelAndFeedback(ProposerSuite):
    def make_proposer(self) -> Proposer:
        model = ScriptedModel(lambda request: f"because of {request.seed}")
        return ScriptedProposer(lines=Pool().lines, model=model, feedback=2, serial=True)


class TestRoundRobin(ScheduleSuite):
    def make_schedule(self) -> Schedule:
        return RoundRobin(("a", "b", "c"))

    def proposers(self) -> tuple[str, ...]:
        return ("a", "b", "c")


class TestBandit(ScheduleSuite):
    def make_schedule(self) -> Schedule:
        return Bandit(("a", "b", "c"), seed=3)

    def proposers(self) -> tuple[str, ...]:
        return ("a", "b", "c")


class TestPooling(ScheduleSuite):
    def make_schedule(self) -> Schedule:
        return Pooling(RoundRobin(("a", "b")), goal=0.5, most=8, late=100, sealed=True)

    def proposers(self) -> tuple[str, ...]:
        return ("a", "b", "merge", "prove", "claim")


class TestTurns(ScheduleSuite):
    def make_schedule(self) -> Schedule:
        return Turns("a", 4)

    def proposers(self) -> tuple[str, ...]:
        return ("a",)


class TestRecordingSink(SinkSuite):
    def make_sink(self, journal: Journal) -> Sink:
        return RecordingSink()


class TestBestFolder(SinkSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_sink(self, journal: Journal) -> Sink:
        return BestFolder(self.folder, journal)


class TestResultsFile(SinkSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "results.jsonl"

    def make_sink(self, journal: Journal) -> Sink:
        return ResultsFile(self.path, self.path.parent, Objective(), "skip", journal)


class TestCandidateFolder(SinkSuite):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    def make_sink(self, journal: Journal) -> Sink:
        return CandidateFolder(self.folder, self.folder.parent, journal)
