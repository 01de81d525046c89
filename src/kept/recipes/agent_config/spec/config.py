"""config.yaml of an agent folder or a user, and `${NAME}` substitution in values.

Precedence: agent.yaml, the environment, the config.yaml beside it, then the user's own in
~/.holodeck.

Substitution works on parsed values, never on the text, so the text can be kept and shown.
Possible secrets stay unresolved; the code that uses them fills them in.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field

from kept import settings
from kept.core.untyped import dict_in, is_dict, is_list
from kept.errors import Problem
from kept.models.providers import PROVIDERS, REFERENCE, expand
from kept.recipes.agent_config.spec.agent import DeploymentSpec, ExecutionSpec
from kept.recipes.agent_config.spec.common import LlmDefaults, Loose, Words
from kept.recipes.agent_config.spec.tools import McpToolSpec
from kept.spec.source import Source, read_source, set_by, split_override
from kept.spec.validate import SpecModel, said, validate
from kept.spec.yaml import Loc, YamlFault, read_yaml

CARRIED = ("deployment", "observability")
"""Parts that Kept does not use: their variables need not be set."""

_SECRET = re.compile(
    r"env|headers|connection_string|(.*_)?(api_key|secret|password|token|credentials?)"
)
"""Keys whose values, including nested ones, may be secrets."""


def may_be_secret(loc: Loc) -> bool:
    """True if the value at a location may be a secret, and is resolved only when used."""
    return any(isinstance(part, str) and _SECRET.fullmatch(part) for part in loc)


def shown_settings(overrides: Sequence[str]) -> list[str]:
    """Command-line settings without possible secrets; references to secrets are included."""
    return [given for given in overrides if not _hides(given)]


def hidden_settings(overrides: Sequence[str]) -> list[str]:
    """Keys of settings with possible secrets, which a resume must be given again."""
    return [split_override(given)[0] for given in overrides if _hides(given)]


def _hides(given: str) -> bool:
    try:
        loc, value = set_by(given)
    except YamlFault:
        return False  # reported as a separate problem
    below = dict(_places(value, loc))
    return any(
        may_be_secret(at)
        and said is not None
        and not (isinstance(said, str) and REFERENCE.fullmatch(said))
        for at, said in below.items()
    )


def _places(value: object, loc: Loc) -> Iterator[tuple[Loc, object]]:
    """Yield every scalar inside a value, with its location."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _places(inner, (*loc, str(key)))
    elif is_list(value):
        for number, inner in enumerate(value):
            yield from _places(inner, (*loc, number))
    else:
        yield loc, value


def fill_in(source: Source) -> set[str]:
    """Resolve variables from the environment; report unset ones and return their locations."""
    before = len(source.problems)
    _filled(source, source.data, ())
    return {problem.path for problem in source.problems[before:]}


def _filled(source: Source, value: object, loc: Loc) -> object:
    """Value with its variables resolved; mappings and lists are changed in place."""
    if isinstance(value, str):
        return _text(source, value, loc) if "${" in value else value
    if loc[:1] in [(name,) for name in CARRIED]:
        return value
    if is_dict(value):
        for key in value:
            value[key] = _filled(source, value[key], (*loc, key))
    elif is_list(value):
        for number, item in enumerate(value):
            value[number] = _filled(source, item, (*loc, number))
    return cast("object", value)


def _text(source: Source, text: str, loc: Loc) -> object:
    names = dict.fromkeys(REFERENCE.findall(text))
    unset = [name for name in names if not settings.is_set(name)]
    for name in unset:
        source.report(loc, f"the variable `{name}` is not set", f"export {name}=...")
    if unset or not names or may_be_secret(loc):
        return text
    filled = REFERENCE.sub(lambda found: settings.variable(found[1]) or "", text)
    return _plain(filled) if loc in source.templates else filled


def _plain(text: str) -> object:
    """Parse an unquoted text as YAML, as if it were written in the file."""
    try:
        value = read_yaml(text).data
    except YamlFault:
        return text
    return text if isinstance(value, dict | list) else value


def uses_of(value: object, loc: Loc = ()) -> Iterator[tuple[Loc, str]]:
    """Yield every variable in a value, with its location."""
    pairs: Any = ()
    if isinstance(value, str):
        for name in REFERENCE.findall(value) if "${" in value else ():
            yield loc, name
    elif is_dict(value):
        pairs = value.items()
    elif is_list(value):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from uses_of(inner, (*loc, key))


def filled(value: Any) -> Any:  # noqa: ANN401 # any value of YAML
    """Resolve variables that may be secrets; call it only directly before their use."""
    if isinstance(value, str):
        return expand(value)
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return {key: filled(inner) for key, inner in given.items()}
    if isinstance(value, list | tuple):
        return [filled(inner) for inner in cast("Sequence[Any]", value)]
    return value


def tell_once(source: Source, unset: Iterable[str]) -> None:
    """Drop other problems of values whose variables are not set."""
    places = set(unset)
    source.problems[:] = [
        problem
        for problem in source.problems
        if problem.path not in places or problem.message.startswith("the variable ")
    ]


def without_secrets(problem: Problem) -> Problem:
    """Problem without secrets that its message may quote."""
    message = problem.message
    for value in settings.secrets():
        # a message quotes the beginning of a long text
        message = message.replace(value, "[secret]").replace(value[:60], "[secret]")
    return Problem(problem.where, problem.path, message, problem.hint)


NAMES = ("config.yaml", "config.yml")

_MODELS = ("model", "embedding_provider", "reranker_model", "context_model")
"""Keys whose value is a model."""
_FREE = ("turn_config", "parameters", "response_format", "optimizer", "args")
"""Keys with free content."""
_YES, _NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_SAME = {"postgresql": "postgres"}


class VectorstoreSpec(SpecModel):
    """A vector database that tools name."""

    provider: Words
    connection_string: Words | None = None
    options: Loose | None = None


class ConfigSpec(SpecModel):
    """Schema of config.yaml."""

    providers: dict[str, LlmDefaults] | None = None
    vectorstores: dict[str, VectorstoreSpec] | None = None
    execution: ExecutionSpec | None = None
    deployment: DeploymentSpec | None = None
    mcp_servers: Annotated[tuple[McpToolSpec, ...], Field(strict=False)] | None = None
    """Servers that every agent has."""


@dataclass(frozen=True, slots=True)
class Config:
    """Merged values of the config files, with the location of each."""

    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    where: Mapping[Loc, str] = field(default_factory=dict[Loc, str])
    problems: tuple[Problem, ...] = ()

    def said_at(self, loc: Loc) -> str:
        """`file:line` of a value, or of its nearest parent."""
        sizes = range(len(loc), 0, -1)
        return next((self.where[loc[:n]] for n in sizes if loc[:n] in self.where), "config.yaml:1")


def read_config(folder: Path) -> Config:
    """Read the config for an agent in a folder; its problems are included."""
    data: dict[str, Any] = {}
    where: dict[Loc, str] = {}
    problems: list[Problem] = []
    for place in (settings.user_home() / ".holodeck", folder):
        file = next((place / name for name in NAMES if (place / name).is_file()), None)
        source = _source(file) if file else None
        if source is None:
            continue
        unset = fill_in(source)
        validate(source, ConfigSpec)
        tell_once(source, unset)
        problems += source.problems
        if not source.problems:
            _merge(data, source, (), where)
    return Config(data, where, tuple(problems))


def _source(file: Path) -> Source | None:
    """Read a config file; None for an empty file, which is allowed."""
    try:
        if read_yaml(file.read_text(encoding="utf-8-sig")).data is None:
            return None
    except (UnicodeDecodeError, YamlFault, OSError):
        pass  # reported by read_source
    return read_source(file)


def _merge(into: dict[str, Any], source: Source, loc: Loc, where: dict[Loc, str]) -> None:
    """Merge a source over existing values, mapping by mapping."""
    for key, value in cast("dict[str, Any]", said(source, loc)).items():
        here = (*loc, key)
        where[here] = source.where(here)
        if isinstance(cast("object", value), dict) and isinstance(into.get(key), dict):
            _merge(into[key], source, here, where)
        else:
            into[key] = value
            where.update((below, source.where(below)) for below in _below(value, here))


def _below(value: object, loc: Loc) -> Iterator[Loc]:
    pairs: Any = ()
    if is_dict(value):
        pairs = value.items()
    elif is_list(value):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield (*loc, key)
        yield from _below(inner, (*loc, key))


def lay_under(source: Source, config: Config) -> None:
    """Add defaults from the config to an agent.yaml, or to a file of its cases."""
    data = cast("dict[str, Any]", source.data)
    own = data.get("model")
    for loc, block in _blocks(data, ()):
        _lay_model(source, loc, block, config)
        if loc[0] == "tools" and "provider" not in block and is_dict(own):
            # a tool may give only the differences from the agent's own model
            _put_all(source, loc, block, own, source.where(("model",)))


def lay_agent(source: Source, config: Config) -> None:
    """Add defaults that only an agent.yaml has: execution, databases by name, servers."""
    lay_under(source, config)
    data = cast("dict[str, Any]", source.data)
    _lay_execution(source, data, config)
    tools = data.get("tools")
    for number, tool in enumerate(tools if is_list(tools) else ()):
        given = dict_in(tool)
        if isinstance(given.get("database"), str):
            _lay_database(source, ("tools", number, "database"), given, config)
    _lay_servers(source, data, config)
    if "deployment" in config.data and "deployment" not in data:
        data["deployment"] = config.data["deployment"]
        source.override(("deployment",), config.said_at(("deployment",)))


def lend(source: Source, lender: Source) -> None:
    """Add defaults from another agent to a helper agent: its model and execution."""
    data = cast("dict[str, Any]", source.data)
    for part in ("model", "execution"):
        given, own = said(lender, (part,)), data.get(part)
        block = cast("dict[str, Any]", {} if own is None else own)
        if is_dict(given) and isinstance(own, dict | None) and "provider" not in block:
            data[part] = block
            _put_all(source, (part,), block, given, lender.where((part,)))


def _blocks(value: object, loc: Loc) -> Iterator[tuple[Loc, dict[str, Any]]]:
    """Yield every mapping of a model, with its location."""
    if is_list(value):
        for number, item in enumerate(value):
            yield from _blocks(item, (*loc, number))
    elif is_dict(value):
        for key, inner in value.items():
            if key in _MODELS and is_dict(inner):
                yield (*loc, key), inner
            elif key not in _FREE:
                yield from _blocks(inner, (*loc, key))


def _lay_model(source: Source, loc: Loc, block: dict[str, Any], config: Config) -> None:
    name = block.get("provider")
    providers = cast("dict[str, dict[str, Any]]", config.data.get("providers") or {})
    keys = [key for key, entry in providers.items() if name in (key, entry["provider"])]
    if not isinstance(name, str) or not keys:
        return
    key = name if name in keys else keys[0]
    entry = providers[key]
    if name not in PROVIDERS:
        block["provider"] = entry["provider"]
    for word, value in entry.items():
        if word not in block:
            block[word] = value
            source.override((*loc, word), config.said_at(("providers", key, word)))


def _put_all(
    source: Source, loc: Loc, block: dict[str, Any], under: dict[str, Any], where: str
) -> None:
    for word, value in under.items():
        if word not in block:
            block[word] = value
            source.override((*loc, word), where)


def _lay_database(source: Source, loc: Loc, tool: dict[str, Any], config: Config) -> None:
    stores = cast("dict[str, dict[str, Any]]", config.data.get("vectorstores") or {})
    name = tool["database"]
    if name not in stores:
        known = f"there are {', '.join(stores)}" if stores else "a config.yaml has `vectorstores`"
        source.report(loc, f"there is no vectorstore `{name}`", known)
        tool["database"] = None
        return
    store = stores[name]
    provider = store["provider"].lower()
    made = {"provider": _SAME.get(provider, provider)}
    if store.get("connection_string") is not None:
        made["connection_string"] = store["connection_string"]
    tool["database"] = {**made, **(store.get("options") or {})}
    source.override(loc, config.said_at(("vectorstores", name)))


def _lay_execution(source: Source, data: dict[str, Any], config: Config) -> None:
    given: object = data.get("execution")
    execution: object = {} if given is None else given
    data["execution"] = execution
    if not is_dict(execution):
        return
    under = cast("dict[str, Any]", config.data.get("execution") or {})
    for key in ExecutionSpec.model_fields:
        variable = f"HOLODECK_{key.upper()}"
        text = settings.variable(variable)
        if key in execution:
            continue
        if text is not None:
            execution[key] = _of_environment(key, text)
            source.override(("execution", key), variable)
        elif key in under:
            execution[key] = under[key]
            source.override(("execution", key), config.said_at(("execution", key)))


def _of_environment(key: str, text: str) -> object:
    """Value of an environment variable for a key."""
    kind = ExecutionSpec.model_fields[key].annotation
    if kind is bool:
        low = text.lower()
        return True if low in _YES else False if low in _NO else text
    if kind is str:
        return text
    try:
        return read_yaml(text).data
    except YamlFault:
        return text


def _lay_servers(source: Source, data: dict[str, Any], config: Config) -> None:
    servers = cast("list[dict[str, Any]]", config.data.get("mcp_servers") or [])
    if not servers or not isinstance(data.setdefault("tools", []), list):
        return
    tools = cast("list[Any]", data["tools"])
    given = [tool for tool in tools if is_dict(tool)]
    names = {tool.get("name") for tool in given}
    for number, server in enumerate(servers):
        if server["name"] not in names:
            source.override(("tools", len(tools)), config.said_at(("mcp_servers", number)))
            tools.append(server)
