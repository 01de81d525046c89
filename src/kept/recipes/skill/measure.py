"""Measurement of a skill on one split, and agent metrics for its answers.

A measuring run proposes and changes nothing. Metrics are `env.metrics` of a config with `jsonl`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import Budget
from kept.core.case import SPLITS, Case, Split
from kept.core.event import SpecSettings
from kept.core.llm import PASSED
from kept.core.objective import Objective
from kept.core.plan import SKILL, Plan
from kept.core.ports import Model
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.errors import Problem, SetupError, SpecError
from kept.evaluators.environments.base import EnvSettings, Opened
from kept.evaluators.environments.chat_student import answer_in
from kept.evaluators.environments.jsonl import Jsonl
from kept.evaluators.metrics.code_grader import problem_with_grader
from kept.evaluators.metrics.config import CodeMetric, Metric, RagMetric, read_metrics
from kept.evaluators.metrics.evaluate import Means, faults_of, is_judged
from kept.evaluators.metrics.llm_graded import NEEDS_CONTEXT
from kept.evaluators.metrics.scorer import AnswerScorer, DialogueScorer
from kept.evaluators.scorers.transforms import Passing
from kept.gates.fixed_cases import Sweep
from kept.models.providers import ModelConfig
from kept.models.roles import connect_uncached, is_priced, probes_of
from kept.proposers.variants import SEED_ALONE
from kept.recipes.agent_config.spec.common import LlmSpec
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec
from kept.recipes.base import Compiled, Facts
from kept.recipes.evaluate.compile import as_sweep
from kept.recipes.evaluate.request import Evaluation, Wanted
from kept.recipes.skill.environment import (
    METRICS,
    check_money,
    has_problems,
    heard,
    judge_charges,
    open_skill,
)
from kept.recipes.skill.read import SkillSpec, read_skill
from kept.recipes.skill.standalone import check_document, script_views
from kept.recipes.task.make_coding_agent import hash_of

NAMES: Mapping[str, tuple[Split, ...]] = {
    "train": ("train",),
    "val": ("holdout",),
    "selection": ("holdout",),
    "valid_seen": ("holdout",),
    "holdout": ("holdout",),
    "test": ("test",),
    "valid_unseen": ("test",),
    "all": SPLITS,
}
"""Splits by all their names."""

ASKED = ("prompt", "mode")
"""Options of environments that a report names: they shape the student's requests."""


def compile_measure(
    path: Path,
    wanted: Wanted,
    overrides: Sequence[str] = (),
    *,
    workers: int | None = None,
    folder: Path | None = None,
    problems: Sequence[Problem] = (),
) -> Compiled:
    """Compile the plan that measures the skill of a config; `SpecError` with all problems.

    `problems` are those of the command line that the overrides come from.
    """
    spec = read_skill(path, overrides, folder)
    spec.source.problems += problems
    opened = open_skill(spec, deciding=False)
    if not has_problems(spec, "model"):
        heard(spec, lambda: check_money(spec, spec.student), ("budget", "max_usd"))
    spec.source.check()
    assert opened is not None, "what keeps it is reported"
    check_document(opened, wanted.output_json)
    split, cases = cases_of(opened, wanted.split)
    plan = Plan(
        recipe=SKILL,
        seed=Candidate(dict(opened.skill)),
        rules=Rules({name: Artifact(name) for name in opened.skill}),
        # the measured cases stand as holdout cases, whatever their split
        cases=replace(opened.cases, train=(), holdout=cases, test=()),
        runner=opened.runner,
        scorer=Passing(opened.scorer),
        objective=Objective(PASSED, "maximize", (0.0, 1.0)),
        proposers=(SEED_ALONE,),
        schedule=Turns(MEASURE, 1),
        gate=Sweep(),
        budget=Budget(
            max_minutes=spec.budget.max_minutes,
            max_usd=spec.budget.max_usd,
            max_rollouts=spec.budget.max_rollouts,
        ),
        workers=workers or spec.env.workers,
        probes=probes_of(
            [],
            [
                ("target", spec.student if spec.agent is None else None),
                ("judge", opened.judge),
            ],
        ),
        inputs={**(opened.inputs or {}), "config": hash_of(_deciding(spec))},
        views=script_views(spec, opened, cases, wanted.output_json),
        spec=SpecSettings(
            path=str(spec.source.path.resolve()), overrides=tuple(overrides), id=opened.name
        ),
        facts=Facts(charges=judge_charges(opened.judge)),
    )
    asked = {name: spec.told()["env"].get(name) for name in ASKED}
    agent = {
        "student": spec.agent or (spec.student.name if spec.student else ""),
        "skill": Candidate(dict(opened.skill)).id,
        **{k: v for k, v in asked.items() if v},
    }
    evaluation = Evaluation(of=SKILL, wanted=wanted, folder=str(spec.folder))
    warnings = [*opened.ignored]
    if spec.student is not None and not is_priced(spec.student):
        warnings.append(
            f"the price of `{spec.student.name}` is not known: what it costs is not counted"
        )
    plan = as_sweep(plan, evaluation, f"{opened.name}, {split}", agent)
    return Compiled(plan, tuple(warnings))


def cases_of(opened: Opened, name: str) -> tuple[str, tuple[Case, ...]]:
    """Return the name and the cases of a split; without a name, of test or else selection cases."""
    if name and name not in NAMES:
        raise SetupError(f"there is no split `{name}`", hint=f"there are {', '.join(NAMES)}")
    if not name:
        name = next((one for one in ("test", "selection") if opened.cases.of(NAMES[one][0])), "all")
    found = tuple(case for split in NAMES[name] for case in opened.cases.of(split))
    if not found:
        raise SetupError(f"the split `{name}` of `{opened.name}` has no cases")
    return name, found


def _deciding(spec: SkillSpec) -> dict[str, object]:
    """Return the parts of the config that scores depend on: models and environment."""
    told = spec.told()
    other = ("out_root", "exports", "workers", "skill_init", "limit")
    env = {k: v for k, v in told["env"].items() if k not in other}
    return {"model": told["model"], "env": env}


_NAME = "jsonl"
_FIELDS = ("question_field", "answer_field", "context_field")


def metric_scorer(spec: SkillSpec, settings: EnvSettings) -> AnswerScorer:
    """Build the scorer for `env.metrics`; raises `SpecError` for wrong metrics."""
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
        # metrics compare with a single answer: the first of several
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
    """Yield what a metric needs of the config and does not find, with hints."""
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
        problems: list[Problem] = []
        for fault in error.errors(include_url=False):
            parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"])
            path = f"env.metrics{''.join(parts)}"
            problems.append(Problem(settings.where(METRICS), path, fault["msg"]))
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


def _judge(spec: SkillSpec, said: Mapping[str, object] | None) -> ModelConfig | None:
    return LlmSpec.model_validate(said).config(spec.folder) if said else spec.teacher


def _judges(spec: SkillSpec) -> Any:  # noqa: ANN401 # a function of what a metric says of its judge
    # metrics with the same judge share its client
    known: dict[ModelConfig, Model] = {}

    def judge_of(said: Mapping[str, object] | None) -> Model | None:
        """Return the judge that a metric names, else the teacher; one client for each config."""
        config = _judge(spec, said)
        if config is None:
            return None
        if config not in known:
            known[config] = connect_uncached(config)
        return known[config]

    return judge_of
