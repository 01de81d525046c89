"""From what a task says about execution to a runner."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kept.core.case import Cases
from kept.core.parsing import parse_json
from kept.core.ports import Runner
from kept.evaluators.runners.coding_agent import AgentModelSpec, AgentRunnerSpec
from kept.evaluators.runners.command import CommandRunner, CommandRunnerSpec, ModelRunnerSpec
from kept.evaluators.runners.model import Form, ModelRunner, unfilled
from kept.models.roles import connect_role
from kept.recipes.task.cases import check_field
from kept.recipes.task.command_lines import check_script
from kept.recipes.task.make_coding_agent import Sending, check_agent, check_artifacts, make_agent
from kept.recipes.task.models import check_asked
from kept.recipes.task.sandbox import Confinement
from kept.recipes.task.spec import TaskSpec
from kept.sandbox.command import MIB, Command
from kept.sandbox.workspace import Scratch
from kept.spec.shared_sections import ModelSpec, ModelsSpec
from kept.spec.source import Source
from kept.spec.validate import check_folder, said, section

_RUNNER = ("runner",)


@dataclass(frozen=True, slots=True)
class Running:
    """What the runner of a task is made with."""

    folder: Path
    scratch: Scratch
    confined: Confinement
    files: Mapping[str, tuple[str, ...]]
    """Of each case, what an agent is given of the task's folder."""
    measured: bool = False
    """Whether cases assert what an answer takes or costs."""


def make_runner(task: TaskSpec, kit: Running) -> Runner:
    """The runner that a task describes."""
    spec = task.runner
    if isinstance(spec, CommandRunnerSpec):
        command = Command(spec.command, kit.folder / spec.cwd, spec.timeout_seconds, spec.env)
        most = task.sandbox.output_mb * MIB
        return CommandRunner(kit.confined.runner(command), kit.scratch, most, spec.retry_exit)
    if isinstance(spec, AgentRunnerSpec):
        sending = Sending(kit.folder, kit.scratch, kit.confined.agent)
        return make_agent(spec, sending, kit.files, task.sandbox.output_mb * MIB)
    schema: Mapping[str, object] = (
        _read_schema(kit.folder / spec.schema_) if spec.schema_ is not None else {}
    )
    form = Form(spec.prompt, spec.input, schema, spec.settings, spec.template, kit.measured)
    target = target_of(spec, task.models)
    assert target is not None, "a runner that asks nobody is a problem of the spec"
    model = connect_role("target", target.config(kit.folder))
    return ModelRunner(model, form, spec.timeout_seconds)


def target_of(
    spec: ModelRunnerSpec | AgentRunnerSpec, models: ModelsSpec
) -> ModelSpec | AgentModelSpec | None:
    """The model that a runner asks: its own, or that of the role."""
    return spec.model if isinstance(spec, AgentRunnerSpec) else spec.model or models.target


def facts_of(task: TaskSpec) -> Mapping[str, object]:
    """What a reader of the run wants to know of its runner; of variables only the names."""
    spec = task.runner
    told = spec.model_dump(by_alias=True, exclude={"env", "model"})
    if isinstance(spec, CommandRunnerSpec):
        return {**told, "env": list(spec.env)}
    target = target_of(spec, task.models)
    return {**told, "model": target.name if target else None, "env": []}


def prompt_warnings(task: TaskSpec, texts: Mapping[str, str]) -> Iterator[str]:
    """What stands in a prompt like the place of a field, and cannot be filled in."""
    spec = task.runner
    if not isinstance(spec, ModelRunnerSpec) or spec.template != "fields":
        return
    for name in spec.prompt:
        for place in dict.fromkeys(unfilled(texts.get(name, ""), spec.input)):
            yield (
                f"`{place}` of {name} is filled in by nothing: "
                f"the model is given {', '.join(spec.input)}"
            )


def check_runner(source: Source, texts: Collection[str], cases: Cases | None) -> None:
    """Report what is wrong with a runner that is well formed: folders, scripts, files, fields."""
    check_folder(source, (*_RUNNER, "cwd"))
    check_script(source, _RUNNER)
    data = said(source, _RUNNER)
    if not isinstance(data, dict) or not data.keys() & {"model", "prompt"}:
        return
    if "agent" in data:
        agent = section(source, _RUNNER, AgentRunnerSpec)
        if agent is not None:
            check_agent(source, _RUNNER, agent)
            check_artifacts(source, agent, texts)
            _check_fields(source, agent, cases)
        return
    spec = section(source, _RUNNER, ModelRunnerSpec)
    if spec is not None:
        _check_model(source, spec)
        _check_artifacts(source, spec, texts)
        _check_fields(source, spec, cases)


def _check_model(source: Source, spec: ModelRunnerSpec) -> None:
    target = spec.model
    if target is None and said(source, ("models", "target")) is None:
        source.report((*_RUNNER, "model"), "missing", "or name a `target` among `models`")
    models = section(source, ("models",), ModelsSpec)
    if target is not None:
        check_asked(source, (*_RUNNER, "model"), target.config(source.folder))
    elif models is not None and models.target is not None:
        check_asked(source, ("models", "target"), models.target.config(source.folder))
    if spec.schema_ is not None:
        try:
            _read_schema(source.folder / spec.schema_)
        except OSError as error:
            message = f"cannot read `{spec.schema_}`: {error.strerror}"
            source.report((*_RUNNER, "schema"), message)
        except ValueError as error:
            source.report((*_RUNNER, "schema"), f"`{spec.schema_}` is no JSON schema: {error}")


def _check_artifacts(source: Source, spec: ModelRunnerSpec, texts: Collection[str]) -> None:
    if not texts:
        return  # told already
    for key, names in (("prompt", spec.prompt), ("settings", (spec.settings,))):
        for name in names:
            if name is not None and name not in texts:
                known_ones = f"there are {', '.join(sorted(texts)[:5])}"
                source.report((*_RUNNER, key), f"there is no artifact `{name}`", known_ones)


def _check_fields(
    source: Source, spec: ModelRunnerSpec | AgentRunnerSpec, cases: Cases | None
) -> None:
    if not spec.input:
        return
    if cases is None:
        if said(source, ("cases",)) is None:
            source.report(("cases",), "missing", "a model is asked about cases")
        return
    for name in spec.input:
        check_field(source, (*_RUNNER, "input"), name, cases)


def _read_schema(path: Path) -> Mapping[str, object]:
    schema = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(schema, dict):
        raise ValueError("it is not an object")
    return cast("dict[str, object]", schema)
