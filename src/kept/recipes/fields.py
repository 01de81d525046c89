"""Fields of cases that a spec names: every case must have them."""

from kept.core.case import Cases
from kept.core.words import count
from kept.runners.model import fields_of
from kept.spec.source import Source
from kept.spec.yaml import Loc


def check_field(source: Source, loc: Loc, name: str, cases: Cases) -> None:
    """Report a field that not every case has."""
    lack = [case.id for case in cases.by_id.values() if name not in fields_of(case)]
    if lack:
        message = f"{count(len(lack), 'case')} without a field `{name}`, `{lack[0]}` first"
        source.report(loc, message)
