"""`kept adopt RUN`."""

import sys
from typing import TYPE_CHECKING

import click

from kept.cli.command import Command
from kept.cli.options import run_argument

if TYPE_CHECKING:
    from kept.adopt import Adoption
    from kept.store.reader import Run


@click.command(cls=Command, examples=("kept adopt last --yes",))
@run_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--commit", is_flag=True, help="Commit the change, with the evidence as its message.")
def adopt(run: str, yes: bool, commit: bool) -> None:
    """Change the source files to the best of a run.

    Shows the change and asks. Refuses when a file is not as the run found it. All files change, or
    none. RUN is an id, the start or end of one, a folder, or `last`, which is the default: the last
    run that is no comparison.
    """
    from kept.adopt import Repository, adoption_of
    from kept.cli import output
    from kept.cli.looking import nothing_better, open_run
    from kept.cli.names import path_from_here
    from kept.core.plan import COMPARE, EVAL
    from kept.report.changes import best_diff
    from kept.report.evidence import commit_message
    from kept.runs import may_keep

    past = open_run(run, may_keep)
    if past.fact(COMPARE):
        why = "a comparison keeps nothing, and what it compared is yours already"
        output.note(f"nothing to adopt: {why}")
        return
    if past.fact(EVAL):
        output.note("nothing to adopt: a run that only measures changes nothing")
        return
    adoption = adoption_of(past)
    adoption.check(past.id)
    if not adoption.pending:
        why = "its best is what is there" if adoption.after else nothing_better(past)
        output.note(f"nothing to adopt: {why}")
        return
    if commit:
        Repository(adoption.folder).check(adoption.pending)
    output.answer(output.coloured_diff(best_diff(past)).removesuffix("\n"))
    if not yes and not _agreed(past, adoption):
        output.note("nothing was changed")
        return
    # it may have taken a while to answer
    adoption = adoption_of(past)
    adoption.check(past.id)
    adoption.apply()
    for path in adoption.pending:
        output.note(f"changed {path_from_here(adoption.folder / path)}")
    if commit:
        _commit(adoption, commit_message(past))
    past.close()


def _agreed(run: "Run", adoption: "Adoption") -> bool:
    from kept.core.words import count
    from kept.errors import SetupError

    if not sys.stdin.isatty():
        raise SetupError(
            "nobody is here to say yes: the input is no terminal",
            hint=f"`kept adopt {run.id} --yes` does not ask",
        )
    question = f"change {count(len(adoption.pending), 'file')} in {adoption.folder}?"
    return click.confirm(question, default=False, err=True)


def _commit(adoption: "Adoption", message: str) -> None:
    from kept.adopt import Repository
    from kept.cli import output
    from kept.errors import SetupError

    try:
        made = Repository(adoption.folder).commit(adoption.pending, message)
    except SetupError as error:
        adoption.undo()
        raise SetupError(f"{error.message}\nthe files were put back", hint=error.hint) from error
    output.note(f"committed as {made}")
