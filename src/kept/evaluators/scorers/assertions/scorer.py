"""Assertions scorer: the weighted mean of the assertions of a case, and pass or fail.

Expressions run in a separate process if a text could make them slow. Python runs in processes of
its own. Model-graded assertions ask a judge, each in a scope of its own.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.evaluators.scorers.assertions.deterministic import compared, quoted
from kept.evaluators.scorers.assertions.llm import GRADED, Asked, graded
from kept.evaluators.scorers.assertions.python import PythonAssertions
from kept.evaluators.scorers.assertions.spec import Assertion, Grade, read_assertions, single, total
from kept.evaluators.scorers.rules import Bounded, Matches, Patience

PASS = "pass"


class AssertionsScorer:
    """Scorer that grades every assertion of a case."""

    def __init__(
        self,
        field: str,
        judge: Model | None,
        timeout: float,
        *,
        folder: Path,
        seen: tuple[str, ...] = (),
        passed_on: tuple[str, ...] = (),
    ) -> None:
        """Take the case field with the assertions, and the fields that judges and functions see."""
        self._field = field
        self._judge = judge
        self._timeout = timeout
        self._seen = seen
        self._bounded = Bounded()
        self._python = PythonAssertions(folder, timeout, passed_on)

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Grade all assertions concurrently."""
        data = cast("Mapping[str, object]", case.data)
        assertions = read_assertions(data.get(self._field))
        given = {name: data.get(name) for name in self._seen}
        places = dict(single(assertions))
        patience = Patience(self._timeout)
        asked = [
            self._grade(one, Asked(job, rollout, given, scope.branch(f"assert-{place}")), patience)
            for place, one in places.items()
        ]
        grades = dict(zip(places, await asyncio.gather(*asked), strict=True))
        for place, grade in grades.items():
            if isinstance(grade, Failure):
                return replace(grade, message=f"`{places[place].name}`: {grade.message}")
        known = {place: grade for place, grade in grades.items() if isinstance(grade, Grade)}
        whole = total(assertions, known)
        metrics = {**rollout.metrics, **whole.metrics}
        metrics |= {"score": whole.grade.score, PASS: float(whole.grade.passed)}
        return Score(metrics, tuple(_findings(whole.told)))

    async def close(self) -> None:
        """End the processes."""
        self._bounded.close()
        self._python.close()

    async def _grade(self, one: Assertion, asked: Asked, patience: Patience) -> Grade | Failure:
        output = asked.rollout.output
        if one.type in GRADED:
            assert self._judge is not None, "a task that has nobody to grade is refused"
            return await graded(one, asked, self._judge, self._timeout)
        if one.type == "python":
            return await self._python.grade(one, asked)
        if one.type == "regex":
            return await self._matched(one, output, patience)
        return compared(one, output, asked.rollout.metrics)

    async def _matched(self, one: Assertion, output: str, patience: Patience) -> Grade | Failure:
        check = Matches(pattern_of(str(one.value)), not one.negated, by_line=False)
        if check.quick(output):
            measured = check.measure(output, "")
        else:
            measured = await self._bounded.measure("regex", check, output, patience)
        if isinstance(measured, Failure):
            return measured
        if measured.broken is None:
            return Grade(True, 1.0)
        how = "matches, and must not" if one.negated else "does not match"
        return Grade(False, 0.0, f"the output {quoted(output)} {how}")


def pattern_of(text: str) -> str:
    """JavaScript regular expression in Python's syntax."""
    return text.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!")


def _findings(told: Sequence[tuple[Assertion, Grade]]) -> list[Finding]:
    """Findings: reasons of failed assertions, and remarks on passed ones."""
    found: list[Finding] = []
    for one, grade in told:
        if grade.passed and not grade.reason:
            continue
        severity = "low" if grade.passed else "high" if one.weight else "medium"
        held = "holds" if grade.passed else "does not hold"
        found.append(Finding(f"{one.name} {held}: {grade.reason}", severity, one.metric))
    return found
