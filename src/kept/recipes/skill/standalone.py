"""Results of an evaluation in the file formats of the method's standalone scripts.

The files are a view of the journal: a resumed run writes all of them again.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kept.core.case import Case
from kept.core.event import Event, RunStopped
from kept.core.ports import Journal, Sink
from kept.core.rollout import NO_FILES, Job
from kept.core.state import State
from kept.errors import KeptError, SetupError
from kept.evaluators.environments.base import Opened
from kept.evaluators.environments.standalone import (
    AskedStudent,
    CaseResult,
    Json,
    WritesDocument,
    WritesFolder,
)
from kept.evaluators.tools.python_code import Ran
from kept.recipes.skill.environment import student_config
from kept.recipes.skill.read import SkillSpec
from kept.recipes.skill.records import case_folder
from kept.store.candidate_files import write_whole
from kept.store.journal import RunJournal
from kept.store.reader import Run

_PROGRAM = re.compile(r"(.*)/episode/(try-\d+/\d+)", re.DOTALL)
"""Scope of an executed program: the scope of its rollout, and its own part in the episode."""

log = logging.getLogger("kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFiles:
    """Files that an evaluation writes, with their places."""

    cases: Mapping[str, Case]
    asked: AskedStudent
    document: tuple[WritesDocument, Path] | None = None
    folder: tuple[WritesFolder, Path] | None = None

    def write(self, run: Run) -> None:
        """Write all results of the run so far."""
        found = list(_results(run, self.cases))
        if self.document is not None:
            env, path = self.document
            _put(path, _indented(env.document([one for _, one in found], self.asked)))
        if self.folder is None:
            return
        env, folder = self.folder
        rows: list[Json] = []
        for job, result in found:
            rows.append(env.row(result))
            again = f"/repeat_{job.repeat:02}" if job.repeat else ""
            for name, data in env.prediction(result).items():
                _put(folder / f"{case_folder(job.case_id)}{again}" / name, data, folder)
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        _put(folder / "results.jsonl", _encoded("".join(lines)), folder)
        _put(folder / "summary.json", _indented(env.summary(rows, self.asked)), folder)


class ScriptView:
    """Sink that writes the files whenever the run stops."""

    def __init__(self, files: ScriptFiles, journal: Journal) -> None:
        self._files = files
        self._folder = journal.folder if isinstance(journal, RunJournal) else None

    def on_event(self, event: Event, state: State) -> None:
        """Write the files when the run stops, complete or not."""
        if not isinstance(event, RunStopped) or self._folder is None:
            return
        try:
            with Run(self._folder) as run:
                self._files.write(run)
        except (OSError, KeptError) as error:
            log.warning("cannot write the results of the evaluation: %s", error)


def script_views(
    spec: SkillSpec, opened: Opened, cases: Sequence[Case], output_json: str
) -> tuple[Callable[[Journal], Sink], ...]:
    """Return the view that writes the files, if any are wanted."""
    env, config = opened.scripts, student_config(spec)
    folder = spec.folder / spec.env.out_root if spec.env.out_root else None
    files = ScriptFiles(
        cases={case.id: case for case in cases},
        asked=AskedStudent(
            model=config.name if config else "",
            reasoning_effort=config.effort if config else None,
            max_completion_tokens=(config.max_tokens if config else None) or 0,
        ),
        document=(env, Path(output_json))
        if isinstance(env, WritesDocument) and output_json
        else None,
        folder=(env, folder) if isinstance(env, WritesFolder) and folder else None,
    )
    wanted = files.document is not None or files.folder is not None
    return (partial(ScriptView, files),) if wanted else ()


def check_document(opened: Opened, output_json: str) -> None:
    """Refuse a link, and a document that no script of the environment writes."""
    if Path(output_json).is_symlink():
        raise SetupError(f"cannot write {output_json}: it is a link", hint="name the file itself")
    if not output_json or isinstance(opened.scripts, WritesDocument):
        return
    hint = "`-o FILE` writes the report"
    if isinstance(opened.scripts, WritesFolder):
        hint = "`--out_root FOLDER` writes what its scripts do, and `-o FILE` the report"
    message = f"--output_json: no standalone script of `{opened.name}` writes such a file"
    raise SetupError(message, hint=hint)


def _results(run: Run, cases: Mapping[str, Case]) -> Iterator[tuple[Job, CaseResult]]:
    """Yield evaluated cases in order, without those that failed for reasons of infrastructure."""
    ended = {(job.repeat, job.case_id): (job, outcome) for _, job, outcome in run.rollouts()}
    repeats = sorted({repeat for repeat, _ in ended})
    # repeat by repeat, with the cases in their order
    wanted = [
        ended[key]
        for key in ((n, case) for n in repeats for case in cases)
        if key in ended
        and ((failure := ended[key][1].failure) is None or failure.blame != "infrastructure")
    ]
    scopes = [job.scope for job, _ in wanted]
    left = {scope: ran.files for scope, ran in run.executions(scopes)}
    programs = _programs(run, set(scopes))
    for job, outcome in wanted:
        trace = run.trace(outcome.trace) if outcome.trace else ()
        replies = [item.text for item in trace if item.role == "assistant"]
        yield (
            job,
            CaseResult(
                case=cases[job.case_id],
                reply=replies[-1] if replies else "",
                metrics=outcome.metrics,
                why="; ".join(one.text for one in outcome.findings),
                failure=outcome.failure,
                seconds=outcome.seconds,
                left=left.get(job.scope, NO_FILES),
                programs=programs.get(job.scope, {}),
            ),
        )


def _programs(run: Run, scopes: set[str]) -> dict[str, dict[str, Callable[[], Ran | None]]]:
    """Return functions that read the programs that ran in these scopes, by scope and name."""
    found: dict[str, dict[str, Callable[[], Ran | None]]] = {}
    for scope, read in run.calls_in("rollout", Ran):
        if (name := _PROGRAM.fullmatch(scope)) and name[1] in scopes:
            found.setdefault(name[1], {})[name[2]] = read
    return found


def _put(path: Path, data: bytes, below: Path | None = None) -> None:
    write_whole(path, data, below)


def _indented(value: Json) -> bytes:
    return _encoded(json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def _encoded(text: str) -> bytes:
    # UTF-8 cannot encode half of a surrogate pair; this writes it as JSON does
    return text.encode("utf-8", "backslashreplace")
