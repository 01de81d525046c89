"""Composite scorer: the weighted mean of several.

Measures of a part have its name as prefix: `style.score`. If a part fails, so does the whole: a
mean over the working parts would not be comparable.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope, Scorer
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score
from kept.evaluators.scorers.registry import SCORERS
from kept.spec.components import BuildContext, CheckContext, Component, Needs, joined
from kept.spec.validate import Finite, SpecModel, Text


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a composite scorer."""

    name: str
    scorer: Scorer
    weight: float = 1.0
    metric: str = "score"
    """Metric of the part that counts."""
    bounds: tuple[float, float] | None = None
    """Values of the metric that count as 0 and as 1; the first may be the greater. None to use the
    metric unchanged."""

    def value(self, metrics: Mapping[str, float]) -> float:
        """Contribution of the part to the mean."""
        raw = metrics[self.metric]
        if self.bounds is None:
            return raw
        zero, one = self.bounds
        return min(1.0, max(0.0, (raw - zero) / (one - zero)))


class CompositeScorer:
    """Scorer that combines its parts."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self._total = sum(part.weight for part in parts)

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Run all parts concurrently, each in a scope of its own."""
        asked = (
            part.scorer.score(job, rollout, candidate, case, scope.branch(part.name))
            for part in self._parts
        )
        said = await asyncio.gather(*asked)
        metrics = dict(rollout.metrics)
        findings: list[Finding] = []
        mean = 0.0
        for part, score in zip(self._parts, said, strict=True):
            if isinstance(score, Failure):
                return replace(score, message=f"part `{part.name}`: {score.message}")
            if part.metric not in score.metrics:
                emitted = ", ".join(f"`{name}`" for name in score.metrics) or "nothing"
                message = f"it did not emit `{part.metric}` (it emitted {emitted})"
                return Failure("harness", "infrastructure", f"part `{part.name}`: {message}")
            mean += part.weight * part.value(score.metrics) / self._total
            # skip metrics that the part only passed on from the runner
            metrics |= {
                f"{part.name}.{name}": value
                for name, value in score.metrics.items()
                if rollout.metrics.get(name) != value
            }
            for finding in score.findings:
                metric = None if finding.metric is None else f"{part.name}.{finding.metric}"
                text = f"{part.name}: {finding.text}"
                findings.append(replace(finding, text=text, metric=metric))
        metrics["score"] = mean
        return Score(metrics, tuple(findings))

    async def close(self) -> None:
        """Close every part."""
        for part in self._parts:
            await part.scorer.close()


def _part_name(text: str) -> str:
    if not re.fullmatch(r"[\w-]+", text):
        raise ValueError(f"`{text}` is not a name; write letters, digits, `-` and `_`")
    return text


class PartSpec(SpecModel):
    """One part of a composite scorer."""

    name: Annotated[Text, AfterValidator(_part_name)]
    weight: Annotated[Finite, Field(ge=0)] = 1.0
    metric: Text = "score"
    """Metric of the part that counts."""
    bounds: Annotated[tuple[Finite, Finite], Field(strict=False)] | None = None
    """Values of the metric that count as 0 and as 1; None to use the metric unchanged."""
    scorer: Annotated[SpecModel, SCORERS]

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Check that the bounds differ."""
        bounds = said.get("bounds")
        if bounds is not None and bounds[0] == bounds[1]:
            yield "`bounds` are the same: give what counts as 0 and what as 1"


class CompositeScorerSpec(SpecModel):
    """The weighted mean of several scorers."""

    type: Literal["composite"]
    parts: Annotated[tuple[PartSpec, ...], Field(strict=False)]

    @model_validator(mode="after")
    def _can_be_weighed(self) -> "CompositeScorerSpec":
        if not self.parts:
            raise ValueError("there are no parts")
        names = [part.name for part in self.parts]
        doubled = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        told = [f"two parts are named `{name}`" for name in doubled]
        if not sum(part.weight for part in self.parts):
            told.append("the weights add up to nothing")
        if told:
            raise ValueError("; ".join(told))
        return self


class CompositeComponent(Component[CompositeScorerSpec, CompositeScorer]):
    """The weighted mean of several scorers."""

    Spec = CompositeScorerSpec
    parts = ("parts", "scorer")

    def check(self, spec: CompositeScorerSpec, context: CheckContext) -> None:
        """Report an objective that it does not emit; parts are checked separately."""
        if any(context.metric.startswith(f"{part.name}.") for part in spec.parts):
            return  # only the part knows which measures it emits
        emitted = ("score", *(f"{part.name}.{part.metric}" for part in spec.parts))
        context.check_emitted(spec.type, emitted)

    def build(self, spec: CompositeScorerSpec, context: BuildContext) -> CompositeScorer:
        """Build all parts; a bare number from a part means its metric that counts."""
        made = (
            SCORERS.build(part.scorer, replace(context, metric=part.metric)) for part in spec.parts
        )
        parts = (
            Part(part.name, scorer, part.weight, part.metric, part.bounds)
            for part, scorer in zip(spec.parts, made, strict=True)
        )
        return CompositeScorer(tuple(parts))

    def needs(self, spec: CompositeScorerSpec) -> Needs:
        """Return the needs of all parts."""
        return joined(SCORERS.needs(part.scorer) for part in spec.parts)
