"""Texts become vectors over the same line as chat: batched, paced, tried again, priced."""

import asyncio
from collections.abc import Iterator

import pytest

from kept.core.llm import Embedded
from kept.core.ports import Embedder
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.models import embeddings
from kept.models import endpoint as endpoint_module
from kept.models.embeddings import HttpEmbedder, make_embedder
from kept.models.protocol import Trouble
from kept.models.providers import ModelConfig, Price
from kept.testing import EmbedderSuite, WordEmbedder
from kept.testing.server import Fault, ModelServer
from kept.testing.server.embeddings import vector
from tests.models.worlds import KEY, config


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint_module, "FIRST_WAIT", 0.001)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as made:
        yield made


def run(made: Embedder, *texts: str) -> Embedded | Failure:
    async def embed() -> Embedded | Failure:
        return await made.embed(texts)

    return asyncio.run(embed())


class Served(EmbedderSuite):
    @pytest.fixture(autouse=True)
    def two(self) -> Iterator[None]:
        with ModelServer() as good, ModelServer(faults=lambda seen: Fault("status", 401)) as bad:
            self.good, self.bad = good, bad
            yield

    provider = "openai_compatible"

    def make_embedder(self) -> Embedder:
        return HttpEmbedder(config(self.provider, self.good, price=Price(input=1, output=0)))

    def make_failing_embedder(self) -> Embedder:
        return HttpEmbedder(config(self.provider, self.bad))


class TestAnyEndpoint(Served):
    pass


class TestOpenAI(Served):
    provider = "openai"


class TestAzure(Served):
    provider = "azure_openai"


class TestOllama(Served):
    provider = "ollama"


class TestWords(EmbedderSuite):
    def make_embedder(self) -> Embedder:
        return WordEmbedder()

    def make_failing_embedder(self) -> Embedder:
        made = WordEmbedder()
        made.fail(Failure("server", "infrastructure", "away"))
        return made


@pytest.mark.parametrize(
    ("provider", "path", "header"),
    [
        ("openai", "/v1/embeddings", "authorization"),
        ("ollama", "/v1/embeddings", "authorization"),
        ("azure_openai", "/openai/v1/embeddings", "api-key"),
    ],
)
def test_every_provider_is_asked_at_its_own_address_with_its_key(
    server: ModelServer, provider: str, path: str, header: str
):
    assert isinstance(run(HttpEmbedder(config(provider, server)), "a"), Embedded)
    assert server.log[0].path == path
    assert server.log[0].headers[header].endswith(KEY)


def test_azure_is_addressed_by_deployment_where_a_version_is_given(server: ModelServer):
    run(HttpEmbedder(config("azure_openai", server, api_version="2024-10-21")), "a")
    assert server.log[0].path == "/openai/deployments/m/embeddings?api-version=2024-10-21"


def test_the_length_of_vectors_is_asked_for_only_where_it_is_given(server: ModelServer):
    short = run(HttpEmbedder(config("openai", server), 16), "a b")
    own = run(HttpEmbedder(config("openai", server)), "a b")
    assert [seen.body.get("dimensions") for seen in server.log] == [16, None]
    assert isinstance(short, Embedded)
    assert isinstance(own, Embedded)
    assert [len(short.vectors[0]), len(own.vectors[0])] == [16, 64]


def test_many_texts_are_sent_in_few_calls_and_come_back_in_order(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(embeddings, "MOST_BYTES", 400)
    texts = [f"text number {n}" for n in range(300)] + ["long " * 200, "last"]
    answer = run(HttpEmbedder(config("openai", server)), *texts)
    assert isinstance(answer, Embedded)
    for text, found in zip(texts, answer.vectors, strict=True):
        assert list(found) == pytest.approx(vector(text), abs=1e-6)
    assert answer.usage.calls == len(server.log)
    sizes = [sum(len(text) for text in seen.body["input"]) for seen in server.log]
    assert max(sorted(sizes)[:-1]) <= 400, "all but the one text that is longer by itself"
    assert len(server.log) < 20


def test_no_call_has_more_texts_than_providers_take(server: ModelServer):
    run(HttpEmbedder(config("openai", server)), *(f"t{n}" for n in range(300)))
    assert sorted(len(seen.body["input"]) for seen in server.log) == [44, 128, 128]


def test_an_outage_is_tried_again_and_no_key_is_not():
    faults = [Fault("status", 429, retry_after=0.01), Fault("status", 503), None]
    with ModelServer(faults=faults) as server:
        assert isinstance(run(HttpEmbedder(config("openai", server)), "a"), Embedded)
        assert len(server.log) == 3
    with ModelServer(faults=lambda seen: Fault("status", 401, f"no {KEY}")) as server:
        failure = run(HttpEmbedder(config("openai", server)), "a")
        assert len(server.log) == 1
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame, failure.tried) == ("harness", "infrastructure", True)
    assert KEY not in failure.message


@pytest.mark.parametrize("kind", ["wrong_type", "empty", "gives_up", "truncated"])
def test_an_answer_without_vectors_is_tried_again_and_then_an_outage(kind: str):
    with ModelServer(faults=lambda seen: Fault(kind)) as server:  # pyright: ignore[reportArgumentType] # one of its kinds
        failure = run(HttpEmbedder(config("openai", server, tries=3)), "a")
        assert len(server.log) == 3
    assert isinstance(failure, Failure)
    assert failure.blame == "infrastructure"
    assert "(3 tries at http://127.0.0.1:" in failure.message


def test_a_failure_tells_what_the_calls_before_it_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(embeddings, "MOST_TEXTS", 1)
    monkeypatch.setattr(embeddings, "AT_ONCE", 1)
    faults = [None, Fault("status", 400)]
    with ModelServer(faults=faults) as server:
        failure = run(HttpEmbedder(config("openai", server)), "a", "b", "c")
        assert len(server.log) == 2, "nothing is asked after it"
    assert isinstance(failure, Failure)
    assert failure.usage.calls == 1


def test_a_server_that_cuts_no_vectors_is_said_to(server: ModelServer):
    made = HttpEmbedder(config("openai", server), 16)
    with pytest.raises(Trouble, match="of 2 numbers, not 16; leave `embedding_dimensions` out"):
        made._heard({"data": [{"embedding": [1.0, 0.0]}]}, 1)


def test_calls_are_paced_as_the_config_says(server: ModelServer):
    made = HttpEmbedder(config("openai", server, requests_per_minute=600))

    async def many() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(made.embed(["a"]) for _ in range(13)))
        return asyncio.get_running_loop().time() - began

    # ten at once, then ten a second
    assert asyncio.run(many()) > 0.25


def test_the_price_is_that_of_the_list_though_such_models_say_nothing(server: ModelServer):
    made = HttpEmbedder(config("openai", server, model="text-embedding-3-small"))
    answer = run(made, "a" * 400)
    assert isinstance(answer, Embedded)
    assert answer.usage.tokens_in == 101
    assert answer.usage.usd == pytest.approx(101 * 0.02e-6)
    unknown = HttpEmbedder(config("openai", server, model="nobody-knows-it"))
    assert unknown.rates is None
    assert unknown.worst_usd(["a"]) is None


def test_two_servers_two_models_and_two_lengths_are_known_apart(server: ModelServer):
    one = config("openai", server)
    made = [
        HttpEmbedder(one),
        HttpEmbedder(one, 16),
        HttpEmbedder(config("openai", server, model="n")),
        HttpEmbedder(config("openai", server, base_url="http://127.0.0.1:1/v1")),
    ]
    assert len({embedder.known_by for embedder in made}) == 4


@pytest.mark.parametrize("provider", ["anthropic", "local", "scripted"])
def test_a_provider_without_embeddings_is_refused_by_name(provider: str):
    with pytest.raises(SetupError, match=f"`{provider}` turns no texts into vectors"):
        make_embedder(ModelConfig(provider=provider, model="m"))


def test_an_embedder_without_a_key_is_refused_before_any_call():
    with pytest.raises(SetupError, match="OPENAI_API_KEY is not set"):
        make_embedder(ModelConfig(provider="openai", model="text-embedding-3-small"))
