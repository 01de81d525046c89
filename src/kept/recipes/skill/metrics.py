"""Metrics of agent tests for answers of a skill: `env.metrics` of a config with `jsonl`."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from kept.core.case import Case
from kept.core.ports import Model
from kept.errors import Problem, SpecError
from kept.evaluators.environments.jsonl import Jsonl
from kept.evaluators.environments.replying import answer_in
from kept.evaluators.environments.settings import EnvSettings
from kept.evaluators.metrics.answers import AnswerScorer
from kept.evaluators.metrics.checking import faults_of, is_judged
from kept.evaluators.metrics.code_grader import problem_with_grader
from kept.evaluators.metrics.config import CodeMetric, Metric, RagMetric, read_metrics
from kept.evaluators.metrics.dialogue import DialogueScorer
from kept.evaluators.metrics.measuring import Means
from kept.evaluators.metrics.rag import NEEDS_CONTEXT
from kept.models.config import ModelConfig
from kept.models.roles import connect_uncached
from kept.recipes.agent_config.spec.llm import LlmSpec
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec
from kept.recipes.skill.money import check_money
from kept.recipes.skill.opening import METRICS
from kept.recipes.skill.read import SkillSpec

_NAME = "jsonl"
_FIELDS = ("question_field", "answer_field", "context_field")


def metric_scorer(spec: SkillSpec, settings: EnvSettings) -> AnswerScorer:
    """The scorer that `env.metrics` asks for."""
    rows = settings.options[METRICS]
    if settings.name != _NAME:
        message = f"only `{_NAME}` is measured by metrics; `{settings.name}` has its own"
        raise SpecError([settings.problem(METRICS, message)])
    given = {key: str(settings.options.get(key) or getattr(Jsonl, key)) for key in _FIELDS}

    def case_of(case: Case) -> Mapping[str, object]:
        data = cast("Mapping[str, Any]", case.data)
        golds: list[str] = data[given["answer_field"]]
        context = data.get(given["context_field"])
        found: dict[str, object] = {"input": data[given["question_field"]], "name": case.id}
        found |= {"ground_truth": golds[0]} if golds else {}
        return {**found, "retrieval_context": [context]} if context else found

    means = Means(_judges(spec), settings.folder)
    metrics = _metrics(settings, rows)
    lacks = [
        Problem(settings.where(METRICS), f"env.metrics[{n}]", *lack)
        for n, metric in enumerate(metrics)
        for lack in _lacks(metric, spec, given["context_field"])
    ]
    if lacks:
        raise SpecError(lacks)
    check_money(spec, *(_judge(spec, one.model) for one in metrics if is_judged(one)))
    return AnswerScorer(DialogueScorer(metrics, means), case_of, answer_in)


def _lacks(metric: Metric, spec: SkillSpec, context: str) -> Iterator[tuple[str, str]]:
    """What a metric needs of the config and would miss in every case."""
    if isinstance(metric, RagMetric) and metric.metric_type in NEEDS_CONTEXT and not context:
        hint = "give `env.context_field`, the column that has the passages"
        yield f"`{metric.metric_type}` is measured by passages, and there are none", hint
    if is_judged(metric) and spec.teacher is None and getattr(metric, "model", None) is None:
        yield "there is no judge", "give it a `model`, or name `model.optimizer`"
    if isinstance(metric, CodeMetric) and (
        fault := problem_with_grader(metric.grader, spec.folder)
    ):
        yield fault, f"modules are looked for in {spec.folder}"


def _metrics(settings: EnvSettings, rows: object) -> tuple[Metric, ...]:
    adapter: TypeAdapter[list[AnyMetricSpec]] = TypeAdapter(list[AnyMetricSpec])
    try:
        specs = adapter.validate_python(rows)
    except ValidationError as error:
        problems = [
            Problem(settings.where(METRICS), _path(fault["loc"]), fault["msg"])
            for fault in error.errors(include_url=False)
        ]
        raise SpecError(problems) from error
    metrics = read_metrics([spec.model_dump() for spec in specs])
    faults = [
        Problem(settings.where(METRICS), f"env.metrics[{n}].{key}", problem)
        for n, metric in enumerate(metrics)
        for key, problem in faults_of(metric)
    ]
    if not metrics:
        faults.append(settings.problem(METRICS, "there are none"))
    if faults:
        raise SpecError(faults)
    return metrics


def _path(loc: tuple[int | str, ...]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return f"env.metrics{''.join(parts)}"


def _judge(spec: SkillSpec, said: Mapping[str, object] | None) -> ModelConfig | None:
    return LlmSpec.model_validate(said).config(spec.folder) if said else spec.teacher


def _judges(spec: SkillSpec) -> Any:  # noqa: ANN401 # a function of what a metric says of its judge
    known: dict[ModelConfig, Model] = {}

    def judge_of(said: Mapping[str, object] | None) -> Model | None:
        """The judge that a metric names, else the teacher."""
        config = _judge(spec, said)
        if config is None:
            return None
        if config not in known:
            known[config] = connect_uncached(config)
        return known[config]

    return judge_of
