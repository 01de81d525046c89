"""Options that several commands have, spelled once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def run_argument(function: F) -> F:
    """`[RUN]`: which run to look at."""
    return click.argument("run", default="last")(function)


def json_option(function: F) -> F:
    """`--json`: the answer for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(
        function
    )


def quiet_option(function: F) -> F:
    """`-q`: no progress."""
    return click.option(
        "-q", "--quiet", is_flag=True, help="Show no progress, only the answer and warnings."
    )(function)


def set_option(function: F) -> F:
    """`--set`: a value of the spec, for this run alone."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="PATH=VALUE",
        help="Set a value of the spec for this run, by its path in the file. Repeatable.",
    )(function)


def no_cache_option(function: F) -> F:
    """`--no-cache`: ask models anew."""
    return click.option(
        "--no-cache",
        is_flag=True,
        expose_value=False,
        callback=_without_cache,
        help="Ask models anew: neither read nor write the cache of replies.",
    )(function)


def _without_cache(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        from kept.models.roles import without_cache  # at use: help need not load it

        context.with_resource(without_cache())


def gain_option(function: F) -> F:
    """`--fail-if-no-gain`: for scripts that want to know."""
    return click.option(
        "--fail-if-no-gain", is_flag=True, help="Exit with 1 when nothing beat the seed."
    )(function)


def workers_option(function: F) -> F:
    """`--workers`: how much at once."""
    return click.option(
        "--workers",
        type=click.IntRange(min=1),
        metavar="N",
        help="Rollouts in flight at once; by default what the spec says.",
    )(function)


def money_option(function: F) -> F:
    """`--max-usd`: how much it may cost."""
    return click.option(
        "--max-usd",
        type=click.FloatRange(min=0),
        metavar="USD",
        help="Stop before this is spent; by default what the spec says.",
    )(function)


def step_option(function: F) -> F:
    """`--step`: one step of the run."""
    return click.option(
        "--step", type=click.IntRange(min=0), metavar="N", help="Look at this step alone."
    )(function)
