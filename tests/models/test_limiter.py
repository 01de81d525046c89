"""How fast a provider is asked."""

import asyncio

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure
from kept.models.endpoint import Bucket, Limiter, limiter_of
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import client


def test_a_bucket_lets_a_second_s_worth_through_and_then_keeps_its_pace():
    bucket = Bucket(600)
    waits = [bucket.wait(1) for _ in range(30)]
    assert waits[:9] == [0.0] * 9
    assert waits[-1] == pytest.approx(2.0, abs=0.1)


def test_what_was_guessed_too_high_is_given_back():
    bucket = Bucket(60_000)
    bucket.wait(1_000)
    assert bucket.wait(1_000) > 0.9
    bucket.give_back(1_900)
    assert bucket.wait(1) == 0.0


def test_after_a_429_half_as_many_are_in_flight_and_replies_bring_them_back():
    async def story() -> None:
        limiter = Limiter()
        began = [await limiter.begin(1) for _ in range(64)]
        for then in began[:10]:  # those in flight together are refused together
            limiter.end()
            limiter.too_fast(then, None)
        assert limiter.window == 32
        for _ in began[10:]:
            limiter.end()
        for _ in range(200):
            limiter.went_well()
        assert 32 < limiter.window < 64

    asyncio.run(story())


def test_a_storm_of_429s_shows_how_many_are_still_served():
    async def story() -> None:
        limiter = Limiter()
        began = [await limiter.begin(1) for _ in range(300)]
        for then in began[8:]:
            limiter.end()
            limiter.too_fast(then, None)
        assert limiter.window == 8

    asyncio.run(story())


def test_whoever_waits_and_is_cancelled_leaves_their_turn_to_the_next():
    async def story() -> None:
        limiter = Limiter()
        limiter.window = 1
        await limiter.begin(1)
        first, second = (asyncio.create_task(limiter.begin(1)) for _ in range(2))
        await asyncio.sleep(0)
        limiter.end()  # the turn of the first
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert limiter.in_flight == 1

    asyncio.run(story())


def test_models_of_one_provider_share_a_limiter_and_take_the_stricter_limit():
    async def story() -> None:
        one, other = limiter_of("https://x/v1"), limiter_of("https://x/v1")
        assert one is other
        one.limit(600, None)
        other.limit(60, None)
        one.limit(600, None)
        assert one._requests is not None
        assert one._requests.rate == 1.0

    asyncio.run(story())


class Provider:
    """Serves so many at once; refuses the others, as providers do."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.server: ModelServer | None = None

    def fault(self, seen: Seen) -> Fault | None:
        assert self.server is not None
        return Fault("status", 429) if self.server._at_once > self.most else None


@pytest.mark.slow
def test_a_provider_that_serves_few_at_once_is_not_stormed():
    provider = Provider(most=8)

    async def ask_all(server: ModelServer) -> list[ModelReply | Failure]:
        made = client("openai", server, tries=30)
        requests = [ModelRequest((Message("user", f"{n}"),), max_tokens=5) for n in range(300)]
        return await asyncio.gather(*(made.complete(request) for request in requests))

    with ModelServer(lambda seen: "yes", faults=provider.fault, latency=0.02) as server:
        provider.server = server
        replies = asyncio.run(ask_all(server))
        refused = sum(seen.answer == "429" for seen in server.log)
    assert all(isinstance(reply, ModelReply) for reply in replies)
    # 292 are refused at first, since nothing is known; without a limiter it is over 500
    assert refused < 450


@pytest.mark.slow
def test_requests_a_minute_are_kept_to():
    async def ask_all(server: ModelServer) -> float:
        made = client("openai", server, requests_per_minute=1200)
        started = asyncio.get_running_loop().time()
        await asyncio.gather(
            *(made.complete(ModelRequest((Message("user", f"{n}"),))) for n in range(50))
        )
        return asyncio.get_running_loop().time() - started

    with ModelServer(lambda seen: "yes") as server:
        # 20 a second, and a second's worth at once
        assert asyncio.run(ask_all(server)) >= 1.4
