"""`kept report [RUN]`, and `kept show [RUN] [CASE]`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kept.core.plan import AGENT_RUN, REFINE, SKILL
from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here, run_argument, step_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from kept.results.cases import Sweep
    from kept.store.reader import Run
    from kept.store.run_index import RunRow
    from kept.ui.cli._refine_run import Refined


@click.command(
    cls=Command, examples=("kept report", "kept report last --json", "kept report last --html")
)
@run_argument
@json_option
@click.option("--html", is_flag=True, help="Write the run's page to report.html, one file.")
def report(run: str, as_json: bool, html: bool) -> None:
    """Print the report of a run.

    What was asked, what came of it, each kept change with its evidence, what was refused and why,
    what it took, and what the figures do not show. Written anew to report.md in the run's folder.
    With --html, the page that `kept view` shows of it as one file, which opens anywhere. RUN is an
    id, the start or end of one, a folder, or `last`.
    """
    from kept.ui.cli._open_run import open_run
    from kept.ui.report.json import as_json as document
    from kept.ui.report.markdown import markdown, write_report

    past = open_run(run)
    if html:
        past.close()
        _write_page(past.folder)
        return
    try:
        text = write_report(past)
    except OSError as error:
        # a run may lie where nothing can be written
        path = path_from_here(past.folder / "report.md")
        _output.note(f"cannot write {path}: {error.strerror}")
        text = markdown(past)
    if as_json:
        _output.document(document(past))
    else:
        _output.answer(_output.visible(text).removesuffix("\n"))
    past.close()


def _write_page(folder: Path) -> None:
    """Write the HTML page beside the report and print its path."""
    from kept.store.candidate_files import write_file
    from kept.ui.cli.view import pages

    path = folder / "report.html"
    text = pages().export(folder)
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error
    _output.answer(path_from_here(path))


@click.command(
    cls=Command,
    examples=(
        "kept show",
        "kept show last --step 0",
        "kept show last --step 0 -v",
        "kept show last refund-over-limit",
    ),
)
@run_argument
@click.argument("case", required=False)
@step_option
@click.option(
    "-v",
    "--traces",
    is_flag=True,
    help="With --step: what happened in each rollout. With CASE: in all of them.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="With --step: write what its commands and agents left to a new folder.",
)
@json_option
def show(  # a command has its options
    run: str, case: str | None, step: int | None, traces: bool, save: Path | None, as_json: bool
) -> None:
    """Show what a run did, step by step.

    With --step, all there is of one step: what was proposed and why, what became of each edit, the
    change, the verdict with its figures, and every rollout. With CASE, what was said and used in
    that case, and how it was measured; of an agent run it is the name of a worker, `manager`, or
    `task` for everybody. Works while the run goes on. RUN is an id, the start or end of one, a
    folder, or `last`.
    """
    if case is not None:
        _show_case(run, case, traces, as_json)
        return
    if step is not None:
        _show_step(run, step, traces, save, as_json)
        return
    for name, given in (("--traces", traces), ("--save", save)):
        if given:
            raise click.UsageError(f"{name} needs --step")
    _show_run(run, as_json)


def _show_run(name: str, as_json: bool) -> None:
    from kept.recipes.agent_run.request import Asked
    from kept.recipes.registry import request_of
    from kept.results.cases import sweep_of
    from kept.results.summary import summary
    from kept.ui.cli._open_run import iteration_named, open_run
    from kept.ui.cli._render import refinement_text, run_text
    from kept.ui.report.json import headline, step_row

    found = iteration_named(name)
    past = open_run(name if found is None else found.refinement)
    if found is not None or request_of(past, Asked) is not None:
        _show_agent_run(past, found, as_json)
        return
    sweep, told = sweep_of(past), summary(past)
    about = _ABOUT.get(told.recipe)
    refined = about(past) if about else None
    past.close()
    if sweep is not None:
        _show_sweep(sweep, past.folder, as_json)
    elif as_json:
        rows = [step_row(row) for row in told.steps]
        more = {} if refined is None else {"refinement": refined.document()}
        _output.document({**headline(told), "closed": rows, "open": list(told.open), **more})
    else:
        _output.answer(run_text(told) if refined is None else refinement_text(told, refined))


def _refined(run: "Run") -> "Refined | None":
    from kept.ui.cli._refine_run import refined_of

    return refined_of(run)


_ABOUT: Mapping[str, "Callable[[Run], Refined | None]"] = {REFINE: _refined}
"""Functions for more output than the steps, by recipe."""


def _show_agent_run(run: "Run", iteration: "RunRow | None", as_json: bool) -> None:
    from kept.orchestrator.events import agent_run_json, agent_run_text
    from kept.recipes.agent_run.journal_view import agent_run_of
    from kept.recipes.refine.request import iteration_of

    record = agent_run_of(run) if iteration is None else iteration_of(run, iteration.id)
    run.close()
    folder = run.folder.resolve() if iteration is None else iteration.folder
    if record is None:
        raise SetupError(f"run {run.id} ended before its first turn")
    if as_json:
        _output.document({"folder": str(folder), **agent_run_json(record)})
    else:
        _output.answer(_output.visible(agent_run_text(record)))


def _show_sweep(sweep: "Sweep", folder: Path, as_json: bool) -> None:
    from kept.ui.cli.eval import evaluated_text
    from kept.ui.report.eval_report import document

    if as_json:
        _output.document({"folder": str(folder.resolve()), **document(sweep)})
    else:
        _output.answer(evaluated_text(sweep, folder, every=True))


def _show_case(name: str, case: str, traces: bool, as_json: bool) -> None:
    from kept.errors import SetupError
    from kept.recipes.agent_run.request import Asked
    from kept.recipes.evaluate.request import Evaluation
    from kept.recipes.skill.request import Training
    from kept.results.cases import sweep_of
    from kept.run import asked_for
    from kept.ui.cli._open_run import open_run
    from kept.ui.cli.eval import case_text
    from kept.ui.report.eval_report import document

    past = open_run(name, asked_for(Evaluation, Training, Asked))
    sweep = sweep_of(past)
    shown = CASES.get(sweep.of if sweep else past.recipe or "")
    if shown is not None:
        shown(past, case, traces, as_json)
        return
    past.close()
    if sweep is None:
        message = f"run {past.id} has steps, and its cases are shown with them"
        raise SetupError(message, hint=f"`kept show {past.id} --step N -v`")
    # a case of exactly this name, else all whose names begin with it
    rows = [at for at, one in enumerate(sweep.cases) if one.case == case]
    rows = rows or [at for at, one in enumerate(sweep.cases) if one.case.startswith(case)]
    if not rows:
        some = ", ".join(dict.fromkeys(one.case for one in sweep.cases[:5]))
        raise SetupError(f"run {past.id} has no case `{case}`", hint=f"there is {some} …")
    if as_json:
        results = document(sweep)["results"]
        _output.document([results[at] for at in rows])
    else:
        _output.answer("\n\n".join(case_text(sweep.cases[at]) for at in rows))


def _show_spoken(run: "Run", who: str, as_json: bool) -> None:
    """Show the messages and tool uses of one participant of an agent run."""
    from kept.recipes.agent_run.journal_view import agent_run_of, people_of, spoken, spoken_json
    from kept.ui.cli._render import spoken_text

    with run:
        rows, record = spoken(run, who), agent_run_of(run)
    if not rows:
        there = ", ".join(people_of(record)[:20]) if record else "nobody"
        raise SetupError(
            f"nobody called `{who}` said anything in {run.id}", hint=f"there is {there}"
        )
    if as_json:
        _output.document(spoken_json(rows))
    else:
        _output.answer(spoken_text(rows))


def _show_rollouts(run: "Run", case: str, traces: bool, as_json: bool) -> None:
    """Show every rollout of a case in a training; the beginning of its name is enough."""
    from kept.errors import SetupError
    from kept.results.steps import MOST, case_rollouts, cases_like, some_cases
    from kept.ui.cli import _output
    from kept.ui.cli._render import rollouts_text
    from kept.ui.report.step import case_json

    with run:
        like = cases_like(run, case)
        if len(like) != 1:
            some = ", ".join(like[:MOST] or some_cases(run))
            what = f"{len(like)} cases that begin with" if like else "no case"
            raise SetupError(f"run {run.id} has {what} `{case}`", hint=f"there is {some} …")
        rows = case_rollouts(run, like[0], traces=traces)
    if as_json:
        _output.document(case_json(rows))
    else:
        _output.answer(rollouts_text(rows))


def _show_agent_case(run: "Run", case: str, traces: bool, as_json: bool) -> None:
    _show_spoken(run, case, as_json)


CASES: Mapping[str, "Callable[[Run, str, bool, bool], None]"] = {
    AGENT_RUN: _show_agent_case,
    SKILL: _show_rollouts,
}
"""Functions for `kept show RUN CASE`, by recipe; others show the measured case."""


def _show_step(name: str, step: int, traces: bool, save: Path | None, as_json: bool) -> None:
    from kept.core.text import count
    from kept.results.steps import step_detail
    from kept.ui.cli import _output
    from kept.ui.cli._open_run import check_step, open_run
    from kept.ui.cli._render import step_text
    from kept.ui.report.step import save_left, step_json

    past = open_run(name)
    check_step(past, step)
    detail = step_detail(past, step, traces=traces)
    if save is not None:
        saved = save_left(past, detail, save)
        _output.note(f"{save} holds what {count(saved, 'execution')} left")
    past.close()
    if as_json:
        _output.document(step_json(detail))
    else:
        _output.answer(step_text(detail, traces=traces))
