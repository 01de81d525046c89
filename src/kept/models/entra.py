"""Azure OpenAI without a key: by the identity of the machine or of whoever is logged in."""

from typing import Any
from urllib.parse import urlsplit

from kept.errors import SetupError
from kept.threads import call_apart

SCOPE = "https://cognitiveservices.azure.com/.default"
EARLY = 300.0
"""Seconds before its end at which a token is replaced."""

_HOSTS = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net")


class Entra:
    """Fetches tokens, and keeps each one as long as it lasts."""

    def __init__(self, credential: Any = None) -> None:  # noqa: ANN401 # what azure-identity makes
        self._credential = credential
        self._token = ""
        self._ends = 0.0

    async def token(self, url: str, now: float) -> str:
        """A token for an address of Azure, and for no other."""
        where = urlsplit(url)
        if where.scheme != "https" or not (where.hostname or "").endswith(_HOSTS):
            raise SetupError(
                f"an Azure identity is not shown to {where.scheme}://{where.hostname}",
                hint="that is no address of Azure; set AZURE_OPENAI_API_KEY for one of your own",
            )
        if now >= self._ends - EARLY:
            found = await call_apart(self._fetch)
            self._token, self._ends = str(found.token), float(found.expires_on)
        return self._token

    def _fetch(self) -> Any:  # noqa: ANN401 # an AccessToken
        if self._credential is None:
            self._credential = _default()
        return self._credential.get_token(SCOPE)


def _default() -> Any:  # noqa: ANN401 # what azure-identity makes
    from importlib import import_module

    try:
        identity = import_module("azure.identity")
    except ImportError as error:
        raise SetupError(
            "AZURE_OPENAI_API_KEY is not set, and there is no azure-identity to do without",
            hint="set the key, or pip install 'kept[azure]'",
        ) from error
    return identity.DefaultAzureCredential()
