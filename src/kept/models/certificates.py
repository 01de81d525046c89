"""The certificates that this machine trusts: read for the first connection that needs them.

aiohttp reads them twice while it is imported, which takes as long as a sixth of a whole agent run,
and for nothing where a model answers on this machine.
"""

import ssl
from collections.abc import Generator
from contextlib import contextmanager
from threading import get_ident
from typing import Any


class _AtUse(ssl.SSLContext):
    """Trusts what the machine trusts, and finds out what that is when it is first used."""

    _trusts: ssl.Purpose | None = None

    def load_default_certs(self, purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH) -> None:
        self._trusts = purpose

    def _load(self) -> None:
        purpose, self._trusts = self._trusts, None
        if purpose is not None:
            super().load_default_certs(purpose)

    def wrap_bio(self, *args: Any, **more: Any) -> ssl.SSLObject:  # noqa: ANN401 # handed on
        self._load()
        return super().wrap_bio(*args, **more)

    def wrap_socket(self, *args: Any, **more: Any) -> ssl.SSLSocket:  # noqa: ANN401 # handed on
        self._load()
        return super().wrap_socket(*args, **more)


def _default() -> ssl.SSLContext:
    """What `ssl.create_default_context()` makes."""
    made = _AtUse(ssl.PROTOCOL_TLS_CLIENT)
    made.load_default_certs()
    return made


@contextmanager
def read_at_use() -> Generator[None]:
    """Have the contexts that this thread makes meanwhile read no certificates before their use."""
    mine, create = get_ident(), ssl.create_default_context

    def created(*args: Any, **more: Any) -> ssl.SSLContext:  # noqa: ANN401 # handed on
        own = get_ident() == mine and not args and not more
        return _default() if own else create(*args, **more)

    def not_yet(self: ssl.SSLContext) -> None:
        """Nothing, for one that asks nobody for a certificate: aiohttp has a second context so."""
        if get_ident() != mine or self.verify_mode != ssl.CERT_NONE:
            super(ssl.SSLContext, self).set_default_verify_paths()

    ssl.create_default_context = created
    ssl.SSLContext.set_default_verify_paths = not_yet
    try:
        yield
    finally:
        ssl.create_default_context = create
        del ssl.SSLContext.set_default_verify_paths
