"""Environment of skill training: its student, its judge, and its money limit.

The student is a chat model, or an agent CLI in our sandbox. The judge is the model that the
config names, else the teacher. The money limit must be enforceable.

Problems are reported to the config all at once: an unknown option does not hide a missing skill.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from kept.core.llm import ModelRequest
from kept.core.ports import Model, Runner, Scorer
from kept.errors import KeptError, Problem, SetupError, SpecError
from kept.evaluators.environments.base import (
    RATIO,
    Environment,
    EnvSettings,
    JudgeOptions,
    Opened,
    ratio_of,
    skill_at,
)
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.coding_agent_student import WorkspaceRunner
from kept.evaluators.environments.registry import find_env, opened, parted
from kept.models.providers import PROVIDERS, ModelConfig
from kept.models.roles import connect_role, is_free, is_priced, unbounded
from kept.recipes.base import Charge
from kept.recipes.skill.read import SkillSpec
from kept.recipes.skill.spec import EnvSection
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.definition import Cli, Target, program_of
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch
from kept.spec.shared_sections import RoleSpec
from kept.spec.source import dotted
from kept.spec.yaml import Loc
from kept.store.home import Home


def check_money(spec: SkillSpec, *asked: ModelConfig | None) -> None:
    """Raise a `SetupError` for a money limit that cannot be kept, for lack of prices."""
    if spec.budget.max_usd is None:
        return
    for config in filter(None, asked):
        if lacks := unbounded(config):
            raise SetupError(
                f"`max_usd` cannot be kept: `{config.name}` has no `{lacks}`",
                hint="leave `budget.max_usd` out, or set `budget.max_rollouts`",
            )


_PROVIDERS = {"codex_exec": "openai", "claude_code_exec": "anthropic"}
_OPEN = "danger-full-access"
"""Value of seed 004 for no sandbox."""


def student_of(spec: SkillSpec, env: Environment) -> Runner:
    """Build the student of a config for an environment."""
    if spec.agent is not None:
        return WorkspaceRunner(env, _harness(spec, spec.agent, env))
    return ChatRunner(env, connect_role("target", named_student(spec)), ModelRequest(()))


def named_student(spec: SkillSpec) -> ModelConfig:
    """Return the model of the student, chat or agent; `SetupError` if a config names none."""
    config = student_config(spec)
    if config is None:
        what = f"`{spec.agent}` is given no model" if spec.agent else "the config names no student"
        raise SetupError(what, hint="give `model.student`, or `model.target`")
    return config


def student_config(spec: SkillSpec) -> ModelConfig | None:
    """Return the model of the student, chat or agent; None if none is named."""
    if spec.agent is None or spec.student is not None:
        return spec.student
    if not spec.student_model:
        return None
    # only codex has a key for its effort
    effort = spec.run.codex_exec_reasoning_effort if spec.agent == "codex_exec" else ""
    return ModelConfig(
        provider=_PROVIDERS[spec.agent],
        model=spec.student_model,
        effort=None if effort in ("", "none") else effort,
        folder=spec.folder,
    )


def _data_of(spec: SkillSpec, env: Environment) -> list[Path]:
    """Return the paths of the data of a config, which has the answers."""
    named = (spec.env.data_path, spec.env.split_dir)
    found = [spec.folder / Path(one).expanduser() for one in named if one]
    # options of an environment may be paths of data, too
    options: Mapping[str, object] = getattr(env, "__dict__", {})
    for value in options.values():
        several = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
        found += [one for one in several if isinstance(one, Path)]
    return [one.resolve() for one in found if one.exists()]


def _harness(spec: SkillSpec, agent: str, env: Environment) -> Harness:
    config = named_student(spec)
    cli = _cli(spec, agent)
    if config.provider not in cli.providers:
        known = ", ".join(cli.providers)
        raise SetupError(f"`{agent}` cannot ask `{config.name}`", hint=f"it can ask {known}")
    program = program_of(cli)
    if program is None:
        hint = f"`{cli.install}` installs it"
        raise SetupError(f"there is no program `{cli.program}` on the PATH", hint=hint)
    run = spec.run
    # `full_auto` is seed 004's short form of a sandbox with a writable workspace
    walls = agent != "codex_exec" or run.codex_exec_full_auto or run.codex_exec_sandbox != _OPEN
    if walls and not (able := abilities()).walls:
        hint = "install bubblewrap; for codex alone, `codex_exec_sandbox: danger-full-access`"
        raise SetupError(
            f"an agent runs commands, and nothing holds them: {able.why_not}", hint=hint
        )
    tree = spec.folder.resolve()
    # the agent sees neither the config's folder nor the data, which has the answers
    places = dict.fromkeys((tree, *_data_of(spec, env)))
    hidden = [one for one in places if not program.path.is_relative_to(one)]
    view = View(
        tree,
        hidden=(*hidden, Home.find(spec.folder).path.resolve()),
        seen=program.folders,
        network="on",
        bare=True,
        walls=walls,
    )
    command = Command(cli.program, Path("/"), env.exec_seconds(), view=view)
    return Harness(cli, config, command, Scratch())


def _cli(spec: SkillSpec, agent: str) -> Cli:
    """Return the CLI with the program that the config names for it."""
    cli = CLIS[agent]
    run = spec.run
    named = run.codex_exec_path if agent == "codex_exec" else run.claude_code_exec_path
    profile = run.codex_exec_profile if agent == "codex_exec" else run.claude_code_exec_profile
    if profile:
        hint = "set what it has in `model`: an agent has a home of its own, without profiles"
        raise SetupError(f"`{agent}` cannot use the profile `{profile}`", hint=hint)
    if named == cli.program:
        return cli

    def words(target: Target, session: str) -> list[str]:
        return [named, *cli.words(target, session)[1:]]

    return replace(cli, program=named, words=words)


KEY = "judge_model"
NO_JUDGE = "none"


def judge_config(spec: SkillSpec, env: Environment) -> ModelConfig | None:
    """Return the model that decides what rules cannot; None if the environment needs none.

    Raises `SpecError` for a judge that cannot be read.
    """
    if not isinstance(env, JudgeOptions) or env.judge_model == NO_JUDGE:
        return None
    config = _named(spec, env.judge_model) if env.judge_model else spec.teacher
    if config is None:
        return None
    most, tries = env.judge_max_completion_tokens, env.judge_retries
    return replace(config, max_tokens=most, tries=tries)


def connect_judge(spec: SkillSpec, config: ModelConfig) -> Model:
    """Connect the judge with its cache; `SetupError` if money is limited and it has no price."""
    check_money(spec, config)
    return connect_role("judge", config)


def judge_warnings(env: Environment, judge: ModelConfig | None) -> Iterator[str]:
    """Warn of a missing judge, or of a judge without a price."""
    if judge is None and isinstance(env, JudgeOptions):
        yield "there is no judge: answers that need one are graded by the environment's own rule"
    if judge is not None and not is_priced(judge):
        yield f"the price of `{judge.name}` is not known: what it costs is not counted"


def judge_charges(judge: ModelConfig | None) -> tuple[Charge, ...]:
    """Return the charge of the judge, if it is paid by the call."""
    if judge is None or is_free(judge):
        return ()
    return (Charge("scorer", judge.name, is_priced(judge)),)


def _named(spec: SkillSpec, said: str | dict[str, Any]) -> ModelConfig:
    if isinstance(said, str) and said.partition("/")[0] not in PROVIDERS:
        # a name alone, as in the method's source, is a model of the teacher's provider
        if spec.teacher is not None:
            return replace(spec.teacher, model=said, price=None)
        said = {"model": said}
    adapter: TypeAdapter[Any] = TypeAdapter(RoleSpec)
    try:
        return cast("ModelConfig", adapter.validate_python(said).config(spec.folder))
    except ValidationError as error:
        where, hint = spec.where(KEY), "`provider/model`, a block, or `none`"
        raise SpecError(
            [
                Problem(where, ".".join(["env", KEY, *map(str, one["loc"])]), one["msg"], hint)
                for one in error.errors(include_url=False)
            ]
        ) from error


T = TypeVar("T")

METRICS = "metrics"
"""Key of `env` with the metrics of answers."""

_SURE = 0.8
"""Least similarity to a known key for a hint, if the keys of the environment are not known."""

_OF_MODE = {"ratio": ("data_path", "split_output_dir"), "split_dir": ("split_dir",)}
"""Keys that only one split mode reads, by mode."""


def open_skill(spec: SkillSpec, *, deciding: bool = True) -> Opened | None:
    """Open the environment of a config; None, with reports, if that fails.

    `deciding` is False for a measurement, which needs no holdout cases.
    """
    settings, scorer = _measured(spec, settings_of(spec))
    env = heard(spec, lambda: find_env(settings), ("env", "name")) if settings.name else None
    student = None
    if not has_problems(spec, "model"):
        config = heard(spec, lambda: named_student(spec), ("model",))
        if config is not None and env is not None:
            student = heard(spec, lambda: student_of(spec, env), ("model",))
    if env is None or has_problems(spec, "env"):
        _look_alone(spec, settings, known=env is not None)
        return None
    by_split = heard(spec, lambda: parted(env, settings, deciding=deciding), ("env",))
    if by_split is None:
        for key, told in _unread(spec):
            spec.source.report(("env", key), told, "set `split_mode` as well")
    if by_split is None or student is None:
        return None
    config = heard(spec, lambda: judge_config(spec, env), ("env", KEY))
    judge = heard(spec, lambda: connect_judge(spec, config), ("env", KEY)) if config else None
    made = opened(env, settings, by_split, lambda _: student, scorer, judge)
    unread = (f"`env.{key}` {told}" for key, told in _unread(spec))
    ignored = (*made.ignored, *unread, *judge_warnings(env, config))
    return replace(made, judge=config, ignored=ignored)


def heard(spec: SkillSpec, find: Callable[[], T], loc: Loc) -> T | None:
    """Call `find`; report errors at their own place, else at `loc`, and return None for them."""
    try:
        return find()
    except SpecError as error:
        spec.source.problems += error.problems
    except KeptError as error:
        if any(told.message == error.message for told in spec.source.problems):
            return None  # reported already, at another place
        where = spec.source.where(loc)
        spec.source.problems.append(Problem(where, dotted(loc), error.message, error.hint))
    return None


def has_problems(spec: SkillSpec, section: str) -> bool:
    """True if a section has problems already, so that further checks would only repeat them."""
    paths = (problem.path.partition(".")[0] for problem in spec.source.problems)
    return section in paths


def settings_of(spec: SkillSpec) -> EnvSettings:
    """Build the settings for an environment, and report problems."""
    env, evaluation = spec.env, spec.evaluation
    if env.name is None and not has_problems(spec, "env"):
        hint = "give it in the config, or with --env"
        spec.source.problems.append(Problem(spec.where("name"), "env.name", "missing", hint))
    ratio = RATIO
    try:
        ratio = ratio_of(env.split_ratio)
    except ValueError as wrong:
        problem = Problem(spec.where("split_ratio"), "env.split_ratio", str(wrong))
        spec.source.problems.append(problem)
    return EnvSettings(
        name=env.name or "",
        folder=spec.folder,
        split_mode=env.split_mode,
        data_path=env.data_path,
        split_dir=env.split_dir,
        split_ratio=ratio,
        split_seed=env.split_seed,
        split_output_dir=env.split_output_dir,
        train_size=spec.train.train_size,
        sel_env_num=evaluation.sel_env_num,
        test_env_num=evaluation.test_env_num,
        limit=env.limit,
        skill_init=env.skill_init,
        options=spec.options,
        keys=tuple(EnvSection.model_fields),
        where=spec.where,
    )


def _measured(spec: SkillSpec, settings: EnvSettings) -> tuple[EnvSettings, Scorer | None]:
    """Return the settings without `metrics`, and the scorer for these metrics."""
    if settings.options.get(METRICS) is None:
        return settings, None
    left = {key: value for key, value in settings.options.items() if key != METRICS}
    without = replace(settings, options=left)
    if not settings.name or has_problems(spec, "model"):
        # further problems would follow from these
        return without, None
    # imported at use: few configs have metrics, and the import takes 0.1 s
    from kept.recipes.skill.measure import metric_scorer

    return without, heard(spec, lambda: metric_scorer(spec, settings), ("env", METRICS))


def _look_alone(spec: SkillSpec, settings: EnvSettings, *, known: bool) -> None:
    """Report further problems of `env` that can be found although it is wrong already."""
    told = {problem.path for problem in spec.source.problems}
    for key in (key for key in settings.options if f"env.{key}" not in told):
        near = get_close_matches(key, settings.keys, n=1, cutoff=_SURE)
        if near and not known:
            problem = settings.problem(key, "unknown key", f"did you mean `{near[0]}`?")
            spec.source.problems.append(problem)
    for key in ("data_path", "split_dir"):
        given = str(getattr(settings, key))
        read = key in _OF_MODE[settings.split_mode]
        if given and read and not settings.path(given).exists():
            message = f"there is no {settings.path(given)}"
            spec.source.problems.append(settings.problem(key, message))
    if settings.skill_init and not settings.no_skill:
        there = settings.path(settings.skill_init)
        heard(spec, lambda: skill_at(there, settings), ("env", "skill_init"))


def _unread(spec: SkillSpec) -> Iterator[tuple[str, str]]:
    """Yield keys of the other split mode that were set after the mode, with a message."""
    mode = spec.env.split_mode
    for key in (key for other, keys in _OF_MODE.items() if other != mode for key in keys):
        later = spec.source.layer(("env", key)) > spec.source.layer(("env", "split_mode"))
        if getattr(spec.env, key) and later:
            yield key, f"is not read: `split_mode` is `{mode}`"
