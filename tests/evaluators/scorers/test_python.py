# ruff: noqa: E501 # a row of a table reads better than it wraps

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from kept.core.ports import Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.engine.replay import JournalScope
from kept.evaluators.scorers.function import Function, PythonScorer, problem_with
from kept.sandbox.process import descendants
from kept.testing import MemoryJournal, ScorerSuite
from tests.evaluators.scorers.scoring import CANDIDATE, CASE, EMPTY, score
from tests.processes import is_gone

MODULE = """
import os, sys, time, signal
import helper

print("imported")

def length(output):
    return len(output)

def everything(candidate, case, output, files, metrics):
    print("to nobody")
    return {
        "score": case["answer"],
        "metrics": {"texts": len(candidate["prompt.md"]), "files": len(files["a/b"])},
        "findings": [output],
        "seconds": metrics["seconds"] * helper.TWO,
    }

def anything(**given):
    return sorted(given).index("files")

async def waits(output):
    return True

def positional(candidate, /): return 1
def asks_for_more(output, model): return 1
def optional(output, model=None): return 0.5
def raises(output): raise KeyError("no such thing")
def leaves(output): sys.exit("good bye")
def dies(output): os.kill(os.getpid(), signal.SIGKILL)
def ends(output): print("last words", file=sys.stderr, flush=True); os._exit(3)
def hangs(output): time.sleep(60)
def hangs_once(output):
    if output: time.sleep(60)
    return 1
def text(output): return "high"
def nothing(output): return None
def not_a_number(output): return float("nan")
def writes(output): os.write(1, b'{"result": 99}\\n'); return 1
def deep(case): return case["a"][0]

class Weird:
    def item(self): return 0.25
def foreign(output): return {"score": Weird()}

class Grader:
    @staticmethod
    def grade(output): return 4

CONSTANT = 3
"""


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    (tmp_path / "graders.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("TWO = 2\n")
    (tmp_path / "broken.py").write_text("import helper\n1 / 0\n")
    (tmp_path / "needy.py").write_text("import no_such_package\n")
    return tmp_path


def say(folder: Path, name: str, rollout: Rollout = EMPTY, seconds: float = 20) -> object:
    scorer = PythonScorer(Function(f"graders:{name}", folder, seconds))
    try:
        return score(scorer, rollout)
    finally:
        asyncio.run(scorer.close())


class TestPythonScorer(ScorerSuite):
    @pytest.fixture(autouse=True)
    def _in_a_folder(self, folder: Path) -> None:
        self.folder = folder

    def make_scorer(self) -> Scorer:
        return PythonScorer(Function("graders:length", self.folder))

    def rollouts(self) -> list[Rollout]:
        return [Rollout(output="abc"), Rollout(output="\ud800é", metrics={"seconds": 1.0})]


def test_a_function_gets_what_it_asks_for_and_returns_what_a_command_would_print(folder: Path):
    rollout = Rollout("fine", {"seconds": 1.5}, {"a/b": b"\xff\x00\x01"})
    assert say(folder, "everything", rollout) == Score(
        {"seconds": 3.0, "texts": 6.0, "files": 3.0, "score": 2.0}, (Finding("fine"),)
    )


@pytest.mark.parametrize(
    ("name", "number"),
    [("anything", 2), ("waits", 1), ("optional", 0.5), ("foreign", 0.25), ("Grader.grade", 4)],
)
def test_what_can_be_called_can_score(name: str, number: float, folder: Path):
    assert say(folder, name) == Score({"score": number})


def test_a_primary_metric_that_is_a_text_is_named(folder: Path):
    (folder / "more.py").write_text("def loss(): return {'loss': 'low', 'score': 'a remark'}\n")
    scorer = PythonScorer(Function("more:loss", folder), "loss")
    failure = score(scorer, EMPTY)
    asyncio.run(scorer.close())
    assert isinstance(failure, Failure)
    assert "`loss` is 'low', not a number" in failure.message


def test_a_bare_number_is_the_primary_metric(folder: Path):
    scorer = PythonScorer(Function("graders:length", folder), "chars")
    assert score(scorer, Rollout(output="four")) == Score({"chars": 4})
    asyncio.run(scorer.close())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "`graders:raises` raised KeyError: 'no such thing'"),
        ("leaves", "`graders:leaves` raised SystemExit: good bye"),
        ("dies", "the process of `graders:dies` was killed by SIGKILL"),
        ("ends", "the process of `graders:ends` ended with exit 3: last words"),
        ("text", "`graders:text` returned 'high', not a number or a mapping"),
        ("nothing", "`graders:nothing` returned None, not a number or a mapping"),
        ("gone", "cannot begin: the module `graders` has no `gone`"),
    ],
)
def test_a_function_that_does_not_work_is_no_candidates_fault(name: str, words: str, folder: Path):
    failure = say(folder, name)
    assert isinstance(failure, Failure)
    assert words in failure.message
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")


@pytest.mark.slow
def test_a_function_that_hangs_is_ended_and_the_next_call_finds_a_new_process(folder: Path):
    scorer = PythonScorer(Function("graders:hangs_once", folder, 3.0))
    assert score(scorer) == Score({"score": 1})
    began = time.monotonic()
    failure = score(scorer, Rollout(output="x"))
    assert time.monotonic() - began < 50
    assert isinstance(failure, Failure)
    assert failure.message == "`graders:hangs_once` did not answer within 3 seconds"
    assert score(scorer) == Score({"score": 1})
    asyncio.run(scorer.close())


def test_what_is_no_number_is_the_candidates_fault_as_with_a_command(folder: Path):
    failure = say(folder, "not_a_number")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("parse", "candidate")


def test_what_a_function_prints_is_not_taken_for_its_answer(folder: Path):
    assert say(folder, "writes") == Score({"score": 1})


def served() -> int:
    """The process that a function runs in, by the pid that it has for us: it may have another."""
    lines = ((pid, Path(f"/proc/{pid}/cmdline").read_bytes()) for pid in descendants(os.getpid()))
    # below bwrap, which has the same words on its own command line
    *_, pid = [pid for pid, line in lines if b"function_handler.py" in line]
    return pid


def test_one_process_serves_many_calls_and_is_gone_after_closing(folder: Path):
    scorer = PythonScorer(Function("graders:length", folder))
    pids = {(isinstance(score(scorer), Score), served()) for _ in range(3)}
    ((scored, pid),) = pids
    assert scored
    asyncio.run(scorer.close())
    assert is_gone(pid)


def test_a_process_that_was_killed_is_replaced(folder: Path):
    scorer = PythonScorer(Function("graders:length", folder))
    assert isinstance(score(scorer), Score)
    first = served()
    os.kill(first, signal.SIGKILL)
    # a sandbox around it ends a moment later
    (child,) = scorer._pool._idle
    assert is_gone(child._process.pid)
    assert isinstance(score(scorer), Score)
    assert served() != first
    asyncio.run(scorer.close())


def test_cancelling_ends_the_process(folder: Path):
    scorer = PythonScorer(Function("graders:hangs", folder))

    began = time.monotonic()

    async def cancel() -> None:
        job = Job(CANDIDATE.id, CASE.id, 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        task = asyncio.ensure_future(scorer.score(job, Rollout(), CANDIDATE, CASE, scope))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert time.monotonic() - began < 50


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("graders:length", None),
        ("graders:optional", None),
        ("no_such_module:f", "there is no module `no_such_module`"),
        ("graders.inner:f", "there is no module `graders.inner`"),
        ("needy:f", "`needy` cannot be imported: No module named 'no_such_package'"),
        ("broken:f", "`broken` cannot be imported: ZeroDivisionError: division by zero"),
        ("graders:missing", "the module `graders` has no `missing`"),
        ("graders:CONSTANT", "`graders:CONSTANT` is not a function"),
        ("graders:asks_for_more", "`graders:asks_for_more` wants `model`; a scorer is given candidate, case, output, files, metrics"),
        ("graders:positional", "`graders:positional` wants `candidate`; a scorer is given candidate, case, output, files, metrics"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_function_is_known_before_a_run(
    target: str, problem: str | None, folder: Path
):
    assert problem_with(Function(target, folder)) == problem


def test_importing_a_function_writes_nothing(folder: Path):
    before = sorted(folder.rglob("*"))
    assert problem_with(Function("graders:length", folder)) is None
    assert sorted(folder.rglob("*")) == before


def test_a_function_finds_modules_of_its_folder_and_none_of_ours(folder: Path):
    (folder / "shadow.py").write_text(
        "import sys\ndef f(): return int('kept' in sys.modules or 'child' in sys.modules)\n"
    )
    scorer = PythonScorer(Function("shadow:f", folder))
    assert score(scorer) == Score({"score": 0})
    asyncio.run(scorer.close())
