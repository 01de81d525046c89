"""Execution of a command with all its children, and a watchdog for orphan processes.

If Kept dies by SIGKILL, it cannot end its commands. In a running sandbox the kernel ends them.
For commands outside a sandbox, or still starting, the watchdog process outlives Kept briefly and
ends them.
"""

import errno
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path

from kept.core.rollout import Failure
from kept.sandbox import cgroup, orphan_search
from kept.sandbox.bwrap import INSIDE, Site, hidden_words, walled
from kept.sandbox.capabilities import abilities, calls_filter
from kept.sandbox.command import Command, Exit
from kept.sandbox.process import Running, Status, Tail, shell
from kept.sandbox.temp_dirs import Filled
from kept.settings import child_environment

_numbers = count(1)


def new_mark() -> str:
    """A mark for one command; the first one starts the warden."""
    return f"{_ours()}{next(_numbers)}."


@cache
def _ours() -> str:
    """What the marks of all commands of this process begin with."""
    ours = f"{os.getpid()}.{os.urandom(6).hex()}."
    if Path("/proc/self/environ").exists():
        _start(ours)
    return ours


def _start(ours: str) -> None:
    # the writer is never closed by hand: it closes when we end, however we end
    reader, _ = os.pipe()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # -I -S: as little as possible, for it may stay for days
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", orphan_search.__file__, ours],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reader, 0),
            (os.POSIX_SPAWN_DUP2, nowhere, 1),
            (os.POSIX_SPAWN_DUP2, nowhere, 2),
        ],
        # away from the terminal, whose Ctrl-C is meant for us
        setsid=True,
    )
    os.close(reader)
    os.close(nowhere)


_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Why a process may not start that has nothing to do with the command."""


async def execute(
    command: Command, variables: Mapping[str, str], site: Site | None = None
) -> Exit | Failure:
    """Run a command to its end, between walls if it gets a site to put them.

    A failure means that it could not even be started, or left more than can be read back.
    Cancelling this ends the command first.
    """
    # the folders that a command may fill, and no limit of the kernel's is on
    if site:
        on_disk = {"output folder": site.folder / "output"}
    else:
        names = {"output folder": "KEPT_OUTPUT", "home": "HOME"}
        on_disk = {what: Path(variables[n]) for what, n in names.items() if n in variables}
    filled = Filled(on_disk, command.limits.tree, command.limits.entries)
    mark = new_mark()
    with ExitStack() as open_:
        try:
            groups = open_.enter_context(cgroup.groups(abilities().groups, command.limits))
            tails = (Tail(command.most_text), Tail(command.most_text))
            out, err = (open_.enter_context(tail) for tail in tails)
            status = None
            if site:
                calls = calls_filter(command.view) if command.view and abilities().calls else b""
                status = open_.enter_context(Status(calls))
            words = _words(command, site, status, groups, mark)
            private = {"HOME": str(INSIDE / "home"), "TMPDIR": "/tmp"} if site else {}
            own = {**private, **command.env, **variables, orphan_search.MARK: mark}
            environment = child_environment(own, command.passed_on)
            cwd = Path("/") if site else command.cwd
            running = Running(words, cwd, environment, (out.writer, err.writer), status)
        except OSError as error:
            message = f"cannot start `{command.line}` in {command.cwd}: {error.strerror}"
            kind = "limit" if error.errno in _EXHAUSTED else "harness"
            return Failure(kind, "infrastructure", message)
        try:
            timed_out = await running.see_through(command.timeout, filled.too_much)
        finally:
            if site is None and not groups:
                orphan_search.kill_strays(mark)
    if filled.too_much():
        return Failure("limit", "candidate", filled.clear())
    if status and not timed_out and not status.ended:
        said = err.text().strip() or f"exit {running.code}"
        message = f"cannot build the sandbox: {said.splitlines()[0]}"
        return Failure("harness", "infrastructure", message, said)
    said = err.text()
    hidden = hidden_words(command, said) if site and running.code else ""
    return Exit(running.code, out.text(), said, timed_out, out.cut, hidden)


def _words(
    command: Command,
    site: Site | None,
    status: Status | None,
    groups: tuple[Path, ...],
    mark: str,
) -> list[str]:
    if site is None or status is None:
        return shell(command, groups=groups, mark=mark)
    # the shell's limit on processes holds for everyone but root
    inner = shell(command, count=os.geteuid() != 0)
    return walled(command, replace(site, groups=groups), status, inner)
