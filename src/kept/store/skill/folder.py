"""`out_root`: what skill training leaves behind, written from the journal.

config.json             what the run was asked, without secrets
history.json            a record a step
runtime_state.json      where the run stands
best_skill.md           the best so far
skills/skill_vNNNN.md   the skill after each step, and after what its epoch ended with
steps/step_NNNN/        what was proposed, chosen and applied, and how it was decided
slow_update/, meta_skill/, meta_reflect/, appendix/   what epochs ended with
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.artifact import Candidate
from kept.core.epochs import STEP, epoch_of
from kept.core.ports import Journal
from kept.core.proposal import Note
from kept.core.stage import StepRecords
from kept.store.skill.records import Standing, history_row, state_of
from kept.store.skill.steps import epoch_files, step_files
from kept.store.views import View, write_whole

SKILL = "SKILL.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What is trained, and where that is written down."""

    place: Path
    """The folder of all runs, or of this one where a config names it."""
    named: bool = False
    config: Mapping[str, Any]
    metric: str
    accumulation: int = 1
    key: str = "edits"
    """What the items of a patch are called."""
    materialise: Callable[[Path], object] | None = None
    """Writes a split that was made for the run below its folder."""

    def folder(self, run: str) -> Path:
        """Where the files of a run are."""
        return self.place if self.named else self.place / run


class SkillFolder(View):
    """Writes a step when it closes."""

    def __init__(self, trained: Trained, journal: Journal) -> None:
        super().__init__(journal)
        self._trained = trained
        self._standing = Standing()
        self._history: list[dict[str, Any]] = []

    @property
    def folder(self) -> Path:
        """Where it writes."""
        return self._trained.folder(self.run)

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write all of it anew."""
        started = self._records.started
        assert started is not None, "the first event is `run_started`"
        self._standing = Standing(current=started.seed, best=started.seed)
        self._history = []
        config = {"run_id": started.run_id, "kept_version": started.version}
        if self._trained.materialise is not None:
            self._trained.materialise(self.folder)
        self._write("config.json", {**config, **self._trained.config})
        self._write_skill("skills/skill_v0000.md", self.journal.load(started.seed))
        self._write_skill("best_skill.md", self.journal.load(started.seed))
        for step in steps:
            self._heard(step)
        self._write_standing()

    def closed(self, step: StepRecords) -> None:
        """Write one more step."""
        self._heard(step)
        self._write_standing()

    def _heard(self, step: StepRecords) -> None:
        standing = self._standing = self._standing.after(step, self._trained.metric)
        turn = step.opened.turn
        if step.closed.verdict.best and step.closed.candidate is not None:
            self._write_skill("best_skill.md", self.journal.load(standing.best))
        if not epoch_of(turn.phase):
            return
        sides = self.sides(step)
        made = None if sides is None else sides[1]
        if turn.phase.endswith(f"/{STEP}"):
            number = standing.steps
            self._history.append(history_row(step, standing, self._trained.accumulation))
            place = f"steps/step_{number:04}"
            files = step_files(step, self._trained.key, self._trained.metric)
        else:
            place = f"{turn.proposer}/epoch_{epoch_of(turn.phase):02}"
            # what follows every step has a place for each, or two of them would lie in one
            place += f"/step_{standing.steps:04}" if turn.settings["step"] else ""
            files = epoch_files(step)
        # also behind what an epoch ends with: the path in runtime_state.json is of what leads
        version = f"skills/skill_v{standing.steps:04}.md"
        self._write_skill(version, self.journal.load(standing.current))
        for name, data in files.items():
            self._write(f"{place}/{name}", data)
        if made is not None:
            self._write_skill(f"{place}/candidate_skill.md", made)
        reply = step.proposed.reply if step.proposed else None
        if isinstance(reply, Note):
            self._write_text(f"{place}/{turn.proposer}.md", reply.text)

    def _write_standing(self) -> None:
        self._write("history.json", self._history)
        self._write("runtime_state.json", state_of(self._standing))

    def _write_skill(self, name: str, candidate: Candidate) -> None:
        self._write_text(name, candidate.texts[SKILL])

    def _write_text(self, name: str, text: str) -> None:
        self._put(name, text.encode("utf-8", "surrogateescape"))

    def _write(self, name: str, data: object) -> None:
        # surrogates stand for bytes that are not UTF-8, and only escapes can carry them
        self._put(name, json.dumps(data, indent=2, ensure_ascii=True).encode() + b"\n")

    def _put(self, name: str, data: bytes) -> None:
        path = self.folder / name
        if not path.exists() or path.read_bytes() != data:
            write_whole(path, data)
