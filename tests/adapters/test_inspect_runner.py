"""One sample of an Inspect task: what comes back, and whose fault it is where nothing does."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from kept.adapters.inspect import evaluation as running_module
from kept.adapters.inspect.api import options_of
from kept.adapters.inspect.evaluation import Running
from kept.adapters.inspect.results import Reader, TaskRunner, metrics_of, number_in
from kept.adapters.inspect.tasks import Choice, Factory, Samples
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Runner
from kept.core.rollout import Failure, Job, Purpose, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SetupError
from kept.testing import RunnerSuite
from kept.testing.journal import MemoryJournal
from kept.testing.server import Fault, ModelServer
from tests.adapters.inspect_world import KEY, SEED, Desk, desk, plain

pytestmark = [
    pytest.mark.inspect,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("inspect_ai"),
]

Make = Callable[[str], Any]
WORKERS = 32


def runner_of(running: Running, make: Make, **reading: Any) -> TaskRunner:
    factory = Factory(make, SEED, {})
    samples = running.call(lambda: Samples.read(factory.make(factory.texts)[0], Choice()))
    return TaskRunner(running, factory, samples, Reader(("prompt",), **reading))


def started(**terms: Any) -> Running:
    running = Running(options_of({"model": Desk(1.0).model(), **terms}, WORKERS), WORKERS)
    running.start()
    return running


@pytest.fixture
def running(inspect_ai: Any) -> Iterator[Running]:
    found = started()
    yield found
    found.close()


async def one(
    runner: TaskRunner,
    case: str = "order-100",
    text: str = SEED,
    repeat: int = 0,
    purpose: Purpose = "decide",
) -> Rollout | Failure:
    candidate = Candidate({"prompt": text})
    job = Job(candidate.id, case, repeat, purpose)
    scope = JournalScope(MemoryJournal(), job.scope)
    return await runner.run(job, candidate, Case(case), scope)


def once(runner: TaskRunner, **more: Any) -> Rollout | Failure:
    return asyncio.run(one(runner, **more))


def with_solver(solve: Callable[..., Any]) -> Make:
    """The task without tools, where something happens before the model is asked."""
    theirs: Any = import_module("inspect_ai.solver")

    def make(prompt: str) -> Any:
        made = plain(prompt, 80)
        step = theirs.solver(name="step")(lambda: solve)()
        return import_module("inspect_ai").task_with(made, solver=[step, made.solver])

    return make


def with_scorer(score: Callable[..., Any]) -> Make:
    theirs: Any = import_module("inspect_ai.scorer")

    def make(prompt: str) -> Any:
        scorer = theirs.scorer(metrics=[theirs.accuracy()], name="mine")(lambda: score)()
        return import_module("inspect_ai").task_with(plain(prompt, 4), scorer=[scorer])

    return make


async def crash(state: Any, _: Any) -> Any:
    raise ZeroDivisionError("no such luck")


async def lose(state: Any, _: Any) -> Any:
    raise ConnectionResetError("gone")


async def hang(state: Any, _: Any) -> Any:
    await asyncio.sleep(3600)


class InspectSuite(RunnerSuite):
    """An eval for each runner, which is ended with it."""

    def make(self, make: Make) -> Runner:
        return runner_of(started(), make)

    def candidate(self) -> Candidate:
        return Candidate({"prompt": "a text\n"})

    def case(self) -> Case:
        return Case("order-100", {"question": "1 + 1"})

    def make_runner(self) -> Runner:
        self.running = self.make(plain)
        return self.running

    def make_crashing_runner(self) -> Runner:
        return self.make(with_solver(crash))

    def make_hanging_runner(self) -> Runner:
        return self.make(with_solver(hang))

    def still_running(self) -> object:
        return [t for t in threading.enumerate() if "kept-inspect" in t.name]


class TestTaskRunner(InspectSuite):
    def test_closing_twice_is_closing_once(self) -> None:
        # one eval at a time: of two, the first is closed before the second begins
        async def twice() -> None:
            for used in (False, True):
                runner = self.make_runner()
                if used:
                    await self._once(runner)
                await runner.close()
                await runner.close()

        asyncio.run(twice())


def test_many_samples_of_several_candidates_run_at_once(running: Running):
    inside = most = 0

    async def wait(state: Any, _: Any) -> Any:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.05)
        inside -= 1
        return state

    async def all_of_them() -> list[Rollout | Failure]:
        runner = runner_of(running, with_solver(wait))
        texts = [f"{SEED} {n}" for n in range(4)]
        limit = asyncio.Semaphore(WORKERS)

        async def alone(n: int) -> Rollout | Failure:
            async with limit:
                return await one(runner, f"order-{100 + n // 4}", texts[n % 4])

        return await asyncio.gather(*(alone(n) for n in range(2 * WORKERS)))

    told = asyncio.run(all_of_them())
    assert all(isinstance(rollout, Rollout) for rollout in told)
    assert most >= WORKERS - 4


def test_a_cancelled_rollout_is_gone_and_the_others_go_on(running: Running):
    ended: list[str] = []

    async def wait(state: Any, _: Any) -> Any:
        try:
            await asyncio.sleep(0 if state.sample_id == "order-101" else 3600)
        finally:
            ended.append(str(state.sample_id))
        return state

    async def cancel_one() -> Rollout | Failure:
        runner = runner_of(running, with_solver(wait))
        task = asyncio.create_task(one(runner, "order-100"))
        await asyncio.sleep(0.2)
        assert not ended
        task.cancel()
        told = await one(runner, "order-101")
        for _ in range(100):
            if "order-100" in ended:
                break
            await asyncio.sleep(0.02)
        return told

    assert isinstance(asyncio.run(cancel_one()), Rollout)
    assert sorted(ended) == ["order-100", "order-101"]


@pytest.mark.parametrize(
    ("solve", "kind", "blame", "words"),
    [
        (crash, "exception", "candidate", "ZeroDivisionError: no such luck"),
        (lose, "network", "infrastructure", "ConnectionResetError: gone"),
    ],
)
def test_what_a_solver_raises_is_a_failure_with_its_culprit(
    running: Running, solve: Any, kind: str, blame: str, words: str
):
    told = once(runner_of(running, with_solver(solve)))
    assert isinstance(told, Failure)
    assert (told.kind, told.blame, told.scoring) == (kind, blame, False)
    assert words in told.message


def test_a_scorer_that_fails_is_no_score(running: Running):
    told = once(runner_of(running, with_scorer(crash)))
    assert isinstance(told, Failure)
    assert (told.kind, told.blame, told.scoring) == ("harness", "infrastructure", True)
    assert "a scorer failed: no such luck" in told.message
    assert told.usage.calls == 1


@pytest.mark.parametrize("value", [float("nan"), "maybe", ["C"], None])
def test_what_is_no_score_is_never_a_zero(running: Running, value: Any):
    theirs: Any = import_module("inspect_ai.scorer")

    async def score(state: Any, target: Any) -> Any:
        return None if value is None else theirs.Score(value=value)

    told = once(runner_of(running, with_scorer(score)))
    assert isinstance(told, Failure)
    assert (told.kind, told.blame, told.scoring) == ("harness", "infrastructure", True)


def test_values_of_scores_are_the_numbers_that_inspect_makes_of_them(inspect_ai: Any):
    to_float = import_module("inspect_ai.scorer").value_to_float()
    for value in ("C", "I", "P", "N", "yes", "No", "TRUE", "false", True, False, 1, 0.25, "3.5"):
        assert number_in(value) == to_float(value)


def test_the_scorer_that_decides_can_be_named(inspect_ai: Any):
    score: Any = import_module("inspect_ai.scorer").Score
    scores = {"match": score(value="C"), "manners": score(value={"short": 0.25, "kind": "C"})}
    everything = {"match": 1.0, "manners.short": 0.25, "manners.kind": 1.0}
    assert metrics_of(scores, None) == {**everything, "score": 1.0}
    assert metrics_of(scores, "manners.short") == {**everything, "score": 0.25}
    told = metrics_of(scores, "manners")
    assert isinstance(told, Failure)
    assert 'name one, as in scorer="manners.short"' in told.message


def served(fault: Fault | None, **more: Any) -> Rollout | Failure:
    """What comes of one rollout where a service behaves like this."""
    with ModelServer(Desk(1.0), faults=lambda _: fault) as server:
        running = started(
            model="openai-api/desk/any",
            model_base_url=server.v1,
            # neither Inspect nor the client below it is to wait and try again here
            model_args={"api_key": KEY, "max_retries": 0},
            max_retries=0,
            **more,
        )
        try:
            return once(runner_of(running, desk, secrets=(KEY,)))
        finally:
            running.close()


@pytest.mark.parametrize(
    ("fault", "kind", "blame"),
    [
        (Fault("status", 429, "slow down"), "rate_limit", "infrastructure"),
        (Fault("status", 500), "server", "infrastructure"),
        (Fault("cut"), "network", "infrastructure"),
        (Fault("status", 401, f"wrong key {KEY}"), "harness", "infrastructure"),
    ],
    ids=str,
)
def test_a_model_that_does_not_answer_is_nobodys_fault(fault: Fault, kind: str, blame: str):
    told = served(fault)
    assert isinstance(told, Failure)
    assert (told.kind, told.blame) == (kind, blame)
    assert not told.retryable, "Inspect has tried again already"
    assert KEY not in told.message + told.detail


def test_a_limit_of_the_task_is_scored_as_inspect_does_it():
    told = served(None, message_limit=4)
    assert isinstance(told, Rollout)
    assert told.metrics["match"] == 0.0
    assert told.metrics["manners.short"] == 1.0


def test_a_record_says_what_happened_and_keeps_the_target_to_itself(running: Running):
    runner = runner_of(running, plain)
    told = once(runner, purpose="feedback")
    assert isinstance(told, Rollout)
    (item,) = told.trace
    assert "Where is my order #100?" in item.text
    assert "Order 100 is" in item.text
    assert "Target" not in item.text
    scored = asyncio.run(runner.score(*_scoring(told)))
    assert isinstance(scored, Score)
    assert [finding.text for finding in scored.findings] == ["match: C"]
    runner._reader = replace(runner._reader, targets=True)
    shown = once(runner, purpose="feedback", repeat=1)
    assert isinstance(shown, Rollout)
    assert "Target: " in shown.trace[0].text


def _scoring(rollout: Rollout) -> Any:
    candidate = Candidate({"prompt": SEED})
    job = Job(candidate.id, "order-100", 0, "feedback")
    return job, rollout, candidate, Case("order-100"), JournalScope(MemoryJournal(), job.scope)


def test_a_task_may_bring_its_own_model_and_samples_without_ids():
    def make(prompt: str) -> Any:
        made = plain(prompt, 3)
        for sample in made.dataset:
            sample.id = None
        return import_module("inspect_ai").task_with(made, model=Desk(1.0).model())

    running = started(model=None)
    told = once(runner_of(running, make), case="2")
    running.close()
    assert isinstance(told, Rollout)
    assert told.metrics["match"] == 1.0


def test_the_same_draw_may_be_made_again(running: Running):
    runner = runner_of(running, plain)
    first, again = once(runner), once(runner)
    assert isinstance(first, Rollout)
    assert isinstance(again, Rollout)


def test_inspects_own_cache_answers_the_same_draw_and_never_two_draws_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("INSPECT_CACHE_DIR", str(tmp_path))
    theirs: Any = import_module("inspect_ai.model")
    model = Desk(0.5)

    def draws() -> list[int]:
        running = started(model=model.model(config=theirs.GenerateConfig(cache=True)))
        runner = runner_of(running, plain)
        told = [once(runner), once(runner, repeat=1), once(runner, purpose="promote")]
        running.close()
        return [rollout.usage.calls for rollout in told]

    assert draws() == [1, 1, 1]
    assert model.asked.total() == 3
    assert draws() == [0, 0, 0]
    assert model.asked.total() == 3


def test_a_candidate_that_changes_what_it_is_measured_by_fails(running: Running):
    def make(prompt: str) -> Any:
        made = plain(prompt, 4)
        if prompt != SEED:
            made.dataset[0].target = "anything"
        return made

    runner = runner_of(running, make)
    told = once(runner, text="another")
    assert isinstance(told, Failure)
    assert (told.kind, told.blame) == ("crash", "candidate")
    assert "changes the target of sample `order-100`" in told.message
    assert isinstance(once(runner, case="order-101", text="another"), Rollout)


def test_a_task_that_cannot_be_made_of_a_text_is_the_candidates_failure(running: Running):
    tries = 0

    def make(prompt: str) -> Any:
        nonlocal tries
        tries += prompt != SEED
        return plain(prompt.format(), 4)

    runner = runner_of(running, make)
    for case in ("order-100", "order-101"):
        told = once(runner, case=case, text="a {brace}")
        assert isinstance(told, Failure)
        assert (told.kind, told.blame) == ("exception", "candidate")
        assert "KeyError: 'brace'" in told.message
    assert tries == 1


def test_the_display_and_the_logging_of_the_process_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
):
    active: Any = import_module("inspect_ai._display.core.active")
    mine = object()  # whoever used it would fail
    monkeypatch.setattr(active, "_active_display", mine)
    root = logging.getLogger()
    before = root.level, list(root.handlers)
    running = started()
    during = root.level, list(root.handlers)
    assert isinstance(once(runner_of(running, plain)), Rollout)
    running.close()
    assert during == before
    assert root.level == before[0]
    assert active._active_display is mine


def test_a_task_that_inspect_cannot_start_is_told_of(
    running: Running, monkeypatch: pytest.MonkeyPatch
):
    def make(prompt: str) -> Any:
        made = plain(prompt, 4)
        made.solver = [made.solver]  # no list can be named in a log
        return made

    monkeypatch.setattr(running_module, "START", 0.4)
    runner = runner_of(running, make)
    told = once(runner)
    assert isinstance(told, Failure)
    assert (told.kind, told.blame) == ("harness", "infrastructure")
    assert "Inspect ended the task: it did not start" in told.message


def test_a_second_eval_in_one_process_is_told_to_wait(running: Running):
    with pytest.raises(SetupError, match="wait for the other eval of this process"):
        started()
