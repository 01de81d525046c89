"""`kept refine RUN_DIR`: the deliverable of a finished run, made better."""

from pathlib import Path

import click

from kept.errors import SetupError
from kept.ui.cli._command import Command, json_option, no_cache_option, quiet_option, set_option

LEAST_REPEATS, REPEATS = 17, 40
"""Minimum and default readings; with fewer, the last of ten iterations could never be kept."""


@click.command(
    cls=Command,
    examples=(
        "kept refine runs/first",
        "kept refine runs/first --iterations 5 --from last",
        "kept refine runs/first --gate race",
        "kept refine --target exp_0123abcd:001",
        "kept refine runs/first --tier-low a/small:a/small --tier-high a/large:a/medium",
    ),
)
@click.argument("run_dir", metavar="[RUN_DIR]", required=False)
@click.option(
    "--target", metavar="EXP:TASK", help="Refine the best run of a task of an experiment instead."
)
@click.option(
    "--iterations", type=int, default=3, show_default=True, metavar="N", help="From 1 to 10."
)
@click.option("--model", metavar="MODEL", help="Of the manager; by default the seed run's.")
@click.option("--worker-model", metavar="MODEL", help="Of the workers; by default the seed run's.")
@click.option("--tier-low", metavar="MANAGER:WORKER", help="Models of the first iterations.")
@click.option("--tier-mid", metavar="MANAGER:WORKER", help="Models of those between.")
@click.option("--tier-high", metavar="MANAGER:WORKER", help="Models of the last iterations.")
@click.option(
    "--from",
    "start",
    type=click.Choice(("best", "last", "seed")),
    default="best",
    show_default=True,
    help="best: from BEST where there is one, then each attempt from the best so far; "
    "last: each attempt from the one before it; seed: the first attempt from the seed run.",
)
@click.option(
    "--gate",
    type=click.Choice(("follow", "race")),
    default="follow",
    show_default=True,
    help="Believe the loss that a run ends with, or read what it left until the noise is beaten.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=LEAST_REPEATS),
    default=REPEATS,
    show_default=True,
    metavar="N",
    help="Of a race without cases: readings of each side, at most.",
)
@click.option(
    "--cases",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Of a race: criteria that each reading is about, one a line.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A YAML file as for `kept agent run`.",
)
@set_option
@no_cache_option
@json_option
@quiet_option
def refine(  # a command has its options
    run_dir: str | None,
    target: str | None,
    iterations: int,
    model: str | None,
    worker_model: str | None,
    start: str,
    gate: str,
    repeats: int,
    cases: Path | None,
    config: Path | None,
    settings: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **tiers: str | None,
) -> int:
    """Run a finished task again, and keep what is better.

    RUN_DIR is the folder of a finished run, or the name of one of ours. What critics, checks and
    metrics found wrong with it is told to the manager of each iteration, which starts from the best
    deliverable so far, with half the budget. The best of all sessions is in BEST of the run's
    folder, and the next session starts from it; with --target, in that of the task, whose
    `refinements` hold the sessions. Exits with 0 where BEST moved or there is nothing to refine, 1
    where it did not move, 2 where it could not begin, 3 after an error and 130 when interrupted.
    """
    from kept.orchestrator.refine.proposer import ModelPair, parse_pair
    from kept.recipes.refine.request import Refinement
    from kept.ui.cli._refine_run import named, start_refine

    if cases is not None and gate != "race":
        raise SetupError("--cases are for a race", hint="add --gate race")
    pairs = {
        name.removeprefix("tier_"): parse_pair(text, f"--{name.replace('_', '-')}")
        for name, text in tiers.items()
        if text is not None
    }
    none = ModelPair()
    seed = named(run_dir, target, from_seed=start == "seed")
    asked = Refinement(
        run=str(seed.folder),
        folder=str(Path.cwd()),
        session=seed.session,
        target=seed.target,
        iterations=iterations,
        model=model or "",
        worker_model=worker_model or "",
        low=pairs.get("low", none),
        mid=pairs.get("mid", none),
        high=pairs.get("high", none),
        from_last=start == "last",
        gate=gate,
        repeats=repeats,
        cases=str(cases) if cases else None,
        config=str(config) if config else None,
        settings=settings,
        start=seed.start,
    )
    return start_refine(asked, as_json=as_json, quiet=quiet)
