"""Every axis of the budget ends a run, as partial, with its name; nothing is spent beyond it."""

import asyncio
from dataclasses import replace

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.models.ask import ask
from kept.models.client import connect
from kept.models.providers import ModelConfig, Price
from kept.orchestrator.budget import Account, Ledger, Metered
from kept.orchestrator.record import Limits
from kept.orchestrator.state import Assignment, Course, told
from kept.orchestrator.toolkit import Kit, own_artifacts
from kept.orchestrator.workers import ChatWorker
from kept.testing import FakeClock, MemoryJournal
from kept.testing.server import ModelServer
from tests.orchestrator.play import (
    Play,
    complete,
    delegate,
    done,
    finished,
    kit_of,
    plan,
    run_agent,
    simple,
    tools_for,
    use,
    with_limits,
    write,
)


def _wanting() -> Play:
    """A manager that is never done: it sends another worker every turn."""
    names = [f"w{n}" for n in range(30)]
    return Play(
        [plan("report.md"), *(delegate(name) for name in names)],
        {name: [write(), done(name)] for name in names},
    )


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (with_limits(loops=4), "max_loops"),
        (with_limits(workers=3), "max_total_workers"),
        (with_limits(tokens=12_000), "max_total_tokens"),
        (with_limits(tool_calls=3), "max_tool_calls"),
    ],
)
def test_an_axis_that_is_used_up_ends_the_run_as_partial(limits: Limits, reason: str) -> None:
    came = finished(run_agent(kit_of(_wanting(), limits=limits)))
    record = came.record
    assert (record.status, record.reason) == ("partial", reason)
    assert "report.md" in came.files, "what there is, is there"
    assert record.budget is not None
    used = record.budget.used
    assert used.loops <= limits.loops and used.workers <= limits.workers
    assert used.tokens <= limits.tokens and used.tool_calls <= limits.tool_calls


def test_the_wall_time_ends_the_run_by_the_clock_of_the_engine() -> None:
    clock = FakeClock()
    play = _wanting()
    kit = kit_of(play, limits=with_limits(wall_seconds=50.0), clock=clock)
    answer = play.answer

    def slow(lines: object) -> object:
        clock.advance(10)
        return answer(lines)  # pyright: ignore[reportArgumentType] # what it was given

    play.answer = slow  # pyright: ignore[reportAttributeAccessIssue] # a slower one
    record = finished(run_agent(kit)).record
    assert (record.status, record.reason) == ("partial", "max_wall_time")
    assert record.budget is not None and record.budget.used.wall_seconds >= 50


def test_a_call_that_outlives_the_wall_time_is_cut() -> None:
    async def forever(request: ModelRequest) -> ModelReply | Failure:
        await asyncio.sleep(60)
        return ModelReply("late")

    class Slow:
        name = "slow"
        complete = staticmethod(forever)

    account = Account(tokens=9999, tool_calls=1, usd=None, wall=0.05, elapsed=0.0)
    journal = MemoryJournal()
    scope = Metered(JournalScope(journal, "rollout/a/measure/b/0"), account)
    reply = asyncio.run(ask(scope, Slow(), ModelRequest((Message("user", "?"),))))
    assert isinstance(reply, Failure) and reply.kind == "timeout"
    assert account.out == "wall_seconds"
    again = Account(tokens=9999, tool_calls=1, usd=None, wall=0.05, elapsed=0.0)
    scope = Metered(JournalScope(journal, "rollout/a/measure/b/0"), again)
    reply = asyncio.run(ask(scope, Slow(), ModelRequest((Message("user", "?"),))))
    assert isinstance(reply, Failure) and again.out == "wall_seconds", "a resume hears the same"


def test_money_ends_the_run_before_it_is_spent() -> None:
    play = _wanting()
    play.usd = 0.01
    kit = kit_of(play, limits=with_limits(usd=0.10))
    record = finished(run_agent(kit)).record
    assert (record.status, record.reason) == ("partial", "max_usd")
    assert record.budget is not None and 0.05 < record.budget.used.usd <= 0.10


def test_a_manager_that_cannot_be_paid_is_not_asked_and_the_figures_say_why() -> None:
    play = _wanting()
    play.usd = 0.2
    record = finished(run_agent(kit_of(play, limits=with_limits(usd=0.1)))).record
    assert (record.status, record.reason) == ("partial", "max_usd")
    assert play.heard == []
    (refused,) = record.rejections
    assert (refused.gate, refused.completion) == ("budget", False)
    assert "up to $0.4000 more, and $0.1000 is left" in refused.reason


def test_a_run_without_any_money_may_use_what_is_free() -> None:
    play = simple()
    record = finished(run_agent(kit_of(play, limits=with_limits(usd=0.0)))).record
    assert (record.status, record.reason) == ("complete", "completed")
    play = simple()
    play.usd = 0.0001
    record = finished(run_agent(kit_of(play, limits=with_limits(usd=0.0)))).record
    assert (record.status, record.reason) == ("partial", "max_usd") and play.heard == []


def test_managers_below_managers_end_at_the_depth_that_is_allowed() -> None:
    play = Play([plan("report.md"), delegate("m1", as_submanager=True)])
    record = finished(run_agent(kit_of(play, limits=with_limits(depth=1)))).record
    assert (record.status, record.reason) == ("partial", "max_depth")
    assert [(one.gate, one.completion) for one in record.rejections] == [("depth", False)] * 2


def _over(server: ModelServer, play: Play, limits: Limits, *, stream: bool = False) -> Kit:
    """The same cast, asked over real HTTP, at a dollar for a thousand tokens."""
    config = ModelConfig(
        provider="openai_compatible",
        model="m",
        base_url=server.v1,
        max_tokens=500,
        price=Price(input=1_000.0, output=1_000.0),
        stream=stream,
        tries=1,
    )
    model = connect(config)
    works = ChatWorker(model, tools_for)
    return replace(kit_of(play, limits=limits), manager=model, critic=model, works=works)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (with_limits(loops=4), "max_loops"),
        (with_limits(workers=3), "max_total_workers"),
        (with_limits(tokens=12_000), "max_total_tokens"),
        (with_limits(tool_calls=3), "max_tool_calls"),
        (with_limits(wall_seconds=0.6), "max_wall_time"),
        (with_limits(usd=9.0), "max_usd"),
        (with_limits(depth=1), "max_depth"),
    ],
)
def test_every_axis_ends_a_run_over_http_as_partial(limits: Limits, reason: str) -> None:
    play = _wanting()
    if reason == "max_depth":
        play.manager = [plan("report.md"), delegate("m1", as_submanager=True)]
    latency = 0.1 if reason == "max_wall_time" else 0.0
    with ModelServer(play.of_server, latency=latency) as server:
        record = finished(run_agent(_over(server, play, limits))).record
    assert (record.status, record.reason) == ("partial", reason)
    assert record.budget is not None
    used, most = record.budget.used, limits
    assert used.loops <= most.loops and used.workers <= most.workers
    assert used.tokens <= most.tokens and used.tool_calls <= most.tool_calls
    assert used.usd <= (most.usd or 1_000) and used.usd > 0


def test_what_is_left_is_shared_out_before_workers_begin() -> None:
    ledger = Ledger(Limits(tokens=1_000, tool_calls=7, usd=0.9))
    ledger.tokens = 100
    accounts = ledger.open(3)
    assert [one.tokens for one in accounts] == [300] * 3
    assert [one.tool_calls for one in accounts] == [3, 2, 2]
    assert [one.usd for one in accounts] == pytest.approx([0.3] * 3)


def test_workers_side_by_side_take_as_long_as_the_longest_of_them() -> None:
    ledger = Ledger(Limits())
    accounts = ledger.open(4)
    for account, seconds in zip(accounts, (5.0, 3.0, 4.0, 1.0), strict=True):
        account.elapsed += seconds
    ledger.settle(accounts, side_by_side=2)
    assert ledger.elapsed == 7.0, "5; 3 then 4; 1 behind the first"


@pytest.mark.parametrize(
    ("loops", "phase"),
    [(0, "ample"), (4, "moderate"), (7, "low"), (9, "critical"), (10, "exhausted")],
)
def test_a_phase_tells_how_much_is_left(loops: int, phase: str) -> None:
    ledger = Ledger(Limits(loops=10))
    ledger.loops = loops
    stands = ledger.snapshot()
    assert stands.phase == phase and (not loops or stands.scarcest == "loops")


def test_a_worker_without_tool_calls_left_is_told_to_answer() -> None:
    play = Play(
        [plan("report.md"), delegate("w1"), complete()],
        {"w1": [write(), use("file_list"), use("file_list"), done("w1")]},
    )
    record = finished(run_agent(kit_of(play, limits=with_limits(tool_calls=1)))).record
    sent = record.iterations[1].delegations[0]
    assert sent.tool_calls == 1 and sent.result is not None
    assert record.status == "complete"


def test_a_low_budget_is_told_to_the_manager() -> None:
    play = simple()
    finished(run_agent(kit_of(play, limits=with_limits(loops=3))))
    asked = [text for who, text in play.heard if who == "manager"]
    assert "It is exhausted: 0 further turns" in asked[2]
    assert "Finish what there is" in asked[2]


@pytest.mark.parametrize(
    ("elapsed", "said"),
    [(0.0, ""), (49.9, ""), (50.1, "half"), (80.0, "a quarter"), (91.0, "a tenth")],
)
def test_time_is_told_in_steps_once_half_of_it_is_gone(elapsed: float, said: str) -> None:
    ledger = Ledger(with_limits(wall_seconds=100.0), elapsed=elapsed)
    shown = told(Course(), Assignment(task="a task"), own_artifacts(), ledger, {}, None)
    (line,) = [one for one in shown.splitlines() if "are left." in one]
    assert ("Less than" in line) == bool(said) and said in line
    assert "seconds" not in line


def _below(*, loops: int, workers: int) -> tuple[Play, Limits]:
    """Managers that have all they can done by managers, turn by turn, as deep as they may."""
    play = Play([])

    def managed(user: str, spoken: int) -> str:
        if "There is no plan yet" in user:
            return plan("report.md")
        return delegate("m1", "m2", "m3", as_submanager="managers may be" not in user)

    play._managed = managed  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    return play, with_limits(loops=loops, workers=workers, depth=4)


@pytest.mark.parametrize(("loops", "workers"), [(12, 500), (60, 9), (3, 3), (60, 40)])
def test_turns_and_workers_of_managers_below_managers_count(loops: int, workers: int) -> None:
    play, limits = _below(loops=loops, workers=workers)
    record = finished(run_agent(kit_of(play, limits=limits))).record
    heard = [who for who, _ in play.heard]
    turns, sent = heard.count("manager"), sum(who in ("m1", "m2", "m3") for who in heard)
    assert record.budget is not None
    used = record.budget.used
    assert used.loops <= loops and used.workers <= workers
    assert turns <= used.loops, "a manager is asked once a turn"
    assert sent <= used.workers, "managers in the place of workers count besides"
    assert [one.number for one in record.iterations] == list(range(1, len(record.iterations) + 1))


def test_turns_and_workers_are_shared_out_before_managers_begin() -> None:
    ledger = Ledger(with_limits(loops=10, workers=9))
    ledger.loops, ledger.workers = 2, 2
    accounts = ledger.open(3)
    assert [one.loops for one in accounts] == [3, 3, 2]
    assert [one.workers for one in accounts] == [3, 2, 2]
    accounts[0].loops_used, accounts[1].workers_used = 3, 2
    ledger.settle(accounts)
    assert (ledger.loops, ledger.workers) == (5, 4)


def test_tokens_of_streamed_replies_count_as_those_of_whole_ones() -> None:
    """The original counts none: usage comes in a last piece that has no choices."""
    used: list[int] = []
    for stream in (False, True):
        play = simple()
        with ModelServer(play.of_server) as server:
            record = finished(run_agent(_over(server, play, Limits(), stream=stream))).record
            assert all(bool(seen.body.get("stream")) is stream for seen in server.log)
        assert record.status == "complete" and record.budget is not None
        used.append(record.budget.used.tokens)
    assert used[0] == used[1] > 0
