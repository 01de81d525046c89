"""`kept resume RUN`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

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
    from kept.core.plan import Plan
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
    from kept.core.plan import AGENT_RUN, REFINE
    from kept.ui.cli._open_run import open_run
    from kept.ui.cli._run import How, run_session, session_of

    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    past = open_run(run, resuming=True)
    if (started := past.state.started) is not None and started.recipe == AGENT_RUN:
        from kept.ui.cli._agent_run import HowAgent, resume_agent

        _refuse(
            ("--workers", workers is not None, "`--set budget.max_workers=N` limits its workers"),
            ("--fail-if-no-gain", fail_if_no_gain, "it has no seed to beat; 0 is a complete one"),
            what="an agent run",
        )
        return resume_agent(past, settings, HowAgent(json=as_json, quiet=quiet))
    if started is not None and started.recipe == REFINE:
        from kept.recipes.refine.request import MAX_USD
        from kept.ui.cli._refine_run import resume_refine

        others = [one for one in settings if one.partition("=")[0] != MAX_USD]
        # --fail-if-no-gain is what it does by itself
        _refuse(
            ("--set", bool(others), f"it goes on as it began, but for `{MAX_USD}` of a race"),
            ("--workers", workers is not None, "its iterations come one after the other"),
            what="a refinement",
        )
        return resume_refine(past, settings, as_json=as_json, quiet=quiet)
    settings += (f"workers={workers}",) if workers else ()
    spec, before = _spec_of(past)
    check_again(past, settings)
    plan = _plan(past, spec, (*before, *settings))
    past.close()
    return run_session(plan, past.folder, session_of(plan, how))


def _refuse(*flags: tuple[str, bool, str], what: str) -> None:
    """Say which flags mean nothing for such a run: none is passed over without a word."""
    given = [(name, hint) for name, there, hint in flags if there]
    if given:
        names = " and ".join(name for name, _ in given)
        hints = "; ".join(f"{name}: {hint}" for name, hint in given)
        raise SetupError(f"{what} is not resumed with {names}", hint=hints)


def _plan(run: "Run", spec: Path, settings: tuple[str, ...]) -> "Plan":
    """What the run was, compiled again."""
    from kept.core.plan import COMPARE, COORDINATE, EVAL, SKILL, SUITE
    from kept.ui.cli._run import compiled, told_warnings

    started = run.state.started
    if started is not None and started.recipe == SUITE:
        from kept.ui.cli.agent import resumed_suite

        return told_warnings(resumed_suite(run, spec, settings))
    if started is not None and started.recipe == EVAL:
        from kept.recipes.evaluate.compile import Wanted
        from kept.recipes.registry import compile_sweep

        wanted, told = Wanted.of(started.facts[EVAL]), cast("dict[str, Any]", started.facts[EVAL])
        if told.get("kind") == "skill":
            from kept.recipes.skill.measure import compile_measure

            folder = Path(str(started.facts["folder"]))
            return told_warnings(compile_measure(spec, wanted, settings, folder=folder))
        return told_warnings(compile_sweep(spec, wanted, settings))
    if started is not None and started.recipe == COORDINATE:
        from kept.recipes.agent_config.tune import Tuning, compile_coordinate

        tuning, began = Tuning.of(started.facts[COORDINATE], run.moved), run.state.fact("gate")
        return told_warnings(compile_coordinate(spec, settings, began, tuning=tuning))
    if started is not None and started.recipe == SKILL:
        from kept.recipes.skill.compile import compile_skill

        folder, began = Path(str(started.facts["folder"])), run.state.fact("gate")
        return told_warnings(compile_skill(spec, settings, began, folder=folder))
    if started is None or started.recipe != COMPARE:
        return compiled(spec, settings, run.state.fact("gate"))
    from kept.recipes.compare.compile import Asked, compile_comparison

    return told_warnings(compile_comparison(Asked.of(started.facts), settings))


def check_again(run: "Run", settings: tuple[str, ...]) -> None:
    """Ask for what the run was given and did not write down."""
    from kept.spec.source import split_override

    started = run.state.started
    wanted = started.facts.get("set_again") if started else None
    given = {split_override(setting)[0] for setting in settings}
    for key in cast("list[str]", wanted or []):
        if key not in given:
            message = f"run {run.id} was started with --set {key}=…, which is not written down"
            raise SetupError(message, hint=f"give --set {key}=… again")


def _spec_of(run: "Run") -> tuple[Path, tuple[str, ...]]:
    """The spec of a run, and what was set besides."""
    from kept.ui.cli._open_run import going_on

    started = run.state.started
    assert started is not None, "a run that can be read has started"
    spec = run.path_of("spec")
    if spec is None:
        raise SetupError(
            f"run {run.id} was started from Python, and only that program knows what it evaluates",
            hint=f"call {going_on(run)} there",
        )
    given = started.facts.get("set")
    items = cast("list[object]", given) if isinstance(given, list) else []
    return spec, tuple(str(item) for item in items)
