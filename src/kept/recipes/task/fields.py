"""Fields of cases that a spec names: every case must have them.

Who proposes sees no others: they may hold the answer.
"""

from kept.core.case import Cases
from kept.core.words import count
from kept.evaluators.runners.agents import AgentRunnerSpec
from kept.evaluators.runners.model import fields_of
from kept.evaluators.runners.runners import ModelRunnerSpec
from kept.spec.load import said, section
from kept.spec.source import Source
from kept.spec.yaml import Loc


def check_field(source: Source, loc: Loc, name: str, cases: Cases) -> None:
    """Report a field that not every case has."""
    lack = [case.id for case in cases.by_id.values() if name not in fields_of(case)]
    if lack:
        message = f"{count(len(lack), 'case')} without a field `{name}`, `{lack[0]}` first"
        source.report(loc, message)


def fields_shown(
    source: Source, loc: Loc, named: tuple[str, ...] | None, cases: Cases | None
) -> tuple[str, ...]:
    """Fields that a proposer sees: those named, else those that the model of the runner sees."""
    for name in named or ():
        if cases is None or cases.implicit:
            if said(source, ("cases",)) is None:
                source.report(loc, "there are no cases to have such a field")
        else:
            check_field(source, loc, name, cases)
    if named is not None:
        return named
    model = section(source, ("runner",), ModelRunnerSpec)
    runner = model or section(source, ("runner",), AgentRunnerSpec)
    return (runner.input or ()) if runner else ()
