"""Critic and applier agents, which improve an agent's texts: their files and their setup.

Each has a small agent.yaml. The files are copied into a project at first use, for users to edit,
and never overwritten. This module also selects further texts of the agent that they may read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from kept.errors import JournalError, Problem, SetupError, SpecError
from kept.models.context_window import room_of
from kept.models.providers import ModelConfig
from kept.models.roles import connect_role, is_priced
from kept.proposers.critique import DIAGNOSIS, REVISION, Critique, Further
from kept.proposers.llm import Asked
from kept.proposers.text_units import TextAxis, body_of
from kept.recipes.agent_config.compile import request_of
from kept.recipes.agent_config.spec.read import ReadAgent, read_agent
from kept.recipes.task.make_coding_agent import digest, hash_of
from kept.spec.source import Source
from kept.spec.yaml import YamlFault, read_yaml
from kept.store.candidate_files import make_folder, open_private

Part = Literal["critic", "applier"]

FOLDER = Path("optimizer") / "agents"
"""Folder of both files, below Kept's folder in a project."""

THEIRS = Path(".holodeck") / FOLDER
"""HoloDeck's folder for these files, beside an agent; it has precedence."""

_READ: Mapping[Part, Mapping[str, Any]] = {"critic": DIAGNOSIS, "applier": REVISION}
"""Reply schema of each agent."""

_USELESS = ("tools", "evaluations", "test_cases", "test_cases_file")
"""Keys of an agent.yaml that these agents do not support."""


@dataclass(frozen=True, slots=True)
class Helper:
    """One of the two agents, ready to be asked."""

    path: Path
    asked: Asked
    config: ModelConfig
    texts: Mapping[str, str]
    """Texts of its files, as on disk."""


@dataclass(frozen=True, slots=True)
class Critics:
    """Both agents, with their models connected."""

    critic: Helper
    applier: Helper
    further: Further
    """Selects further texts of the agent that the critic may read."""

    def make(self, axes: Iterable[TextAxis], min_confidence: float) -> Critique:
        """Build the proposer from both agents."""
        by_path = {axis.path: axis for axis in axes}
        both = (self.critic.asked, self.applier.asked)
        return Critique(by_path, *both, min_confidence, further=self.further)

    @property
    def inputs(self) -> dict[str, str]:
        """Hashes of both agents' files, by name, as inputs of a run."""
        both = {"critic.yaml": self.critic, "applier.yaml": self.applier}
        return {name: hash_of(dict(one.texts)) for name, one in both.items()}

    @property
    def files(self) -> dict[str, str]:
        """Digests of both agents' files, by path."""
        both = (self.critic, self.applier)
        paths = [one.path.parent / name for one in both for name in one.texts]
        return {str(path.resolve()): digest(path) for path in paths}

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about unknown prices."""
        configs = {one.config.name: one.config for one in (self.critic, self.applier)}
        return tuple(
            f"the price of `{name}` is not known: what it costs is not counted"
            for name, config in configs.items()
            if not is_priced(config)
        )


def read_critics(read: ReadAgent, home: Path, *, writes: bool = True) -> Critics:
    """Read both agents of a project with Kept folder `home`; raises `SpecError` with all problems.

    Without `writes`, a file that is missing in the project is read from the built-in ones.
    """
    found: dict[Part, Helper] = {}
    problems: list[Problem] = []
    for part in _READ:
        try:
            found[part] = _read(part, read, _place(part, read.place.folder, home, writes))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    further = partial(further_texts, read.place.path.name)
    return Critics(found["critic"], found["applier"], further)


def further_texts(name: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Texts of an agent by title, for a model; the rest of the file may hold secrets."""
    try:
        data = read_yaml(texts[name]).data
    except YamlFault:
        data = None
    spec = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
    return {title: text for title, text in _further(spec, texts, name) if text.strip()}


def _further(
    spec: Mapping[str, Any], texts: Mapping[str, str], name: str
) -> Iterator[tuple[str, str]]:
    yield "The agent's instructions", _text(spec.get("instructions"), "inline")
    tools = spec.get("tools")
    for tool in cast("list[object]", tools) if isinstance(tools, list) else ():
        for key in ("description", "template"):
            yield f"The {key} of its tool `{_text(tool, 'name')}`", _text(tool, key)
    for path, text in texts.items():
        if path != name:
            yield f"The agent's file `{path}`", body_of(text)


def _text(block: object, key: str) -> str:
    value = cast("dict[str, object]", block).get(key) if isinstance(block, dict) else None
    return value if isinstance(value, str) else ""


def _place(part: Part, beside: Path, home: Path, writes: bool) -> Path:
    """Path of an agent's file; a missing one is created if `writes` allows it."""
    theirs = beside / THEIRS / f"{part}.yaml"
    if theirs.is_file():
        return theirs
    path = home / FOLDER / f"{part}.yaml"
    ours = files("kept").joinpath(f"ui/scaffold/optimizer/{part}.yaml")
    if not writes:
        return path if path.is_file() else Path(str(ours))
    text = ours.read_text(encoding="utf-8")
    try:
        make_folder(path.parent)
        with open(path, "x", encoding="utf-8", opener=open_private) as file:
            file.write(text)
    except FileExistsError:
        pass  # edited by the user, or from an earlier run
    except OSError as error:
        hint = "make the folder writable, or point KEPT_HOME at one that is"
        raise JournalError(f"cannot write {path}: {error.strerror}", hint=hint) from error
    return path


def _read(part: Part, read: ReadAgent, path: Path) -> Helper:
    own = read_agent(path, serves=read)
    source, agent = own.source, own.agent
    given = cast("dict[str, object]", read_yaml(agent.texts[path.name]).data)
    for key in _USELESS:
        if key in given:
            source.report((key,), f"the {part} has no use for this")
    schema = _schema(source, part, agent.response_format)
    # paths are relative to the agent's folder, as the model may be the agent's own
    config = agent.model_config(read.place.folder)
    model = None
    try:
        model = connect_role(part, config)
    except SetupError as error:
        source.report(("model",), error.message, error.hint)
    source.check()
    assert model is not None  # or else there was a problem
    asked = Asked(model, replace(request_of(agent), schema=schema), room_of(config))
    return Helper(path, asked, config, agent.texts)


def _schema(source: Source, part: Part, given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Reply schema: the fields that Kept reads, and any that the user added."""
    wanted = _READ[part]
    if given is None:
        return wanted
    if given.get("type") == "json_schema":
        # in the format of a provider's API
        given = cast("Mapping[str, Any]", given.get("json_schema") or given).get("schema") or {}
    asked = cast("Any", given).get("required") or ()
    lacks = [name for name in wanted["required"] if name not in asked]
    if lacks:
        named = ", ".join(f"`{name}`" for name in lacks)
        hint = "leave `response_format` out, and the reply is held to what is read of it"
        source.report(("response_format",), f"the {part} must be required to say {named}", hint)
    return cast("Mapping[str, Any]", given)
