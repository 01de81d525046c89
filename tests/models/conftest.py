"""Every client has a key, and none of the machine's own settings."""

import pytest

from tests.models.worlds import KEY


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_TEST_KEY", KEY)
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_VERSION", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "")
