"""Who works by a skill: a chat model, or an agent CLI between walls of ours."""

from dataclasses import replace
from pathlib import Path

from kept.core.model import ModelRequest
from kept.core.ports import Runner
from kept.errors import SetupError
from kept.evaluators.environments.chatting import ChatRunner
from kept.evaluators.environments.coding_agent_student import WorkspaceRunner
from kept.evaluators.environments.contract import Environment
from kept.models.config import ModelConfig
from kept.models.roles import connect_role
from kept.recipes.skill.read import SkillSpec
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.cli import Cli, Target
from kept.sandbox.coding_agents.harness import CLIS
from kept.sandbox.coding_agents.program import program_of
from kept.sandbox.coding_agents.run import Harness
from kept.sandbox.command import Command, View
from kept.sandbox.workspace import Scratch
from kept.store.home import Home

_PROVIDERS = {"codex_exec": "openai", "claude_code_exec": "anthropic"}
_OPEN = "danger-full-access"
"""The seed's word for no walls."""


def student_of(spec: SkillSpec, env: Environment) -> Runner:
    """The student of a config, in an environment."""
    if spec.agent is not None:
        return WorkspaceRunner(env, _harness(spec, spec.agent, env.exec_seconds()))
    return ChatRunner(env, connect_role("target", named_student(spec)), ModelRequest(()))


def named_student(spec: SkillSpec) -> ModelConfig:
    """The model of the student, whoever it is; a `SetupError` where a config names none."""
    config = student_config(spec)
    if config is None:
        what = f"`{spec.agent}` is given no model" if spec.agent else "the config names no student"
        raise SetupError(what, hint="give `model.student`, or `model.target`")
    return config


def student_config(spec: SkillSpec) -> ModelConfig | None:
    """The model that a student asks, whoever it is; None where none is named."""
    if spec.agent is None or spec.student is not None:
        return spec.student
    if not spec.student_model:
        return None
    effort = spec.run.codex_exec_reasoning_effort if spec.agent == "codex_exec" else ""
    return ModelConfig(
        provider=_PROVIDERS[spec.agent],
        model=spec.student_model,
        effort=None if effort in ("", "none") else effort,
        folder=spec.folder,
    )


def _harness(spec: SkillSpec, agent: str, seconds: float) -> Harness:
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
    # `full_auto` is the seed's short form of a sandbox that lets the workspace be written to
    walls = agent != "codex_exec" or run.codex_exec_full_auto or run.codex_exec_sandbox != _OPEN
    if walls and not (able := abilities()).walls:
        hint = "install bubblewrap; for codex alone, `codex_exec_sandbox: danger-full-access`"
        raise SetupError(
            f"an agent runs commands, and nothing holds them: {able.why_not}", hint=hint
        )
    tree = spec.folder.resolve()
    # of our folder it sees nothing: the data with the answers may lie there
    hidden = (tree, Home.find(spec.folder).path.resolve())
    inside = program.path.is_relative_to(tree)
    view = View(
        tree,
        hidden=hidden[1:] if inside else hidden,
        seen=program.folders,
        network="on",
        bare=True,
        walls=walls,
    )
    command = Command(cli.program, Path("/"), seconds, view=view)
    return Harness(cli, config, command, Scratch())


def _cli(spec: SkillSpec, agent: str) -> Cli:
    """The CLI, with the program that the config names for it."""
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
