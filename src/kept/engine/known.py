"""Outcomes at hand: what was already rolled out is never rolled out again.

Keyed by candidate content, purpose, case and repeat: never by path, and never shared between
purposes. Memory holds the candidates that are still in play; the journal holds all of them.
"""

from collections.abc import Iterable

from kept.core.artifact import Candidate
from kept.core.ports import Journal
from kept.core.rollout import Job, Pair, Purpose
from kept.core.score import Outcome

Row = dict[tuple[Purpose, Pair], Outcome]


class Known:
    """Finished pairs by candidate."""

    def __init__(self, journal: Journal, elsewhere: Iterable[str] = ()) -> None:
        self._journal = journal
        self._rows: dict[str, Row] = {}
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
            self._journal.save(candidate)
            self._candidates[candidate.id] = candidate

    def of(self, candidate: str) -> Row:
        """What is known of a candidate."""
        row = self._rows.get(candidate)
        if row is None:
            row = self._rows[candidate] = {}
            if candidate in self.elsewhere:
                for job, outcome in self._journal.outcomes([candidate]):
                    if answered(outcome):
                        row[job.purpose, Pair(job.case_id, job.repeat)] = outcome
        return row

    def add(self, job: Job, outcome: Outcome) -> None:
        """A pair was finished."""
        self.of(job.candidate_id)[job.purpose, Pair(job.case_id, job.repeat)] = outcome

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
