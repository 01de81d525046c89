"""One sitting of a refinement: from its first line to what it came to."""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.plan import AGENT_RUN, REFINE
from kept.errors import SetupError
from kept.orchestrator.folders import EXPERIMENTS, target_of
from kept.orchestrator.refine.best import winning_run
from kept.orchestrator.refine.lock import refining
from kept.orchestrator.refine.session import SESSIONS, free_name, session_name
from kept.orchestrator.refining import new_task_session
from kept.orchestrator.run_folder.places import COMPLETION
from kept.orchestrator.run_folder.write import Layout, write_run
from kept.orchestrator.stopping import Stop
from kept.orchestrator.tasks import best_run, first_run
from kept.recipes.agent_run.agent_reading import agent_run_of, delivered_by
from kept.recipes.agent_run.compile import Watched
from kept.recipes.refine.refine import ARTIFACTS, compile_refine
from kept.recipes.refine.refine_asked import SESSIONS as SESSIONS_BELOW
from kept.recipes.refine.refine_asked import Refinement
from kept.recipes.refine.refine_gate import with_more
from kept.recipes.refine.refine_reading import changed_files
from kept.run import Ended, Watch, is_agent, resume, start
from kept.store.files import make_folder
from kept.store.home import Home
from kept.store.reader import Run
from kept.store.run_index import RunIndex
from kept.ui.cli import _output
from kept.ui.cli._open_run import iteration_named
from kept.ui.cli.compiling import told_warnings
from kept.ui.cli.fail import CUT_SHORT, INTERRUPTED, NO_GAIN, CutShortError
from kept.ui.cli.garbage import settled
from kept.ui.cli.log import show_log
from kept.ui.cli.names import command_for, path_from_here
from kept.ui.cli.progress import PlainProgress, Progress
from kept.ui.cli.refined import Refined, readings_usd, told_of


class Seed(NamedTuple):
    """The run that is to be refined, and the session that does it."""

    folder: Path
    session: str
    target: str = ""
    start: str = ""
    """The run that BEST holds the deliverable of; empty to start from the seed itself."""


def named(run_dir: str | None, target: str | None, *, from_seed: bool = False) -> Seed:
    """The run that a person means, or the best one of a task; `from_seed`, its first one."""
    if (run_dir is None) == (target is None):
        raise SetupError(
            "name a run, or a task", hint="`kept refine RUN_DIR`, or --target EXP:TASK"
        )
    if run_dir is not None:
        folder = seed_folder(run_dir)
        start = None if from_seed else _held_by_best(folder)
        return Seed(folder, new_session(folder), start=str(start or ""))
    _, task = target_of(Home.find(Path.cwd()).path / EXPERIMENTS, target or "")
    folder = seed_folder(str(first_run(task) if from_seed else best_run(task)))
    return Seed(folder, new_task_session(task, time.time()), task.target)


def _held_by_best(seed: Path) -> Path | None:
    """The run that BEST of a seed is from; None without one, or where that run is gone."""
    run = winning_run(seed)
    if run is None or (run / COMPLETION).exists():
        return run
    where = path_from_here(str(run))
    _output.note(f"warning: the run that BEST is from is gone ({where}): the seed run is refined")
    return None


def refine_folder(folder: Path, settings: tuple[str, ...], *, as_json: bool, quiet: bool) -> int:
    """Refine the run in a folder as `kept refine` does by itself; the exit code."""
    seed = named(str(folder), None)
    run, here = str(seed.folder), str(Path.cwd())
    asked = Refinement(
        run=run, folder=here, session=seed.session, settings=settings, start=seed.start
    )
    return start_refine(asked, as_json=as_json, quiet=quiet)


def seed_folder(name: str) -> Path:
    """The folder of the run that a person means; one of ours is laid out as its source has it."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "journal.jsonl").exists():
        return _whole(folder.resolve())
    if not folder.is_dir():
        if (iteration := iteration_named(name)) is not None:
            return _whole(Path(iteration.folder).resolve())
        folder = Home.find(Path.cwd()).find_run(name, is_agent)
    lay_out(folder)
    return folder.resolve()


def _whole(folder: Path) -> Path:
    """A folder without a journal; refused where a journal says that its files are others."""
    home = Home.find(folder)
    if not folder.is_relative_to(home.path.resolve()):
        return folder
    rows = (row for row in RunIndex(home).with_iterations() if row.refinement)
    row = next((row for row in rows if Path(row.folder).resolve() == folder), None)
    if row is None:
        return folder
    with Run(home.runs / row.refinement) as run:
        changed = sorted(changed_files(run, folder.parents[2]))
    if changed:
        raise SetupError(
            f"{changed[0]} is not what the journal of run {row.refinement} says",
            hint=f"`kept doctor {row.refinement} --repair` writes it again; "
            "what was changed on purpose can be refined in a copy of the folder",
        )
    return folder


def lay_out(folder: Path) -> None:
    """Write the files of an agent run of ours as its source lays them out."""
    run = Run(folder)
    try:
        record = agent_run_of(run) if run.recipe == AGENT_RUN else None
        if record is not None:
            write_run(folder, record, delivered_by(run), Layout())
    finally:
        run.close()


def new_session(folder: Path) -> str:
    """A name that no session has, of this run or beside it: two may begin in one second."""
    home = Home.find(Path.cwd()).path / SESSIONS_BELOW
    taken = {path.stem for path in (folder / SESSIONS).glob("*.json")}
    return free_name(session_name(time.time()), taken, home)


def start_refine(asked: Refinement, *, as_json: bool, quiet: bool) -> int:
    """Refine a run in a new folder; the exit code."""
    home = Home.find(Path(asked.folder))
    progress, stop = _progress(quiet), Stop()
    plan = told_warnings(compile_refine(asked, Watched(say=progress.say, stop=stop)))
    home.make()
    with refining(asked.refined, asked.session):
        # whoever else begins in this second finds the name taken
        make_folder(asked.root)
        return _sit(lambda watch: start(plan, home, watch), asked, progress, stop, as_json)


def resume_refine(run: Run, settings: tuple[str, ...], *, as_json: bool, quiet: bool) -> int:
    """Go on with a refinement, perhaps with more money for readings; the exit code."""
    asked = with_more(Refinement.of(run.fact(REFINE)), settings, readings_usd(run.state))
    began = cast("Mapping[str, str] | None", run.fact(ARTIFACTS))
    run.close()
    progress, stop = _progress(quiet), Stop()
    plan = told_warnings(compile_refine(asked, Watched(say=progress.say, stop=stop), began))
    with refining(asked.refined, asked.session):
        return _sit(lambda watch: resume(plan, run.folder, watch), asked, progress, stop, as_json)


def _progress(quiet: bool) -> Progress:
    return Progress() if quiet else PlainProgress(sys.stderr)


def _sit(
    go: Callable[[Watch], Coroutine[Any, Any, Ended]],
    asked: Refinement,
    progress: Progress,
    stop: Stop,
    as_json: bool,
) -> int:
    show_log()

    def on_signal() -> None:
        stop()
        progress.on_signal()

    try:
        with progress, settled():
            ended = asyncio.run(go(Watch((progress,), signals=True, on_signal=on_signal)))
    except Exception as error:
        started = progress.state.started
        if started is None:
            raise
        folder = Home.find(Path(asked.folder)).runs / started.run_id
        raise CutShortError(error, command_for("resume", folder)) from error
    return _tell(ended, asked, as_json)


def _tell(ended: Ended, asked: Refinement, as_json: bool) -> int:
    state = ended.state
    with Run(ended.folder) as run:
        refined = Refined(told_of(run, state), asked, ended.folder)
    if as_json:
        stopped = state.stopped
        ok = not (stopped and stopped.kind == "error")
        _output.document({"ok": ok, **refined.document(), "folder": str(ended.folder)})
    else:
        _output.answer(refined.text())
    return _code(ended.folder, refined)


def _code(folder: Path, refined: Refined) -> int:
    stopped = refined.told.state.stopped
    go_on = command_for("resume", folder)
    if stopped is not None and stopped.kind == "interrupted":
        _output.note(f"interrupted: `{go_on}` goes on where it stopped")
        return INTERRUPTED
    if stopped is not None and stopped.kind == "error":
        words = stopped.message.removeprefix("error:")
        _output.note(f"error: {words}\n\nhint: `{go_on}` goes on where it stopped")
        return CUT_SHORT
    nothing = stopped is not None and stopped.message.startswith("empty_gradient:")
    if nothing or refined.moved:
        return 0
    _output.note(refined.unmoved)
    return NO_GAIN
