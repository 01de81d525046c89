"""Fields of cases that a spec names: every case must have them."""

from collections.abc import Mapping
from typing import cast

from kept.core.case import Case, Cases
from kept.core.words import count
from kept.spec.source import Source
from kept.spec.yaml import Loc


def check_field(source: Source, loc: Loc, name: str, cases: Cases) -> None:
    """Report a field that not every case has."""
    lack = [case.id for case in cases.by_id.values() if name not in fields_of(case)]
    if lack:
        message = f"{count(len(lack), 'case')} without a field `{name}`, `{lack[0]}` first"
        source.report(loc, message)


def fields_of(case: Case) -> Mapping[str, object]:
    """What a case has by name; nothing where it is no mapping."""
    data = case.data
    return cast("dict[str, object]", data) if isinstance(data, dict) else {}
