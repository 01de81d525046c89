"""Execution of a command with all its children, in a sandbox if there is one."""

import errno
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from kept.core.rollout import Failure
from kept.sandbox import cgroup
from kept.sandbox.bwrap import INSIDE, Site, hidden_words, walled
from kept.sandbox.capabilities import abilities, calls_filter
from kept.sandbox.command import Command, Exit
from kept.sandbox.process import Running, Status, Tail, shell
from kept.sandbox.temp_dirs import overfull, remove
from kept.settings import child_environment

_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC)
"""Errors of a process start that are not the command's fault."""


async def execute(
    command: Command, variables: Mapping[str, str], site: Site | None = None
) -> Exit | Failure:
    """Run a command to its end, in the sandbox if it has a site.

    A failure means that it could not be started, or left more than can be read back. Cancelling
    this ends the command first.
    """
    limits = command.limits
    output = site.folder / "output" if site else Path(variables.get("KEPT_OUTPUT", os.devnull))

    def too_much() -> str | None:
        return overfull(output, limits.tree, limits.entries)

    with ExitStack() as open_:
        try:
            groups = open_.enter_context(cgroup.groups(abilities().groups, limits))
            tails = (Tail(command.most_text), Tail(command.most_text))
            out, err = (open_.enter_context(tail) for tail in tails)
            status = None
            if site:
                calls = calls_filter(command.view) if command.view and abilities().calls else b""
                status = open_.enter_context(Status(calls))
            words = _words(command, site, status, groups)
            private = {"HOME": str(INSIDE / "home"), "TMPDIR": "/tmp"} if site else {}
            own = {**private, **command.env, **variables}
            environment = child_environment(own, command.passed_on)
            cwd = Path("/") if site else command.cwd
            running = Running(words, cwd, environment, (out.writer, err.writer), status)
        except OSError as error:
            message = f"cannot start `{command.line}` in {command.cwd}: {error.strerror}"
            kind = "limit" if error.errno in _EXHAUSTED else "harness"
            return Failure(kind, "infrastructure", message)
        # in a sandbox only the output folder can fill the disk
        stop = (lambda: too_much() is not None) if site else None
        timed_out = await running.see_through(command.timeout, stop)
    if why := too_much():
        remove(output)
        return Failure("limit", "candidate", f"the output folder {why}")
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
) -> list[str]:
    if site is None or status is None:
        return shell(command, groups=groups, announced=True)
    # the shell's limit on processes does not apply to root
    inner = shell(command, count=os.geteuid() != 0)
    return walled(command, replace(site, groups=groups, announced=True), status, inner)
