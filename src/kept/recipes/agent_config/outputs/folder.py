"""`results/optimizer/RUN/`: what a person looks at and adopts, written from the journal.

run.json             what the run was asked, written once
trials.jsonl         a line a trial
trajectory.csv       the same in short, for plotting
exit.json            how it ended
candidates/          iter-NN.yaml of every accepted trial, ready to be run where it lies
instructions/        files that an accepted trial changed
cases/               cases whose files lie outside of the agent's folder
best.yaml            a link to the best of them, and best-instructions.md to its instructions
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.artifact import Candidate
from kept.core.objective import Objective
from kept.core.ports import Journal
from kept.core.stage import StepRecords
from kept.core.text import encoded
from kept.recipes.agent_config.outputs.elsewhere import Setting
from kept.recipes.agent_config.outputs.lying import Lying, link_beside
from kept.recipes.agent_config.outputs.rows import candidate_path, csv_of, row_of, stamp
from kept.recipes.agent_config.outputs.trial import Trial, Trials
from kept.store.files import open_folder
from kept.store.views import View

BEST = "best.yaml"
BEST_TEXT = "best-instructions.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What is tuned, and where that is written down."""

    agent: Path
    """The agent.yaml."""
    place: Path
    """The folder of all runs, or of this one where a person named it."""
    named: bool = False
    instructions: str = ""
    """The file of its instructions, by the name that candidates have for it; else empty."""
    files: Sequence[str] = ()
    """What the agent names beside its agent.yaml, by relative paths or patterns."""
    weights: Mapping[str, float]
    objective: Objective
    settings: Sequence[Setting] = ()
    """What a command line laid over the agent.yaml, but for secrets."""
    header: Mapping[str, Any]
    """What `run.json` says besides the run itself."""

    def folder(self, run: str) -> Path:
        """Where the files of a run are."""
        return self.place if self.named else self.place / run


class TuningFolder(View):
    """Writes a trial when its step closes."""

    def __init__(self, tuned: Tuned, journal: Journal) -> None:
        super().__init__(journal)
        self._tuned = tuned
        self._trials = Trials()
        self._lying: Lying | None = None

    @property
    def folder(self) -> Path:
        """Where it writes."""
        return self._tuned.folder(self.run)

    @property
    def lying(self) -> Lying:
        """Gives candidates their files; it needs to know the run."""
        if self._lying is None:
            tuned, place = self._tuned, self.folder / "candidates"
            self._lying = Lying(tuned.agent, tuned.instructions, place, tuned.settings)
        return self._lying

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write all of it anew, but for the header, which is written once."""
        self._trials = Trials()
        self._lying = None
        folder = self.folder
        with open_folder(folder / "candidates", self._tuned.place):
            pass
        link_beside(self._tuned.agent.parent, folder / "candidates", self._tuned.files)
        header = _json(self._header())
        if not (path := folder / "run.json").exists() or path.read_bytes() == header:
            self.put(path, header, self._tuned.place)
        rows = list[dict[str, Any]]()
        for step in steps:
            trial = self._heard(step)
            if trial is not None:
                rows.append(self._row(trial))
        trials = b"".join(map(_line, rows))
        self.replace(folder / "trials.jsonl", trials, self._tuned.place)
        self._write_table()

    def closed(self, step: StepRecords) -> None:
        """Write one more trial."""
        trial = self._heard(step)
        if trial is None:
            return
        path, line = self.folder / "trials.jsonl", _line(self._row(trial))
        self.append(path, line, self._tuned.place)
        self._write_table()

    def _heard(self, step: StepRecords) -> Trial | None:
        """Take up a step: what it made lies there when this returns."""
        trial = self._trials.hear(step)
        if trial is not None and trial.accepted and trial.candidate is not None:
            self._write_candidate(trial.number, self.journal.load(trial.candidate))
        first = trial is not None and trial.number == 0
        if (step.closed.verdict.best or first) and step.closed.candidate is not None:
            self._point(step.closed.candidate)
        return trial

    def _write_candidate(self, number: int, candidate: Candidate) -> None:
        for name, text in self.lying.files(number, candidate).items():
            path = self.folder / name
            if path.parent == self.folder / "candidates" and path.is_symlink():
                path.unlink()  # ours, to a file beside the agent that has this name
            self._write(name, encoded(text))

    def _point(self, candidate: str) -> None:
        """Have the links lead to what is the best now."""
        made = next((t for t in self._trials.rows if t.accepted and t.candidate == candidate), None)
        if made is None:
            return  # the seed, before its measurement was accepted
        _link(self.folder / BEST, candidate_path(made.number))
        text = self.lying.instructions_of(self.journal.load(candidate))
        if text:
            _link(self.folder / BEST_TEXT, text)
        else:
            (self.folder / BEST_TEXT).unlink(missing_ok=True)

    def _row(self, trial: Trial) -> dict[str, Any]:
        return row_of(trial, self._tuned.weights, self._tuned.objective)

    def _write_table(self) -> None:
        self._write("trajectory.csv", csv_of(self._trials.rows).encode())

    def _write(self, name: str, data: bytes) -> None:
        self.put(self.folder / name, data, self._tuned.place)

    def _header(self) -> dict[str, Any]:
        started = self._records.started
        assert started is not None, "the first event is `run_started`"
        agent = os.path.relpath(self._tuned.agent, self.folder)
        return {
            "run_id": started.run_id,
            "started_at": stamp(started.t),
            "kept_version": started.version,
            "baseline_agent_path": agent,
            **self._tuned.header,
        }


def prune(folder: Path) -> list[str]:
    """Take away the candidates and texts that are not the best's; the record of trials stays."""
    kept = {(folder / name).resolve() for name in (BEST, BEST_TEXT) if (folder / name).exists()}
    gone: list[str] = []
    for place in ("candidates", "instructions"):
        if (folder / place).is_symlink():
            continue
        for path in sorted((folder / place).glob("*iter-*")):
            if path.resolve() not in kept and not path.is_symlink():
                path.unlink()
                gone.append(path.name)
    return gone


def exit_bytes(reason: str, phases: Mapping[str, str]) -> bytes:
    """`exit.json`: how a run ended; its header is written once, and before that is known."""
    return _json({"exit_reason": reason, "phase_exit_reasons": dict(phases)})


def _link(path: Path, target: str) -> None:
    """Have a link lead there, from one moment to the next."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)


def _json(data: Mapping[str, Any]) -> bytes:
    return encoded(json.dumps(data, indent=2, ensure_ascii=False)) + b"\n"


def _line(row: Mapping[str, Any]) -> bytes:
    # surrogates stand for bytes that are not UTF-8, and only escapes can carry them
    return json.dumps(row, ensure_ascii=True).encode() + b"\n"
