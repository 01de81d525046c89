"""Request of a prompt optimization, and its facts in the journal."""

from dataclasses import dataclass
from pathlib import Path

from kept.orchestrator.experiments import EXPERIMENTS, target_of
from kept.orchestrator.prompt_registry import OF_EXPERIMENT
from kept.recipes.base import Facts, Request
from kept.store.home import Home


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization(Request):
    """Options of the command line besides the suite."""

    epochs: int | None = None
    target: str = ""
    """Task `EXP:TASK`, whose experiment has the registry."""
    folder: str = ""
    """Folder from which experiments are looked up."""
    stamp: str = ""
    """Time of the request, as part of a name."""

    def place(self) -> tuple[Path, Path] | None:
        """Registry of the experiment, and output folder in the task; None without a target."""
        if not self.target:
            return None
        root = Home.find(Path(self.folder)).path / EXPERIMENTS
        experiment, task = target_of(root, self.target)
        return experiment.folder / OF_EXPERIMENT, task.folder / "optimizations" / self.stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFacts(Facts):
    """Facts of a prompt optimization."""

    registry: str
    """Database of prompt versions."""
    epochs: int
    shared: bool
    """True if the same tasks are shown to the proposer and decide."""
