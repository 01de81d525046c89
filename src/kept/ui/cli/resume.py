"""`kept resume RUN`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from kept.core.plan import AGENT_RUN, REFINE
from kept.errors import SetupError
from kept.ui.cli._command import (
    Command,
    gain_option,
    json_option,
    no_cache_option,
    quiet_option,
    run_argument,
    set_option,
    workers_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kept.store.reader import Run


@click.command(
    cls=Command, examples=("kept resume", "kept resume last --set budget.max_iterations=40")
)
@run_argument
@set_option
@no_cache_option
@workers_option
@json_option
@gain_option
@quiet_option
def resume(
    run: str,
    settings: tuple[str, ...],
    workers: int | None,
    as_json: bool,
    fail_if_no_gain: bool,
    quiet: bool,
) -> int:
    """Go on with a run that stopped.

    RUN is an id, the start or end of one, a folder, or `last`, which is the default. No rollout
    that had ended is done again. What was set with --set before holds still, unless it is set anew.
    """
    from kept.ui.cli._open_run import open_run

    past = open_run(run, resuming=True)
    how = HowResumed(settings, workers, as_json, fail_if_no_gain, quiet)
    return RESUMES.get(past.recipe or "", _resume)(past, how)


class HowResumed(NamedTuple):
    """Options of `kept resume`."""

    settings: tuple[str, ...]
    workers: int | None
    as_json: bool
    fail_if_no_gain: bool
    quiet: bool


def _resume(past: "Run", how: HowResumed) -> int:
    """Resume a run of most recipes."""
    from kept.recipes.base import Context
    from kept.recipes.registry import compile_resumed
    from kept.ui.cli._run import How, run_session, session_of, told_warnings

    settings = how.settings + ((f"workers={how.workers}",) if how.workers else ())
    _check_spec(past)
    check_again(past, settings)
    plan = told_warnings(compile_resumed(past, Context(overrides=settings)))
    past.close()
    answer = How(json=how.as_json, quiet=how.quiet, fail_if_no_gain=how.fail_if_no_gain)
    return run_session(plan, past.folder, session_of(plan, answer))


def _resume_agent(past: "Run", how: HowResumed) -> int:
    """Resume an agent run."""
    from kept.ui.cli._agent_run import HowAgent, resume_agent

    _refuse(
        ("--workers", how.workers is not None, "`--set budget.max_workers=N` limits its workers"),
        ("--fail-if-no-gain", how.fail_if_no_gain, "it has no seed to beat; 0 is a complete one"),
        what="an agent run",
    )
    return resume_agent(past, how.settings, HowAgent(json=how.as_json, quiet=how.quiet))


def _resume_refinement(past: "Run", how: HowResumed) -> int:
    """Resume a refinement; it always behaves as with `--fail-if-no-gain`."""
    from kept.recipes.refine.request import MAX_USD
    from kept.ui.cli._refine_run import resume_refine

    others = [one for one in how.settings if one.partition("=")[0] != MAX_USD]
    _refuse(
        ("--set", bool(others), f"it goes on as it began, but for `{MAX_USD}` of a race"),
        ("--workers", how.workers is not None, "its iterations come one after the other"),
        what="a refinement",
    )
    return resume_refine(past, how.settings, as_json=how.as_json, quiet=how.quiet)


RESUMES: Mapping[str, "Callable[[Run, HowResumed], int]"] = {
    AGENT_RUN: _resume_agent,
    REFINE: _resume_refinement,
}
"""Functions for recipes that are resumed in their own way."""


def _refuse(*flags: tuple[str, bool, str], what: str) -> None:
    """Refuse options that have no effect for such a run."""
    given = [(name, hint) for name, there, hint in flags if there]
    if given:
        names = " and ".join(name for name, _ in given)
        hints = "; ".join(f"{name}: {hint}" for name, hint in given)
        raise SetupError(f"{what} is not resumed with {names}", hint=hints)


def check_again(run: "Run", settings: tuple[str, ...]) -> None:
    """Refuse to resume without the settings that the run does not store."""
    from kept.spec.source import split_override

    given = {split_override(setting)[0] for setting in settings}
    for key in run.settings.spec.hidden:
        if key not in given:
            message = f"run {run.id} was started with --set {key}=…, which is not written down"
            raise SetupError(message, hint=f"give --set {key}=… again")


def _check_spec(run: "Run") -> None:
    """Refuse a run without a spec."""
    from kept.ui.cli._open_run import going_on

    if run.spec is None:
        raise SetupError(
            f"run {run.id} was started from Python, and only that program knows what it evaluates",
            hint=f"call {going_on(run)} there",
        )
