"""What an iteration made, as a candidate: its deliverable, and a page on how it came about.

The page is an artifact among the files, so that all that decides is in the candidate itself: a
resume needs nothing besides. Files that are no text are carried as bytes that stand for themselves.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kept.core.artifact import Candidate
from kept.core.proposal import ClosedStep
from kept.core.rollout import Failure, Rollout
from kept.orchestrator.refine.findings import Findings
from kept.orchestrator.run_folder.read import Refusal, SeedDefect

PAGE = "run.json"
"""The artifact that tells of the run."""

BELOW = "deliverable/"
"""Where the files of the deliverable are."""

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A finished run, as refinement knows it."""

    run_id: str
    status: str
    seconds: float
    parts: Mapping[str, float]
    """Of its loss, and the total."""
    findings: Findings
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tier: str | None = None
    manager: str = ""
    worker: str = ""
    parent: str = ""
    """The run whose deliverable it started from."""

    @property
    def loss(self) -> float:
        """The whole loss."""
        return self.parts["total"]

    def texts(self) -> dict[str, str]:
        """As the texts of a candidate."""
        page = {
            "run_id": self.run_id,
            "status": self.status,
            "seconds": self.seconds,
            "loss": dict(self.parts),
            "findings": asdict(self.findings),
            "files": sorted(self.files),
            "tier": self.tier,
            "manager": self.manager,
            "worker": self.worker,
            "parent_run_id": self.parent,
        }
        files = {
            f"{BELOW}{path}": data.decode("utf-8", "surrogateescape")
            for path, data in self.files.items()
        }
        return {PAGE: json.dumps(page, indent=1, ensure_ascii=False), **files}

    def about(self) -> dict[str, object]:
        """What a record of the step says of it."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "seconds": self.seconds,
            "loss": dict(self.parts),
            "tier": self.tier,
            "manager": self.manager,
            "worker": self.worker,
            "parent_run_id": self.parent,
        }


def made_of(texts: Mapping[str, str]) -> Made:
    """From the texts of a candidate; files that it no longer has are not listed on its page."""
    page: dict[str, Any] = json.loads(texts[PAGE])
    told: dict[str, Any] = page["findings"]
    findings = Findings(
        run_id=told["run_id"],
        loss=told["loss"],
        signals=told["signals"],
        defects=tuple(SeedDefect(*one) for one in told["defects"]),
        refusals=tuple(Refusal(*one) for one in told["refusals"]),
        gaps=told["gaps"],
    )
    files = {path: texts[f"{BELOW}{path}"] for path in page["files"]}
    return Made(
        run_id=page["run_id"],
        status=page["status"],
        seconds=page["seconds"],
        parts=page["loss"],
        findings=findings,
        files={path: text.encode("utf-8", "surrogateescape") for path, text in files.items()},
        tier=page["tier"],
        manager=page["manager"],
        worker=page["worker"],
        parent=page.get("parent_run_id", ""),
    )


def deliverable_of(candidate: Candidate) -> Candidate:
    """A candidate as people compare it: without its page, and without files that are gone."""
    listed = {f"{BELOW}{path}" for path in json.loads(candidate.texts[PAGE])["files"]}
    return Candidate({path: text for path, text in candidate.texts.items() if path in listed})


def measures_of(parts: Mapping[str, float]) -> dict[str, float]:
    """A loss and its parts, by the names that a journal has for them."""
    named = {f"{LOSS}_{name}": value for name, value in parts.items() if name != "total"}
    return {LOSS: parts["total"], **named}


def all_made(seed: Candidate, closed: Iterable[ClosedStep]) -> dict[str, Made]:
    """What the seed and every iteration made that left something, by candidate, oldest first."""
    known: dict[str, Mapping[str, str]] = {seed.id: seed.texts}
    found = {seed.id: made_of(seed.texts)}
    for step in closed:
        if step.candidate is None or step.proposal is None:
            continue
        changed = {edit.path: edit.text for edit in step.proposal.edits if edit.op == "write"}
        known[step.candidate] = {**known[step.incumbent], **changed}
        found[step.candidate] = made_of(known[step.candidate])
    return found


def best_of(made: Iterable[Made]) -> Made:
    """The first with the least loss."""
    return min(made, key=lambda one: one.loss)


class MadeRunner:
    """Measures what an iteration made: by its page. Implements `kept.core.ports.Runner`."""

    def __init__(self, closes: Callable[[], None] | None = None) -> None:
        self._closes = closes

    async def run(
        self, job: object, candidate: Candidate, case: object, scope: object
    ) -> Rollout | Failure:
        """Read the page; the run itself was the proposal."""
        return Rollout(metrics=measures_of(made_of(candidate.texts).parts))

    async def close(self) -> None:
        """Let go of what iterations were run with."""
        if self._closes is not None:
            self._closes()
