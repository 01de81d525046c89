"""What a person is told to type works where it is told."""

import subprocess
import sys
from pathlib import Path

import pytest

from kept import settings
from kept.settings import cache_home


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
