"""Conformance suite for environments.

Subclass it. Implement a constructor, a path with some data, and replies of a student that solve a
case and that fail it.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kept.core.artifact import Candidate
from kept.core.case import Case, case_text
from kept.core.llm import ModelRequest
from kept.core.ports import Model
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.evaluators.environments.base import HARD, SKILL, SOFT, VERIFICATION, Environment, Item
from kept.evaluators.environments.chat_student import ChatRunner, EnvScorer
from kept.evaluators.environments.registry import missing
from kept.models.prompts import SKILL_FILES
from kept.models.scripted import Line, ScriptedModel
from kept.testing.journal import MemoryJournal

T = TypeVar("T")

LONG = 40
"""Characters of a reference that is too long to be in a prompt by chance."""

ROLES = (
    *("system", "user", "assistant", "tool", "step", "info", "failure", "session", "thought"),
    VERIFICATION,
)


class EnvironmentSuite:
    """Subclass it and implement `make_env`, `data`, `solving` and `failing`."""

    def make_env(self) -> Environment:
        """A fresh environment."""
        raise NotImplementedError

    def data(self) -> Path:
        """Path of a file or folder with at least two cases."""
        raise NotImplementedError

    def solving(self, case: Case) -> Sequence[Line] | Callable[[ModelRequest], Line]:
        """Replies of a student, turn by turn, that solve the case."""
        raise NotImplementedError

    def failing(self, case: Case) -> Sequence[Line] | Callable[[ModelRequest], Line]:
        """Replies of a student that fail the case and can be graded."""
        raise NotImplementedError

    def judge(self) -> Model | None:
        """Model for decisions that the rules cannot make; None if there are none."""
        return None

    def metrics(self) -> Sequence[str]:
        """Metrics besides `hard` and `soft` that every graded case has."""
        return ()

    def test_it_is_an_environment(self) -> None:
        """It implements every required member."""
        env = self.make_env()
        lacks = missing(env)
        assert not lacks, f"it lacks {', '.join(lacks)}"
        assert env.name, "it has a name"
        assert SKILL in env.skill(), f"it has a skill to begin with, {SKILL}"
        assert env.turns() >= 1, "a student says something at least once"
        strange = sorted({*env.prompts()} - {*SKILL_FILES})
        assert not strange, f"nobody asks for its prompts {', '.join(strange)}"

    def test_it_reads_the_same_cases_each_time(self) -> None:
        """Cases have unique ids, a location each, and content that fits into JSON."""
        first, second = self._items(), self._items()
        assert len(first) >= 2, "two cases are the least to look at"
        assert first == second, "a second reading brings other cases"
        ids = [one.case.id for one in first]
        assert len(set(ids)) == len(ids), "two cases have one id"
        for case, where in first:
            assert ":" in where, f"`{where}` is no file:line"
            assert json.loads(json.dumps(case.data)) == case.data, f"{case.id} is no JSON"

    def test_what_is_written_is_read_back(self) -> None:
        """A generated split reads like a hand-made folder."""
        items = self._items()
        rows: list[dict[str, object]] = []
        for case, _ in items:
            assert isinstance(case.data, dict), f"{case.id} is no mapping: {case_text(case)}"
            fields = {str(key): value for key, value in case.data.items()}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType,reportUnknownMemberType] # any mapping
            rows.append({"id": case.id, **fields})
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "items.json")
            path.write_text(json.dumps(rows), encoding="utf-8")
            again = [case for case, _ in self.make_env().read(Path(folder))]
        assert again == [case for case, _ in items]

    def test_posing_gives_nothing_away(self) -> None:
        """A case is posed identically each time, and its prompt does not contain the reference."""
        env = self.make_env()
        for case, _ in self._items():
            if env.simulates:
                continue
            posed = env.pose(case)
            assert posed == env.pose(case), f"{case.id} is posed differently each time"
            assert posed.prompt.strip(), f"{case.id} has no prompt"
            reference = env.about(case).reference
            given_away = len(reference) > LONG and reference in posed.prompt
            assert not given_away, f"the prompt of {case.id} holds its reference"

    def test_an_analyst_is_told_of_every_case(self) -> None:
        """Every case has a task description."""
        env = self.make_env()
        for case, _ in self._items():
            assert env.about(case).task.strip(), f"nothing is told of {case.id}"

    def test_a_solved_case_is_hard_one(self) -> None:
        """A solved case has full scores and no findings."""
        for case, _ in self._items()[:2]:
            _, score = self._rolled(case, self.solving(case))
            assert isinstance(score, Score), f"{case.id}: {score}"
            assert score.failure is None, f"{case.id}: {score.failure}"
            assert score.metrics[HARD] == 1, f"{case.id} is not solved: {score}"
            assert score.metrics[SOFT] == 1, f"{case.id} is solved in parts: {score}"
            assert not score.findings, f"{case.id} is solved, and faulted: {score.findings}"
            assert set(self.metrics()) <= set(score.metrics)

    def test_a_case_that_is_not_solved_says_why(self) -> None:
        """A failed case has `hard` below 1, and findings that do not quote the reference."""
        env = self.make_env()
        for case, _ in self._items()[:2]:
            _, score = self._rolled(case, self.failing(case))
            assert isinstance(score, Score), f"{case.id}: {score}"
            assert score.failure is None, f"{case.id}: {score.failure}"
            assert 0 <= score.metrics[HARD] < 1, f"{case.id} is solved: {score}"
            assert 0 <= score.metrics[SOFT] <= 1
            assert score.findings, f"{case.id} fails for no reason"
            reference = env.about(case).reference
            for finding in score.findings:
                leaked = len(reference) > LONG and reference in finding.text
                assert not leaked, f"a finding of {case.id} holds the reference"

    def test_the_trace_can_be_rendered(self) -> None:
        """The trace has prompts, actions and the scorer's verification, in known roles."""
        case = self._items()[0].case
        rollout, score = self._rolled(case, self.solving(case))
        assert isinstance(rollout, Rollout)
        assert isinstance(score, Score)
        told = (*rollout.trace, *score.details)
        roles = [item.role for item in told]
        assert "user" in roles, "the trace has no prompt"
        assert {"assistant", "step"} & set(roles), "the trace does not say what the student did"
        assert roles[-1] == VERIFICATION, "the trace does not end with what the scorer says"
        for item in told:
            assert item.role in ROLES, f"an analyst cannot be shown `{item.role}`"
            data = dict(item.data)
            assert json.loads(json.dumps(data)) == data, f"{item.role} is no JSON"
            if item.role == "step":
                assert {"step", "action"} <= set(data), "a step has its number and its action"

    def test_an_outage_is_no_rollout(self) -> None:
        """An outage gives no score: a failure instead of a rollout, and no zero."""
        away = Failure("server", "infrastructure", "503 for now", tried=True)
        case = self._items()[0].case
        rollout, score = self._rolled(case, lambda _: away)
        assert isinstance(rollout, Failure), "an outage became a rollout"
        assert rollout.blame == "infrastructure"
        assert score is None

    def test_saying_nothing_is_the_students_failure(self) -> None:
        """An empty answer is a failure of the candidate without a score; its trace is kept."""
        case = self._items()[0].case
        rollout, score = self._rolled(case, lambda _: " ")
        assert isinstance(rollout, Rollout), "an empty answer loses the trace"
        assert isinstance(score, Score)
        assert score.failure is not None, "an empty answer has a score"
        assert score.failure.blame == "candidate"
        assert HARD not in score.metrics

    def test_the_same_rollout_has_the_same_score(self) -> None:
        """Scoring a rollout is repeatable."""
        case = self._items()[0].case
        script = self.failing(case)
        assert self._rolled(case, script)[1] == self._rolled(case, script)[1]

    def _items(self) -> list[Item]:
        return list(self.make_env().read(self.data()))

    def _rolled(
        self, case: Case, script: Sequence[Line] | Callable[[ModelRequest], Line]
    ) -> tuple[Rollout | Failure, Score | Failure | None]:
        return asyncio.run(self._roll(case, script))

    async def _roll(
        self, case: Case, script: Sequence[Line] | Callable[[ModelRequest], Line]
    ) -> tuple[Rollout | Failure, Score | Failure | None]:
        env = self.make_env()
        runner = ChatRunner(env, ScriptedModel(script))
        scorer = env.scorer() or EnvScorer(env, self.judge())
        candidate = Candidate(env.skill())
        job = Job(candidate.id, case.id, 0, "decide")
        scope = JournalScope(MemoryJournal(), job)
        try:
            rollout = await runner.run(job, candidate, case, scope)
            if isinstance(rollout, Failure):
                return rollout, None
            return rollout, await scorer.score(job, rollout, candidate, case, scope)
        finally:
            await runner.close()
            await scorer.close()
