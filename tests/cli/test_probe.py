"""A dead endpoint is found in seconds, by a look that nobody charges for."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kept.models.config import ModelConfig
from kept.models.probe import Probe, probes_of
from kept.testing.server import Fault, ModelServer
from tests.cli.tasks import kept

pytestmark = pytest.mark.slow


def unreachable(url: str) -> str | None:
    config = ModelConfig(provider="openai_compatible", model="m", base_url=url)
    return asyncio.run(Probe(config).unreachable())


@contextmanager
def speaking(reply: bytes) -> Generator[str]:
    """A server that answers every connection with the same bytes; without any, never."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                if reply:
                    connection.recv(65536)
                    connection.sendall(reply)
                    connection.close()
                held.append(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in held:
            connection.close()


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def test_a_port_that_nobody_listens_at_is_dead_after_a_moment():
    began = time.monotonic()
    why = unreachable(closed_port())
    assert why is not None and "4 tries" in why
    assert time.monotonic() - began < 5


def test_a_gateway_with_nobody_behind_it_is_dead():
    told = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n"
    with speaking(told) as url:
        why = unreachable(url)
    assert why is not None and "answered 502" in why


@pytest.mark.parametrize("status", ["200 OK", "401 No", "404 No", "429 Slow Down", "501 No"])
def test_any_other_answer_is_a_sign_of_life(status: str):
    with speaking(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) as url:
        assert unreachable(url) is None


def test_what_takes_connections_and_never_answers_is_dead(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kept.models.probe.PATIENCE", 0.2)
    with speaking(b"") as url:
        why = unreachable(url)
    assert why is not None and "did not answer in time" in why and "(2 tries at" in why


@pytest.mark.nightly
@pytest.mark.parametrize("provider", ["openai_compatible", "anthropic"])
def test_a_run_with_a_silent_endpoint_ends_in_seconds(
    here: Path, provider: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-none")
    with speaking(b"") as url:
        write(here, url)
        began = time.monotonic()
        called = kept("optimize", "task.yaml", "-q", "--set", f"runner.model.provider={provider}")
    assert called.code == 2, called.stderr
    assert "nothing answers" in called.stderr
    assert time.monotonic() - began < 15


AGENT = """\
name: reader
model: {provider: scripted, name: script.jsonl}
instructions: {inline: Look it up.}
embedding_provider:
  {provider: openai, name: text-embedding-3-small, endpoint: "URL", api_key: "${KEY}"}
tools: [{name: search, type: vectorstore, description: Searches notes., source: notes.md}]
test_cases: [{name: one, input: What is it?}]
"""


def test_a_dead_endpoint_of_embeddings_is_found_before_a_case_is_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEY", "sk-none")
    (here / "agent.yaml").write_text(AGENT.replace("URL", closed_port()))
    (here / "script.jsonl").write_text(json.dumps({"text": "it is that"}) + "\n")
    (here / "notes.md").write_text("It is that.\n")
    began = time.monotonic()
    called = kept("eval", "agent.yaml", "-q")
    assert called.code == 2, called.stdout + called.stderr
    assert "`openai/text-embedding-3-small`" in called.stderr
    assert "nothing answers" in called.stderr
    assert time.monotonic() - began < 15


def test_each_endpoint_is_looked_at_once_and_cached_models_not_at_all():
    one = ModelConfig(provider="openai_compatible", model="a", base_url="http://127.0.0.1:1/v1")
    other = ModelConfig(provider="openai_compatible", model="b", base_url="http://127.0.0.1:1/v1/")
    cached = ModelConfig(
        provider="openai_compatible", model="c", base_url="http://127.0.0.1:2/v1", cache=True
    )
    script = ModelConfig(provider="scripted", model="s")
    assert probes_of([one, None, other, cached, script]) == (Probe(one),)


TASK = """\
artifacts: {include: [prompt.md]}
runner:
  model: {provider: openai_compatible, model: m, base_url: "URL"}
  prompt: prompt.md
  input: q
scorer: {type: rules, rules: [{kind: matches, pattern: "good"}]}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: variants, files: [one.md, two.md]}]
cases: {file: cases.jsonl, split: "0:1:0"}
gate: strict
budget: {max_iterations: 2}
"""


def write(folder: Path, url: str) -> None:
    (folder / "task.yaml").write_text(TASK.replace("URL", url))
    for name in ("prompt", "one", "two"):
        (folder / f"{name}.md").write_text(f"Say good, {name}.\n")
    (folder / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(40)))


def test_a_run_with_a_dead_endpoint_ends_in_seconds_and_leaves_nothing(here: Path):
    write(here, closed_port())
    began = time.monotonic()
    called = kept("optimize", "task.yaml", "-q")
    assert called.code == 2
    assert "nothing answers" in called.stderr
    assert "hint: " in called.stderr
    assert time.monotonic() - began < 10
    assert not list((here / ".kept" / "runs").glob("*"))


def test_a_cached_model_is_probed_when_its_first_reply_is_not_cached(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    with ModelServer(lambda _: "good") as server:
        write(here, server.v1)
        cached = "runner.model.cache=true"
        assert kept("optimize", "task.yaml", "-q", "--set", cached).code == 0
        asked = len(server.log)
    # the server is gone, and every reply is cached
    assert kept("optimize", "task.yaml", "-q", "--set", cached).code == 0
    (here / "one.md").write_text("Say good, another one.\n")
    (here / "prompt.md").write_text("Say good, another prompt.\n")
    began = time.monotonic()
    called = kept("optimize", "task.yaml", "-q", "--set", cached)
    assert called.code == 3
    assert "nothing can be measured: nothing answers" in called.stderr
    assert time.monotonic() - began < 20
    assert asked > 0


def test_check_asks_nobody_and_a_run_pays_for_no_probe(here: Path):
    with ModelServer(lambda _: "good") as server:
        write(here, server.v1)
        assert kept("check", "task.yaml").code == 0
        assert not server.log
        assert kept("optimize", "task.yaml", "-q").code == 0
        assert {seen.wire for seen in server.log} == {"chat"}


def test_an_endpoint_that_fails_now_and_then_is_alive(here: Path):
    faults = [Fault("status", 503), Fault("status", 503)]
    with ModelServer(lambda _: "good", faults=faults) as server:
        write(here, server.v1)
        assert kept("optimize", "task.yaml", "-q").code == 0
