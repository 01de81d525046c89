"""Reader of agent.yaml: spec, texts, cases, and warnings about valid but odd values.

`read_agent` reads it from disk. `parse_agent` reads one changed by a candidate, by the same rules
and with the same config; a candidate cannot change the cases.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from kept.core.case import Split
from kept.core.parsing import parse_json
from kept.core.text import count
from kept.core.untyped import is_dict, is_list
from kept.errors import Problem, SpecError
from kept.models.providers import PROVIDERS, REFERENCE, ModelConfig
from kept.recipes.agent_config.spec.agent import AgentSpec, InstructionsSpec
from kept.recipes.agent_config.spec.case_files import (
    FILE,
    KEY,
    BrokenCase,
    named,
    read_case_file,
    read_split_files,
)
from kept.recipes.agent_config.spec.cases import TestCaseSpec
from kept.recipes.agent_config.spec.common import (
    NEVER_ASKED,
    Instructions,
    LlmSpec,
    Texts,
    check_there,
    inline_of,
    instructions_of,
)
from kept.recipes.agent_config.spec.config import (
    Config,
    fill_in,
    lay_agent,
    lend,
    read_config,
    tell_once,
    uses_of,
    without_secrets,
)
from kept.settings import variable
from kept.spec.source import Source, kind_of, read_source, source_of
from kept.spec.validate import said, section, validate
from kept.spec.yaml import Loc, YamlFault, read_yaml


def warnings_of(spec: AgentSpec, cases: Sequence[TestCaseSpec]) -> Iterator[str]:
    """Warnings about an agent and its cases."""
    if spec.model.auth_provider in NEVER_ASKED:
        yield _other_key(spec.model)
    own = [
        m.key for m in spec.metrics if m.enabled and m.is_judged and spec.judge_of(m) is spec.model
    ]
    if own:
        names = ", ".join(f"`{key}`" for key in own)
        yield f"the agent's own model judges {names}: name another in `evaluations.model`"
    yield from _open_secrets(spec)
    yield from _never_used(spec, cases)


def _other_key(model: LlmSpec) -> str:
    """Warning that Kept asks with a key instead of the file's method."""
    said = f"`model.auth_provider: {model.auth_provider}` is not used: Kept asks Anthropic with"
    if model.api_key is not None:
        return f"{said} `model.api_key`"
    name = PROVIDERS[model.provider].key_variable or ""
    lacks = ", which is not set: set it before a run" if variable(name) is None else ""
    return f"{said} {name}{lacks}"


def _open_secrets(spec: AgentSpec) -> Iterator[str]:
    """Warn about secrets in the file itself, which appear in every record of a run."""
    for number, tool in enumerate(spec.tools):
        for key, value in tool.secrets():
            if isinstance(value, str) and not REFERENCE.search(value):
                place = f"tools[{number}].{key}"
                yield f"`{place}` holds a secret for all to read: write ${{NAME}} for it"


def _never_used(spec: AgentSpec, cases: Sequence[TestCaseSpec]) -> Iterator[str]:
    """Warn about expected tools that the agent lacks; tools of servers are unknown here."""
    if any(tool.is_server for tool in spec.tools):
        return
    names = [tool.name for tool in spec.tools]
    lacking: dict[str, int] = {}
    for case in cases:
        expected = [e for turn in case.exchanges for e in turn.expected_tools or ()]
        for name in {
            e.name
            for e in expected
            if e.name not in names
            # with `contains`, part of a tool's name is enough
            and not (e.match == "contains" and any(e.name in name for name in names))
        }:
            lacking[name] = lacking.get(name, 0) + 1
    for name, number in lacking.items():
        verb = "expects" if number == 1 else "expect"
        yield f"the agent has no tool `{name}`, which {count(number, 'case')} {verb} to be used"


TOLD = 5
"""Number of broken cases with a separate warning; the report lists all of them."""


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """Parts of an agent that no candidate can change."""

    path: Path
    overrides: tuple[str, ...] = ()
    config: Config = field(default_factory=Config)
    variables: frozenset[tuple[Loc, str]] = frozenset()
    """Variables in the file with their locations; a candidate may not use others."""

    @property
    def folder(self) -> Path:
        """Folder that paths are relative to."""
        return self.path.absolute().parent


@dataclass(frozen=True, slots=True)
class ParsedAgent:
    """A valid agent."""

    spec: AgentSpec
    instructions: Instructions
    response_format: Mapping[str, Any] | None
    prompts: Mapping[str, str]
    """Templates of prompt tools, by tool name."""
    texts: Mapping[str, str]
    """Texts of its files by relative path, the agent.yaml first."""

    def model_config(self, folder: Path) -> ModelConfig:
        """Config for connecting to the agent's own model."""
        spec = self.spec
        return spec.model.config(folder, timeout=spec.execution.llm_timeout, effort=spec.effort)


@dataclass(frozen=True, slots=True)
class ReadAgent:
    """An agent.yaml as read from disk."""

    source: Source
    place: AgentPlace
    agent: ParsedAgent
    cases: tuple[TestCaseSpec, ...]
    """Cases with unique names."""
    warnings: tuple[str, ...] = ()
    broken: tuple[BrokenCase, ...] = ()
    """Invalid rows of a case file."""
    splits: Mapping[Split, tuple[TestCaseSpec, ...]] = field(
        default_factory=dict[Split, tuple[TestCaseSpec, ...]]
    )
    """The same cases by split, if they only come from files of `optimizer`."""


def read_agent(
    path: Path,
    overrides: Sequence[str] = (),
    serves: ReadAgent | None = None,
    *,
    lenient: bool = False,
    partial: bool = False,
) -> ReadAgent:
    """Read an agent with its cases; raises `SpecError` with all problems.

    An agent that serves another uses that one's config files, and its model unless it names one.
    With `lenient`, invalid rows of a case file do not prevent the use of the others. With
    `partial`, problems stay with the source for the caller to raise, unless there is no agent.
    """
    if path.is_symlink():
        # its files are beside the link's target: `best.yaml` is a link to one of several candidates
        path = path.resolve()
    source = read_source(path, overrides)
    variables = frozenset(uses_of(source.data))
    config = read_config(source.folder) if serves is None else serves.place.config
    if serves is not None:
        lend(source, serves.source)
    place = AgentPlace(path, tuple(overrides), config, variables)
    source.problems += place.config.problems
    # the text on disk, without settings and resolved variables
    text = path.read_text(encoding="utf-8-sig")
    agent = _agent(source, place, {path.name: text})
    cases, broken, splits = _cases(source, agent, place.config, lenient)
    if source.problems:
        source.problems += (problem for one in broken for problem in one.problems)
    source.problems[:] = map(without_secrets, source.problems)
    if agent is None or not partial:
        source.check()
    assert agent is not None  # otherwise a problem was reported
    broken = tuple(
        replace(one, problems=tuple(map(without_secrets, one.problems))) for one in broken
    )
    not_run = [f"the case `{one.name}` is not run: {one.why}" for one in broken[:TOLD]]
    if len(broken) > TOLD:
        more = count(len(broken) - TOLD, "more case")
        not_run.append(f"{more} of the file are not run either")
    warnings = (*not_run, *warnings_of(agent.spec, cases))
    return ReadAgent(source, place, agent, cases, warnings, broken, splits)


def parse_agent(place: AgentPlace, texts: Mapping[str, str]) -> ParsedAgent | tuple[Problem, ...]:
    """Parse the agent of a candidate's texts, or return the problems."""
    try:
        source = source_of(place.path, texts[place.path.name], place.overrides)
        cast("dict[str, object]", source.data).pop(KEY, None)
        # security: a candidate must not send environment variables to a model
        for loc, name in uses_of(source.data):
            if (loc, name) not in place.variables:
                source.report(loc, f"the agent does not ask for the variable `{name}` here")
        source.check()
        agent = _agent(source, place, texts)
        source.check()
    except SpecError as error:
        return tuple(map(without_secrets, error.problems))
    assert agent is not None  # otherwise a problem was reported
    return agent


def _agent(source: Source, place: AgentPlace, given: Mapping[str, str]) -> ParsedAgent | None:
    unset = fill_in(source)
    lay_agent(source, place.config)
    spec = validate(source, AgentSpec)
    tell_once(source, unset)
    _check_names(source)
    name = place.path.name
    texts = Texts(source, given)
    texts.read[name] = given[name]
    instructions = _instructions(source, texts)
    schema = _response_format(source, texts)
    if spec is None:
        return None
    prompts = dict(_prompts(spec, texts))
    _check_tools(source, spec)
    if instructions is None:
        return None
    return ParsedAgent(spec, instructions, schema, prompts, texts.read)


def _instructions(source: Source, texts: Texts) -> Instructions | None:
    spec = section(source, ("instructions",), InstructionsSpec)
    if spec is None:
        return None
    if spec.file is None:
        return inline_of(spec.inline or "")
    text = texts.get(("instructions", "file"), spec.file)
    if text is None:
        return None
    made = instructions_of(source, spec.file, text)
    if not made.text.strip():
        source.report(("instructions", "file"), f"`{spec.file}` says nothing")
    return made


def _response_format(source: Source, texts: Texts) -> Mapping[str, Any] | None:
    loc = ("response_format",)
    value = said(source, loc)
    if not isinstance(value, str) or not value.strip():
        return value if is_dict(value) else None
    text = texts.get(loc, value)
    if text is None:
        return None
    try:
        data: object = parse_json(text) if value.endswith(".json") else read_yaml(text).data
    except (ValueError, YamlFault) as error:
        source.report(loc, f"`{value}` cannot be read: {error}")
        return None
    if not is_dict(data):
        source.report(loc, f"`{value}` holds {kind_of(data)}, not a JSON schema")
        return None
    return data


def _prompts(spec: AgentSpec, texts: Texts) -> Iterator[tuple[str, str]]:
    for number, tool in enumerate(spec.tools):
        text = tool.template_text(partial(texts.get, ("tools", number, "file")))
        if text is not None:
            yield tool.name, text


def _check_names(source: Source) -> None:
    """Report duplicate tool names: tools are identified by name."""
    tools = said(source, ("tools",))
    first: dict[str, int] = {}
    for number in range(len(tools) if is_list(tools) else 0):
        loc = ("tools", number, "name")
        name = said(source, loc)
        if not isinstance(name, str):
            continue
        if name in first:
            place = source.where(("tools", first[name], "name"))
            source.report(loc, f"the name `{name}` stands twice, first in {place}")
        first.setdefault(name, number)


def _check_tools(source: Source, spec: AgentSpec) -> None:
    for number, tool in enumerate(spec.tools):
        for file in tool.files():
            check_there(source, ("tools", number, file.key), file.path, folder=file.is_folder)


def _cases(
    source: Source, agent: ParsedAgent | None, config: Config, lenient: bool
) -> tuple[
    tuple[TestCaseSpec, ...],
    tuple[BrokenCase, ...],
    Mapping[Split, tuple[TestCaseSpec, ...]],
]:
    """Agent's own cases, else those of the files that `optimizer` names."""
    file, own = said(source, FILE), said(source, (KEY,))
    name = file if isinstance(file, str) and "\0" not in file else ""
    if name.strip() and own is None:
        return (*read_case_file(source, name, config, lenient=lenient), {})
    if own is None and file is None:
        splits, broken = read_split_files(source, config, lenient=lenient)
        return tuple(case for cases in splits.values() for case in cases), broken, splits
    if agent is None or agent.spec.test_cases is None:
        return (), (), {}
    return named(source, agent.spec.test_cases), (), {}
