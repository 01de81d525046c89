"""Opening of runs for commands that read them."""

import shlex
from collections.abc import Callable
from pathlib import Path

from kept.core.event import StepClosed
from kept.core.plan import COMPARE, FUNCTION
from kept.core.text import no_better
from kept.errors import SetupError
from kept.store.home import Home
from kept.store.reader import Run
from kept.store.run_index import RunIndex, RunRow
from kept.ui.cli._command import command_for, show_log


def open_run(
    name: str, of_use: Callable[[Path], bool] | None = None, *, resuming: bool = False
) -> Run:
    """Open a run by its name; works while it is being written.

    The name `last` means the last run that suits the command, as `of_use` decides.
    """
    show_log()
    home = Home.find(Path.cwd())
    if name == "last" and not home.folders():
        hint = "`kept optimize SPEC` makes one; a run elsewhere is named by its folder"
        raise SetupError(f"there is no run in {home.runs}", hint=runs_below() or hint)
    return Run(home.find_run(name, of_use), resuming=resuming)


def nothing_better(run: Run) -> str:
    """Statement that nothing beat the seed; for an unfinished run also how to resume."""
    words = no_better(run.status)
    if run.status == "finished":
        return words
    going = "it is running" if run.status == "running" else f"`{going_on(run)}` goes on"
    return f"{words} ({going})"


def going_on(run: Run) -> str:
    """Command or Python call that resumes a run."""
    called = _CALLS.get(run.recipe or "")
    if run.spec is None and called:
        return f'kept.{called}(..., resume="{run.id}")'
    return command_for("resume", run.folder)


_CALLS = {FUNCTION: "optimize", COMPARE: "compare"}
"""Python calls that start runs without a spec, by recipe."""


def iteration_named(name: str) -> RunRow | None:
    """Iteration of a refinement by its name; None if the name means a run of its own."""
    home = Home.find(Path.cwd())
    ids = [folder.name for folder in home.folders()]
    whole = any(id_.startswith(name) or id_.endswith(name) for id_ in ids)
    # without runs, do not open the index: that would create its folder
    if not ids or whole or name == "last" or Path(name).exists():
        return None
    return RunIndex(home).find_iteration(name)


def runs_below() -> str:
    """Hint that names runs one folder further down; empty if there are none."""
    below = (path for path in sorted(Path.cwd().glob("*/.kept")) if Home(path).folders())
    names = [shlex.quote(path.parent.name) for path in below]
    if not names:
        return ""
    return f"there are runs in {' and '.join(names[:3])}: `cd {names[0]}` first"


def check_step(run: Run, step: int) -> None:
    """Refuse a step that the run does not have."""
    last = run.state.next_step - 1
    if step > last:
        there = f"the last one is {last}" if last >= 0 else "it has none yet"
        raise SetupError(f"run {run.id} has no step {step}: {there}")


def closed_step(run: Run, step: int) -> StepClosed:
    """Record of a step; raises if it has no verdict yet."""
    check_step(run, step)
    if any(step == opened.step for opened in run.state.open):
        raise SetupError(f"step {step} of run {run.id} has no verdict yet")
    return run.closed(step)
