"""`kept train`: a skill, trained on the cases of an environment."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kept.errors import SetupError
from kept.ui.cli._command import Command, gain_option, json_option, no_cache_option, quiet_option

if TYPE_CHECKING:
    from kept.core.plan import Plan
    from kept.recipes.base import Compiled


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    examples=(
        "kept train skill.yaml --dry-run",
        "kept train --config skill.yaml --num_epochs 1 --cfg-options env.workers=8",
    ),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CONFIG] [--KEY VALUE]...")
@click.option(
    "--config",
    "name",
    metavar="FILE",
    help="The config: a file from here, or one that comes with Kept; the same as CONFIG.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be done, and stop.")
@json_option
@gain_option
@no_cache_option
@quiet_option
def train(
    words: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    as_json: bool,
    fail_if_no_gain: bool,
    quiet: bool,
) -> int:
    """Train a skill on cases, and keep what is better.

    Rolls out batches of train cases, reflects on them, and edits the skill; an edit is kept only
    when the gate says that it is better. Every key of the config is a flag, as in --batch_size 40,
    and any number of them may stand behind --cfg-options, as in train.batch_size=40.
    """
    from kept.evaluators.environments.registry import option_names
    from kept.recipes.skill.compile import compile_skill
    from kept.recipes.skill.config_keys import find_config, flags_of
    from kept.store.home import Home
    from kept.ui.cli._run import How, run_session, session_of, told_warnings

    name, words = config_of(name, words)
    given = flags_of(words, options=option_names)
    with given.as_typed():
        made = compile_skill(find_config(name), given.found, problems=given.problems)
    plan = told_warnings(made)
    if dry_run:
        rows = outline_rows(plan)
        width = max(len(name) for name, _ in rows)
        click.echo("\n".join(f"{name:<{width}}  {value}" for name, value in rows))
        return 0
    check_place(plan)
    how = How(json=as_json, quiet=quiet, fail_if_no_gain=fail_if_no_gain)
    return run_session(plan, Home.find(Path.cwd()), session_of(plan, how))


def config_of(name: str | None, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Config by its flag or as the first word, and the remaining words."""
    if name is None and words and not words[0].startswith("--"):
        return words[0], words[1:]
    if name is None:
        hint = (
            "`kept train skill.yaml`, or one that comes with Kept, as configs/searchqa/default.yaml"
        )
        raise SetupError("no config is named", hint=hint)
    return name, words


def outline_told(made: "Compiled") -> tuple[dict[str, Any], Iterator[tuple[str, str]]]:
    """Outline of a run for `kept check`: as a document, and in rows."""
    plan, rows = made.plan, outline_rows(made.plan)
    told = {name.replace(" ", "_"): value for name, value in rows}
    from kept.ui.report.format import recipe_word

    head = {"spec": plan.spec.path, "recipe": recipe_word(plan.recipe)}
    return {**head, **told, "warnings": list(made.warnings)}, iter(rows)


def outline_rows(plan: "Plan") -> list[tuple[str, str]]:
    """Outline of a run in rows."""
    from kept.core.case import SPLITS
    from kept.core.forecast import forecast
    from kept.core.schedules.epochs import Epochs
    from kept.core.schedules.round_robin import Pooling
    from kept.core.text import count
    from kept.recipes.skill.request import TrainingFacts

    schedule = plan.schedule.inner if isinstance(plan.schedule, Pooling) else plan.schedule
    assert isinstance(schedule, Epochs), "a run that trains goes epoch by epoch"
    splits = ((name, len(plan.cases.of(name))) for name in SPLITS)
    steps = f"{count(schedule.epochs, 'epoch')} of {count(schedule.steps, 'step')}"
    batch = schedule.batch * schedule.accumulation
    batch = min(batch, schedule.cases)
    most = forecast(plan).rollouts
    assert most is not None, "epochs are limited"
    facts = plan.facts
    assert isinstance(facts, TrainingFacts), "a run that trains"
    judge = facts.judge
    return [
        ("environment", plan.spec.id),
        ("cases", ", ".join(f"{size} {name}" for name, size in splits)),
        ("steps", f"{steps}, {batch} rollouts each"),
        ("rollouts", f"at most {most:,}, those of the gate and of retried steps included"),
        *([("judge", f"`{judge}`, at most {most:,} calls")] if judge else []),
        ("edits", f"{schedule.max_edits} to {schedule.min_edits} a step, {schedule.curve}"),
        ("epoch ends", ", ".join(end.proposer for end in schedule.ends) or "nothing"),
        ("gate", f"{plan.gate.name}, by `{plan.objective.metric}`"),
        ("outputs", plan.spec.results),
    ]


def check_place(plan: "Plan") -> None:
    """Refuse an unwritable folder, or one with another run, before the run costs anything."""
    from kept.recipes.skill.request import Training
    from kept.store.candidate_files import named_place, open_folder

    place = Path(plan.spec.results)
    asked = plan.request
    assert isinstance(asked, Training), "a run that trains"
    try:
        with open_folder(place, named_place(place, Path(asked.folder))):
            pass
    except OSError as error:
        raise SetupError(f"cannot write to {error.filename}: {error.strerror}") from error
    if plan.spec.named and (place / "runtime_state.json").exists():
        hint = f"`{_go_on(place)}` goes on with it; --out_root names another folder"
        raise SetupError(f"{place} holds another run", hint=hint)


def _go_on(place: Path) -> str:
    """Command that resumes the run whose files are in a folder."""
    import json

    try:
        run = str(json.loads((place / "config.json").read_bytes())["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        run = ""
    return f"kept resume {run}".rstrip()
