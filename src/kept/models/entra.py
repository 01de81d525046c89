"""Azure OpenAI without a key: by the identity of the machine or of whoever is logged in."""

from typing import Any
from urllib.parse import urlsplit

from kept.engine.threads import call_apart
from kept.errors import SetupError
from kept.settings import install_command

SCOPE = "https://cognitiveservices.azure.com/.default"
EARLY = 300.0
"""Seconds before its end at which a token is replaced."""

_HOSTS = (".azure.com", ".azure.us", ".azure.cn", ".azure-api.net")


class Entra:
    """Fetches tokens, and keeps each one as long as it lasts."""

    def __init__(
        self,
        credential: Any = None,  # noqa: ANN401 # what azure-identity makes
        *,
        identity: str | None = None,
        scope: str | None = None,
    ) -> None:
        """By a managed identity of that client id, for that scope; else by what there is."""
        self._credential = credential
        self._identity = identity
        self._scope = scope or SCOPE
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
            self._credential = _default(self._identity)
        return self._credential.get_token(self._scope)


def is_scope(text: str) -> bool:
    """Whether tokens may be asked for it: one of Azure's clouds, and nobody else's."""
    where = urlsplit(text)
    return where.scheme == "https" and (where.hostname or "").endswith(_HOSTS)


def _default(identity: str | None) -> Any:  # noqa: ANN401 # what azure-identity makes
    from importlib import import_module

    try:
        library = import_module("azure.identity")
    except ImportError as error:
        raise SetupError(
            "there is no azure-identity to ask Azure without a key",
            hint=f"set AZURE_OPENAI_API_KEY, or {install_command('azure')}",
        ) from error
    chosen = {} if identity is None else {"managed_identity_client_id": identity}
    return library.DefaultAzureCredential(**chosen)
