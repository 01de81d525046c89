"""Runs a module on an example with the texts of a candidate, and has the metric score it."""

import contextvars
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple

from kept.adapters.dspy.program import DEMOS, INSTRUCTIONS, Program, Unreadable
from kept.adapters.dspy.trouble import trouble_of, usage_of
from kept.adapters.records import findings_in, trace_of
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.engine.threads import Threads
from kept.evaluators.runners.function import LONGEST, number_of
from kept.recipes.function.compile import source_of

METRIC = "score"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a metric said."""

    metrics: Mapping[str, float]
    feedback: str = ""


class Ran(NamedTuple):
    """A module that has run."""

    module: Any
    example: Any
    answer: Any
    trace: list[tuple[Any, ...]]
    """Predictor, inputs and prediction of each call."""


class ModuleRunner:
    """Implements `Runner` and `Scorer`."""

    def __init__(
        self,
        program: Program,
        metric: Callable[..., Any],
        items: Mapping[str, Any],
        *,
        workers: int,
        seed: int,
    ) -> None:
        self._program = program
        self._metric = metric
        self._items = items
        self._seed = seed
        self._threads = Threads(workers)
        # what was said by `with dspy.context(…)` round the call holds in its threads too
        self._context = contextvars.copy_context()
        self.source = "\n".join([source_of(metric), *program.sources()])
        """By which a resume notices another metric, module or model."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run a copy of the module once, in a thread."""
        run = self._context.copy().run
        return await self._threads.call(run, self._once, job, candidate, self._items[case.id])

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """What the metric said."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """Let the threads end; one that is still in the module cannot be stopped, only left."""
        self._threads.close()

    def _once(self, job: Job, candidate: Candidate, example: Any) -> Rollout | Failure:  # noqa: ANN401 # an Example
        dspy: Any = import_module("dspy")
        try:
            module = self._program.built(candidate.texts)
        except Unreadable as error:
            return Failure("parse", "candidate", str(error))
        trace: list[tuple[Any, ...]] = []
        lm = self._fresh(module, job)
        with dspy.context(trace=trace, lm=lm), dspy.track_usage() as tracker:
            try:
                answer = module(**example.inputs())
            except (Exception, SystemExit) as error:  # noqa: BLE001 # the port wrapper: theirs is a value
                return replace(trouble_of(error), usage=usage_of(module, tracker))
            told = self._measured(example, answer)
            used = usage_of(module, tracker)
            if isinstance(told, Failure):
                return replace(told, usage=used)
            seen = job.purpose in ("feedback", "probe")
            ran = Ran(module, example, answer, trace)
            records = dict(self._records(ran, told)) if seen else {}
        return Rollout(metrics=told.metrics, trace=tuple(trace_of(records)), usage=used)

    def _fresh(self, module: Any, job: Job) -> Any:  # noqa: ANN401 # a dspy.Module, an LM
        """Have every draw be one: what dspy's cache would answer alike is told apart by the draw.

        The same draw of the same run may come from the cache.
        """
        dspy: Any = import_module("dspy")
        name = f"{self._seed} {job.purpose} {job.repeat}"
        draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

        def apart(lm: Any) -> Any:  # noqa: ANN401 # an LM
            if not isinstance(lm, dspy.LM) or not lm.cache or lm.kwargs.get("temperature") == 0:
                return lm
            return lm.copy(rollout_id=draw)

        for _, predictor in module.named_predictors():
            predictor.lm = apart(predictor.lm)
        return apart(dspy.settings.lm)

    def _measured(self, example: Any, answer: Any) -> Measured | Failure:  # noqa: ANN401 # theirs
        try:
            told = self._metric(example, answer, *_nothing(self._metric, 2))
        except (Exception, SystemExit) as error:  # noqa: BLE001 # the port wrapper: theirs is a value
            failure = trouble_of(error)
            if failure.blame == "infrastructure":
                return replace(failure, scoring=True)
            # where the incumbent can be scored on this, it is the candidate's after all
            words = f"the metric failed: {failure.message}"
            return replace(
                failure, kind="harness", blame="infrastructure", message=words, scoring=True
            )
        value = getattr(told, "score", told)
        found = {METRIC: number_of(value)}
        others: Mapping[str, Any] = getattr(told, "objective_scores", None) or {}
        found |= {str(name): number_of(one) for name, one in others.items() if name != METRIC}
        strange = [name for name, one in found.items() if one is None]
        if strange:
            words = f"the metric returned {told!r:.200}, which is no number"
            return Failure("harness", "infrastructure", words[:LONGEST], scoring=True)
        feedback = str(getattr(told, "feedback", "") or "")
        return Measured({k: v for k, v in found.items() if v is not None}, feedback)

    def _records(self, ran: Ran, told: Measured) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """For each text, what its predictor was given and made of it."""
        for name, predictor in ran.module.named_predictors():
            calls = [call for call in ran.trace if call[0] is predictor]
            rows: list[dict[str, Any]] = []
            for call in calls:
                words = self._feedback(ran, name, call) or told.feedback
                record = {"Inputs": dict(call[1]), "Generated Outputs": call[2].toDict()}
                rows.append({**record, "Feedback": words or f"score {told.metrics[METRIC]:g}"})
            yield name + INSTRUCTIONS, rows
            if name + DEMOS in self._program.texts:
                demos = [{"demo": {**call[1], **call[2].toDict()}} for call in calls[-1:]]
                yield name + DEMOS, demos

    def _feedback(self, ran: Ran, name: str, call: tuple[Any, ...]) -> str:
        """What a metric that asks for the predictor says of it in particular."""
        if len(_names(self._metric)) < 5:
            return ""
        try:
            told = self._metric(ran.example, ran.answer, ran.trace, name, [call])
        except Exception as error:  # noqa: BLE001 # the port wrapper: the score is there without it
            return f"the metric failed on this predictor: {trouble_of(error).message}"
        return str(getattr(told, "feedback", "") or "")


def _names(metric: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(metric).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _nothing(metric: Callable[..., Any], given: int) -> list[None]:
    """None for each argument that a metric insists on: a trace, a predictor."""
    return [None for p in _names(metric)[given:] if p.default is p.empty]
