"""`kept view` as a person types it: what it serves, and what it says when it cannot."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kept.ui import web
from tests.ui.cli.tasks import kept, write_task


def test_what_the_extra_lacks_is_named_with_the_line_to_type(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(web, "NEEDED", ("jinja2", "a_package_that_is_not_here"))
    called = kept("view", "--no-browser")
    assert called.code == 2
    assert "`a_package_that_is_not_here`" in called.stderr
    assert "pip install 'fastapi>=" in called.stderr and "'uvicorn>=" in called.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("view", "--no-browser"), ("report", "--html")])
def test_without_the_extra_a_plain_install_says_what_to_type(words: tuple[str, ...], here: Path):
    write_task(here)
    assert kept("optimize", "task.yaml", "-q").code == 0
    program = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('fastapi', 'jinja2', 'markupsafe', 'uvicorn')))\n"
        f"sys.argv = ['kept', *{words!r}]\n"
        "from kept.ui.cli.main import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "not installed: `fastapi`, `jinja2`, `uvicorn`" in done.stderr
    assert "internal error" not in done.stderr


def test_a_run_that_is_not_there_is_told_before_anything_is_served(here: Path):
    called = kept("view", "nowhere", "--no-browser")
    assert called.code == 2 and "nowhere" in called.stderr


def test_a_port_that_is_taken_is_told_with_what_to_do(here: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        called = kept("view", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert called.code == 2
    assert "cannot listen" in called.stderr and "--port 0" in called.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "place", "number"),
    [
        (["view"], "/?token=", signal.SIGINT),
        (["view", "last"], "/runs/", signal.SIGTERM),
        (["test", "view", "last"], "/runs/", signal.SIGINT),
        (["view", "."], "/?token=", signal.SIGHUP),
    ],
)
def test_the_link_leads_to_what_was_named_and_a_signal_ends_it(
    here: Path, words: list[str], place: str, number: signal.Signals
):
    write_task(here)
    assert kept("optimize", "task.yaml", "-q").code == 0
    command = [sys.executable, "-m", "kept", *words, "--no-browser"]
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        link = process.stdout.readline()
        process.send_signal(number)
        assert process.wait(20) == 0
    assert link.startswith("http://127.0.0.1:") and place in link


@pytest.mark.slow
def test_a_run_that_lies_elsewhere_is_served_alone_and_nothing_is_written_beside_it(
    here: Path, tmp_path: Path
):
    import shutil

    from kept.store.home import Home
    from kept.ui.web.run_source import Runs

    write_task(here)
    assert kept("optimize", "task.yaml", "-q").code == 0
    (run,) = (here / ".kept" / "runs").iterdir()
    for name in ("mailed", "other"):
        shutil.copytree(run, tmp_path / "inbox" / name, symlinks=True)
    runs = Runs(Home.around(tmp_path / "inbox" / "mailed"))
    assert [row.id for row in runs.rows()] == ["mailed"]
    assert sorted(f.name for f in (tmp_path / "inbox").iterdir()) == ["mailed", "other"]
