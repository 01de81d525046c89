"""One sitting of an agent run: from its first line to what was made of the task."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kept.agents.document import agent_run_json, agent_run_page, agent_run_text
from kept.agents.record import AgentRun
from kept.agents.rundir.places import FINAL
from kept.agents.stopping import Stop
from kept.agents.telling import end_line
from kept.cli import output
from kept.cli.compiling import told_warnings
from kept.cli.fail import CUT_SHORT, INTERRUPTED, CutShortError
from kept.cli.log import show_log
from kept.cli.names import command_for, path_from_here
from kept.cli.output import pairs
from kept.cli.progress import PlainProgress, Progress
from kept.core.state import State
from kept.errors import SetupError
from kept.recipes.agent_reading import agent_run_of, delivered_by
from kept.recipes.agent_run import Asked, Watched, compile_agent_run
from kept.runs import Ended, Watch, resume, start
from kept.store.files import write_below
from kept.store.home import Home
from kept.store.reader import Run
from kept.store.views import write_whole

NOT_COMPLETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HowAgent:
    """What the options of a command say about the way it answers."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False


def start_agent(asked: Asked, how: HowAgent) -> int:
    """Run a task in a new folder; the exit code."""
    _check_output(asked)
    home = Home.find(Path(asked.folder))
    progress, stop = _progress(how), Stop()
    made = compile_agent_run(asked, Watched(say=progress.say, stop=stop))
    plan = told_warnings(made)
    return _sit(lambda watch: start(plan, home, watch), asked, how, progress, stop)


def resume_agent(run: Run, settings: tuple[str, ...], how: HowAgent) -> int:
    """Go on with a run; the exit code."""
    from kept.core.plan import AGENT_RUN

    asked = Asked.of(run.fact(AGENT_RUN))
    asked = replace(asked, settings=(*asked.settings, *settings))
    progress, stop = _progress(how), Stop()
    began = run.candidate(run.state.seed).texts
    plan = told_warnings(compile_agent_run(asked, Watched(say=progress.say, stop=stop), began))
    return _sit(lambda watch: resume(plan, run.folder, watch), asked, how, progress, stop)


def _progress(how: HowAgent) -> Progress:
    progress = Progress() if how.quiet else PlainProgress(sys.stderr)
    # its one step is no news
    progress.step_lines = False
    return progress


def _sit(
    go: Callable[[Watch], Coroutine[Any, Any, Ended]],
    asked: Asked,
    how: HowAgent,
    progress: Progress,
    stop: Stop,
) -> int:
    show_log()

    def on_signal() -> None:
        stop()
        progress.on_signal()

    watch = Watch((progress,), signals=True, on_signal=on_signal)
    try:
        with progress:
            ended = asyncio.run(go(watch))
    except Exception as error:
        started = progress.state.started
        if started is None:
            raise
        folder = Home.find(Path(asked.folder)).runs / started.run_id
        raise CutShortError(error, command_for("resume", folder)) from error
    return _tell(ended.folder, ended.state, asked, how)


def _tell(folder: Path, state: State, asked: Asked, how: HowAgent) -> int:
    """Put down what was made, and say what came of it."""
    run = Run(folder)
    try:
        record, files = agent_run_of(run), delivered_by(run)
    finally:
        run.close()
    place = _deliver(folder, asked, files)
    if record is not None:
        try:
            write_whole(folder / "report.md", agent_run_page(record).encode("utf-8", "replace"))
        except OSError as error:
            output.warn(f"cannot write {path_from_here(folder / 'report.md')}: {error.strerror}")
    if how.json:
        told = agent_run_json(record) if record else {}
        ok = record is not None and record.status == "complete"
        output.document({"ok": ok, "folder": str(folder), "output": str(place), **told})
    elif record is not None:
        output.answer(_answer(record, folder, place, whole=how.verbose))
    return _code(folder, state, record)


def _answer(record: AgentRun, folder: Path, place: Path, *, whole: bool) -> str:
    if whole:
        return agent_run_text(record)
    colour = {"complete": "green", "partial": "yellow"}.get(record.status, "red")
    rows = [("output", path_from_here(place))] if record.deliverables else []
    rows += [("folder", path_from_here(folder)), ("look", command_for("show", folder))]
    return f"{output.style(end_line(record), bold=True, fg=colour)}\n\n{pairs(rows)}"


def _code(folder: Path, state: State, record: AgentRun | None) -> int:
    stopped = state.stopped
    go_on = command_for("resume", folder)
    if stopped is not None and stopped.kind == "interrupted":
        output.note(f"interrupted: `{go_on}` goes on where it stopped")
        return INTERRUPTED
    if stopped is not None and stopped.kind == "error":
        output.note(f"error: {stopped.message}\n\nhint: `{go_on}` goes on where it stopped")
        return CUT_SHORT
    return 0 if record is not None and record.status == "complete" else NOT_COMPLETE


def _check_output(asked: Asked) -> None:
    """Refuse a folder that holds something: no file that is there is written over."""
    if asked.output is None:
        return
    place = Path(asked.folder) / asked.output
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        hint = "name a new folder, or an empty one"
        raise SetupError(f"`{asked.output}` is there already, and is not empty", hint=hint)


def _deliver(folder: Path, asked: Asked, files: Mapping[str, bytes]) -> Path:
    """Write the deliverables where they were asked for; beside the journal they stand already."""
    final = folder / FINAL
    place = final if final.is_dir() else folder / "output" / folder.name
    if files and asked.output is not None:
        place = Path(asked.folder) / asked.output
        write_below(place, {path: data for path, data in files.items() if _free(place / path)})
    return place


def _free(path: Path) -> bool:
    """Whether nothing is there: since the run began, somebody may have put something there."""
    if path.exists():
        output.warn(f"`{path_from_here(path)}` is there already, and is left alone")
        return False
    return True
