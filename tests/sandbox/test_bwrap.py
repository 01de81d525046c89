"""What a command sees and reaches between walls, with an overlay of its tree or a copy."""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.rollout import Failure
from kept.sandbox import bwrap, orphan_search, workspace
from kept.sandbox import process as process_module
from kept.sandbox.bwrap import Site, walled
from kept.sandbox.capabilities import abilities, calls_filter
from kept.sandbox.command import Command, Exit, Limits, View
from kept.sandbox.process import shell
from kept.sandbox.workspace import Scratch, Workspace
from tests.processes import is_gone

pytestmark = pytest.mark.sandbox

CANDIDATE = Candidate({"run.sh": "echo candidate\n", "new/file.txt": "new\r\n"})
MODES = {"run.sh": 0o755}


@pytest.fixture(autouse=True)
def _only_where_bwrap_works():
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")


@pytest.fixture(params=["overlay", "copy"])
def layer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    able = replace(abilities(), overlay=request.param == "overlay")
    monkeypatch.setattr(workspace, "abilities", lambda: able)
    return request.param


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "tree, with: signs"
    (folder / "sub").mkdir(parents=True)
    (folder / "run.sh").write_text("echo source\n")
    (folder / "sub" / "data").write_text("data\n")
    (folder / "secret").write_text("secret\n")
    (folder / "secrets").mkdir()
    (folder / "secrets" / "key").write_text("key\n")
    return folder


def run(command: Command, candidate: Candidate = CANDIDATE) -> Exit:
    scratch = Scratch(MODES)

    async def once() -> Exit | Failure:
        with scratch.workspace(candidate, Case("a", {"x": 1})) as made:
            ended = await made.run(command)
            assert isinstance(made.read_output(), workspace.Output)
            return ended

    try:
        ended = asyncio.run(once())
    finally:
        scratch.close()
    assert isinstance(ended, Exit), ended
    return ended


def said(line: str, view: View, **more: object) -> str:
    ended = run(Command(line, view.tree, 20, view=view, **more))  # pyright: ignore[reportArgumentType] # whichever a test needs
    assert ended.ok, ended
    return ended.stdout


def test_a_command_sees_the_candidate_laid_over_its_tree(tree: Path, layer: str):
    assert said("sh run.sh; cat sub/data new/file.txt", View(tree)) == "candidate\ndata\nnew\r\n"
    assert (tree / "run.sh").read_text() == "echo source\n"
    assert not (tree / "new").exists()


def test_a_bare_command_has_nothing_of_its_tree(
    tree: Path, layer: str, monkeypatch: pytest.MonkeyPatch
):
    # else it would be hidden with the whole of /tmp
    monkeypatch.setattr(bwrap, "PRIVATE", (Path("/run"),))
    view = View(tree, hidden=(tree,), bare=True)
    tries = f"ls -A '{tree}' 2>&1; (echo x > '{tree}/new') 2>/dev/null"
    line = f"{tries}; cd $KEPT_OUTPUT && pwd && echo x > y"
    ended = run(Command(line, Path("/"), 20, view=view))
    assert ended.ok, ended
    told = f"ls: cannot open directory '{tree}': Permission denied\n/run/kept/output\n"
    assert ended.stdout == told
    assert not (tree / "new").exists()


def test_a_temporary_folder_in_the_tree_itself_does_no_harm(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tree / "sub"))
    line = "sh run.sh; cat new/file.txt; ls sub; echo x > sub/data"
    assert said(line, View(tree)) == "candidate\nnew\r\ndata\n"
    assert [path.name for path in (tree / "sub").iterdir()] == ["data"]


def test_mode_bits_of_an_artifact_are_kept(tree: Path, layer: str):
    assert said("./run.sh; $KEPT_CANDIDATE/run.sh", View(tree)) == "candidate\ncandidate\n"


def test_paths_are_the_same_for_every_command(tree: Path):
    line = "echo $KEPT_CANDIDATE $KEPT_CASE $KEPT_OUTPUT $HOME $TMPDIR; ls -A $HOME $TMPDIR; pwd -P"
    first, second = said(line, View(tree)), said(line, View(tree))
    assert first == second
    assert first.startswith("/run/kept/candidate /run/kept/case.json /run/kept/output /run/kept/h")
    assert first.endswith(f"{tree}\n")


def test_what_a_command_writes_to_its_tree_is_gone_with_it(tree: Path, layer: str):
    line = "echo x > sub/data; rm secret; mkdir made; echo y > made/file; ls; cat sub/data"
    assert said(line, View(tree)).split() == ["made", "new", "run.sh", "secrets", "sub", "x"]
    assert (tree / "sub" / "data").read_text() == "data\n"
    assert sorted(path.name for path in tree.iterdir()) == ["run.sh", "secret", "secrets", "sub"]


def test_what_is_hidden_cannot_be_read_or_listed_or_written(tree: Path, layer: str):
    view = View(tree, hidden=(tree / "secret", tree / "secrets", tree / "not-there"))
    line = "cat secret; ls secrets; cat secrets/key; echo x 2>/dev/null > secret; true"
    ended = run(Command(line, tree, 20, view=view))
    assert "secret\n" not in ended.stdout
    assert "key" not in ended.stdout
    assert (tree / "secret").read_text() == "secret\n"


def test_what_is_known_to_hold_secrets_cannot_be_read_in_a_home(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home = tree.parent / "home"
    for place in (".ssh/id", ".config/gh/hosts.yml", ".git-credentials", ".local/bin/tool"):
        (home / place).parent.mkdir(parents=True, exist_ok=True)
        (home / place).write_text("content")
    monkeypatch.setenv("HOME", str(home))
    # else it would be hidden with the whole of /tmp
    monkeypatch.setattr(bwrap, "PRIVATE", (Path("/run"),))
    line = f'cd "{home}"; cat .ssh/id .config/gh/hosts.yml .git-credentials .local/bin/tool; true'
    assert said(line, View(tree)) == "content"


def test_env_files_shadow_passwords_and_other_homes_cannot_be_read(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    home, other = tree.parent / "home", tree.parent / "homes" / "bob"
    for path in (home / ".env.local", other / "notes", home / "notes"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("content")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(bwrap, "HOMES", other.parent)
    monkeypatch.setattr(bwrap, "PRIVATE", (Path("/run"),))
    line = f'cat "{home}/.env.local" "{other}/notes" /etc/shadow "{home}/notes"'
    ended = run(Command(line, tree, view=View(tree)))
    assert ended.stdout == "content"
    for path in (home / ".env.local", other / "notes", "/etc/shadow"):
        assert f"cat: {path}: Permission denied" in ended.stderr
    assert "is hidden from commands; `sandbox.readable` of a task" in str(ended)


def test_what_is_named_readable_is_shown_and_nothing_beside_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
):
    home, other = tree.parent / "home", tree.parent / "homes" / "bob"
    paths = (home / ".aws/config", home / ".aws/credentials", other / "data", other / ".ssh/id")
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("KEPT_READABLE", str(other / "data"))
    monkeypatch.setattr(bwrap, "HOMES", other.parent)
    monkeypatch.setattr(bwrap, "PRIVATE", (Path("/run"),))
    view = View(tree, readable=(home / ".aws/config",))
    line = "; ".join(f'cat "{path}"' for path in paths)
    ended = run(Command(line, tree, view=view))
    assert ended.stdout == "configdata"
    assert not ended.ok


def test_only_what_is_named_writable_is_really_written(tree: Path, layer: str, tmp_path: Path):
    (tmp_path / "log").mkdir()
    view = View(tree, writable=(tree / "sub" / "data", tmp_path / "log"))
    said(f"echo more >> sub/data; echo line > {tmp_path}/log/file", view)
    assert (tree / "sub" / "data").read_text() == "data\nmore\n"
    assert (tmp_path / "log" / "file").read_text() == "line\n"


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


CONNECT = "python -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 2)\""
OWN = """python -c "import socket as s; l = s.create_server(('127.0.0.1', 0)); \
s.create_connection(l.getsockname(), 2)" """


@pytest.mark.parametrize(
    ("network", "ours", "own"),
    [("none", False, False), ("loopback", False, True), ("on", True, True)],
)
def test_the_network_is_what_the_spec_says(
    network: str, ours: bool, own: bool, tree: Path, port: int
):
    view = View(tree, network=network)  # pyright: ignore[reportArgumentType] # one of its values
    assert run(Command(CONNECT.format(port=port), tree, 20, view=view)).ok == ours
    assert run(Command(OWN, tree, 20, view=view)).ok == own


@pytest.mark.parametrize(("network", "reached"), [("none", False), ("on", True)])
def test_doors_of_other_programs_are_shut_with_the_network(
    network: str, reached: bool, tree: Path, monkeypatch: pytest.MonkeyPatch
):
    # else it would be hidden with the whole of /tmp; and a name of a socket must be short
    monkeypatch.setattr(bwrap, "PRIVATE", (Path("/run"),))
    unix = (socket.socket(socket.AF_UNIX) for _ in range(2))
    with tempfile.TemporaryDirectory() as short, next(unix) as server, next(unix) as agent:
        monkeypatch.setenv("HOME", short)
        server.bind(f"{short}/door")
        # one that is hidden with its folder as well is in nobody's way
        (Path(short) / ".gnupg").mkdir()
        agent.bind(f"{short}/.gnupg/door")
        server.listen()
        line = f"""python -c "import socket as s; s.socket(s.AF_UNIX).connect('{short}/door')" """
        view = View(tree, network=network)  # pyright: ignore[reportArgumentType] # as above
        assert run(Command(line, tree, 20, view=view)).ok == reached


SOCKET = """python -c "import socket as s; s.socket(s.AF_{family}, s.SOCK_{kind})" """


@pytest.mark.parametrize("network", ["none", "loopback"])
def test_no_socket_leads_round_the_walls_of_the_network(network: str, tree: Path):
    if not abilities().calls:
        pytest.skip(f"no filter of system calls here: {abilities().why_not}")
    view = View(tree, network=network)  # pyright: ignore[reportArgumentType] # one of its values
    for family, kind in (("VSOCK", "STREAM"), ("PACKET", "RAW")):
        line = SOCKET.format(family=family, kind=kind)
        ended = run(Command(line, tree, 20, view=view))
        assert "Address family not supported" in ended.stderr, family
    for family, kind in (("UNIX", "STREAM"), ("INET6", "DGRAM"), ("NETLINK", "RAW")):
        said(SOCKET.format(family=family, kind=kind), view)


@pytest.mark.skipif(not Path("/dev/vsock").exists(), reason="this machine has no vsock at all")
def test_with_the_network_on_every_socket_is_there(tree: Path):
    said(SOCKET.format(family="VSOCK", kind="STREAM"), View(tree, network="on"))


def test_a_command_cannot_make_a_namespace_in_which_it_is_root(tree: Path):
    if not abilities().calls:
        pytest.skip(f"no filter of system calls here: {abilities().why_not}")
    ended = run(Command("unshare --user --map-root-user true", tree, 20, view=View(tree)))
    assert "Operation not permitted" in ended.stderr


TERMINAL = """
import asyncio, sys
from pathlib import Path
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch

async def main(tree):
    with Scratch().workspace(Candidate({}), Case("a")) as made:
        view = View(tree, walls=sys.argv[2] == "walls")
        return await made.run(Command("exec 3<>/dev/tty && echo typed", tree, 20, view=view))

open("/dev/tty").close()
print(asyncio.run(main(Path(sys.argv[1]))).stdout or "nothing")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["walls", "none"])
def test_a_command_has_no_terminal_to_type_into(how: str, tree: Path):
    parent, child = pty.openpty()
    # as from a terminal, whose owner would find what was typed there
    words = ["setsid", "--ctty", sys.executable, "-c", TERMINAL, str(tree), how]
    done = subprocess.run(words, stdin=child, capture_output=True, text=True, check=True)
    os.close(parent)
    os.close(child)
    assert done.stdout == "nothing\n"


def test_descriptors_of_the_walls_are_not_the_commands(tree: Path):
    # the fourth is that of the folder which is listed
    assert said("ls /proc/self/fd", View(tree)).split() == ["0", "1", "2", "3"]


def test_a_command_gets_the_time_to_say_goodbye(tree: Path):
    view = View(tree)
    line = "trap 'echo bye; exit' TERM; sleep 100 & wait"
    for seconds in (0.5, 5, 30):  # the first in which it comes to listen
        ended = run(Command(line, tree, seconds, view=view))
        if ended.stdout:
            break
    assert (ended.timed_out, ended.stdout) == (True, "bye\n")  # pyright: ignore[reportPossiblyUnbound] # it ran


def test_the_deaf_are_killed(tree: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process_module, "GRACE", 0.1)
    started = time.monotonic()
    ended = run(Command("trap '' TERM; sleep 100", tree, 0.3, view=View(tree)))
    assert ended.timed_out
    assert time.monotonic() - started < 80


def test_processes_of_others_are_not_there_and_no_capability_is_left(tree: Path):
    line = "ls -d /proc/[0-9]* | wc -l; grep CapEff /proc/self/status"
    count, caps = said(line, View(tree)).splitlines()
    assert int(count) < 10
    assert caps.split()[1] == "0" * 16


def test_only_as_many_processes_as_allowed(tree: Path):
    if not abilities().enforced()["number of processes"]:
        pytest.skip("root without a control group")
    line = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; echo all"
    limits = Limits(processes=8)
    assert not run(Command(line, tree, 10, limits=limits, view=View(tree))).ok
    assert run(Command(line, tree, 10, view=View(tree))).stdout == "all\n"


def test_a_sandbox_that_cannot_be_built_is_no_candidates_fault(tree: Path):
    view = View(tree, writable=(tree / "gone",))
    scratch = Scratch()

    async def once(made: Workspace) -> Exit | Failure:
        return await made.run(Command("true", tree, 20, view=view))

    with scratch.workspace(CANDIDATE, Case("a")) as made:
        failure = asyncio.run(once(made))
    scratch.close()
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert "gone" in failure.message


def test_a_command_cannot_pass_its_failure_off_as_the_sandboxs(tree: Path):
    line = """echo 'bwrap: cannot' >&2; for f in 3 4 5 6 7 8 9; do
    eval "echo '{ \\"exit-code\\": 0 }' >&$f" 2>/dev/null; done; exit 1"""
    assert run(Command(line, tree, 20, view=View(tree))).code == 1


KILLED = """
import asyncio, sys
from pathlib import Path
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch

async def main(tree):
    with Scratch().workspace(Candidate({}), Case("a")) as made:
        view = View(tree, writable=(tree / "sub",), walls=sys.argv[2] == "walls")
        line = "setsid sleep 73318 & env -i setsid sleep 73318 & touch sub/started; sleep 73318"
        await made.run(Command(line, tree, 60, view=view))

asyncio.run(main(Path(sys.argv[1])))
"""


def sleepers() -> list[int]:
    found = (path for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [int(path.parent.name) for path in found if b"73318" in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.kill
@pytest.mark.parametrize("how", ["walls", "none"])
def test_kill_9_on_kept_takes_its_commands_with_it(how: str, tree: Path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(tree), how])
    while not (tree / "sub" / "started").exists():
        assert process.poll() is None
        time.sleep(0.01)
    # the shell's own, those in sessions of their own, and the words that lead to them
    pids = sleepers()
    assert len(pids) >= 3
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(is_gone(pid) for pid in pids if pid != process.pid)
    assert orphan_search.find(f"{process.pid}.") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_without_privileges_gets_the_same_walls(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nobody = 61234  # nobody else runs processes as this one, so that its limit is ours alone
    site = tmp_path / "scratch" / "x" / "w"
    for name in ("candidate", "output", "layers"):
        (site / name).mkdir(parents=True)
    (site / "candidate" / "new").write_text("new\n")
    (site / "tree").symlink_to(tree)
    for path in (tree, *tree.rglob("*"), tmp_path / "scratch", *(tmp_path / "scratch").rglob("*")):
        os.chown(path, nobody, nobody, follow_symlinks=False)
    for path in (tmp_path, *tmp_path.parents):
        if path.is_relative_to("/tmp/pytest-of-root"):
            path.chmod(0o755)
    monkeypatch.setattr("os.geteuid", lambda: nobody)
    monkeypatch.setattr("os.getegid", lambda: nobody)
    monkeypatch.setenv("HOME", "/nonexistent")
    # the homes of others, which only root may enter
    monkeypatch.setattr("os.access", lambda path, mode: False)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType] # of any type
    view = View(tree, hidden=(tree / "secret",))
    line = (
        "cat new; id -u; cat secret 2>&1; echo w > w; cat w; for n in $(seq 12); do sleep 5 & done"
    )
    command = Command(line, tree, view=view, limits=Limits(processes=8))
    with process_module.Status(calls_filter(view)) as status:
        words = walled(command, Site(site), status, shell(command, count=True))
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            check=False,
            user=nobody,
            group=nobody,
            cwd="/",
            pass_fds=status.fds,
        )
    assert done.stdout == f"new\n{nobody}\ncat: secret: Permission denied\nw\n", done.stderr
    # what a shell ends with when it cannot fork
    assert done.returncode == 2
