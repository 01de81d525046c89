"""Every fault through every client: what kind it is, whose fault, how often it is tried.

The table is the contract; the server's log is the witness.
"""

import asyncio
import json
import random
from dataclasses import dataclass
from typing import Any

import pytest

from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.rollout import Failure, FailureKind
from kept.models import endpoint as endpoint_module
from kept.models import http
from kept.models.protocol import of_status
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import ASK, CLIENTS, KEY, client

pytestmark = pytest.mark.slow

TRIES = 3


@dataclass(frozen=True)
class Row:
    """One fault, sent for ever, and what it comes to."""

    name: str
    fault: Fault
    kind: FailureKind
    blame: str
    tries: int
    words: str
    setup: dict[str, Any]


def row(name: str, fault: Fault, to: tuple[FailureKind, str, int], words: str, **setup: Any) -> Row:
    return Row(name, fault, *to, words, setup)


OURS = "infrastructure"
ONCE: tuple[FailureKind, str, int] = ("harness", OURS, 1)
SOON = {"timeout": 0.3, "stall": 0.15}
OVERFLOW = "This model's maximum context length is 8192 tokens"
BOTH = "input length and `max_tokens` exceed context limit: 190000 + 16384 > 200000"

TABLE = (
    row("bad key", Fault("status", 401, "Incorrect API key"), ONCE, "KEPT_TEST_KEY"),
    row("not allowed", Fault("status", 403, "no access"), ONCE, "may not use this model"),
    row("no such model", Fault("status", 404, "no model m"), ONCE, "there is no such model"),
    row("bad request", Fault("status", 400, "temperature is too high"), ONCE, "temperature"),
    row("unprocessable", Fault("status", 422, "odd"), ONCE, "odd"),
    row("elsewhere", Fault("status", 307), ONCE, "base_url"),
    row(
        "no credit",
        Fault("status", 429, "You exceeded your current quota", "insufficient_quota"),
        ONCE,
        "no credit",
    ),
    row("too long", Fault("status", 400, OVERFLOW), ("context", "candidate", 1), "8192"),
    row("too long with its reply", Fault("status", 400, BOTH), ("context", "candidate", 1), "200"),
    row(
        "filtered",
        Fault("status", 400, "The response was filtered", "content_filter"),
        ("refused", "candidate", 1),
        "filtered",
    ),
    row("too fast", Fault("status", 429, retry_after=0), ("rate_limit", OURS, TRIES), "429"),
    row("broken", Fault("status", 500), ("server", OURS, TRIES), "500"),
    row("overloaded", Fault("status", 529), ("server", OURS, TRIES), "529"),
    row("bad gateway", Fault("status", 502), ("server", OURS, TRIES), "502"),
    row("slow", Fault("slow", seconds=30), ("timeout", OURS, TRIES), "in time", **SOON),
    row("dripping", Fault("drip", seconds=0.1), ("timeout", OURS, TRIES), "in time", **SOON),
    row("stalled", Fault("stall", seconds=30), ("timeout", OURS, TRIES), "in time", **SOON),
    row("cut", Fault("cut"), ("network", OURS, TRIES), "connection"),
    row("a page", Fault("wrong_type"), ("server", OURS, TRIES), "text/html"),
    row("nothing", Fault("empty"), ("server", OURS, TRIES), "nothing"),
    row("gives up", Fault("gives_up"), ("server", OURS, TRIES), "gave up in the middle"),
    row("huge", Fault("huge", size=70_000), ("limit", OURS, 1), "more than"),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits between tries are tested by themselves."""
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(http, "MOST_BYTES", 1 << 16)


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_fault_has_its_kind_its_culprit_and_its_number_of_tries(which: str, row: Row):
    with ModelServer(lambda seen: "never", faults=lambda seen: row.fault) as server:
        made = client(which, server, tries=TRIES, **row.setup)
        failure = asyncio.run(made.complete(ASK))
        assert isinstance(failure, Failure)
        found = (failure.kind, failure.blame, len(server.log))
    assert found == (row.kind, row.blame, row.tries)
    assert row.words in failure.message
    assert KEY not in f"{failure.message} {failure.detail}"
    assert not failure.retryable, "the engine does not try again what was tried here"


@pytest.mark.parametrize("which", CLIENTS)
def test_half_a_reply_is_never_taken_for_a_whole_one(which: str):
    with ModelServer(["never"], faults=lambda seen: Fault("truncated")) as server:
        failure = asyncio.run(client(which, server, tries=TRIES).complete(ASK))
        assert isinstance(failure, Failure)
        # a whole JSON that is cut is no JSON; a stream that ends early is a broken connection
        assert failure.kind in ("server", "network")
        assert len(server.log) == TRIES


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize("row", [r for r in TABLE if r.tries > 1], ids=lambda row: row.name)
def test_what_passes_is_answered_after_all(which: str, row: Row):
    with ModelServer(lambda seen: "yes", faults=[row.fault]) as server:
        reply = asyncio.run(client(which, server, **row.setup).complete(ASK))
        assert isinstance(reply, ModelReply), reply
        assert [seen.answer for seen in server.log][-1] == "reply"
        assert len(server.log) == 2


@pytest.mark.parametrize("which", ["openai", "anthropic", "openai, streamed"])
def test_a_refusal_is_the_candidates_and_is_paid_for(which: str):
    said = ModelReply("I will not do that", finish="refused")
    with ModelServer([said]) as server:
        failure = asyncio.run(client(which, server).complete(ASK))
        assert isinstance(failure, Failure)
        assert (failure.kind, failure.blame) == ("refused", "candidate")
        assert "I will not" in failure.detail
        assert failure.usage.tokens_in > 0
        assert len(server.log) == 1


def test_a_reply_without_words_is_the_candidates():
    with ModelServer([ModelReply("")]) as server:
        failure = asyncio.run(client("openai", server).complete(ASK))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("empty", "candidate")


def test_nobody_there_is_a_failure_of_the_network():
    with ModelServer() as server:
        pass
    failure = asyncio.run(client("openai", server, tries=2).complete(ASK))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.retryable) == ("network", False)
    assert "(2 tries at http://127.0.0.1:" in failure.message


def test_words_about_a_key_are_told_as_they_are():
    raw = json.dumps({"error": {"message": "Incorrect API key provided: sk-0123456789abc."}})
    message = of_status("m", 401, {}, raw.encode(), "OPENAI_API_KEY").failure.message
    assert "Incorrect API key provided: [secret]" in message
    raw = json.dumps({"error": {"message": "no such key 0123456789abc"}})
    assert "0123456789" not in of_status("m", 401, {}, raw.encode(), "K").failure.message


def test_a_key_that_a_provider_quotes_is_not_told():
    quoted = f"Incorrect API key provided: {KEY}. You can find your key at https://x"
    with ModelServer(faults=[Fault("status", 401, quoted)]) as server:
        failure = asyncio.run(client("openai", server).complete(ASK))
    assert isinstance(failure, Failure)
    assert KEY not in failure.message
    assert "[secret]" in failure.message


def test_the_time_that_a_provider_asks_for_is_waited():
    async def timed(server: ModelServer) -> float:
        made = client("openai", server)
        started = asyncio.get_running_loop().time()
        assert isinstance(await made.complete(ASK), ModelReply)
        return asyncio.get_running_loop().time() - started

    with ModelServer(["yes"], faults=[Fault("status", 429, retry_after=0.4)]) as server:
        assert asyncio.run(timed(server)) >= 0.4


HUGE = "9" * 20
DATE = "Mon, 01 Jan 2024 00:00:{} GMT"


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("3", 3.0),
        (DATE.format("07"), 7.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("soon", None),
        (f"Mon, 01 Jan {HUGE} 00:00:00 GMT", None),
        (f"Mon, 01 Jan 2024 {HUGE}:00:00 GMT", None),
        (f"Mon, 01 Jan 2024 00:00:00 +{HUGE}", None),
    ],
)
def test_a_time_to_wait_that_is_none_is_not_believed(asked: str, seconds: float | None):
    now = DATE.format("00")
    found = of_status("m", 429, {"retry-after": asked, "date": now}, b"", "KEY")
    assert (found.failure.kind, found.again, found.after) == ("rate_limit", True, seconds)
    # nor is a clock of theirs
    assert of_status("m", 429, {"retry-after": now, "date": asked}, b"", "KEY").again


def test_a_provider_that_asks_for_too_much_patience_is_given_up():
    with ModelServer(["yes"], faults=[Fault("status", 429, retry_after=3600)]) as server:

        async def story() -> ModelReply | Failure:
            made = client("openai", server)
            failure = await made.complete(ASK)
            assert isinstance(failure, Failure)
            assert len(server.log) == 1
            # and nobody else has to wait for it
            return await asyncio.wait_for(made.complete(ASK), 5)

        assert isinstance(asyncio.run(story()), ModelReply)


def test_a_missing_key_is_told_without_a_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KEPT_TEST_KEY")
    with ModelServer(["yes"]) as server:
        failure = asyncio.run(client("openai", server).complete(ASK))
        assert isinstance(failure, Failure)
        assert failure.kind == "harness"
        assert "KEPT_TEST_KEY" in failure.message
        assert not server.log


FAULTS = (
    Fault("status", 429, retry_after=0),
    Fault("status", 500),
    Fault("cut"),
    Fault("truncated"),
    Fault("wrong_type"),
    Fault("empty"),
)


@pytest.mark.parametrize("which", ["openai", "anthropic, streamed"])
def test_of_a_thousand_calls_with_faults_none_is_lost_and_none_repeated(which: str):
    draw = random.Random(7)

    def sometimes(seen: Seen) -> Fault | None:
        return draw.choice(FAULTS) if draw.random() < 0.3 else None

    async def ask_all(server: ModelServer) -> list[ModelReply | Failure]:
        made = client(which, server, tries=12)

        async def one(n: int) -> ModelReply | Failure:
            return await made.complete(ModelRequest((Message("user", f"call {n}"),), max_tokens=9))

        return await asyncio.gather(*(one(n) for n in range(1000)))

    with ModelServer(lambda seen: f"answer to {seen.text}", faults=sometimes) as server:
        replies = asyncio.run(ask_all(server))
        answered = sorted(seen.text for seen in server.answered)
        faults = len(server.log) - len(answered)
    texts = [reply.text for reply in replies if isinstance(reply, ModelReply)]
    assert texts == [f"answer to call {n}" for n in range(1000)]
    assert answered == sorted(f"call {n}" for n in range(1000)), "each was answered exactly once"
    assert faults > 250
