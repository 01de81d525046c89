"""What somebody asked `kept refine` for, and where it is to be told of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kept.orchestrator.folders import EXPERIMENTS, Task, target_of
from kept.orchestrator.refine.folder import BesideSeed, Shelf
from kept.orchestrator.refine.tiers import ModelPair, Tiers
from kept.orchestrator.refining import InTask, sessions_of
from kept.store.home import Home

SESSIONS = "refinements"
"""The folder of a home that iterations are kept in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """What somebody asked for, as it is written down for a resume."""

    run: str
    """The folder of the seed run."""
    folder: str
    """Where it was asked: paths begin there."""
    session: str
    target: str = ""
    """The task of an experiment that it belongs to, `EXP:TASK`; empty for none."""
    iterations: int = 3
    model: str = ""
    worker_model: str = ""
    low: ModelPair = ModelPair()  # noqa: RUF009 # a tuple of two texts
    mid: ModelPair = ModelPair()  # noqa: RUF009 # as above
    high: ModelPair = ModelPair()  # noqa: RUF009 # as above
    from_last: bool = False
    gate: str = "follow"
    repeats: int = 40
    """Readings of each side, at most, where there are no cases."""
    cases: str | None = None
    """A file of what a deliverable is judged by."""
    config: str | None = None
    settings: tuple[str, ...] = ()
    readings_usd: float | None = field(default=None, repr=False)
    """What all readings may cost since a resume said so; it does not make another refinement."""
    start: str = field(default="", repr=False)
    """The folder of the run that it starts from, which BEST held; empty for the seed run itself.

    Its deliverable is what a resume knows it by.
    """

    @property
    def tiers(self) -> Tiers:
        """The pairs of the tiers."""
        return Tiers(self.low, self.mid, self.high)

    @property
    def root(self) -> Path:
        """Where its iterations are kept."""
        if self.target:
            return sessions_of(self.task) / self.session
        return Home.find(Path(self.folder)).path / SESSIONS / self.session

    @property
    def task(self) -> Task:
        """The task that it belongs to, of one that belongs to any."""
        experiments = Home.find(Path(self.folder)).path / EXPERIMENTS
        return target_of(experiments, self.target)[1]

    @property
    def refined(self) -> tuple[Path, ...]:
        """What no other session may refine meanwhile: the run, and the task that it belongs to."""
        return (Path(self.run), *((self.task.folder,) if self.target else ()))

    @property
    def shelf(self) -> Shelf:
        """Where it is told of: with its task, or beside its seed."""
        return InTask(self.task, Path(self.run)) if self.target else BesideSeed(Path(self.run))

    @classmethod
    def of(cls, fact: object) -> "Refinement":
        """From the fact that a run began with."""
        told = dict(cast("Mapping[str, Any]", fact))
        for name in ("low", "mid", "high"):
            told[name] = ModelPair(*told[name])
        told["settings"] = tuple(told["settings"])
        return cls(**told)
