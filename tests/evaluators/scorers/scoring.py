"""Scoring one rollout by hand."""

import asyncio

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.testing import MemoryJournal

CANDIDATE = Candidate({"prompt.md": "hello\n"})
CASE = Case("case-1", {"answer": 2})
EMPTY = Rollout()


def score(
    scorer: Scorer, rollout: Rollout = EMPTY, candidate: Candidate = CANDIDATE, case: Case = CASE
) -> Score | Failure:
    """What a scorer says; it can be asked again."""
    job = Job(candidate.id, case.id, 0, "decide")
    scope = JournalScope(MemoryJournal(), job)
    return asyncio.run(scorer.score(job, rollout, candidate, case, scope))
