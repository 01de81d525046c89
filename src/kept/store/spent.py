"""What a run has used so far, by steps with a verdict and by those without."""

from pathlib import Path

from kept.core.budget import Spend
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
    meter, paid, counted = Meter(), dict[str, Usage](), set[Job]()
    pack = Pack(folder, writable=False)
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
            paid[row.scope] = paid.get(row.scope, FREE) + usage_in(pack, row, path)
    silent = [proposal_scope(step.step) for step in state.open if step.reply is None]
    # replies that arrived, of rollouts and proposals that did not come to their end
    under_way = past_of(paid, counted, silent).under_way
    for scope, used in under_way.items():
        if in_rollout(scope):
            meter.use(used)
    proposing = (used for scope, used in under_way.items() if not in_rollout(scope))
    spend = state.spend + meter.spend() + spend_on(sum(proposing, FREE))
    return sum((step.spend for step in state.open), spend)


def usage_in(pack: Pack, row: wire.CallLine, path: Path) -> Usage:
    """What a journalled reply used; nothing where it cannot be read any more."""
    try:
        raw = raw_reply(pack, row, path)
    except JournalError:
        return FREE
    return FREE if raw is None else wire.usage_of(raw)
