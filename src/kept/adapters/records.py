"""Records: what a rollout shows of one component, for whoever writes the next text of it.

They travel in the trace of the rollout, and so in the journal: a resume has them too.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from kept.core.rollout import TraceItem
from kept.core.score import Finding

Record = Mapping[str, Any]
Records = Mapping[str, list[Record]]
"""By component."""

RECORD = "record"
NOTE = "note"

LONGEST = 4000
"""Characters of a thing that is no JSON: a picture, say."""


def trace_of(records: Mapping[str, Iterable[Any]]) -> Iterator[TraceItem]:
    """A trace that holds these records."""
    for component, rows in records.items():
        for row in rows:
            plain = _plain(row)
            yield TraceItem(RECORD, shown(plain), {"component": component, "record": plain})


def records_in(trace: Iterable[TraceItem], component: str) -> list[Record]:
    """Those of one component."""
    rows = [item.data for item in trace if item.role == RECORD]
    return [cast("Record", data["record"]) for data in rows if data["component"] == component]


def findings_in(trace: Iterable[TraceItem]) -> tuple[Finding, ...]:
    """What records say in so many words, each thing once."""
    rows = [cast("Record", item.data["record"]) for item in trace if item.role == RECORD]
    told = [str(v) for row in rows for k, v in row.items() if k.lower() in ("feedback", "error")]
    return tuple(Finding(text) for text in dict.fromkeys(told) if text)


def shown(record: Record) -> str:
    """A record as a text to read."""
    return "\n".join(f"{name}: {_text(value)}" for name, value in record.items())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(row: object) -> Record:
    try:
        plain = json.loads(json.dumps(row, ensure_ascii=False, default=_cut))
    except (TypeError, ValueError, RecursionError):
        plain = _cut(row)
    return cast("Record", plain) if isinstance(plain, dict) else {"record": plain}


def _cut(value: object) -> str:
    return str(value)[:LONGEST]
