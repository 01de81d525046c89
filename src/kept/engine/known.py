"""Outcomes at hand: what was already rolled out is never rolled out again.

Keyed by candidate content, purpose, case and repeat: never by path, and never shared between
purposes. Memory holds the candidates that are still in play; the journal holds all of them.
"""

from collections.abc import Iterable

from kept.core.artifact import Candidate
from kept.core.ports import Journal
from kept.core.rollout import Pair, Purpose
from kept.core.score import Outcome

Row = dict[Pair, Outcome]


class Known:
    """Finished pairs by candidate."""

    def __init__(self, journal: Journal, elsewhere: Iterable[str] = ()) -> None:
        self._journal = journal
        self._rows: dict[str, dict[Purpose, Row]] = {}
        self._candidates: dict[str, Candidate] = {}
        self.elsewhere = set(elsewhere)
        """Candidates that may have outcomes in the journal only."""

    def candidate(self, id_: str) -> Candidate:
        """The content of a candidate."""
        found = self._candidates.get(id_)
        if found is None:
            found = self._candidates[id_] = self._journal.load(id_)
        return found

    def save(self, candidate: Candidate) -> None:
        """Have a candidate's content at hand, and in the journal before anything depends on it."""
        if candidate.id not in self._candidates:
            if not self._journal.save(candidate) and candidate.id not in self._rows:
                # of an earlier sitting, in which a keep may have left it behind half measured
                self.elsewhere.add(candidate.id)
            self._candidates[candidate.id] = candidate

    def of(self, candidate: str, purpose: Purpose) -> Row:
        """What is known of a candidate for one purpose."""
        rows = self._rows.get(candidate) or self._recall(candidate)
        row = rows.get(purpose)
        if row is None:
            row = rows[purpose] = {}
        return row

    def count(self, candidate: str) -> int:
        """Pairs of a candidate that are known, whatever they were for."""
        rows = self._rows.get(candidate) or self._recall(candidate)
        return sum(len(row) for row in rows.values())

    def _recall(self, candidate: str) -> dict[Purpose, Row]:
        rows = self._rows.setdefault(candidate, {})
        if candidate in self.elsewhere:
            for job, outcome in self._journal.outcomes([candidate]):
                if answered(outcome):
                    pair = Pair(job.case_id, job.repeat)
                    rows.setdefault(job.purpose, {})[pair] = outcome
        return rows

    def keep_only(self, candidates: set[str]) -> None:
        """Forget the others; the journal still has them."""
        for gone in self._rows.keys() - candidates:
            del self._rows[gone]
            self.elsewhere.add(gone)
        for gone in self._candidates.keys() - candidates:
            del self._candidates[gone]


def answered(outcome: Outcome) -> bool:
    """Whether an outcome settles its pair; what an outage left open is asked for again."""
    return outcome.failure is None or outcome.failure.blame == "candidate"
