"""What the fakes promise beyond the suites."""

import ast
import asyncio
from collections import Counter
from pathlib import Path

import kept.testing
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure, Job, Purpose, Rollout
from kept.engine.replay import JournalScope
from kept.testing import FakeClock, Faults, MemoryJournal, Pool, ScriptedEvaluator, ScriptedModel

CANDIDATE = Candidate({"text": "a seed\n"})
REQUEST = ModelRequest((Message("user", "well?"),))


def half(candidate: Candidate, case: Case) -> float:
    return 0.5


def run(evaluator: ScriptedEvaluator, *jobs: Job) -> list[Rollout | Failure]:
    async def all_of_them() -> list[Rollout | Failure]:
        scope = JournalScope(MemoryJournal(), "test")
        return [await evaluator.run(job, CANDIDATE, Case(job.case_id), scope) for job in jobs]

    return asyncio.run(all_of_them())


def job(case: int = 0, repeat: int = 0, purpose: Purpose = "decide") -> Job:
    return Job(CANDIDATE.id, f"case-{case}", repeat, purpose)


def scores(evaluator: ScriptedEvaluator, *jobs: Job) -> list[float]:
    rollouts = run(evaluator, *jobs)
    return [r.metrics["score"] for r in rollouts if isinstance(r, Rollout)]


def test_time_stands_still_unless_somebody_sleeps():
    clock = FakeClock(start=100.0)
    assert (clock.time(), clock.monotonic()) == (100.0, 0.0)
    asyncio.run(clock.sleep(3600))
    assert (clock.time(), clock.monotonic()) == (3700.0, 3600.0)
    clock.advance(1.5)
    assert clock.monotonic() == 3601.5


def test_sleepers_wake_in_order_of_time_whoever_slept_first():
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *naps: float) -> None:
        for nap in naps:
            await clock.sleep(nap)
            woken.append((name, clock.monotonic()))

    async def all_of_them() -> None:
        await asyncio.gather(sleeper("slow", 5), sleeper("quick", 1, 1, 1), sleeper("middle", 2.5))

    asyncio.run(all_of_them())
    assert woken == [
        ("quick", 1.0),
        ("quick", 2.0),
        ("middle", 2.5),
        ("quick", 3.0),
        ("slow", 5.0),
    ]


def test_a_cancelled_sleeper_does_not_move_the_clock():
    clock = FakeClock()

    async def cancelled() -> None:
        task = asyncio.create_task(clock.sleep(1000))
        await asyncio.sleep(0)
        task.cancel()
        await clock.sleep(1)

    asyncio.run(cancelled())
    assert clock.monotonic() == 1.0


def test_telling_the_clock_wakes_who_has_slept_enough():
    clock = FakeClock()

    async def told() -> list[bool]:
        tasks = [asyncio.create_task(clock.sleep(seconds)) for seconds in (1, 100)]
        await asyncio.sleep(0)
        clock.advance(2)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done = [task.done() for task in tasks]
        tasks[1].cancel()
        return done

    assert asyncio.run(told()) == [True, False]


def test_a_pair_always_comes_out_the_same_and_has_nothing_to_do_with_others():
    jobs = [job(case, repeat) for case in range(20) for repeat in range(20)]
    one = scores(ScriptedEvaluator(quality=half, noise="pass/fail"), *jobs)
    assert scores(ScriptedEvaluator(quality=half, noise="pass/fail"), *jobs) == one
    assert scores(ScriptedEvaluator(quality=half, noise="pass/fail"), *jobs[::-1]) == one[::-1]
    assert 160 < sum(one) < 240
    elsewhere = [job(case, repeat, "screen") for case in range(20) for repeat in range(20)]
    agreeing = sum(
        a == b
        for a, b in zip(
            one,
            scores(ScriptedEvaluator(quality=half, noise="pass/fail"), *elsewhere),
            strict=True,
        )
    )
    assert 160 < agreeing < 240
    another = scores(ScriptedEvaluator(quality=half, noise="pass/fail", random_seed=1), *jobs)
    assert another != one


def test_gaussian_noise_is_centred_on_the_quality():
    jobs = [job(case) for case in range(1000)]
    found = scores(ScriptedEvaluator(quality=half, noise=0.1), *jobs)
    mean = sum(found) / len(found)
    spread = (sum((score - mean) ** 2 for score in found) / len(found)) ** 0.5
    assert abs(mean - 0.5) < 0.02
    assert abs(spread - 0.1) < 0.02


def test_an_outage_passes_after_as_many_tries_as_it_was_told():
    evaluator = ScriptedEvaluator(quality=half, faults=Faults(outages=1.0, tries=2))
    kinds = [type(end) for end in run(evaluator, job(), job(), job(), job())]
    assert kinds == [Failure, Failure, Rollout, Rollout]
    assert evaluator.tries == Counter({job(): 4})


def test_faults_strike_the_share_of_pairs_that_they_were_told():
    jobs = [job(case) for case in range(1000)]
    evaluator = ScriptedEvaluator(quality=half, faults=Faults(outages=0.1, crashes=0.2))
    ends = run(evaluator, *jobs)
    blamed = Counter(end.blame for end in ends if isinstance(end, Failure))
    assert 70 < blamed["infrastructure"] < 130
    assert 130 < blamed["candidate"] < 230


def test_a_model_follows_its_script_and_counts_what_it_is_asked():
    failure = Failure("rate_limit", "infrastructure", "429")
    model = ScriptedModel(["one", failure, ModelReply("three", finish="length")])
    model.fail(Failure("network", "infrastructure", "reset"), times=2)

    async def converse() -> list[ModelReply | Failure]:
        return [await model.complete(REQUEST) for _ in range(6)]

    ends = asyncio.run(converse())
    words = [end.text if isinstance(end, ModelReply) else end.message for end in ends]
    assert words[:2] == ["reset", "reset"]
    assert words[2:] == ["one", "429", "three", "the script ends after 3 replies"]
    assert model.calls == 6
    assert model.requests == [REQUEST] * 6


def test_the_pool_knows_the_truth():
    pool = Pool()
    case = Case("any")

    def quality(*lines: str) -> float:
        return pool.quality(Candidate({"text": "\n".join(lines)}), case)

    assert quality() == quality(*pool.useless) == pool.base
    assert quality(pool.good[0]) > quality() > quality(pool.harmful[0])
    assert quality(pool.good[0], pool.harmful[0]) == pool.base
    assert quality(*pool.good) == 0.9


def test_a_reopened_journal_holds_what_was_written_up_to_the_cut():
    journal = MemoryJournal()
    for repeat in range(3):
        journal.record_call("scope", "key", ModelReply(str(repeat)))
    cut = journal.reopened(2)
    assert cut.calls("scope", "key", ModelReply) == []
    cut.tail(0)
    assert [getattr(r, "text", "") for r in cut.calls("scope", "key", ModelReply)] == ["0", "1"]


def test_nothing_in_the_package_needs_pytest():
    folder = Path(kept.testing.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", [])]
            module = getattr(node, "module", None)
            assert "pytest" not in names, path
            assert module != "pytest", path
