"""Running what a model wrote: in a copy of the files, within limits, and nowhere else."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kept.core.llm import ToolAnswer
from kept.core.ports import Tool
from kept.core.rollout import Failure, Job
from kept.engine.replay import JournalScope
from kept.evaluators.tools.files import SharedFiles
from kept.evaluators.tools.python_code import (
    Bench,
    CodeTool,
    Ran,
    all_but_python,
    data_bench,
    run_program,
)
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import Limits
from kept.sandbox.workspace import Scratch
from kept.testing import MemoryJournal, ToolSuite

OPEN = Path("/var") if Path.home().is_relative_to("/tmp") else Path.home()
"""Where a command sees what is not hidden from it: /tmp is private."""

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]


@pytest.fixture
def bench() -> Iterator[Bench]:
    scratch = Scratch()
    yield Bench(scratch=scratch, seconds=20)
    scratch.close()


class TestCodeTool(ToolSuite):
    _scratch: Scratch

    async def open_tool(self) -> Tool:
        self._scratch = Scratch()
        return CodeTool(SharedFiles(), Bench(scratch=self._scratch))

    async def open_hanging_tool(self) -> Tool | None:
        return None

    async def close(self) -> None:
        self._scratch.close()

    def arguments(self) -> Mapping[str, object]:
        return {"code": "print(6 * 7)"}

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return {"program": "print()"}


def _run(
    files: SharedFiles, bench: Bench, code: str, journal: MemoryJournal | None = None
) -> ToolAnswer:
    scope = JournalScope(journal or MemoryJournal(), "rollout/a/measure/b/0")
    answer = asyncio.run(CodeTool(files, bench).use({"code": code}, scope))
    assert isinstance(answer, ToolAnswer), answer
    return answer


def test_a_program_sees_the_files_and_what_it_changes_comes_back(bench: Bench) -> None:
    files = SharedFiles()
    files.apply({"input/a.csv": b"1,2", "old": b"x"}, 1)
    code = (
        "import os\n"
        "print(open('input/a.csv').read(), os.getcwd())\n"
        "open('output/b.bin', 'wb').write(bytes([0, 255]))\n"
        "os.remove('old')\n"
    )
    answer = _run(files, bench, code)
    assert "1,2 /run/kept/output" in answer.text
    assert files.all() == {"input/a.csv": b"1,2", "output/b.bin": b"\x00\xff"}


def test_output_is_there_before_the_first_program_and_is_no_change_by_itself(bench: Bench) -> None:
    files = SharedFiles()
    answer = _run(files, bench, "import os; print(os.listdir('.'), os.path.isdir('output'))")
    assert "True" in answer.text and not answer.changes
    answer = _run(files, bench, "open('output/a.md', 'w').write('hello')")
    assert files.all() == {"output/a.md": b"hello"}, answer.text
    # a file of that name is no reason to end a run
    blocked = SharedFiles()
    blocked.apply({"output": b"x"}, 1)
    assert "x" in _run(blocked, bench, "print(open('output').read())").text


def test_a_resume_has_the_files_of_a_program_without_running_it(bench: Bench) -> None:
    journal, code = MemoryJournal(), "import os; open('n', 'w').write(os.urandom(8).hex())"
    first, again = SharedFiles(), SharedFiles()
    _run(first, bench, code, journal)
    _run(again, bench, code, journal)
    assert again.all() == first.all() and first.all()


def test_a_program_writes_nowhere_else(bench: Bench, tmp_path: Path) -> None:
    files, target = SharedFiles(), tmp_path / "mine"
    target.write_text("mine")
    elsewhere = Path(__file__).parent / "written-by-a-worker"
    code = (
        f"for path in ({str(target)!r}, {str(elsewhere)!r}, '/etc/written'):\n"
        "    try: open(path, 'w').write('!')\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    answer = _run(files, bench, code)
    assert answer.text.count("Error") >= 2
    assert target.read_text() == "mine" and not elsewhere.exists()
    assert files.all() == {}


def test_a_link_that_leaves_the_folder_changes_nothing(bench: Bench) -> None:
    files = SharedFiles()
    answer = _run(files, bench, "import os; os.symlink('/etc/passwd', 'p'); open('q', 'w')")
    assert answer.wrong and "no file was changed" in answer.text
    assert files.all() == {}


def test_a_program_that_loops_is_ended(bench: Bench) -> None:
    quick = Bench(scratch=bench.scratch, seconds=1)
    answer = _run(SharedFiles(), quick, "while True: pass")
    assert answer.wrong and "did not end within 1 second" in answer.text


def test_a_program_that_dies_is_told(bench: Bench) -> None:
    answer = _run(SharedFiles(), bench, "import os; os.kill(os.getpid(), 9)")
    assert answer.wrong and "SIGKILL" in answer.text


def test_a_flood_of_output_is_cut(bench: Bench) -> None:
    answer = _run(SharedFiles(), bench, "print('x' * 3_000_000)")
    assert len(answer.text) < 25_000 and "left out" in answer.text


def test_a_flood_of_files_changes_nothing(bench: Bench) -> None:
    small = Bench(scratch=bench.scratch, limits=Limits(tree=2 * 1024 * 1024))
    files = SharedFiles()
    files.apply({"mine": b"1"}, 1)
    answer = _run(files, small, "open('big', 'wb').write(bytes(8_000_000))")
    assert answer.wrong and "no file was changed" in answer.text
    assert files.all() == {"mine": b"1"}


def test_a_program_has_no_network(bench: Bench) -> None:
    code = (
        "import socket\n"
        "try: socket.create_connection(('127.0.0.1', 9), 2)\n"
        "except OSError as error: print(error.errno)\n"
    )
    assert "101" in _run(SharedFiles(), bench, code).text


def ran(
    bench: Bench,
    program: str,
    files: Mapping[str, bytes] | None = None,
    journal: MemoryJournal | None = None,
) -> Ran | Failure:
    scope = JournalScope(journal or MemoryJournal(), Job("x", "c", 0, "decide"))
    return asyncio.run(run_program(bench, scope, program, files or {}))


def test_a_program_of_a_rollout_works_on_given_files_and_brings_files_back(bench: Bench):
    program = "data = open('in.txt').read(); open('out.txt', 'w').write(data * 2); print('ok')"
    found = ran(bench, program, {"in.txt": b"ab", "other.txt": b""})
    assert isinstance(found, Ran)
    assert found.ok and found.files == {"out.txt": b"abab"}
    assert found.text == "exit 0\nstdout:\nok\n"
    broken = ran(bench, "raise ValueError('no such sheet')")
    assert isinstance(broken, Ran) and not broken.ok
    assert "ValueError: no such sheet" in broken.stderr


def test_a_program_of_a_rollout_is_run_once(bench: Bench):
    journal = MemoryJournal()
    program = "import time; open('now', 'w').write(str(time.time_ns()))"
    first, again = (ran(bench, program, journal=journal) for _ in range(2))
    assert isinstance(first, Ran) and first.files["now"] and first == again


def test_a_program_of_a_rollout_sees_no_data_of_its_environment(monkeypatch: pytest.MonkeyPatch):
    scratch = Scratch()
    with TemporaryDirectory(dir=OPEN) as name:
        for place in ("data", "here", "other"):
            Path(name, place).mkdir()
            Path(name, place, "gold.json").write_text("the answer")
        monkeypatch.chdir(Path(name, "here"))
        bench = data_bench(scratch, (Path(name, "data"),), 20)
        for place in ("data", "here", "other"):
            found = ran(bench, f"print(open('{name}/{place}/gold.json').read())")
            assert isinstance(found, Ran)
            assert ("the answer" in found.text) == (place == "other")
        found = ran(bench, "import openpyxl; print('imports')")
        assert isinstance(found, Ran) and found.ok, found
        monkeypatch.chdir("/")
    scratch.close()


def test_of_a_folder_that_holds_the_python_all_else_is_hidden(tmp_path: Path):
    prefix = Path(sys.prefix).resolve()
    hidden = list(all_but_python(prefix.parent))
    assert prefix.parent not in hidden and prefix not in hidden
    assert not any(prefix.is_relative_to(one) for one in hidden)
    assert list(all_but_python(tmp_path)) == [tmp_path]
