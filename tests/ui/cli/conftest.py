from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, far from any `.kept`."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("KEPT_HOME", "KEPT_ARTIFACTS", "KEPT_DEBUG", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder
