"""What a run has used so far, by steps with a verdict and by those without."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kept.core.budget import NOTHING, Spend
from kept.core.proposal import proposal_scope
from kept.core.rollout import FREE, Job, Usage
from kept.core.state import State
from kept.engine.past import in_rollout, past_of
from kept.engine.purse import Meter, spend_on
from kept.errors import JournalError
from kept.store import wire
from kept.store.lines import raw_reply, rollout_lines
from kept.store.pack import Pack


def spend_of(folder: Path, state: State) -> Spend:
    """All that was used: of a run that stopped, open steps were paid all the same."""
    open_steps = {step.step for step in state.open}
    if not open_steps:
        return state.spend
    path = folder / "rollouts.jsonl"
    meter, calls, counted = Meter(), list[wire.CallLine](), set[Job]()
    for row in rollout_lines(path, state.open[0].rollouts_at):
        if isinstance(row, wire.RolloutLine):
            job, outcome = row.entry()
            counted.add(job)
            if row.step in open_steps:
                meter.add((outcome,))
        elif isinstance(row, wire.CancelledLine):
            counted.add(row.job)
            if row.step in open_steps:
                meter.cancel(row.usage)
        elif isinstance(row, wire.CallLine):
            calls.append(row)
    silent = [step.step for step in state.open if step.reply is None]
    spend = state.spend + meter.spend() + unfinished_spend(folder, calls, counted, silent)
    return sum((step.spend for step in state.open), spend)


def unfinished_spend(
    folder: Path, calls: Sequence[wire.CallLine], counted: Collection[Job], silent: Iterable[int]
) -> Spend:
    """Cost of replies that arrived for rollouts and proposals that did not finish.

    `counted` are the rollouts whose calls are paid for, `silent` the open steps whose proposer has
    not replied. Only replies that matter are read from the pack.
    """
    scopes = dict.fromkeys((row.scope for row in calls), FREE)
    unfinished = past_of(scopes, counted, [proposal_scope(step) for step in silent]).under_way
    if not unfinished:
        return NOTHING
    meter, proposing = Meter(), FREE
    pack = Pack(folder, writable=False)
    for row in calls:
        if row.scope not in unfinished:
            continue
        used = usage_in(pack, row, folder / "rollouts.jsonl")
        if in_rollout(row.scope):
            meter.use(used)
        else:
            proposing += used
    return meter.spend() + spend_on(proposing)


def usage_in(pack: Pack, row: wire.CallLine, path: Path) -> Usage:
    """What a journalled reply used; nothing where it cannot be read any more."""
    try:
        raw = raw_reply(pack, row, path)
    except JournalError:
        return FREE
    return FREE if raw is None else wire.usage_of(raw)
