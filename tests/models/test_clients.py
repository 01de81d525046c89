"""Requests and replies, the same through every client."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolCall, ToolOffer
from kept.core.ports import Model
from kept.core.rollout import Failure, Usage
from kept.models.client import HttpModel, connect
from kept.models.endpoint import url_of
from kept.models.providers import ModelConfig
from kept.testing import ModelSuite
from kept.testing.server import Fault, ModelServer, Seen
from tests.models.worlds import ASK, CLIENTS, KEY, client, config, model

LOOK = ToolOffer("look", "looks something up", {"type": "object", "properties": {"q": {}}})
SCHEMA = {
    "type": "object",
    "properties": {"label": {"enum": ["a", "b"]}},
    "required": ["label"],
    "additionalProperties": False,
}
all_clients = pytest.mark.parametrize("which", CLIENTS)


def complete(made: HttpModel, request: ModelRequest = ASK) -> ModelReply | Failure:
    return asyncio.run(made.complete(request))


@all_clients
def test_a_reply_has_its_text_its_usage_and_its_end(which: str):
    said = ModelReply("yes, and more than one piece of it", Usage(1, 1000, 20, tokens_cached=400))
    with ModelServer([said]) as server:
        reply = complete(client(which, server))
    assert reply == ModelReply(said.text, Usage(1, 1000, 20, 400))


@all_clients
def test_a_reply_cut_at_its_limit_says_so(which: str):
    with ModelServer([ModelReply("ye", Usage(1, 5, 5), "length")]) as server:
        reply = complete(client(which, server))
    assert isinstance(reply, ModelReply)
    assert reply.finish == "length"


@all_clients
def test_tools_are_offered_called_and_answered(which: str):
    call = ToolCall("call_7", "look", '{"q": "weather"}')
    with ModelServer([ModelReply("", Usage(1, 5, 5), "tool_calls", (call,)), "sunny"]) as server:
        made = client(which, server)
        asked = ModelRequest((Message("user", "weather?"),), tools=(LOOK,))
        reply = complete(made, asked)
        assert isinstance(reply, ModelReply)
        assert reply.finish == "tool_calls"
        assert reply.tool_calls[0].name == "look"
        assert json.loads(reply.tool_calls[0].arguments) == {"q": "weather"}
        said = (
            Message("assistant", tool_calls=reply.tool_calls),
            Message("tool", "22 degrees", answers="call_7"),
        )
        then = complete(made, ModelRequest((*asked.messages, *said), tools=(LOOK,)))
        assert isinstance(then, ModelReply)
        assert then.text == "sunny"
        assert server.log[0].tools.keys() == {"look"}
        assert server.log[1].tool_results == ("22 degrees",)


@all_clients
def test_pictures_are_sent_with_their_kind(which: str):
    data = b"\x89PNG not really"
    with ModelServer(["a cat"]) as server:
        complete(
            client(which, server),
            ModelRequest((Message("user", "what is it?", images=(Image("image/png", data),)),)),
        )
        sent = json.dumps(server.log[0].body)
    assert base64.b64encode(data).decode() in sent
    assert "image/png" in sent


@pytest.mark.parametrize("provider", ["openai", "openai_compatible", "anthropic"])
def test_what_shapes_a_reply_is_passed_on(provider: str):
    request = ModelRequest(
        (Message("user", "x"),),
        temperature=0.25,
        top_p=0.5,
        max_tokens=77,
        seed=3,
        stop=("END",),
        effort="low",
    )
    with ModelServer(["y"]) as server:
        complete(model(provider, server), request)
        body = server.log[0].body
    assert (body["temperature"], body["top_p"]) == (0.25, 0.5)
    if provider == "anthropic":
        assert (body["max_tokens"], body["stop_sequences"]) == (77, ["END"])
        assert body["output_config"]["effort"] == "low"
        return
    limit = "max_completion_tokens" if provider == "openai" else "max_tokens"
    assert (body[limit], body["stop"], body["seed"]) == (77, ["END"], 3)
    assert body["reasoning_effort"] == "low"


def test_a_config_fills_in_what_a_request_leaves_open():
    with ModelServer(["y", "y"]) as server:
        made = model("openai", server, temperature=0.7, max_tokens=9)
        complete(made, ModelRequest((Message("user", "x"),)))
        complete(made, ModelRequest((Message("user", "x"),), temperature=0.0))
        first, then = (seen.body for seen in server.log)
    assert (first["temperature"], first["max_completion_tokens"]) == (0.7, 9)
    assert then["temperature"] == 0.0


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_a_provider_is_held_to_a_schema_in_its_own_way(provider: str):
    with ModelServer(['{"label": "a"}']) as server:
        complete(model(provider, server), ModelRequest((Message("user", "x"),), schema=SCHEMA))
        body: Any = server.log[0].body
    if provider == "openai":
        told = body["response_format"]["json_schema"]
        assert told["schema"] == SCHEMA
        assert told["strict"] is True
    else:
        assert body["output_config"]["format"] == {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize("provider", ["openai_compatible", "anthropic"])
def test_a_server_that_knows_no_schemas_is_told_in_words(provider: str):
    key = "response_format" if provider == "openai_compatible" else "output_config"
    faults = [Fault("status", 400, f"Unknown parameter: {key}")]
    with ModelServer(['{"label": "a"}'] * 2, faults=faults) as server:
        made = model(provider, server)
        request = ModelRequest((Message("user", "x"),), schema=SCHEMA)
        assert isinstance(complete(made, request), ModelReply)
        assert isinstance(complete(made, request), ModelReply)
        _, second, third = server.log
    assert key not in second.body
    assert '"enum": ["a", "b"]' in second.text
    assert key not in third.body, "it is not asked a second time"


def test_a_server_that_knows_the_older_name_of_the_limit_is_told_by_that():
    message = "Unrecognized request argument supplied: max_completion_tokens"
    with ModelServer(["y"], faults=[Fault("status", 400, message)]) as server:
        assert isinstance(complete(model("openai", server)), ModelReply)
        assert server.log[1].body["max_tokens"] == 50


def test_a_server_that_knows_no_name_of_the_limit_is_not_asked_for_ever():
    def unknown(seen: Seen) -> Fault:
        name = "max_tokens" if "max_tokens" in seen.body else "max_completion_tokens"
        return Fault("status", 400, f"Unknown parameter: {name}")

    with ModelServer(unknown) as server:
        assert isinstance(complete(model("openai", server)), Failure)
        assert len(server.log) == 2


def test_a_long_beginning_is_marked_for_the_cache_of_anthropic():
    system = Message("system", "rules " * 1000)
    with ModelServer(["a", "b"]) as server:
        made = model("anthropic", server)
        complete(made, ModelRequest((system, Message("user", "x"))))
        complete(
            made,
            ModelRequest(
                (system, Message("user", "x"), Message("assistant", "a"), Message("user", "y"))
            ),
        )
        first, then = (seen.body for seen in server.log)
    assert first["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in first["messages"][-1]["content"][-1]
    assert then["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert first["system"] == then["system"], "the beginning stays the same"


def test_each_provider_is_shown_its_key_in_its_own_way():
    heads = {"openai": "authorization", "azure_openai": "api-key", "anthropic": "x-api-key"}
    for provider, name in heads.items():
        with ModelServer(["y"]) as server:
            complete(model(provider, server))
            assert server.log[0].headers[name].removeprefix("Bearer ") == KEY


def test_a_server_of_ones_own_needs_no_key():
    with ModelServer(["y"]) as server:
        made = HttpModel(ModelConfig(provider="ollama", model="m", base_url=server.v1))
        assert isinstance(complete(made), ModelReply)
        assert "authorization" not in server.log[0].headers


@pytest.mark.parametrize(
    ("version", "url"),
    [
        (None, "https://x.openai.azure.com/openai/v1/chat/completions"),
        (
            "2024-10-21",
            "https://x.openai.azure.com/openai/deployments/d%2F1/chat/completions"
            "?api-version=2024-10-21",
        ),
    ],
)
def test_azure_is_addressed_by_deployment_where_a_version_is_given(version: str | None, url: str):
    base = "https://x.openai.azure.com"
    made = ModelConfig(provider="azure_openai", model="d/1", base_url=base, api_version=version)
    assert url_of(made, "chat/completions") == url


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch):
    with ModelServer(["through"]) as server:
        monkeypatch.setenv("HTTP_PROXY", server.url)
        made = HttpModel(
            ModelConfig(provider="openai_compatible", model="m", base_url="http://model.invalid/v1")
        )
        reply = complete(made)
    assert isinstance(reply, ModelReply)
    assert reply.text == "through"
    assert server.log[0].headers["host"] == "model.invalid"


def test_an_address_that_needs_no_proxy_is_called_directly(monkeypatch: pytest.MonkeyPatch):
    with ModelServer(["directly"]) as server:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert isinstance(complete(model("openai", server, tries=1)), ModelReply)


def test_a_model_is_had_by_its_name(monkeypatch: pytest.MonkeyPatch):
    with ModelServer(["y"]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        made = connect("openai/gpt-4o-mini")
        assert made.name == "openai/gpt-4o-mini"
        assert isinstance(asyncio.run(made.complete(ASK)), ModelReply)
        assert server.log[0].model == "gpt-4o-mini"


class Conformance(ModelSuite):
    """The suite, with a server that lives as long as the test."""

    which: str

    @pytest.fixture(autouse=True)
    def _servers(self) -> Any:
        with (
            ModelServer(lambda seen: "yes") as server,
            ModelServer(lambda seen: Fault("status", 401, "no")) as closed,
        ):
            self.server, self.closed = server, closed
            yield

    def make_model(self) -> Model:
        return client(self.which, self.server)

    def make_failing_model(self) -> Model | None:
        return client(self.which, self.closed)


class TestOpenAI(Conformance):
    which = "openai"


class TestOpenAIStreamed(Conformance):
    which = "openai, streamed"


class TestAzure(Conformance):
    which = "azure_openai"


class TestCompatible(Conformance):
    which = "openai_compatible"


class TestAnthropic(Conformance):
    which = "anthropic"


class TestAnthropicStreamed(Conformance):
    which = "anthropic, streamed"


class TestScriptedFile(ModelSuite):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        (tmp_path / "replies.jsonl").write_text('{"when": "say", "text": "yes"}\n')
        (tmp_path / "none.jsonl").write_text("")
        self.folder = tmp_path

    def make_model(self) -> Model:
        return self._model("replies.jsonl")

    def make_failing_model(self) -> Model | None:
        return self._model("none.jsonl")

    def _model(self, name: str) -> Model:
        return connect(ModelConfig(provider="scripted", model=name, folder=self.folder))


def test_the_config_of_a_model_holds_no_secret():
    with ModelServer(["y"]) as server:
        assert KEY not in repr(config("openai", server))


def test_a_server_that_takes_no_seed_is_asked_without_and_that_is_remembered():
    def picky(seen: Seen) -> str | Fault:
        told = "Extra inputs are not permitted: seed"
        return Fault("status", 422, told) if "seed" in seen.body else "yes"

    with ModelServer(picky) as server:
        made = model("openai_compatible", server)
        for _ in range(2):
            reply = asyncio.run(made.complete(replace(ASK, seed=7)))
            assert isinstance(reply, ModelReply)
            assert reply.text == "yes"
        assert ["seed" in seen.body for seen in server.log] == [True, False, False]


def test_half_a_character_in_a_request_does_not_keep_it_from_being_sent():
    with ModelServer(["yes"]) as server:
        request = ModelRequest((Message("user", "caf\udce9 and more"),))
        assert isinstance(complete(model("openai_compatible", server), request), ModelReply)
        assert server.log[0].text == "caf? and more"
