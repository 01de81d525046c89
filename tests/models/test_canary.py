"""A planted key is found nowhere: no file of a run, no failure, no cache, no log."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

import kept
from kept.core.model import Message, ModelRequest
from kept.core.ports import Model, Scope
from kept.core.proposal import Proposal, ProposerReply
from kept.core.rollout import Failure
from kept.errors import RunError
from kept.models.asking import ask
from kept.models.cache import CachedModel, CallCache
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import CLIENTS, KEY, client


def quoting(seen: Seen) -> Fault:
    """An error that quotes everything it was sent."""
    return Fault("status", 401, f"bad key {KEY} in {dict(seen.headers)}", code=KEY)


def parrot(seen: Seen) -> str | Fault:
    """Half the time an error, and in the end one that stays; all of them quote the key."""
    if seen.number >= 12:
        return quoting(seen)
    return replace(quoting(seen), status=500) if seen.number % 2 else f"line {seen.number}"


async def half(candidate: kept.Candidate) -> float:
    return 0.5


class Asker:
    name = "asker"
    serial = False

    def __init__(self, made: Model) -> None:
        self._model = made

    async def propose(self, brief: kept.Brief, scope: Scope) -> ProposerReply:
        request = ModelRequest((Message("user", f"step {brief.step}"),))
        reply = await ask(scope, self._model, request)
        return reply if isinstance(reply, Failure) else Proposal((kept.Append("text", reply.text),))


@pytest.mark.parametrize("which", CLIENTS)
def test_a_planted_key_is_in_no_file_of_a_run(
    which: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    with ModelServer(parrot) as server:
        cache = CallCache(tmp_path / "calls.db")
        made = CachedModel(client(which, server, tries=1), cache)
        with pytest.raises(RunError) as raised:
            kept.optimize(
                "a",
                half,
                proposers=[Asker(made)],
                home=tmp_path / "home",
                budget=kept.Budget(max_iterations=40),
                width=1,
            )
        cache.close()
        assert any(KEY in value for value in server.log[0].headers.values()), "it was sent"
        assert len(server.log) == 13
    assert "[secret]" in str(raised.value)
    assert KEY not in str(raised.value)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    assert KEY not in caplog.text


@pytest.mark.parametrize("which", CLIENTS)
@pytest.mark.parametrize(
    "shape", ["sk-proj-abcdefgh12345678", "Zm9vYmFyMTIzNDU2Nzg5", "a b/c+d=&ef"]
)
def test_a_planted_key_of_any_shape_is_in_no_failure(
    which: str, shape: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_TEST_KEY", shape)
    with ModelServer(lambda seen: Fault("status", 401, f"the key `{shape}` is bad")) as server:
        failure = asyncio.run(client(which, server).complete(ModelRequest((Message("user", "x"),))))
    assert isinstance(failure, Failure)
    assert "is bad" in failure.message
    assert shape not in repr(failure)
