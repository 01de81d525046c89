"""What a person is told to type works where it is told."""

import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kept import settings
from kept.settings import cache_home

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_where_the_shell_does_not_find_kept_the_path_it_was_called_by_is_told(tmp_path: Path):
    made = Path(sys.executable).parent / "kept"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kept").symlink_to(made)
    whole = str(tmp_path / "bin" / "kept")
    for path, word in (("/usr/bin:/bin", whole), (str(made.parent), "kept")):
        done = subprocess.run(
            ["bin/kept", "init", "prompt", f"task-of-{len(word)}"],
            cwd=tmp_path,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.endswith(f"      {word} optimize .\n      {word} adopt\n")


@pytest.mark.slow
def test_a_path_below_this_folder_is_told_as_one_types_it_here(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kept").symlink_to(Path(sys.executable).parent / "kept")
    done = subprocess.run(
        ["bin/kept", "init", "skill", "."],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "\nnext: bin/kept optimize .\n      bin/kept adopt\n"


@pytest.mark.parametrize(
    ("variables", "folder"),
    [
        ({"KEPT_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/kept"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/kept"),
        ({}, "/home/me/.cache/kept"),
    ],
)
def test_the_cache_is_where_the_user_has_it(
    variables: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
):
    for name in ("KEPT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert cache_home() == Path(folder)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("http://kim:hunter2@host:80/v1", "http://host:80/v1"),
        ("see https://tok3n@h/a, or http://h/a@b", "see https://h/a, or http://h/a@b"),
        ("mail kim@host", "mail kim@host"),
    ],
)
def test_an_address_is_told_without_its_login(text: str, bare: str) -> None:
    assert settings.without_login(text) == bare


def test_logins_of_addresses_in_the_environment_are_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://kim:hunter2hunter2@host/v1")
    monkeypatch.setenv("LINKS", "http://u:p@a http://b/c@d")
    found = settings.secrets()
    assert {"kim:hunter2hunter2@", "hunter2hunter2", "u:p@"} <= set(found)
    assert "p" not in found and not any("c@" in one for one in found), "short ones stand in words"


EXTRAS = ("alfworld", "azure", "local", "mcp", "metrics", "office", "retrieval", "web")


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_installation_is_extended_by_the_packages_of_an_extra(extra: str):
    """`pip install 'kept[web]'` would fetch another's package of that name."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = named["optional-dependencies"][extra]
    words = shlex.split(settings.install_command(extra))
    start = words.index("install")
    assert words[1 : start + 1] == ["-m", "pip", "install"]
    assert Path(words[0]).name.startswith("python")
    assert sorted(words[start + 1 :]) == sorted(wanted)


def test_an_environment_without_pip_is_extended_by_uv(monkeypatch: pytest.MonkeyPatch):
    def find_nothing(name: str) -> None: ...

    monkeypatch.setattr("importlib.util.find_spec", find_nothing)
    told = settings.install_command("mcp")
    assert told.startswith("uv pip install --python ") and told.endswith(" 'mcp>=2.0'")


def test_no_message_names_kept_as_a_package_of_an_index():
    for path in (ROOT / "src" / "kept").rglob("*.py"):
        assert "install 'kept[" not in path.read_text(encoding="utf-8"), path
