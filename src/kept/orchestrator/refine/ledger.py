"""The ledger of findings: what became of each one over the iterations of a session.

An iteration is given the findings of the run that it starts from. Afterwards each of them is fixed
or still open, and what its result has besides is new. Findings are the same by their first words,
and defects also by their main words: one in quite other words counts as fixed and as new.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kept.core.schedules.refine import Attempt
from kept.core.words import count, one_line
from kept.orchestrator.refine.alike import first_alike, main_words
from kept.orchestrator.refine.findings import SAME, Findings
from kept.orchestrator.refine.made import Made

Fate = Literal["fixed", "still open", "new"]

FATES: tuple[Fate, ...] = ("fixed", "still open", "new")


class Entry(NamedTuple):
    """The effect of one iteration on one finding."""

    k: int
    given: bool
    """True where the iteration was told of it."""
    fate: Fate


@dataclass(frozen=True, slots=True)
class Line:
    """One finding over all iterations."""

    text: str
    severity: str
    entries: tuple[Entry, ...]
    open: bool
    """True where the best deliverable still has it."""

    def document(self) -> dict[str, Any]:
        """As a session has it."""
        return {
            "finding": self.text,
            "severity": self.severity,
            "iterations": [one._asdict() for one in self.entries],
            "open_in_best": self.open,
        }


def ledger_of(
    start: Made, best: Made, made: Iterable[Made], attempts: Sequence[Attempt]
) -> tuple[Line, ...]:
    """Every finding of a session, in the order in which they were met.

    `made` is what iterations left. An iteration that left nothing has fixed nothing.
    """
    known = _known((start, *made))
    lines: dict[str, tuple[str, str]] = dict(known[start.run_id])
    entries: dict[str, list[Entry]] = {key: [] for key in lines}
    for attempt in attempts:
        given = known.get(attempt.parent_run_id, known[start.run_id])
        after = known.get(attempt.run_id, given)
        for key in {**given, **after}:
            lines.setdefault(key, {**after, **given}[key])
            fate: Fate = "still open" if key in after else "fixed"
            entry = Entry(attempt.k, key in given, fate if key in given else "new")
            entries.setdefault(key, []).append(entry)
    left = known[best.run_id]
    return tuple(
        Line(text, severity, tuple(entries[key]), key in left)
        for key, (text, severity) in lines.items()
    )


def counts_of(lines: Iterable[Line], k: int) -> Mapping[str, int]:
    """Count the findings that iteration k was given, by what became of them, and new ones."""
    mine = [one for line in lines for one in line.entries if one.k == k]
    given = {"given": sum(one.given for one in mine)}
    return given | {fate: sum(one.fate == fate for one in mine) for fate in FATES}


def counted_words(lines: Iterable[Line], k: int) -> str:
    """`3 findings given: 2 fixed, 1 still open; 1 new`."""
    found = counts_of(lines, k)
    fates = f"{found['fixed']} fixed, {found['still open']} still open"
    return f"{count(found['given'], 'finding')} given: {fates}; {found['new']} new"


def _known(made: Iterable[Made]) -> dict[str, dict[str, tuple[str, str]]]:
    """The findings of each run by what they are known by, which is the same in all of them."""
    words: dict[str, frozenset[str]] = {}
    known: dict[str, dict[str, tuple[str, str]]] = {}
    for one in made:
        found = _keyed(one.findings)
        defects = {_key(defect.summary) for defect in one.findings.defects}
        taken, names = set(found), dict[str, str]()
        for key in found:
            if key in defects and key not in words:
                mine = main_words(key)
                same = first_alike(mine, words, taken)
                if same is None:
                    words[key] = mine
                else:
                    names[key] = same
                    taken.add(same)
        known[one.run_id] = {names.get(key, key): told for key, told in found.items()}
    return known


def _key(name: str) -> str:
    return one_line(name).casefold()[:SAME]


def _keyed(findings: Findings) -> dict[str, tuple[str, str]]:
    """Each finding in words and how bad it is, by what it is known by."""
    kept: dict[str, tuple[str, str]] = {}
    for name, text, severity in findings.named():
        kept.setdefault(_key(name), (text, severity))
    return kept
