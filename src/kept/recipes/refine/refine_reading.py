"""A refinement as its journal tells it: its iterations, and the files that it wrote."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kept.core.artifact import is_safe_path
from kept.core.event import RunStopped
from kept.core.plan import ITERATIONS, REFINE
from kept.core.proposal import proposal_scope
from kept.core.schedules.refine import Attempt, attempts, reruns
from kept.orchestrator.record import AgentRun
from kept.orchestrator.refine.best import BEST, best_files, manifest_name
from kept.orchestrator.refine.brief import brief_text
from kept.orchestrator.refine.folder import (
    GRADIENT,
    SessionPlace,
    Told,
    gradient_of,
    layout_of,
    session_of,
    winner_of,
)
from kept.orchestrator.refine.made import Made, all_made
from kept.orchestrator.refine.rerun import RUN, Iterating, broke_by
from kept.orchestrator.refine.session import SESSIONS, session_bytes
from kept.orchestrator.refining import SESSION, sessions_of
from kept.orchestrator.run_folder.read import read_run
from kept.orchestrator.run_folder.write import run_files
from kept.orchestrator.runner import DELIVERED
from kept.orchestrator.story import STORY, Moment, record_of
from kept.recipes.refine.refine_asked import Refinement
from kept.store.reader import Run


def iteration_of(run: Run, run_id: str) -> AgentRun | None:
    """The record of one iteration; None where a refinement has none of that id."""
    found = (one for one in attempts(reruns(run.state)) if one.run_id == run_id)
    attempt = next(found, None)
    if attempt is None:
        return None
    return record_of(run.replies(f"{_scope(attempt)}/{STORY}", Moment))


def _scope(attempt: Attempt) -> str:
    return f"{proposal_scope(attempt.step)}/{RUN}"


def changed_files(run: Run, below: Path | None = None) -> Mapping[Path, bytes]:
    """Files that a refinement wrote and that are not as it wrote them, with what they held.

    `below` limits this to a folder. A file that was removed is no damage.
    """
    if run.recipe != REFINE or run.status == "running":
        return {}
    within = below.resolve() if below is not None else None
    return {
        path: data
        for path, data in _files(run)
        if (within is None or path.resolve().is_relative_to(within))
        if path.is_file() and path.read_bytes() != data
    }


def _files(run: Run) -> Iterator[tuple[Path, bytes]]:
    """Every file as the journal has it; files that another session may write are left out."""
    made = all_made(run.seed, reruns(run.state))
    by_run = {one.run_id: one for one in made.values()}
    for attempt in attempts(reruns(run.state)):
        root = run.path_of(ITERATIONS)
        for path, data in _iteration_files(run, attempt, by_run).items():
            if root is not None:
                yield root / f"iter_{attempt.k}" / path, data
    yield from _session_files(run, Told(run.state, made))


def _iteration_files(run: Run, attempt: Attempt, by_run: Mapping[str, Made]) -> Mapping[str, bytes]:
    record = iteration_of(run, attempt.run_id)
    if record is None:
        return {}
    ran = [one.files for _, one in run.executions([f"{_scope(attempt)}/{DELIVERED}"])]
    files = run_files(record, ran[-1] if ran else {}, layout_of(record.run_id))
    start = by_run.get(attempt.parent_run_id)
    if start is not None:
        files |= {f"input/{path}": data for path, data in start.files.items() if is_safe_path(path)}
        files[GRADIENT] = gradient_of(_about(run, attempt, start))
    return files


def _about(run: Run, attempt: Attempt, start: Made) -> Iterating:
    """What an iteration was told, as it was when it began."""
    before = [step for step in run.state.closed if step.step < attempt.step]
    *_, last = all_made(run.seed, before).values()
    broke = broke_by(start, last, before)
    prefix = brief_text(start.findings, broke)
    return Iterating(k=attempt.k, run_id=attempt.run_id, start=start, brief=prefix, broke=broke)


def _session_files(run: Run, told: Told) -> Iterator[tuple[Path, bytes]]:
    asked = Refinement.of(run.fact(REFINE))
    seed = run.moved(Path(asked.run))
    place = SessionPlace(
        shelf=asked.shelf,
        root=Path(told.state.fact(ITERATIONS)),
        session_id=asked.session,
        seed_run_id=told.state.fact("seed_run"),
        start_run_id=told.state.fact("start_run"),
        tiers=not asked.tiers.trivial,
    )
    if asked.start:
        place = replace(place, seed_loss=read_run(seed).loss.total)
    ended = run.events[-1].t if isinstance(run.events[-1], RunStopped) else None
    session = session_bytes(session_of(place, told, ended))
    for path in _session_paths(asked, seed):
        yield path, session
    if told.best_iter and not asked.target:
        best = best_files(winner_of(place, told), told.best.files)
        name = manifest_name(told.best.files)
        if _is_ours(seed / BEST, name, best, (asked.session, told.best.run_id)):
            yield from ((seed / BEST / path, data) for path, data in best.items())


def _session_paths(asked: Refinement, seed: Path) -> Sequence[Path]:
    if not asked.target:
        return (seed / SESSIONS / f"{asked.session}.json",)
    folder = sessions_of(asked.task)
    return folder / asked.session / SESSION, folder / f"{asked.session}.json"


def _is_ours(place: Path, name: str, best: Mapping[str, bytes], names: Sequence[str]) -> bool:
    """True if BEST is of this session, though one of its files may be damaged."""
    held = {path: (place / path).read_bytes() for path in best if (place / path).is_file()}
    told = held.pop(name, b"")
    files = {path: data for path, data in best.items() if path != name}
    return held == files or any(one.encode() in told for one in names)
