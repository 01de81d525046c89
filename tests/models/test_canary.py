"""A planted key is found nowhere: no file of a run, no failure, no cache, no log, no child."""

import asyncio
import json
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kept
from kept.core.llm import Message, ModelReply, ModelRequest, ToolCall
from kept.core.ports import Model, Scope
from kept.core.proposal import Proposal, ProposerReply
from kept.core.rollout import Failure
from kept.errors import RunError
from kept.models.ask import ask
from kept.models.cache import CachedModel, CallCache
from kept.models.client import HttpModel
from kept.models.providers import ModelConfig
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import CLIENTS, KEY, client
from tests.ui.cli.tasks import kept as call_kept


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


@pytest.mark.parametrize("which", CLIENTS)
def test_a_key_that_a_reply_quotes_is_taken_out_and_nothing_else_is(which: str):
    with ModelServer([f"you sent {KEY}, on 2023-06-01"]) as server:
        reply = asyncio.run(client(which, server).complete(ModelRequest((Message("user", "x"),))))
    assert isinstance(reply, ModelReply)
    assert reply.text == "you sent [secret], on 2023-06-01"


def test_a_login_in_an_address_is_in_no_reply_though_there_is_no_key():
    login = "me:lodestone-9"
    with ModelServer(lambda seen: echo) as server:
        url = server.v1.replace("://", f"://{login}@")
        call = ToolCall("c", "look", json.dumps({"at": url, "as": login}))
        echo = ModelReply(f"you asked {url} as {login}", tool_calls=(call,))
        made = HttpModel(ModelConfig(provider="ollama", model="m", base_url=url))
        reply = asyncio.run(made.complete(ModelRequest((Message("user", "x"),))))
        assert "authorization" in server.log[0].headers, "it was sent"
        assert isinstance(reply, ModelReply)
        assert reply.text == f"you asked {server.v1} as me:[secret]"
        [heard] = reply.tool_calls
        assert json.loads(heard.arguments) == {"at": server.v1, "as": "me:[secret]"}
    with ModelServer([f"{login} wrote to me@here.org"]) as server:
        made = HttpModel(ModelConfig(provider="ollama", model="m", base_url=server.v1))
        plain = asyncio.run(made.complete(ModelRequest((Message("user", "x"),))))
    assert isinstance(plain, ModelReply)
    assert plain.text == f"{login} wrote to me@here.org", "what is nobody's secret stays"


# the name of the second says nothing, and its value is written otherwise inside JSON
PLANTED = {
    "OPENAI_COMPATIBLE_API_KEY": "runner-0123456789abcdef",
    "LODESTONE": 'judge"0123\\456789/+=abc',
    "KEPT_TEST_KEY": KEY,
}

TASK = """\
artifacts: {include: [prompt.md]}
models:
  target: {provider: openai_compatible, model: target, base_url: "URL/v1", tries: 1}
  judge: {provider: azure_openai, model: judge, base_url: "URL", api_key: "${LODESTONE}", tries: 1}
  optimizer: {provider: anthropic, model: editor, base_url: "URL", api_key: "${KEPT_TEST_KEY}"}
runner: {prompt: prompt.md, input: question}
scorer:
  type: composite
  parts:
    - name: judged
      scorer:
        type: judge
        criteria: [{name: good, means: it is good}]
        input: question
        rules: [{kind: lacks, pattern: "(x+x+)+y"}]
    - {name: spied, weight: 0, scorer: {type: python, function: "spy:look"}}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
mutation: {mode: direct_edit}
cases: {file: cases.jsonl, split: "2:6:0"}
budget: {max_iterations: 4}
gate: strict
"""

SPY = """\
import os, pathlib

def look():
    mine = os.getppid()
    told = [str(dict(os.environ))]
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if parent == mine:
                told.append(process.joinpath("environ").read_bytes().decode("utf-8", "replace"))
        except (OSError, ValueError):
            continue
    with open("SEEN", "a") as file:
        file.write("\\n".join(told) + "\\n")
    return 1.0
"""


def hostile(seen: Seen) -> str | Fault:
    """Quotes the key that it was sent, in replies, in errors, in edits and in what is no JSON."""
    sent = seen.headers.get("authorization") or seen.headers.get("api-key") or ""
    key = (sent or seen.headers.get("x-api-key", "")).removeprefix("Bearer ")
    assert key in PLANTED.values()
    if seen.model == "editor":
        edit = {"op": "append", "path": "prompt.md", "target": "", "text": f"{key} {seen.number}\n"}
        return json.dumps({"why": f"I know {key}", "cases": [key], "edits": [edit]})
    if seen.model == "target":
        if seen.text.endswith("question 1"):
            return Fault("status", 500, f"no answer for {key}", code=key)
        return f"an answer by {key}"
    if "question 2\n" in seen.lines[1].text:
        return f"no JSON, but {key}"
    return json.dumps({"good": {"reason": f"I was told {key}", "level": 3 + seen.number % 2}})


def forms(key: str) -> Iterator[bytes]:
    yield from (key.encode(), json.dumps(key)[1:-1].encode())
    yield json.dumps(json.dumps(key)[1:-1])[1:-1].encode()


@pytest.mark.slow
def test_planted_keys_are_nowhere_in_a_run_of_a_runner_a_judge_and_an_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    for name, key in PLANTED.items():
        monkeypatch.setenv(name, key)
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    task = tmp_path / "task"
    task.mkdir()
    (task / "prompt.md").write_text("Answer.\n")
    (task / "spy.py").write_text(SPY.replace("SEEN", str(tmp_path / "environments")))
    rows = ({"id": f"c{n}", "question": f"question {n}"} for n in range(40))
    (task / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ModelServer(hostile) as server:
        (task / "task.yaml").write_text(TASK.replace("URL", server.url))
        told = [call_kept("check", str(task)), call_kept("optimize", str(task))]
        sent = {value for seen in server.log for value in seen.headers.values()}
        assert {seen.model for seen in server.log} == {"target", "judge", "editor"}
    for key in PLANTED.values():
        assert sent & {key, f"Bearer {key}"}, "it was sent"
    (folder,) = (tmp_path / "home" / "runs").iterdir()
    told += [call_kept("report"), call_kept("show"), call_kept("show", "--step", "1", "-v")]
    with Run(folder) as run:
        kinds = {o.failure.kind for _, _, o in run.rollouts() if o.failure is not None}
        assert kinds == {"server", "parse"}, "both kinds of quotes were kept"
        assert "[secret]" in run.candidate(run.closed(0).candidate or "").text
    words = "".join(one.stdout + one.stderr for one in told) + caplog.text
    assert words.count("[secret]") > 5
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "cache" / "calls.db" in files
    environments = (tmp_path / "environments").read_text()
    assert re.search(r"\bPATH\b", environments), "the spy has seen something"
    for key in PLANTED.values():
        for form in forms(key):
            assert [path for path in files if form in path.read_bytes()] == []
            assert form.decode() not in words
