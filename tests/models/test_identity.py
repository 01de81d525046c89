"""Who we are to a provider: keys, Azure's identities, and certificates."""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.models.client import connect
from kept.models.providers import SCOPE, Entra, check_provider, config_of, missing, parse
from kept.testing.server import ModelServer
from tests.models.worlds import ASK, model

AZURE = "https://ours.openai.azure.com/openai/v1/chat/completions"


class Token(NamedTuple):
    token: str
    expires_on: float


class Credential:
    """Hands out numbered tokens that last an hour from time 0."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_token(self, scope: str) -> Token:
        self.asked.append(scope)
        return Token(f"token-{len(self.asked)}", 3600.0 * len(self.asked))


def test_a_token_of_azure_is_kept_until_shortly_before_its_end():
    async def story() -> list[str]:
        entra = Entra(credential)
        return [await entra.token(AZURE, now) for now in (0.0, 3000.0, 3301.0, 3400.0)]

    credential = Credential()
    assert asyncio.run(story()) == ["token-1", "token-1", "token-2", "token-2"]
    assert set(credential.asked) == {SCOPE}


def test_an_identity_and_a_cloud_of_ones_own_are_asked_for(monkeypatch: pytest.MonkeyPatch):
    """By a library of the same shape as Azure's, which is not installed here."""

    class Chosen:
        def __init__(self, **chosen: str) -> None:
            self.chosen = chosen

        def get_token(self, scope: str) -> Token:
            return Token(f"{self.chosen} {scope}", 3600.0)

    library = ModuleType("azure.identity")
    monkeypatch.setattr(library, "DefaultAzureCredential", Chosen, raising=False)
    monkeypatch.setitem(sys.modules, "azure.identity", library)
    cloud = "https://cognitiveservices.azure.us/.default"
    there = "https://ours.openai.azure.us/x"
    told = asyncio.run(Entra(identity="client-7", scope=cloud).token(there, 0.0))
    assert told == f"{{'managed_identity_client_id': 'client-7'}} {cloud}"
    assert asyncio.run(Entra().token(AZURE, 0.0)) == f"{{}} {SCOPE}"


@pytest.mark.parametrize(
    "url",
    ["http://ours.openai.azure.com/x", "https://azure.com.evil.example/x", "http://127.0.0.1"],
)
def test_an_identity_of_azure_is_shown_to_azure_alone(url: str):
    credential = Credential()
    with pytest.raises(SetupError, match="not shown"):
        asyncio.run(Entra(credential).token(url, 0.0))
    assert not credential.asked


def test_azure_without_a_key_and_without_its_library_says_what_to_install():
    with ModelServer(["never"]) as server:
        failure = asyncio.run(model("azure_openai", server, api_key=None).complete(ASK))
        assert isinstance(failure, Failure)
        assert failure.kind == "harness"
        assert not server.log
    with pytest.raises(SetupError, match=r"pip install .azure-identity>="):
        asyncio.run(Entra().token(AZURE, 0.0))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpt-4o", "write provider/model"),
        ("openai/", "write provider/model"),
        ("opnai/gpt-4o", "did you mean `openai`"),
        ("azure-openai/x", "did you mean `azure_openai`"),
        ("qwertz/x", "there are openai"),
    ],
)
def test_a_text_that_names_no_model_is_refused_with_what_may_be_meant(text: str, words: str):
    with pytest.raises(SetupError, match=words):
        connect(text)


def test_a_model_may_have_slashes_in_its_name():
    assert parse("openai_compatible/meta/llama") == ("openai_compatible", "meta/llama")
    assert check_provider("openai") == "openai"


@pytest.mark.parametrize(
    ("text", "lack"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY is not set"),
        ("anthropic/claude-x", "ANTHROPIC_API_KEY is not set"),
        ("azure_openai/d", "AZURE_OPENAI_ENDPOINT"),
        ("openai_compatible/x", "base_url"),
    ],
)
def test_what_is_missing_is_told_by_its_name(text: str, lack: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    assert lack in (missing(config_of(text)) or "")
    with pytest.raises(SetupError):
        connect(text)


PEM = Path(__file__).with_name("loopback.pem")
SCRIPT = """
import asyncio, sys
from kept.models.client import HttpModel
from kept.models.providers import ModelConfig
from tests.models.worlds import ASK
config = ModelConfig(provider="openai_compatible", model="m", base_url=sys.argv[1], tries=1)
print(asyncio.run(HttpModel(config).complete(ASK)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [True, False])
def test_an_authority_of_ones_own_is_trusted_where_it_is_named(trusted: bool):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(PEM)
    with ModelServer(["in private"], tls=tls) as server:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, server.v1],
            env={"SSL_CERT_FILE": str(PEM)} if trusted else {},
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
    if trusted:
        assert "in private" in done.stdout
    else:
        assert "harness" in done.stdout
        assert "SSL_CERT_FILE" in done.stdout
