"""A shell in a workspace that lives as long as an episode; real commands in the sandbox."""

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from kept.core.llm import ToolAnswer
from kept.core.rollout import Failure, Job
from kept.engine.replay import JournalScope
from kept.evaluators.tools import shell as module
from kept.evaluators.tools.shell import Changes, EpisodeWorkspace, ShellSettings, ShellTool
from kept.sandbox.workspace import Scratch
from kept.testing import MemoryJournal

OPEN = Path("/var") if Path.home().is_relative_to("/tmp") else Path.home()
"""Where a command sees what is not hidden from it: /tmp is private."""

pytestmark = pytest.mark.sandbox
T = TypeVar("T")


def within(
    source: Path | dict[str, bytes],
    what: Callable[[EpisodeWorkspace], Awaitable[T]],
    settings: ShellSettings | None = None,
) -> T:
    async def once() -> T:
        scratch = Scratch()
        workspace = EpisodeWorkspace(scratch, settings or ShellSettings(seconds=20))
        try:
            await workspace.open(source)
            return await what(workspace)
        finally:
            workspace.close()
            scratch.close()

    return asyncio.run(once())


async def use(workspace: EpisodeWorkspace, journal: MemoryJournal, *lines: str) -> list[str]:
    tool = ShellTool(workspace)
    told: list[str] = []
    for n, line in enumerate(lines):
        scope = JournalScope(journal, Job("x", "c", 0, "decide")).branch(str(n))
        answer = await tool.use({"command": line}, scope)
        told.append(answer.message if isinstance(answer, Failure) else answer.text)
    return told


def test_files_stay_from_command_to_command(tmp_path: Path):
    (tmp_path / "repo" / "src").mkdir(parents=True)
    (tmp_path / "repo" / "src" / "a.py").write_text("x = 1\n")

    async def work(workspace: EpisodeWorkspace) -> list[str]:
        lines = ("cat src/a.py", "echo 'x = 2' > src/a.py; rm -f no", "cat src/a.py; exit 3")
        return await use(workspace, MemoryJournal(), *lines)

    first, _, last = within(tmp_path / "repo", work)
    assert first == "exit 0\nstdout:\nx = 1\n"
    assert last == "exit 3\nstdout:\nx = 2\n"
    assert (tmp_path / "repo" / "src" / "a.py").read_text() == "x = 1\n", "it works on a copy"


def test_a_resume_makes_the_changes_again_and_runs_nothing():
    journal = MemoryJournal()
    lines = ("date +%N > now; echo more >> kept.txt; rm gone.txt", "cat now kept.txt; ls")
    given = {"kept.txt": b"given\n", "gone.txt": b""}

    async def work(workspace: EpisodeWorkspace) -> list[str]:
        return await use(workspace, journal, *lines)

    first = within(given, work)

    async def again(workspace: EpisodeWorkspace) -> tuple[list[str], dict[str, bytes]]:
        told = await use(workspace, journal, *lines)
        files = {one.name: one.read_bytes() for one in workspace.folder.iterdir()}
        return told, files

    told, files = within(given, again)
    assert told == first
    assert set(files) == {"kept.txt", "now"} and files["kept.txt"] == b"given\nmore\n"
    assert files["now"].decode().strip() in first[1]


KINDS = (
    "echo ran > run.sh; chmod 755 run.sh; mkdir -p deep/er; ln -s run.sh link; ln -s deep to",
    "ln -s /etc out; echo file > turns; chmod 600 kept.txt; mkfifo pipe",
    "rm out turns; mkdir out turns; ln -s /nowhere out/passwd; touch turns/in; chmod 555 turns",
    "rm -r deep to; mkdir to; echo x > deep",
)


def test_a_resume_has_the_modes_links_and_folders_that_were_left():
    journal = MemoryJournal()

    async def work(workspace: EpisodeWorkspace) -> tuple[list[str], dict[str, object]]:
        told = await use(workspace, journal, *KINDS)
        found: dict[str, object] = {}
        for path in sorted(workspace.folder.rglob("*")):
            mode = path.lstat().st_mode
            target = str(path.readlink()) if path.is_symlink() else ""
            content = path.read_bytes() if path.is_file() and not target else b""
            if not stat.S_ISFIFO(mode):
                place = path.relative_to(workspace.folder).as_posix()
                found[place] = (0 if target else mode, target, content)
        return told, found

    first = within({"kept.txt": b"given\n"}, work)
    assert stat.S_IMODE(first[1]["run.sh"][0]) == 0o755 and first[1]["link"][1] == "run.sh"  # type: ignore[index]
    assert {"out/passwd", "turns/in", "to", "deep"} <= first[1].keys() and "deep/er" not in first[1]
    assert within({"kept.txt": b"given\n"}, work) == first


def test_a_resume_removes_nothing_behind_a_link(tmp_path: Path):
    """What a link names may be there outside of the walls."""
    (tmp_path / "mine").write_text("mine")

    async def work(workspace: EpisodeWorkspace) -> None:
        workspace.apply(Changes({"out": str(tmp_path).encode()}, {"out": stat.S_IFLNK | 0o777}))
        folders = {"out": stat.S_IFDIR | 0o755, "out/mine": stat.S_IFDIR | 0o755}
        workspace.apply(Changes(dict.fromkeys(reversed(folders), b""), folders))
        workspace.apply(Changes({"out": str(tmp_path).encode()}, {"out": stat.S_IFLNK | 0o777}))
        workspace.apply(Changes({"out/mine": None, "out": None}))
        assert not any(workspace.folder.iterdir())

    within({}, work)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_command_sees_neither_the_network_nor_what_is_hidden():
    with TemporaryDirectory(dir=OPEN) as name:
        Path(name, "gold.json").write_text("the answer")
        assert "the answer" in _looked(name, ShellSettings(seconds=20))[0], "it can be seen at all"
        gold, net, outside = _looked(name, ShellSettings(seconds=20, hidden=(Path(name),)))
    assert "the answer" not in gold and not gold.startswith("exit 0")
    assert "exit 1" in net and "Network is unreachable" in net
    assert "Read-only file system" in outside


def _looked(folder: str, settings: ShellSettings) -> list[str]:
    lines = (
        f"cat {folder}/gold.json",
        "python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))'",
        "touch /usr/x /etc/x",
    )

    async def work(workspace: EpisodeWorkspace) -> list[str]:
        return await use(workspace, MemoryJournal(), *lines)

    return within({}, work, settings)


def test_a_command_that_hangs_is_ended():
    async def work(workspace: EpisodeWorkspace) -> list[str]:
        return await use(workspace, MemoryJournal(), "sleep 60", "echo on")

    hung, on = within({}, work, ShellSettings(seconds=1))
    assert hung.startswith("did not end within 1 second") and on == "exit 0\nstdout:\non\n"


def test_more_changes_than_a_journal_should_hold_end_the_case(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_CHANGED_BYTES", 1000)

    async def work(workspace: EpisodeWorkspace) -> list[str]:
        return await use(workspace, MemoryJournal(), "head -c 2000 /dev/zero > big")

    assert "changed more than" in within({}, work)[0]


def test_wrong_arguments_are_an_answer():
    async def work(workspace: EpisodeWorkspace) -> ToolAnswer | Failure:
        scope = JournalScope(MemoryJournal(), Job("x", "c", 0, "decide"))
        return await ShellTool(workspace).use({"cmd": "ls"}, scope)

    answer = within({}, work)
    assert isinstance(answer, ToolAnswer) and answer.wrong
