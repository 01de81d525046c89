"""Output folder of skill training (`out_root`), written from the journal.

    config.json             settings of the run, without secrets
    history.json            one record per step
    runtime_state.json      state of the run
    best_skill.md           best skill so far; best_skill/ if it has several files
    skills/skill_vNNNN.md   the skill after each step, and after each other change
    steps/step_NNNN/        proposal, selection, edits and decision of a step
    slow_update/, meta_skill/, meta_reflect/, appendix/   results at the end of epochs

With `exports: full` it also has a file for each minibatch, and a folder for each rollout.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kept.core.artifact import Candidate
from kept.core.event import StepRecords
from kept.core.ports import Journal
from kept.core.proposal import Note
from kept.core.rollout import TraceItem
from kept.core.score import Evaluation
from kept.errors import JournalError
from kept.recipes.skill.records import (
    PredictionFolders,
    Standing,
    about_of,
    action_of,
    flattened,
    history_row,
    is_step,
    place_of,
    prediction_files,
    score_of,
    scores_of,
    state_of,
)
from kept.store.exports import View

PREVIEW = 200
"""Most characters of an edit that a report shows."""


def step_files(step: StepRecords, before: Standing, metric: str) -> dict[str, Any]:
    """Return the files of a step by name; `before` is the standing of the run before it."""
    about = about_of(step)
    digest = {"step": before.steps + 1, **_digest(step, about, scores_of(step, before, metric))}
    files: dict[str, Any] = {"trajectory_digest.json": digest}
    for source, name in (("failure", "fail"), ("success", "succ")):
        patches = [one for one in about.get("patches", ()) if one["source_type"] == source]
        if patches:
            files[f"patches/minibatch_{name}.json"] = patches
    if "merged" in about:
        files["merged_patch.json"] = about["merged"]
    if "ranked" in about:
        files["ranked_edits.json"] = about["ranked"]
    if step.closed.reports:
        files["edit_apply_report.json"] = _report(step, about)
    if "rewrite" in about:
        files["rewrite_result.json"] = about["rewrite"]
    for evaluation in step.closed.evaluations:
        if evaluation.candidate == step.closed.candidate and evaluation.purpose == "decide":
            files["selection_eval/summary.json"] = _selection(evaluation, metric)
    return files


def epoch_files(step: StepRecords) -> dict[str, Any]:
    """Return the files of the end of an epoch by name."""
    about = dict(about_of(step))
    verdict = step.closed.verdict
    pairs = about.pop("pairs", None)
    told: dict[str, Any] = {
        **about,
        "action": action_of(step),
        "outcome": verdict.outcome,
        "reason": verdict.words,
        "numbers": dict(verdict.numbers),
    }
    name = {"slow_update": "slow_result.json"}.get(step.opened.turn.proposer, "result.json")
    files: dict[str, Any] = {name: told}
    if pairs is not None:
        files["comparison_pairs.json"] = pairs
    if step.closed.reports:
        files["edit_apply_report.json"] = _report(step, about)
    return files


def _digest(
    step: StepRecords, about: Mapping[str, Any], scores: tuple[float | None, float | None]
) -> dict[str, Any]:
    verdict = step.closed.verdict
    told: dict[str, Any] = {"action": action_of(step), **about.get("digest", {})}
    before, after = scores
    if after is not None:
        told |= {"score_before": before, "score_after": after}
    if verdict.outcome != "keep" and "items" in about:
        told["rejected_edits"] = about["items"]
        told["score_delta"] = verdict.gain
    if about.get("said"):
        told["said"] = about["said"]
    return told


def _report(step: StepRecords, about: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = about.get("items", ())
    rows: list[dict[str, Any]] = []
    for n, report in enumerate(step.closed.reports):
        item: Mapping[str, Any] = items[n] if n < len(items) else {}
        rows.append(
            {
                "index": n,
                "op": item.get("op", report.edit.op),
                "file": report.edit.path,
                "target": str(item.get("target", ""))[:PREVIEW],
                "content_preview": str(item.get("content", ""))[:PREVIEW],
                "status": report.fate,
                "detail": report.detail,
                "repaired": bool(item.get("repaired")),
            }
        )
    return rows


def _selection(evaluation: Evaluation, metric: str) -> dict[str, Any]:
    """Return the measurement that decides; `kept show RUN CASE` prints single rollouts."""
    return {
        "candidate": evaluation.candidate,
        "metric": metric,
        "score": score_of(evaluation, metric),
        "hard": evaluation.metric("hard"),
        "soft": evaluation.metric("soft"),
        "rollouts": evaluation.asked,
        "missing": evaluation.missing,
        "failed": evaluation.failed,
        # the tallies hold losses, which are minus the metric
        "cases": {case: -tally.mean for case, tally in evaluation.cases.items()},
    }


SKILL = "SKILL.md"

log = logging.getLogger("kept")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """Settings of the output folder of a training."""

    place: Path
    """Folder of all runs, or of this run if the config names it."""
    named: bool = False
    config: Mapping[str, Any]
    metric: str
    full: bool = False
    """True for `exports: full`: files for each minibatch and each rollout as well."""
    agent: str = ""
    """Short name of the agent CLI that is the student, as `codex`; empty for a chat model."""
    materialise: Callable[[Path], Path | None] | None = None
    """Function that writes the split made for the run below its folder."""

    def folder(self, run: str) -> Path:
        """Return the folder of the files of a run."""
        return self.place if self.named else self.place / run


class SkillFolder(View):
    """View of the journal that writes the files of a step when it closes."""

    def __init__(self, trained: Trained, journal: Journal) -> None:
        super().__init__(journal)
        self._trained = trained
        self._standing = Standing()
        self._history: list[dict[str, Any]] = []
        self._folders = PredictionFolders("")

    @property
    def folder(self) -> Path:
        """Folder of the run's files."""
        return self._trained.folder(self.run)

    def begin(self, steps: Iterable[StepRecords]) -> None:
        """Write all files anew."""
        started = self._records.started
        assert started is not None, "the first event is `run_started`"
        self._standing = Standing(current=started.seed, best=started.seed)
        self._history = []
        self._folders = PredictionFolders(started.seed)
        config = {"run_id": started.run_id, "kept_version": started.version}
        self._write_split()
        self._write("config.json", {**config, **flattened(self._trained.config)})
        self._write_skill("skills/skill_v0000.md", self.journal.load(started.seed))
        for step in steps:
            self._heard(step)
        # written once, after all steps, so that a reader never sees a worse one in between
        self._write_best()
        self._write_standing()

    def closed(self, step: StepRecords) -> None:
        """Write the files of one more step."""
        self._heard(step)
        if step.closed.verdict.best:
            self._write_best()
        self._write_standing()

    def _write_split(self) -> None:
        if self._trained.materialise is None:
            return
        first = not (self.folder / "config.json").exists()
        split = self._trained.materialise(self.folder)
        # written once: a resumed run has these files already
        if first and split is not None and split.is_relative_to(self.folder):
            for path in filter(Path.is_file, sorted(split.rglob("*"))):
                self.put(path, path.read_bytes(), self._trained.place)

    def _heard(self, step: StepRecords) -> None:
        before = self._standing
        standing = self._standing = before.after(step, self._trained.metric)
        kept = step.closed.verdict.outcome == "keep" and step.closed.candidate is not None
        # a kept change outside of steps has a skill file, too
        if kept or is_step(step):
            number = f"skills/skill_v{standing.steps:04}.md"
            name = standing.current_path if kept else number
            self._write_skill(name, self.journal.load(standing.current))
        place = place_of(step, standing.steps)
        if place is not None:
            self._write_step(step, place, before, standing)
        if self._trained.full:
            self._write_full(step, place)

    def _write_step(
        self, step: StepRecords, place: str, before: Standing, standing: Standing
    ) -> None:
        """Write the files of a step, or of the end of an epoch."""
        if is_step(step):
            metric = self._trained.metric
            self._history.append(history_row(step, standing, metric))
            files = step_files(step, before, metric)
        else:
            files = epoch_files(step)
        for name, data in files.items():
            self._write(f"{place}/{name}", data)
        if (sides := self.sides(step)) is not None:
            self._write_candidate(place, *sides)
        reply = step.proposed.reply if step.proposed else None
        if isinstance(reply, Note):
            self._write_text(f"{place}/{step.opened.turn.proposer}.md", reply.text)

    def _write_full(self, step: StepRecords, place: str | None) -> None:
        """Write the files of `exports: full`: minibatches, and rollouts that the step paid for."""
        if place is not None:
            # one file for the reply of each analyst, as `minibatch_fail_000.json`
            patches = {patch["name"]: patch for patch in about_of(step).get("patches", ())}
            for name, data in patches.items():
                self._write(f"{place}/patches/{name}.json", data)
        self._folders.add(step.closed.candidate, place)
        try:
            for number, job, outcome in self.journal.recorded(*step.closed.rollouts):
                if number == step.closed.step and outcome.trace:
                    folder = self._folders.folder_of(job, step, place)
                    self._write_prediction(folder, self.journal.trace(outcome.trace))
        except JournalError as error:
            log.warning("step %d has not all of its predictions: %s", step.closed.step, error)

    def _write_prediction(self, folder: str, trace: Sequence[TraceItem]) -> None:
        for name, data in prediction_files(trace, self._trained.agent).items():
            if isinstance(data, str):
                self._write_text(f"{folder}/{name}", data)
            else:
                self._write(f"{folder}/{name}", data)

    def _write_candidate(self, place: str, before: Candidate, made: Candidate) -> None:
        """Write the judged candidate; of a skill folder, SKILL.md and other changed files."""
        self._write_skill(f"{place}/candidate_skill.md", made)
        for path, text in made.texts.items():
            if path != SKILL and text != before.texts.get(path):
                self._write_text(f"{place}/candidate_skill/{path}", text)

    def _write_best(self) -> None:
        """Write the best skill so far; a skill with several files also as a folder."""
        best = self.journal.load(self._standing.best)
        self._write_skill("best_skill.md", best)
        for path, text in best.texts.items() if len(best.texts) > 1 else ():
            self._write_text(f"best_skill/{path}", text)

    def _write_standing(self) -> None:
        self._write("history.json", self._history)
        self._write("runtime_state.json", state_of(self._standing))

    def _write_skill(self, name: str, candidate: Candidate) -> None:
        self._write_text(name, candidate.texts[SKILL])

    def _write_text(self, name: str, text: str) -> None:
        self._put(name, text.encode("utf-8", "surrogateescape"))

    def _write(self, name: str, data: object) -> None:
        self._put(name, _indented(data) + b"\n")

    def _put(self, name: str, data: bytes) -> None:
        self.put(self.folder / name, data, self._trained.place)


def _indented(data: object) -> bytes:
    # surrogates represent bytes that are not UTF-8, and only escapes can encode them
    flat = json.dumps(data, ensure_ascii=True).encode()
    try:
        return msgspec.json.format(flat, indent=2)
    except msgspec.DecodeError:
        # msgspec refuses lone surrogates; `json` takes them, at a tenth of the speed
        return json.dumps(data, indent=2, ensure_ascii=True).encode()
