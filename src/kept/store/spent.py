"""What a run has used so far, by steps with a verdict and by those without."""

from pathlib import Path

from kept.core.budget import Spend
from kept.core.state import State
from kept.engine.purse import Meter
from kept.store import wire
from kept.store.lines import lines_from, read_line


def spend_of(folder: Path, state: State) -> Spend:
    """All that was used: of a run that stopped, open steps were paid all the same."""
    open_steps = {step.step for step in state.open}
    if not open_steps:
        return state.spend
    path = folder / "rollouts.jsonl"
    meter = Meter()
    for line in lines_from(path, state.open[0].rollouts_at):
        row = read_line(line, path)
        if isinstance(row, wire.RolloutLine) and row.step in open_steps:
            meter.add((row.entry()[1],))
        elif isinstance(row, wire.CancelledLine) and row.step in open_steps:
            meter.cancel(row.usage)
    return sum((step.spend for step in state.open), state.spend + meter.spend())
