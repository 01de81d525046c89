"""What optimizing the prompts of agent runs was asked for, and what a journal holds of it."""

from dataclasses import dataclass
from pathlib import Path

from kept.orchestrator.experiments import EXPERIMENTS, target_of
from kept.orchestrator.prompt_registry import OF_EXPERIMENT
from kept.recipes.base import Facts, Request
from kept.store.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Request):
    """What a command line says besides the suite."""

    epochs: int | None = None
    target: str = ""
    """EXP:TASK, whose experiment has the registry."""
    folder: str = ""
    """Where experiments are looked for from."""
    stamp: str = ""
    """When it was asked, as a part of a name."""

    def place(self) -> tuple[Path, Path] | None:
        """The registry of the experiment, and the folder of the task for this; None without."""
        if not self.target:
            return None
        root = Home.find(Path(self.folder)).path / EXPERIMENTS
        experiment, task = target_of(root, self.target)
        return experiment.folder / OF_EXPERIMENT, task.folder / "optimizations" / self.stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFacts(Facts):
    """What such a run goes by."""

    registry: str
    """The database of prompt versions."""
    epochs: int
    shared: bool
    """Whether tasks are shown to the proposer and decide as well."""
