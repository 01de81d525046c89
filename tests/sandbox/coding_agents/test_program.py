"""The program of an agent is found, and seen with all its parts, wherever it was installed."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kept.sandbox.bwrap import Site, can_be_seen
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.definition import program_of
from kept.sandbox.coding_agents.run import CLIS
from kept.sandbox.command import Command, Exit, View
from kept.sandbox.execute import execute

CODEX = CLIS["codex_exec"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program as npm lays it out: a link, the package, and another one that it leans on."""
    modules = tmp_path / "prefix" / "node_modules"
    package, other, links = modules / "@openai" / "codex", modules / "other", modules / ".bin"
    for folder in (package, other, links):
        folder.mkdir(parents=True)
    (other / "word.sh").write_text("echo leaned on\n")
    program = package / "codex.sh"
    program.write_text('#!/bin/sh\n. "$(dirname "$(readlink -f "$0")")/../../other/word.sh"\n')
    program.chmod(0o755)
    (links / "codex").symlink_to(program)
    monkeypatch.setenv("PATH", f"{links}{os.pathsep}/usr/bin:/bin")
    return modules


def test_it_is_found_with_the_folders_it_needs(installed: Path):
    found = program_of(CODEX)
    assert found is not None
    assert found.path == (installed / "@openai/codex/codex.sh").resolve()
    assert found.folders[:2] == (installed / ".bin", installed)


def test_what_npm_did_not_install_needs_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "codex").write_text("#!/bin/sh\n")
    (tmp_path / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    found = program_of(CODEX)
    assert found is not None
    assert found.folders[0] == tmp_path
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_of(CODEX) is None


@pytest.mark.sandbox
@pytest.mark.parametrize("where", ["elsewhere", "above the workspaces"])
def test_it_runs_between_walls_that_make_its_folder_private(
    where: str, installed: Path, tmp_path: Path
):
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    assert tmp_path.is_relative_to("/tmp"), "or this test shows nothing"
    found = program_of(CODEX)
    assert found is not None
    root = installed if where == "above the workspaces" else tmp_path
    workspace, other = root / "scratch" / "one", root / "scratch" / "two"
    for folder in (workspace, other):
        (folder / "output").mkdir(parents=True)
    (other / "case.json").write_text("the answer of another case")
    tree = tmp_path / "tree"
    tree.mkdir()
    view = View(tree, hidden=(tree,), bare=True, seen=found.folders)

    def run(view: View, line: str = "codex") -> Exit:
        command = Command(line, Path("/"), 20, view=view)
        ended = asyncio.run(execute(command, {}, Site(workspace)))
        assert isinstance(ended, Exit), ended
        return ended

    assert run(view, f"cat {other / 'case.json'}").stdout == ""
    if where == "elsewhere":
        assert run(view).stdout == "leaned on\n"
    assert run(replace(view, seen=())).code == 127


def test_no_folder_can_be_seen_that_holds_the_workspaces(tmp_path: Path):
    assert can_be_seen(tmp_path / "programs", tmp_path / "scratch")
    assert not can_be_seen(tmp_path, tmp_path / "scratch")
    assert not can_be_seen(Path("/tmp"), Path("/elsewhere"))
    assert can_be_seen(Path("/"), tmp_path), "it is seen anyway, without what is private"
