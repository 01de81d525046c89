"""`kept adopt RUN`."""

import sys
from typing import TYPE_CHECKING

import click

from kept.core.plan import COMPARE, EVALUATE
from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here, run_argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kept.store.reader import Run
    from kept.ui.adopt import Adoption


@click.command(cls=Command, examples=("kept adopt last --yes",))
@run_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--commit", is_flag=True, help="Commit the change, with the evidence as its message.")
@json_option
def adopt(run: str, yes: bool, commit: bool, as_json: bool) -> None:
    """Change the source files to the best of a run.

    Shows the change and asks. Refuses when a file is not as the run found it. All files change, or
    none. RUN is an id, the start or end of one, a folder, or `last`, which is the default: the last
    run that is no comparison.
    """
    from kept.results.diffs import best_diff
    from kept.run import may_keep
    from kept.ui.adopt import Repository, adoption_of, commit_message
    from kept.ui.cli._open_run import nothing_better, open_run

    past = open_run(run, may_keep)
    told: dict[str, object] = {"run": past.id, "changed": [], "commit": None}
    if why := _keeps_nothing(past):
        _nothing(why, told, as_json)
        return
    adoption = adoption_of(past)
    adoption.check(past.id)
    if not adoption.pending:
        why = "its best is what is there" if adoption.after else nothing_better(past)
        _nothing(why, told, as_json)
        return
    if commit:
        Repository(adoption.folder).check(adoption.pending)
    diff = best_diff(past)
    if not as_json:
        _output.answer(_output.coloured_diff(diff).removesuffix("\n"))
    elif not yes:
        # the user must see the change before agreeing; stdout is reserved for the JSON document
        _output.note(diff.removesuffix("\n"))
    if not yes and not _agreed(past, adoption):
        _output.note("nothing was changed")
        if as_json:
            _output.document({**told, "why": "the answer was no"})
        return
    # check again: files may have changed while the question was open
    adoption = adoption_of(past)
    adoption.check(past.id)
    adoption.apply()
    for path in adoption.pending:
        _output.note(f"changed {path_from_here(adoption.folder / path)}")
    made = _commit(adoption, commit_message(past)) if commit else None
    past.close()
    if as_json:
        changed = [str(adoption.folder / path) for path in adoption.pending]
        _output.document({**told, "changed": changed, "commit": made, "diff": diff})


def _keeps_nothing(run: "Run") -> str:
    """Reason why a run of this kind has nothing to adopt; empty if it may have something."""
    return KEEPS_NOTHING.get(run.recipe or "", "")


KEEPS_NOTHING = {
    COMPARE: "a comparison keeps nothing, and what it compared is yours already",
    EVALUATE: "a run that only measures changes nothing",
}
"""Reason why a run has nothing to adopt, by recipe."""


def _nothing(why: str, told: "Mapping[str, object]", as_json: bool) -> None:
    _output.note(f"nothing to adopt: {why}")
    if as_json:
        _output.document({**told, "why": why})


def _agreed(run: "Run", adoption: "Adoption") -> bool:
    from kept.core.text import count

    if not sys.stdin.isatty():
        raise SetupError(
            "nobody is here to say yes: the input is no terminal",
            hint=f"`kept adopt {run.id} --yes` does not ask",
        )
    question = f"change {count(len(adoption.pending), 'file')} in {adoption.folder}?"
    return click.confirm(question, default=False, err=True)


def _commit(adoption: "Adoption", message: str) -> str:
    from kept.ui.adopt import Repository

    try:
        made = Repository(adoption.folder).commit(adoption.pending, message)
    except SetupError as error:
        adoption.undo()
        raise SetupError(f"{error.message}\nthe files were put back", hint=error.hint) from error
    _output.note(f"committed as {made}")
    return made
