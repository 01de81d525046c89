"""`kept diff [RUN]`."""

import click

from kept.cli.command import Command
from kept.cli.options import json_option, run_argument, step_option


@click.command(
    cls=Command, examples=("kept diff", "kept diff last --step 0", "kept diff > best.patch")
)
@run_argument
@step_option
@json_option
def diff(run: str, step: int | None, as_json: bool) -> None:
    """Show the change from seed to best.

    A unified diff, as `patch` takes it. With --step, the change that this step proposed to what it
    was judged against. RUN is an id, the start or end of one, a folder, or `last`: the last run,
    and without --step the last that is no comparison.
    """
    from kept.cli import output
    from kept.cli.looking import closed_step, open_run
    from kept.core.plan import COMPARE
    from kept.report.changes import best_diff, step_diff
    from kept.runs import may_keep

    past = open_run(run, may_keep if step is None else None)
    text = best_diff(past) if step is None else step_diff(past, closed_step(past, step))
    compared = bool(past.fact(COMPARE))
    past.close()
    if as_json:
        output.document({"run": past.id, "step": step, "diff": text})
    elif text:
        output.answer(output.coloured_diff(text).removesuffix("\n"))
    elif step is None and compared:
        output.note(
            f"a comparison keeps nothing; `kept diff {past.id} --step N` shows what differs"
        )
    elif step is None:
        output.note("nothing beat the seed, so there is no difference")
    else:
        output.note(f"step {step} changes nothing")
