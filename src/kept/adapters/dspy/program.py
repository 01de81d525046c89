"""DSPy modules: candidate texts, demo proposer, error attribution and rollouts.

Each predictor of a `dspy.Module` yields two texts: its instructions, and its demos as JSON.
Candidate texts are set on a copy of the module. The proposer of demos takes traces of predictors
from train cases that went well. Each rollout runs the module on one example and lets the metric
score it. Exceptions inside the module are attributed to the candidate or to infrastructure.
"""

import contextvars
import hashlib
import inspect
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, NamedTuple, cast

from kept.adapters.arguments import plain, source_of_kind, source_of_model
from kept.adapters.reflection import findings_in, records_in, trace_of
from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.edit import Write
from kept.core.parsing import parse_json
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Blame, Failure, FailureKind, Job, Pair, Rollout, Usage
from kept.core.score import Outcome, Score
from kept.core.untyped import dicts_in, is_list
from kept.engine.user_code import Threads
from kept.errors import KeptError, SetupError
from kept.evaluators.runners.function import LONGEST, failure_of, number_of
from kept.recipes.function.compile import source_of

INSTRUCTIONS, DEMOS = ".instructions", ".demos"


class Unreadable(KeptError):
    """Demos of a candidate that are not a list of examples."""


class Program:
    """A module and the texts in it that may change."""

    def __init__(self, module: Any, *, demos: bool) -> None:  # noqa: ANN401 # a dspy.Module
        self._module = module
        self.texts: dict[str, str] = {}
        for name, predictor in module.named_predictors():
            self.texts[name + INSTRUCTIONS] = predictor.signature.instructions
            if demos or predictor.demos:
                self.texts[name + DEMOS] = written(
                    [dict(cast("Mapping[str, Any]", plain(demo))) for demo in predictor.demos]
                )
        if not self.texts:
            hint = "give a module that holds a dspy.Predict, or something made of it"
            raise SetupError("the module has no predictors to improve", hint=hint)

    @property
    def instructions(self) -> tuple[str, ...]:
        """Names of the texts that are instructions."""
        return tuple(name for name in self.texts if name.endswith(INSTRUCTIONS))

    def sources(self) -> Iterator[str]:
        """Fingerprint parts of this module and the models that are set now."""
        for name, part in self._module.named_sub_modules():
            # a class of dspy counts by its name, a class of the user by its source text
            kind = type(cast("object", part))
            theirs = kind.__module__.partition(".")[0] == "dspy"
            yield f"{name}: {kind.__qualname__ if theirs else source_of_kind(part)}"
        for name, predictor in self._module.named_predictors():
            yield f"{name}: {predictor.signature.fields.keys()} {source_of_model(predictor.lm)}"
        yield source_of_model(import_module("dspy").settings.lm)

    def built(self, texts: Mapping[str, str]) -> Any:  # noqa: ANN401 # a dspy.Module
        """A copy with these texts; the module itself stays as it is."""
        module = self._module.deepcopy()
        for name, predictor in module.named_predictors():
            told = texts[name + INSTRUCTIONS]
            if told != predictor.signature.instructions:
                predictor.signature = predictor.signature.with_instructions(told)
            demos = texts.get(name + DEMOS)
            # unchanged demos stay as they are: they may hold objects that JSON cannot express
            if demos is not None and demos != self.texts[name + DEMOS]:
                predictor.demos = _examples(name, demos)
        return module


def written(demos: list[dict[str, Any]]) -> str:
    """Demos as JSON text, one per line, so that a diff shows each changed demo as one line."""
    rows = ",\n".join(json.dumps(demo, ensure_ascii=False, default=str) for demo in demos)
    return f"[\n{rows}\n]\n" if rows else "[]\n"


def _examples(name: str, text: str) -> list[Any]:
    try:
        rows = parse_json(text)
    except ValueError as error:
        raise Unreadable(f"the demos of `{name}` are no JSON: {error}") from error
    found = dicts_in(rows)
    if not is_list(rows) or len(found) < len(rows):
        raise Unreadable(f"the demos of `{name}` are no list of examples")
    example = import_module("dspy").Example
    return [example(**row) for row in found]


@dataclass(frozen=True, slots=True)
class Demos:
    """Implements `kept.core.ports.Proposer`."""

    most: int = 4
    """Maximum number of demos per predictor."""
    name: str = "demos"
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose demos from well-scored traces, for every predictor that takes demos."""
        draw = random.Random(brief.seed)
        # first call: ask for feedback rollouts; second call: build demos from their traces
        if not brief.answers:
            drawn = draw.sample(brief.train, self.most_asked(brief.train))
            return Ask(brief.incumbent.id, tuple(Pair(c.id, 0) for c in drawn), "feedback")
        (answer,) = brief.answers
        good = [p for p, o in answer.outcomes.items() if _value(brief, o) > 0]
        if not good:
            return Skip("no case that was looked at went well")
        # best scores first; ties in random order, as the list was shuffled before a stable sort
        draw.shuffle(good)
        good.sort(key=lambda pair: -_value(brief, answer.outcomes[pair]))
        chosen = good[: draw.randint(1, self.most)]
        edits: list[Write] = []
        for path in sorted(p for p in brief.incumbent.texts if p.endswith(DEMOS)):
            found = [records_in(answer.traces.get(pair, ()), path) for pair in chosen]
            demos = [dict(cast("Mapping[str, Any]", rows[-1]["demo"])) for rows in found if rows]
            if demos:
                edits.append(Write(path, written(demos)))
        if not edits:
            return Skip("nothing was recorded of the cases that went well")
        told = ", ".join(pair.case for pair in chosen)
        return Proposal(tuple(edits), f"demos of what went well on {told}")

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of cases requested first in each step."""
        return min(2 * self.most, len(train))


def _value(brief: Brief, outcome: Outcome) -> float:
    return 0.0 if outcome.failure else outcome.metrics.get(brief.objective.metric, 0.0)


_CODES: dict[str, tuple[FailureKind, Blame]] = {
    "adapter_parse_error": ("parse", "candidate"),
    "context_window_exceeded": ("context", "candidate"),
    "rate_limit": ("rate_limit", "infrastructure"),
    "timeout": ("network", "infrastructure"),
    "server": ("server", "infrastructure"),
    "transport": ("network", "infrastructure"),
    "lock_timeout": ("network", "infrastructure"),
    # a text cannot cause these, and a retry does not help either
    "auth": ("harness", "infrastructure"),
    "billing": ("harness", "infrastructure"),
    "configuration": ("harness", "infrastructure"),
    "not_configured": ("harness", "infrastructure"),
    "unsupported_model": ("harness", "infrastructure"),
    "unsupported_feature": ("harness", "infrastructure"),
}
"""Failure kind and blame, by the error code of a dspy exception."""


def trouble_of(error: BaseException) -> Failure:
    """Convert an exception into a failure."""
    tame = error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")
    failure = failure_of(tame)
    if not type(error).__module__.startswith("dspy."):
        return failure
    code = getattr(error, "code", None)
    if code == "unexpected" and error.__cause__ is not None:
        return trouble_of(error.__cause__)
    kind, blame = _CODES.get(str(code), (failure.kind, failure.blame))
    return replace(failure, kind=kind, blame=blame)


def usage_of(module: Any, tracker: Any) -> Usage:  # noqa: ANN401 # dspy's
    """Usage of the calls in one rollout: tokens from dspy's tracker, cost from its history.

    Replies from the cache cost nothing here: they were paid for earlier.
    """
    entries = [entry for entries in tracker.usage_data.values() for entry in entries]
    paid = [row for row in module.history if not getattr(row["response"], "cache_hit", False)]
    return Usage(
        calls=len(entries),
        tokens_in=sum(int(entry.get("prompt_tokens") or 0) for entry in entries),
        tokens_out=sum(int(entry.get("completion_tokens") or 0) for entry in entries),
        usd=sum(float(row.get("cost") or 0.0) for row in paid),
    )


METRIC = "score"


@dataclass(frozen=True, slots=True)
class Measured:
    """Values and feedback that a metric returned."""

    metrics: Mapping[str, float]
    feedback: str = ""


class Ran(NamedTuple):
    """A module after its run."""

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
        # settings of an enclosing `with dspy.context(…)` apply in the worker threads too
        self._context = contextvars.copy_context()
        self.source = "\n".join([source_of(metric), *program.sources()])
        """Fingerprint of metric, module and model, so that resume detects changes."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run a copy of the module once, in a thread."""
        run = self._context.copy().run
        return await self._threads.call(run, self._once, job, candidate, self._items[case.id])

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score with the values that the metric returned during the run."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """Close the thread pool.

        A thread still inside the module cannot be stopped and is abandoned.
        """
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
        """Give the models a cache key per rollout, so that repeats are independent.

        The same repeat of the same run may still come from dspy's cache.
        """
        dspy: Any = import_module("dspy")
        name = f"{self._seed} {job.purpose} {job.repeat}"
        draw = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")

        # at temperature 0 repeats are meant to be equal, so the cache may answer
        def apart(lm: Any) -> Any:  # noqa: ANN401 # an LM
            if not isinstance(lm, dspy.LM) or not lm.cache or lm.kwargs.get("temperature") == 0:
                return lm
            return lm.copy(rollout_id=draw)

        for _, predictor in module.named_predictors():
            predictor.lm = apart(predictor.lm)
        return apart(dspy.settings.lm)

    def _measured(self, example: Any, answer: Any) -> Measured | Failure:  # noqa: ANN401 # theirs
        try:
            # None for each further argument that the metric insists on: a trace, a predictor
            rest = [None for p in _names(self._metric)[2:] if p.default is p.empty]
            told = self._metric(example, answer, *rest)
        except (Exception, SystemExit) as error:  # noqa: BLE001 # the port wrapper: theirs is a value
            failure = trouble_of(error)
            if failure.blame == "infrastructure":
                return replace(failure, scoring=True)
            # if the incumbent scores on this case, the candidate is blamed after all
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
        """Inputs and outputs of each predictor, listed under each of its texts."""
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
        """Feedback for one predictor, if the metric takes a predictor; otherwise empty."""
        # dspy's form: metric(example, prediction, trace, predictor name, predictor trace)
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
