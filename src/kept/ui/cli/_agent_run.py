"""Session of an agent run, from its first line to its deliverables."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kept.errors import SetupError
from kept.orchestrator.budget import AXES, enough
from kept.orchestrator.events import agent_run_json, agent_run_page, agent_run_text, end_line
from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.read import FINAL
from kept.orchestrator.run_folder.write import sweep_own
from kept.orchestrator.workers import Stop
from kept.recipes.agent_run.compile import Watched, compile_agent_run
from kept.recipes.agent_run.journal_view import agent_run_of, deliveries_of
from kept.recipes.agent_run.request import Asked
from kept.recipes.base import Context
from kept.recipes.registry import compile_resumed, request_of
from kept.run import Ended
from kept.store.candidate_files import named_place, write_below, write_whole
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._command import command_for, path_from_here
from kept.ui.cli._progress import PlainProgress, Progress
from kept.ui.cli._run import Session, run_session, told_warnings

NOT_COMPLETE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HowAgent:
    """Output options of a command."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False


def start_agent(asked: Asked, how: HowAgent) -> int:
    """Run a task in a new folder; return the exit code."""
    _check_output(asked)
    session = AgentSession(asked, how)
    plan = told_warnings(compile_agent_run(asked, session.watched))
    return run_session(plan, Home.find(Path(asked.folder)), session)


def resume_agent(run: Run, settings: tuple[str, ...], how: HowAgent) -> int:
    """Resume a run; return the exit code."""
    asked = request_of(run, Asked)
    assert asked is not None, "an agent run"
    session = AgentSession(asked, how)
    context = Context(overrides=settings, watched=session.watched)
    plan = told_warnings(compile_resumed(run, context))
    return run_session(plan, run.folder, session)


class AgentSession(Session):
    """Session of an agent's task; shows its deliverables, and no line for its single step."""

    def __init__(self, asked: Asked, how: HowAgent) -> None:
        stop = Stop()
        progress = Progress() if how.quiet else PlainProgress(sys.stderr)
        super().__init__(progress, stop=stop, step_lines=False)
        self.asked = asked
        self.watched = Watched(say=progress.say, stop=stop)
        self._how = how

    def answer(self, ended: Ended) -> None:
        """Write the deliverables and the report, and print the result."""
        folder = ended.folder
        with Run(folder) as run:
            record, delivered = agent_run_of(run), deliveries_of(run)
        self._complete = record is not None and record.status == "complete"
        place = _deliver(folder, self.asked, delivered)
        if record is not None:
            page = folder / "report.md"
            try:
                write_whole(page, agent_run_page(record).encode("utf-8", "replace"))
            except OSError as error:
                _output.warn(f"cannot write {path_from_here(page)}: {error.strerror}")
        if self._how.json:
            told = agent_run_json(record) if record else {}
            head = {"ok": self._complete, "folder": str(folder), "output": str(place)}
            _output.document({**head, **told})
        elif record is not None:
            _output.answer(_answer(record, folder, place, whole=self._how.verbose))

    def finish(self) -> int:
        """Exit code: 0 for a complete task, else 1."""
        return 0 if self._complete else NOT_COMPLETE


def _answer(record: AgentRun, folder: Path, place: Path, *, whole: bool) -> str:
    if whole:
        return agent_run_text(record)
    colour = {"complete": "green", "partial": "yellow"}.get(record.status, "red")
    rows = [("output", path_from_here(place))] if record.deliverables else []
    rows += [("folder", path_from_here(folder)), ("look", command_for("show", folder))]
    if (more := _more(record)) is not None:
        rows.append(("go on", f"{command_for('resume', folder)} --set {more}"))
    return f"{_output.style(end_line(record), bold=True, fg=colour)}\n\n{_output.pairs(rows)}"


def _check_output(asked: Asked) -> None:
    """Refuse an output folder that is not empty, so that no existing file is overwritten."""
    if asked.output is None:
        return
    place = Path(asked.folder) / asked.output
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        hint = "name a new folder, or an empty one"
        raise SetupError(f"`{asked.output}` is there already, and is not empty", hint=hint)
    above = next(one for one in (place, *place.absolute().parents) if one.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        hint = f"`{path_from_here(above)}` is no folder that can be written to"
        raise SetupError(f"`{asked.output}` cannot be made", hint=hint)


_KEYS = {
    "loops": "max_loops",
    "workers": "max_workers",
    "tokens": "max_tokens",
    "tool_calls": "max_tool_calls",
    "wall_seconds": "max_minutes",
    "depth": "max_depth",
    "usd": "max_usd",
}
"""Setting behind each limit."""


def _more(record: AgentRun) -> str | None:
    """Setting that raises the limit which ended the run; None if no limit did."""
    axis = AXES.get(record.reason)
    more = enough(record, axis) if axis else 0.0
    if axis is None or not more:  # without any use so far, a sufficient limit cannot be estimated
        return None
    return f"budget.{_KEYS[axis]}={more / (60 if axis == 'wall_seconds' else 1):.10g}"


def _deliver(folder: Path, asked: Asked, delivered: Sequence[Mapping[str, bytes]]) -> Path:
    """Copy the deliverables to the requested folder, if any; return the folder that holds them."""
    final = folder / FINAL
    place = final if final.is_dir() else folder / "output" / folder.name
    files: Mapping[str, bytes] = delivered[-1] if delivered else {}
    if delivered and asked.output is not None:
        wanted = Path(asked.folder) / asked.output
        before = [[one[path] for one in delivered if path in one] for path in files]
        rows = zip(files.items(), before, strict=True)
        try:
            # only files that this run wrote earlier may be replaced or removed
            new = {path: data for (path, data), own in rows if _free(wanted / path, own)}
            gone = [{p: d for p, d in one.items() if p not in files} for one in delivered]
            sweep_own(wanted, gone)
            if files:
                write_below(wanted, new, named_place(wanted, Path(asked.folder)))
        except OSError as error:
            there = path_from_here(place)
            _output.warn(
                f"cannot write to {asked.output}: {error.strerror}; what was made is in {there}"
            )
            return place
        return wanted if files else place
    return place


def _free(path: Path, own: Collection[bytes]) -> bool:
    """True if the path is free, or still holds content that this run wrote.

    Other programs may have created or changed the file since the run began.
    """
    if path.exists() and not (path.is_file() and path.read_bytes() in own):
        _output.warn(f"`{path_from_here(path)}` is there already, and is left alone")
        return False
    return True
