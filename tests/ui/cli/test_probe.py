"""A dead endpoint is found in seconds, by a look that nobody charges for."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kept as api
from kept.adapters.reflection import Reflecting, author_of
from kept.models.client import Probe
from kept.models.providers import ModelConfig
from kept.models.roles import connect_role, probes_of, probes_of_models
from kept.testing.server import Fault, ModelServer, Seen
from tests.ui.cli.tasks import Called, kept

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
    monkeypatch.setattr("kept.models.client.PATIENCE", 0.2)
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


def test_each_endpoint_is_looked_at_once():
    one = ModelConfig(provider="openai_compatible", model="a", base_url="http://127.0.0.1:1/v1")
    other = ModelConfig(provider="openai_compatible", model="b", base_url="http://127.0.0.1:1/v1/")
    script = ModelConfig(provider="scripted", model="s")
    assert probes_of([one, None, script], [("optimizer", other)]) == (Probe(one),)
    models = [connect_role("optimizer", one), connect_role("target", other), len]
    assert probes_of_models(models) == (Probe(one),)


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


JUDGED = """\
artifacts: {include: [prompt.md]}
runner:
  model: {provider: openai_compatible, model: target, base_url: "URL", cache: true}
  prompt: prompt.md
  input: q
scorer: {type: judge, target: output, criteria: [{name: kind, means: It is kind.}]}
objective: {primary_metric: score, direction: maximize}
models:
  judge: {provider: openai_compatible, model: judge, base_url: "JUDGE"}
proposers:
  - {kind: edit, model: {provider: openai_compatible, model: editor, base_url: "EDITOR"}}
cases: {file: cases.jsonl, split: "0:1:0"}
gate: strict
budget: {max_iterations: 2}
"""


def answer(seen: Seen) -> str:
    if seen.model == "judge":
        return json.dumps({"kind": {"reason": "so so", "level": 3}})
    if seen.model == "editor":
        edit = {"op": "append", "path": "prompt.md", "target": "", "text": "Be kind.\n"}
        return json.dumps({"why": "kinder", "cases": [], "edits": [edit]})
    return "fine"


def write_judged(folder: Path, judge: str, editor: str, target: str) -> None:
    write(folder, target)
    text = JUDGED.replace("URL", target).replace("JUDGE", judge).replace("EDITOR", editor)
    (folder / "task.yaml").write_text(text)


def optimized() -> tuple[Called, float]:
    began = time.monotonic()
    return kept("optimize", "task.yaml", "-q"), time.monotonic() - began


def test_a_run_whose_replies_are_all_cached_needs_no_endpoint(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    with ModelServer(answer) as server:
        write_judged(here, server.v1, server.v1, server.v1)
        called, _ = optimized()
        assert called.code == 0, called.stderr
        assert {seen.model for seen in server.log} == {"target", "judge", "editor"}
    # the server is gone; judge and editor are cached without being asked to
    called, _ = optimized()
    assert called.code == 0, called.stderr
    assert len(list((here / ".kept" / "runs").iterdir())) == 2


@pytest.mark.parametrize("dead", ["judge", "editor"])
def test_a_cached_judge_or_editor_is_probed_when_its_first_reply_is_not_cached(
    here: Path, dead: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    with ModelServer(answer) as server:
        with ModelServer(answer) as other:
            urls = {"judge": server.v1, "editor": server.v1, dead: other.v1}
            write_judged(here, urls["judge"], urls["editor"], server.v1)
            called, _ = optimized()
            assert called.code == 0, called.stderr
        (here / "prompt.md").write_text("Say good, another prompt.\n")
        (here / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(50, 90)))
        called, took = optimized()
    assert called.code == 3, called.stderr
    assert "nothing answers" in called.stderr
    assert took < 20


@pytest.mark.parametrize("dead", ["judge", "editor"])
def test_a_dead_judge_or_editor_without_cached_replies_is_found_before_a_rollout(
    here: Path, dead: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    with ModelServer(answer) as server:
        urls = {"judge": server.v1, "editor": server.v1, dead: closed_port()}
        write_judged(here, urls["judge"], urls["editor"], server.v1)
        called, took = optimized()
        assert not server.log
    assert called.code == 2, called.stderr
    assert "nothing answers" in called.stderr
    assert took < 10


def editor_at(url: str) -> dict[str, str]:
    return {"provider": "openai_compatible", "model": "editor", "base_url": url}


MAKERS = [api.edit, api.reflect, api.rewrite, api.simplify]


@pytest.mark.parametrize("make", MAKERS)
def test_a_dead_model_that_proposes_is_found_before_a_python_function_is_called(
    make: Callable[..., api.Proposer], here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    called: list[str] = []

    def evaluate(candidate: api.Candidate) -> float:
        called.append(candidate.text)
        return 0.5

    began = time.monotonic()
    with pytest.raises(api.SetupError, match="nothing answers"):
        api.optimize("a", evaluate, proposers=[make(model=editor_at(closed_port()))], home=here)
    assert time.monotonic() - began < 10
    assert not called
    assert not list((here / "runs").glob("*"))


def half(candidate: api.Candidate) -> float:
    return 0.5


def test_a_dead_model_of_an_adapter_is_found_before_anything_is_run(here: Path):
    author = author_of("openai_compatible/editor", {}, {"base_url": closed_port()})
    proposer = Reflecting(author, ("text",))
    with pytest.raises(api.SetupError, match="nothing answers"):
        api.optimize("a", half, proposers=[proposer], home=here)


def test_a_python_run_whose_proposals_are_all_cached_needs_no_endpoint(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))

    def optimize(url: str, text: str) -> api.Result:
        proposers = [api.edit(model=editor_at(url))]
        return api.optimize(text, evaluate, proposers=proposers, home=here, budget=1)

    def evaluate(candidate: api.Candidate) -> float:
        return float(len(candidate.text))

    with ModelServer(lambda seen: answer(seen).replace("prompt.md", "text")) as server:
        url = server.v1
        assert optimize(url, "Hello.\n").improved
    assert optimize(url, "Hello.\n").improved
    began = time.monotonic()
    with pytest.raises(api.RunError, match="nothing answers"):
        optimize(url, "Another.\n")
    assert time.monotonic() - began < 10


def test_functions_have_nothing_to_probe(here: Path):
    result = api.optimize("a", half, proposers=["b"], budget=1, home=here)
    assert not result.improved


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
