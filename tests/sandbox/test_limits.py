"""What a command uses up, taken together, and what of the machine itself it cannot touch."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure
from kept.sandbox import process as process_module
from kept.sandbox import temp_dirs
from kept.sandbox.capabilities import abilities
from kept.sandbox.command import MIB, Command, Exit, Limits, View
from kept.sandbox.workspace import Scratch

pytestmark = pytest.mark.sandbox

FAMILY = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        block = bytearray(80 << 20)
        for at in range(0, len(block), 4096):
            block[at] = 1
        time.sleep(0.5)
        os._exit(0)
print(sum(os.wait()[1] == 9 for _ in range(4)))
"""


@pytest.fixture(params=[True, False], ids=["walls", "bare"])
def view(request: pytest.FixtureRequest, tmp_path: Path) -> View:
    walls: bool = request.param
    if walls and not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    tree = tmp_path.resolve() / "tree"
    tree.mkdir()
    (tree / "family.py").write_text(FAMILY)
    return View(tree, walls=walls)


def end_of(line: str, view: View, limits: Limits | None = None) -> Exit | Failure:
    scratch = Scratch()
    command = Command(line, view.tree, 20, view=view, limits=limits or Limits())

    async def once() -> Exit | Failure:
        with scratch.workspace(Candidate({"a": "a\n"}), Case("a")) as made:
            return await made.run(command)

    try:
        return asyncio.run(once())
    finally:
        scratch.close()


def run(line: str, view: View, limits: Limits | None = None) -> Exit:
    ended = end_of(line, view, limits)
    assert isinstance(ended, Exit), ended
    return ended


def test_the_memory_of_several_processes_is_bounded_together(view: View):
    if abilities().groups.memory is None:
        pytest.skip("no control group for memory can be made here")
    killed = run("python family.py", view, Limits(memory=200 * MIB))
    assert killed.ok, killed
    assert int(killed.stdout) >= 1
    assert run("python family.py", view, Limits(memory=1024 * MIB)).stdout == "0\n"


def test_a_machine_without_memory_ends_a_command_before_it_ends_kept(view: View):
    ended = run("cat /proc/self/oom_score_adj", view)
    assert (ended.stdout, ended.stderr) == ("1000\n", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="the settings of the kernel are root's")
def test_root_between_walls_cannot_change_the_settings_of_the_kernel(view: View):
    if not view.walls:
        pytest.skip("without walls root may do what it likes")
    setting = "/proc/sys/kernel/core_pattern"
    before = Path(setting).read_text()
    # the same text, lest a failure of this test changes the machine
    ended = run(f"cat {setting} > value; cat value > {setting}", view)
    assert ended.stderr.endswith("Read-only file system\n"), ended
    assert Path(setting).read_text() == before


def test_no_folder_in_memory_is_without_a_limit(view: View):
    if not view.walls:
        pytest.skip("without walls a command writes to the machine's own folders")
    limits = Limits(tree=8 * MIB)
    for place in ("/dev/shm", "/tmp", "/run", "."):
        ended = run(f"head -c 20000000 /dev/zero > {place}/much", view, limits)
        assert "No space left" in ended.stderr, place
    assert "Read-only" in run("echo > /dev/much", view, limits).stderr


OUTPUTS = {
    "holds more than 50 files": "for n in range(60): open(f'{n}', 'w').close()",
    "is nested more than 20 deep": "for n in range(30): os.mkdir('d'); os.chdir('d')",
    "takes more than 8 MiB": "for n in range(3): open(f'{n}', 'wb').write(bytes(4 << 20))",
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_that_nobody_could_read_back_is_the_candidates_fault(
    what: str, view: View, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(temp_dirs, "MAX_ENTRIES", 50)
    monkeypatch.setattr(temp_dirs, "MAX_DEPTH", 20)
    (view.tree / "fill.py").write_text(
        f"import os\nos.chdir(os.environ['KEPT_OUTPUT'])\n{OUTPUTS[what]}\n"
    )
    failure = end_of("python fill.py", view, Limits(tree=8 * MIB))
    assert failure == Failure("limit", "candidate", f"the output folder {what}")


def test_a_command_may_be_allowed_more_files(view: View, monkeypatch: pytest.MonkeyPatch):
    """A repository that is worked on may have more of them than a usual output."""
    monkeypatch.setattr(temp_dirs, "MAX_ENTRIES", 50)
    (view.tree / "fill.py").write_text(
        f"import os\nos.chdir(os.environ['KEPT_OUTPUT'])\n{OUTPUTS['holds more than 50 files']}\n"
    )
    assert run("python fill.py", view, Limits(entries=100)).ok
    failure = end_of("python fill.py", view, Limits(entries=55))
    assert failure == Failure("limit", "candidate", "the output folder holds more than 55 files")


def test_a_command_that_fills_the_disk_is_not_waited_for(
    view: View, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process_module, "GRACE", 0.2)
    # deaf, too
    line = "trap '' TERM; head -c 20000000 /dev/zero > $KEPT_OUTPUT/much; sleep 60; sleep 60"
    began = time.monotonic()
    failure = end_of(line, view, Limits(tree=8 * MIB))
    assert failure == Failure("limit", "candidate", "the output folder takes more than 8 MiB")
    assert time.monotonic() - began < 50


def test_a_home_that_nobody_could_remove_is_the_candidates_fault(view: View):
    if view.walls:
        pytest.skip("between walls the home is gone with them")
    deep = "for n in range(1500): os.mkdir('d'); os.chdir('d')"
    (view.tree / "fill.py").write_text(f"import os\nos.chdir(os.environ['HOME'])\n{deep}\n")
    failure = end_of("python fill.py", view)
    assert failure == Failure("limit", "candidate", "the home is nested more than 64 deep")


def test_a_link_in_the_place_of_the_output_is_not_followed(tmp_path: Path):
    (tmp_path / "much").write_bytes(bytes(2 * MIB))
    (tmp_path / "link").symlink_to(tmp_path)
    assert temp_dirs.overfull(tmp_path, MIB) is not None
    assert temp_dirs.overfull(tmp_path / "link", MIB) is None
    temp_dirs.remove(tmp_path / "link")
    assert (tmp_path / "much").exists()
