"""What is in the repository was written here: no environment, no download, no large file."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOREIGN = ("site-packages", "node_modules", "__pycache__")
LARGEST = 500_000
"""Bytes; the journals and banks that tests and benches need are smaller."""

pytestmark = pytest.mark.git


def strange(names: list[str]) -> list[str]:
    """Paths that no one here wrote."""
    return [
        name
        for name in names
        if any(part in FOREIGN or part.startswith(".venv") for part in Path(name).parts)
    ]


def test_nothing_in_it_comes_from_elsewhere():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    told = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in told.stdout.split("\0") if name]
    assert len(names) > 100
    assert strange(names) == []
    large = [name for name in names if (ROOT / name).stat().st_size > LARGEST]
    assert large == []


def test_an_environment_would_be_noticed():
    inside = "bench/.venv-sdk/lib/python3.11/site-packages/openai/__init__.py"
    assert strange(["src/kept/api.py", inside, ".gitignore"]) == [inside]
