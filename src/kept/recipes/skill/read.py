"""Reader of skill configs; reports every problem at once, each with its line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from kept import settings
from kept.core.untyped import is_dict, is_list
from kept.models.providers import ModelConfig
from kept.recipes.skill.config_keys import (
    BASE,
    FLAT,
    ROLES,
    Layered,
    from_seed,
    read_layers,
    sections_of,
)
from kept.recipes.skill.config_keys import KEYS as MODEL_KEYS
from kept.recipes.skill.spec import (
    SECTIONS,
    BudgetSection,
    EnvSection,
    EvaluationSection,
    ExecSection,
    GradientSection,
    OptimizerSection,
    RolesSection,
    TrainSection,
)
from kept.spec.source import kind_of
from kept.spec.validate import SpecModel, advice, validate_given
from kept.spec.yaml import Loc

M = TypeVar("M", bound=SpecModel)

TOP = ("prompts",)
"""Top-level keys besides the sections."""

NO_OPTIONS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillSpec:
    """A skill config after validation."""

    source: Layered
    folder: Path
    """Folder that its paths are relative to: the current one, as in the method's source."""
    train: TrainSection = field(default_factory=TrainSection)
    gradient: GradientSection = field(default_factory=GradientSection)
    optimizer: OptimizerSection = field(default_factory=OptimizerSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    env: EnvSection = field(default_factory=EnvSection)
    budget: BudgetSection = field(default_factory=BudgetSection)
    run: ExecSection = field(default_factory=ExecSection)
    """Keys of `model` that do not name a model."""
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    """Keys of `env` that only the environment knows."""
    teacher: ModelConfig | None = None
    student: ModelConfig | None = None
    agent: str | None = None
    """Agent CLI of the student: `codex_exec` or `claude_code_exec`; None for a chat model."""
    student_model: str = ""
    """Model that an agent CLI uses."""
    prompts: str = ""
    """Folder with prompts that replace others."""

    def where(self, key: str) -> str:
        """Return `file:line` of a key of `env`, or of `train_size`."""
        if key == "train_size":
            return self.source.where(("train", key))
        return self.source.where(("env", key) if key else ("env",))

    def told(self) -> dict[str, Any]:
        """Return the config for records: nested, with defaults, without secrets."""
        models = {
            name: None if one is None else _without_secrets(one)
            for name, one in (("teacher", self.teacher), ("student", self.student))
        }
        run = self.run.model_dump()
        # the name of a chat model has it already
        asked = {"student_model": self.student_model} if self.agent else {}
        return {
            "model": {**models, "student_exec": self.agent, **asked, **run},
            "train": self.train.model_dump(),
            "gradient": self.gradient.model_dump(),
            "optimizer": self.optimizer.model_dump(),
            "evaluation": self.evaluation.model_dump(),
            "env": {**self.env.model_dump(), **_told_options(self.options)},
            "budget": self.budget.model_dump(),
        }


_TOLD = ("provider", "name", "temperature", "max_tokens", "top_p")
"""Keys of a judge that are recorded: its address may hold a login."""


def _told_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an environment, with only the recordable keys of its judges."""
    found = dict(options)
    judge = found.get("judge_model")
    if is_dict(judge):
        found["judge_model"] = _told_model(judge)
    metrics = found.get("metrics")
    if is_list(metrics):
        found["metrics"] = [_told_metric(one) for one in metrics]
    return found


def _told_metric(metric: object) -> object:
    if not is_dict(metric):
        return metric
    judge = metric.get("model")
    if not is_dict(judge):
        return metric
    return {**metric, "model": _told_model(judge)}


def _told_model(model: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key in _TOLD}


def _without_secrets(config: ModelConfig) -> dict[str, Any]:
    """Return a model for records without secrets: even the name of a key is left out."""
    return {
        "name": config.name,
        "effort": config.effort,
        "temperature": config.temperature,
        "max_tokens": config.max_tokens,
    }


def read_skill(path: Path, overrides: Sequence[str] = (), folder: Path | None = None) -> SkillSpec:
    """Read the config at a path, as far as it is valid.

    Problems are reported to its source, whose `check` raises them. Paths in it are relative to
    `folder`: by default the current one, wherever the config is.
    """
    folder = (folder or Path.cwd()).absolute()
    source = read_layers(path, overrides)
    data = cast("dict[str, Any]", source.data)
    for key in data:
        if key not in (*SECTIONS, *TOP, BASE):
            # suggests a section, or else a key that may stand alone
            told = advice(key, [*SECTIONS, *TOP])
            sure = "did you mean" in told
            near = [] if sure else get_close_matches(key, FLAT, n=1, cutoff=0.8)
            source.report((key,), "unknown key", f"did you mean `{near[0]}`?" if near else told)
    for name in SECTIONS:
        if data.get(name) is not None and not isinstance(data[name], dict):
            source.report((name,), f"{kind_of(data[name])}, where a mapping was expected")
            data[name] = {}
    run, roles, agent = _models(source)
    given = cast("dict[str, object]", data.get("env") or {})
    options = {key: value for key, value in given.items() if key not in EnvSection.model_fields}
    return SkillSpec(
        source=source,
        folder=folder,
        train=_section(source, "train", TrainSection),
        gradient=_section(source, "gradient", GradientSection),
        optimizer=_section(source, "optimizer", OptimizerSection),
        evaluation=_section(source, "evaluation", EvaluationSection),
        env=_section(source, "env", EnvSection, options),
        budget=_section(source, "budget", BudgetSection),
        run=run,
        options=options,
        teacher=roles.optimizer.config(folder) if roles.optimizer else None,
        student=roles.target.config(folder) if roles.target else None,
        agent=agent,
        student_model=str(sections_of(source)["model"].get("student") or ""),
        prompts=_prompts(source, data, folder),
    )


def _section(
    source: Layered, name: str, model: type[M], left_out: Mapping[str, object] = NO_OPTIONS
) -> M:
    data = cast("dict[str, Any]", source.data)
    given = cast("dict[str, object]", data.get(name) or {})
    given = {key: value for key, value in given.items() if key not in left_out}
    # a known key of another section: the hint gives its full path
    for key in [key for key in given if key not in model.model_fields and key in FLAT]:
        source.report((name, key), "unknown key", f"did you mean `{FLAT[key]}`?")
        del given[key]
    return _checked(source, (name,), model, given)


def _checked(source: Layered, loc: Loc, model: type[M], given: Mapping[str, object]) -> M:
    return validate_given(source, model, dict(given), loc) or _as_far(model, given)


def _as_far(model: type[M], given: Mapping[str, object]) -> M:
    """Validate a section without its invalid keys."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        wrong = {fault["loc"][0] for fault in error.errors(include_url=False) if fault["loc"]}
    if not wrong:
        return model()
    return _as_far(model, {key: value for key, value in given.items() if key not in wrong})


def _prompts(source: Layered, data: Mapping[str, Any], folder: Path) -> str:
    given = data.get("prompts")
    if given is None:
        return ""
    if not isinstance(given, str) or not (folder / given).is_dir():
        source.report(("prompts",), f"there is no folder `{given}`")
        return ""
    return given


def _models(source: Layered) -> tuple[ExecSection, RolesSection, str | None]:
    """Read the section `model`: other options, models by role, and the student's agent CLI."""
    data = cast("dict[str, Any]", source.data)
    given = cast("dict[str, object]", data.get("model") or {})
    run = {key: value for key, value in given.items() if key in ExecSection.model_fields}
    seed = {key: value for key, value in given.items() if key not in run}
    for key in _outlived(source, seed):
        del seed[key]
    azure = settings.variable("AZURE_OPENAI_ENDPOINT") is not None
    mapped = from_seed(seed, azure=azure, also=_said_with(source, seed))
    for key, message, hint in mapped.wrong:
        source.report(("model", key), message, hint)
    known = [*ExecSection.model_fields, *RolesSection.model_fields, *MODEL_KEYS]
    for key in [key for key in mapped.models if key not in RolesSection.model_fields]:
        source.report(("model", key), "unknown key", advice(key, known))
        del mapped.models[key]
    roles = _checked(source, ("model",), RolesSection, mapped.models)
    return _checked(source, ("model",), ExecSection, run), roles, mapped.agent


def _outlived(source: Layered, seed: Mapping[str, object]) -> list[str]:
    """Return old names of models that a later file or flag overrides by another name."""

    def earlier(name: str, than: str) -> bool:
        return than in seed and source.layer(("model", name)) < source.layer(("model", than))

    found: list[str] = []
    for theirs, ours in ROLES.items():
        backend = f"{theirs}_backend"
        found += [name for name in (theirs, backend) if name in seed and earlier(name, ours)]
        if backend in seed and seed.get("backend") and earlier(backend, "backend"):
            found.append(backend)
    return list(dict.fromkeys(found))


def _said_with(source: Layered, seed: Mapping[str, object]) -> dict[str, list[str]]:
    """Return the shared keys that apply to each model in Kept's names: set with it or later."""
    return {
        ours: [key for key in seed if source.layer(("model", key)) >= source.layer(("model", ours))]
        for ours in ROLES.values()
        if ours in seed
    }
