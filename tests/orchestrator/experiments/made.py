"""An experiment that stands there by the name that examples give it."""

import json
from pathlib import Path

from kept.orchestrator.experiments import create_experiment, create_task, read_experiment, set_best


def write_experiment(folder: Path, run: Path) -> None:
    """The one that examples name, with one task whose best is this run."""
    root = folder / ".kept" / "experiments"
    made = create_experiment(root, "Sales", "", "now")
    named = made.folder.rename(root / "exp_0123abcd")
    told = json.loads((named / "experiment.json").read_text())
    told["experiment_id"] = named.name
    (named / "experiment.json").write_text(json.dumps(told))
    set_best(create_task(read_experiment(named), "Write a report", "now"), run, "now")
