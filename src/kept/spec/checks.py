"""Checks of things that a spec names: case fields, models and their prices, prompts.

Each check reports its problem at a place of the spec, with a hint how to fix it.
"""

from kept.core.case import Cases, fields_of
from kept.core.text import count
from kept.errors import Problem, SetupError
from kept.models.client import connect
from kept.models.prompts import PLACEHOLDERS, Name, strange_places
from kept.models.providers import ModelConfig
from kept.models.roles import unbounded
from kept.spec.components import CheckContext
from kept.spec.paths import read_named
from kept.spec.source import Source, dotted, shown
from kept.spec.validate import said
from kept.spec.yaml import Loc


def check_field(source: Source, loc: Loc, name: str, cases: Cases) -> None:
    """Report a field that some cases lack."""
    lack = [case.id for case in cases.by_id.values() if name not in fields_of(case)]
    if lack:
        message = f"{count(len(lack), 'case')} without a field `{name}`, `{lack[0]}` first"
        source.report(loc, message)


def check_price(source: Source, loc: Loc, config: ModelConfig) -> None:
    """Report a model of unknown maximum cost if the spec sets `max_usd`."""
    lack = unbounded(config)
    if lack is not None and said(source, ("budget", "max_usd")) is not None:
        message = "what a call costs at most is not known, so `max_usd` could not be kept"
        source.report(loc, message, f"give `{lack}` in a block for this model")


def check_asked(source: Source, loc: Loc, config: ModelConfig) -> None:
    """Report a model that cannot be called: it lacks a key, address, script or weights."""
    try:
        connect(config)
    except SetupError as error:
        source.report(loc, error.message, error.hint)


def read_prompt(source: Source, loc: Loc, file: str, name: Name) -> str | None:
    """Read a prompt file of the user; reports its problems with their lines."""
    text = read_named(source, loc, file)
    if text is not None and not text.strip():
        hint = f"`kept prompts show {name}` prints Kept's own; delete the file to have that"
        source.report(loc, f"`{file}` is empty", hint)
    for line, words in strange_places(name, text or ""):
        known = ", ".join(f"`{{{{kept.{one}}}}}`" for one in PLACEHOLDERS[name])
        where = f"{shown(source.folder / file)}:{line}"
        message = f"`{words}` is no placeholder of the prompt `{name}`"
        hint = f"there are {known}" if known else "it has none"
        source.problems.append(Problem(where, dotted(loc), message, hint))
    return text


def check_fields(context: CheckContext, named: tuple[str, ...] | None) -> None:
    """Report fields that a proposer should see and that some cases lack."""
    cases = context.cases
    for name in named or ():
        if cases is None or cases.implicit:
            if not context.has_cases:
                context.report("fields", "there are no cases to have such a field")
        else:
            check_field(context.source, context.at("fields"), name, cases)
