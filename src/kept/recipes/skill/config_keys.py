"""Config keys of skill training: aliases of the source, spellings, and `_base_` files.

Keys of seed 004 are translated: teacher to optimizer, student to target, backends, Azure keys.
This is pure: one mapping to another, with its problems. A backend that is an agent CLI is not a
model and is returned by name.

A key may stand in its section, alone as in older configs, or as a flag. `batch_size: 40` at the
top of a file and `--batch_size 40` both mean `train.batch_size`.

`_base_` names the file that a config extends. Sections are merged key by key. Other values are
replaced as a whole, unless a flag sets a key inside them. Every value keeps the line of its file.
"""

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.resources import files
from os.path import normpath
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from kept.errors import Problem, SetupError, SpecError
from kept.models.providers import REFERENCE, SCOPE, is_scope
from kept.recipes.skill.spec import SECTIONS
from kept.spec.source import Source, dotted, read_source, source_of
from kept.spec.yaml import Document, Loc, YamlFault, read_yaml

SeedRole = Literal["teacher", "student"]
ROLES: Mapping[SeedRole, str] = {"teacher": "optimizer", "student": "target"}

EXEC = ("codex_exec", "claude_code_exec")
"""Backends that run an agent CLI in a workspace; only a student can be one."""

_CHAT = {
    "openai_chat": "openai",
    "claude_chat": "anthropic",
    "openai": "openai",
    "azure_openai": "azure_openai",
    "claude": "anthropic",
}
_LEGACY = {"codex": "codex_exec", "claude_code": "claude_code_exec"}
"""Backend of the student for old values of `backend`; its teacher is then a chat model."""

_AZURE = {
    "azure_openai_endpoint": "base_url",
    "azure_openai_api_version": "api_version",
    "azure_openai_ad_scope": "token_scope",
    "azure_openai_managed_identity_client_id": "identity",
}
_IDENTITY = ("azure_ad", "azure_cli", "managed_identity", "aad", "default")
_EFFORTS = ("minimal", "low", "medium", "high")

KEYS = (
    *("backend", "teacher_backend", "student_backend", "teacher", "student", "reasoning_effort"),
    *(*_AZURE, "azure_openai_api_key", "azure_openai_auth_mode"),
)
"""Keys of seed 004 that are known here."""


class Wrong(NamedTuple):
    """A key of the seed whose value cannot be used."""

    key: str
    message: str
    hint: str | None = None


@dataclass(slots=True)
class Mapped:
    """The section `model` with Kept's names of keys."""

    models: dict[str, Any]
    wrong: list[Wrong] = field(default_factory=list[Wrong])
    agent: str | None = None
    """Name of the agent CLI, if the student is one."""


def from_seed(
    given: Mapping[str, Any],
    *,
    azure: bool = False,
    also: Mapping[str, Sequence[str]] | None = None,
) -> Mapped:
    """Translate the section to Kept's names; `azure` is True if the environment has its address.

    `also` gives, for each model in Kept's names, the shared keys that apply to it too. Without it,
    all shared keys apply.
    """
    known = {key: value for key, value in given.items() if key in KEYS and value not in (None, "")}
    mapped = Mapped({key: value for key, value in given.items() if key not in KEYS})
    mapped.wrong += (
        Wrong(key, "no text, where one was expected")
        for key, value in known.items()
        if not isinstance(value, str)
    )
    said = {key: value for key, value in known.items() if isinstance(value, str)}
    mapped.wrong += _wrong_azure(said)
    # any key of Azure means that all chat models of OpenAI are on Azure
    on_azure = azure or said.get("backend") == "azure_openai"
    on_azure = on_azure or any(key.startswith("azure_openai") for key in said)
    shared = _shared(said)
    for role, ours in ROLES.items():
        backend = said.get(f"{role}_backend") or _of_both(said.get("backend"), role)
        if backend in EXEC and role == "student":
            mapped.agent = backend
            continue
        if role not in said and f"{role}_backend" not in said:
            continue
        wrong = _wrong_role(role, ours, backend, said, given)
        mapped.wrong += wrong
        if not wrong:
            provider = _CHAT[backend or "openai_chat"]
            # the seed's `openai_chat` means Azure if Azure is set up
            provider = "azure_openai" if provider == "openai" and on_azure else provider
            block = {"provider": provider, "model": said[role]}
            mapped.models[ours] = {**block, **shared["any"], **shared.get(provider, {})}
    for ours in ROLES.values():
        if ours in given:
            held = {k: v for k, v in said.items() if also is None or k in also.get(ours, ())}
            mapped.models[ours] = _with_shared(given[ours], _shared(held))
    if also is not None and not _is_of_use(said, mapped, also):
        hint = "`optimizer` and `target` name their provider themselves"
        mapped.wrong.append(Wrong("backend", "no model is named that it could be of", hint))
    return mapped


def _is_of_use(said: Mapping[str, str], mapped: Mapped, also: Mapping[str, Sequence[str]]) -> bool:
    """True unless `backend` is set only for models that name their provider themselves."""
    if said.get("backend") is None or mapped.agent is not None:
        return True
    theirs = any(role in said for role in ROLES)
    return theirs or not any("backend" in keys for keys in also.values())


def _with_shared(one: object, shared: Mapping[str, Mapping[str, str]]) -> object:
    """Add the shared options to a model in Kept's names; its own options take precedence."""
    if isinstance(one, str) and "/" in one:
        provider, _, model = one.partition("/")
        block: dict[str, Any] = {"provider": provider, "model": model}
    elif isinstance(one, dict):
        block = cast("dict[str, Any]", one)
    else:
        return one
    more = {**shared["any"], **shared.get(str(block.get("provider")), {})}
    return {**more, **block} if more else cast("object", one)


def _of_both(backend: str | None, role: SeedRole) -> str | None:
    if backend in _LEGACY:
        return _LEGACY[backend] if role == "student" else "openai_chat"
    return backend


def _shared(said: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Return the options for every model block (`any`), and those for Azure blocks only."""
    effort = said.get("reasoning_effort")
    found = {ours: said[key] for key, ours in _AZURE.items() if key in said}
    key = said.get("azure_openai_api_key", "")
    if REFERENCE.fullmatch(key):
        found["api_key"] = key
    if mode := said.get("azure_openai_auth_mode"):
        found["auth"] = "identity" if mode in _IDENTITY else mode
    return {"any": {"effort": effort} if effort in _EFFORTS else {}, "azure_openai": found}


def _wrong_role(
    role: SeedRole,
    ours: str,
    backend: str | None,
    said: Mapping[str, str],
    given: Mapping[str, Any],
) -> list[Wrong]:
    found: list[Wrong] = []
    key = f"{role}_backend" if f"{role}_backend" in said else "backend"
    if backend is not None and backend not in _CHAT:
        names = [name for name in _CHAT if name.endswith("_chat")]
        names += EXEC if role == "student" else []
        found.append(
            Wrong(key, f"`{backend}` is no backend of a {role}", f"there are {_and(names)}")
        )
    if role not in said:
        found.append(Wrong(key, f"the model itself is missing: give `{role}`"))
    if ours in given:
        told = f"`{ours}` is the same role, and has a model too"
        found.append(Wrong(role, told, f"call it `{ours}`, or leave that out"))
    return found


def _wrong_azure(said: Mapping[str, str]) -> Iterator[Wrong]:
    effort = said.get("reasoning_effort")
    if effort is not None and effort not in (*_EFFORTS, "none"):
        yield Wrong("reasoning_effort", f"`{effort}` is none", f"there are {_and(_EFFORTS)}")
    if not REFERENCE.fullmatch(said.get("azure_openai_api_key", "${X}")):
        # the report is without the value: it may be a key
        told = "a key is kept in the environment, not in a file; write ${NAME} for it"
        yield Wrong("azure_openai_api_key", told)
    mode = said.get("azure_openai_auth_mode")
    if mode is not None and mode not in ("api_key", *_IDENTITY):
        known = _and(("api_key", *_IDENTITY))
        yield Wrong("azure_openai_auth_mode", f"`{mode}` is none", f"there are {known}")
    if mode in _IDENTITY and "azure_openai_api_key" in said:
        yield Wrong("azure_openai_auth_mode", f"`{mode}` does without a key, and there is one")
    if not is_scope(said.get("azure_openai_ad_scope", SCOPE)):
        told = f"tokens of an Azure identity are for Azure alone, as in {SCOPE}"
        yield Wrong("azure_openai_ad_scope", told)


def _and(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


ALIASES: Mapping[str, str] = {
    "teacher_model": "model.teacher",
    "student_model": "model.student",
    "optimizer_model": "model.teacher",
    "target_model": "model.student",
    "optimizer_backend": "model.teacher_backend",
    "target_backend": "model.student_backend",
    "edit_budget": "optimizer.learning_rate",
    "env": "env.name",
    "mode": "env.mode",
    "prompt": "env.prompt",
}
"""Flat names that differ from those in the sections."""

_OWN = ("optimizer", "target")
"""Keys of `model` that are also names of sections, and so never stand alone."""


def _flat() -> dict[str, str]:
    found: dict[str, str] = {}
    for section, models in SECTIONS.items():
        keys = [key for model in models for key in model.model_fields if key not in _OWN]
        keys += KEYS if section == "model" else ()
        found |= {key: f"{section}.{key}" for key in keys if key != "name"}
    return {**found, **ALIASES}


FLAT: Mapping[str, str] = _flat()
"""Full path of each key that may stand alone."""

TEXTS = frozenset(
    f"{section}.{key}"
    for section, models in SECTIONS.items()
    for model in models
    for key, field in model.model_fields.items()
    if field.annotation is str
)
"""Keys that only hold a text, mostly paths."""

OPTIONS = "cfg-options"
"""Flag that takes any number of `section.key=value`."""


class Flags(NamedTuple):
    """Settings of a command line."""

    found: list[str]
    """Settings as `KEY=VALUE`."""
    problems: list[Problem]
    typed: dict[str, tuple[str, str]]
    """The typed flag and value, by the `KEY=VALUE` for which they stand."""

    @contextmanager
    def as_typed(self) -> Generator[None]:
        """Report problems by the typed flags, not by their keys."""
        try:
            yield
        except SpecError as error:
            raise error.by_flags(self.typed) from error

    def add(self, flag: str, key: str, value: str) -> None:
        """Set a key by a flag."""
        self.found.append(override(key, value))
        self.typed[self.found[-1]] = (flag, value)


def no_options() -> Collection[str]:
    """Return no options, as if there were no environment."""
    return ()


def flags_of(
    words: Sequence[str],
    own: Sequence[str] = (),
    options: Callable[[], Collection[str]] = no_options,
) -> Flags:
    """Parse flags in the spelling of the source, with their problems.

    `own` are flags of the command itself, for hints. `options` returns the options of environments.
    It is called only for a flag that is not a key of a section, because it imports them.
    """
    given = Flags([], [], {})
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            given.problems.append(Problem(word, "", "neither a flag nor what belongs to one"))
        elif name.replace("_", "-") == OPTIONS:
            while left and not left[0].startswith("--"):
                given.found.append(left.pop(0))
        elif (key := _key(name.replace("-", "_"), options)) is None:
            names = [*own, *options(), *FLAT]
            near = get_close_matches(name.replace("-", "_"), names, n=1, cutoff=0.7)
            meant = "any key can be set with --cfg-options section.key=value"
            meant = f"did you mean `--{near[0]}`?" if near else meant
            given.problems.append(Problem(f"--{name}", "", "there is no such flag", meant))
            # skip the value of the unknown flag, or it would be reported as well
            if not equals and left and not left[0].startswith("--"):
                left.pop(0)
        elif not equals and (not left or left[0].startswith("--")):
            given.problems.append(Problem(f"--{name}", key, "what it is to be is missing"))
        else:
            given.add(f"--{name}", key, value if equals else left.pop(0))
    return given


def _key(name: str, options: Callable[[], Collection[str]]) -> str | None:
    """Return the key of a flag: of a section, or an option of an environment."""
    return FLAT.get(name) or (f"env.{name}" if name in options() else None)


def override(key: str, value: str) -> str:
    """Return `KEY=VALUE`; a text such as a file name is quoted if YAML would read it otherwise."""
    if key in TEXTS and not _reads_so(value):
        value = json.dumps(value, ensure_ascii=False)
    return f"{key}={value}"


def _reads_so(text: str) -> bool:
    try:
        return read_yaml(text).data == text
    except YamlFault:
        return False


BASE = "_base_"
MOST = 8
"""Most files that inherit from one another; more are taken for a circle."""


FLAGS = Path("flags")
"""Name of the source of values from the command line."""


class Layered(Source):
    """Several files merged into one source; later files override earlier ones."""

    def __init__(self, top: Source) -> None:
        super().__init__(top.path, Document({}))
        self.problems = list(top.problems)
        self.origin: dict[Loc, str] = {}
        """`file:line` or flag of each value."""
        self._layers: dict[Loc, int] = {}
        self._laid = 0

    def layer(self, loc: Loc) -> int:
        """Return the number of the file that set a value, from 1; flags are last, 0 is unset."""
        return self._layers.get(loc, 0)

    def lay(self, source: Source) -> None:
        """Merge a file over the earlier ones."""
        self._laid += 1
        self.problems += [one for one in source.problems if one not in self.problems]
        data = cast("dict[str, Any]", source.data)
        mine = cast("dict[str, Any]", self.data)
        for key, value in data.items():
            if key == BASE:
                continue
            self._put(mine, (key,), value, source)

    def _put(self, into: dict[str, Any], loc: Loc, value: object, source: Source) -> None:
        # sections are merged key by key; deeper mappings only if a flag sets a key inside
        key = str(loc[-1])
        both = isinstance(value, dict) and isinstance(into.get(key), dict)
        if not (inside := both and source.sets_inside(loc)):
            self.origin[loc] = source.where(loc)
            self._layers[loc] = self._laid
        if both and (len(loc) == 1 or inside):
            for name, one in cast("dict[str, object]", value).items():
                self._put(into[key], (*loc, name), one, source)
            return
        into[key] = value
        if isinstance(value, dict):
            for name in cast("dict[str, object]", value):
                self.origin[(*loc, name)] = source.where((*loc, name))
                self._layers[(*loc, name)] = self._laid
            into[key] = dict(cast("dict[str, object]", value))

    def where(self, loc: Loc) -> str:
        """Return `file:line` of a value, or of the closest section around it."""
        for size in range(len(loc), 0, -1):
            if found := self.origin.get(loc[:size]):
                return found
        return self.at(1)


def find_config(name: str | Path) -> Path:
    """Find a config: a file relative to the current folder, or one that comes with Kept."""
    path = Path(name)
    if path.is_file():
        return path
    if (own := _own(path)) is not None:
        return own
    there = sorted(str(one.parent.name) for one in own_configs())
    if name in there:
        hint = f"Kept's own is configs/{name}/default.yaml"
    else:
        hint = f"Kept has configs of {', '.join(there)}"
    raise SetupError(f"there is no {path}", hint=hint)


def _own(path: Path) -> Path | None:
    """Return the config of that name that comes with Kept, if there is one."""
    own = Path(str(files("kept.recipes.skill"))) / path
    known = not path.is_absolute() and path.parts[:1] == ("configs",) and own.is_file()
    return own if known else None


def own_configs() -> list[Path]:
    """Return the configs of environments that come with Kept."""
    return sorted(Path(str(files("kept.recipes.skill")), "configs").glob("[!_]*/default.yaml"))


def read_layers(path: Path, overrides: Sequence[str] = ()) -> Layered:
    """Read a config with all that it inherits, and apply `KEY=VALUE` overrides."""
    chain = [read_source(path)]
    while (base := cast("dict[str, Any]", chain[0].data).get(BASE)) is not None:
        first = chain[0]
        if not isinstance(base, str):
            raise SpecError([Problem(first.where((BASE,)), BASE, "not the name of a file")])
        under = Path(normpath(first.folder / base))
        if not under.is_file():
            under = _own(Path(base))
        if under is None:
            hint = "or one of Kept's own, as configs/searchqa/default.yaml"
            raise SpecError([Problem(first.where((BASE,)), BASE, f"there is no {base}", hint)])
        if len(chain) > MOST or any(under.samefile(one.path) for one in chain):
            raise SpecError([Problem(first.where((BASE,)), BASE, "the files inherit in a circle")])
        # the base comes first, so that the file that extends it overrides it
        chain.insert(0, read_source(under))
    layered = Layered(chain[-1])
    for source in chain:
        take_flat(source)
        layered.lay(source)
    # several flags can set a key of a skill, so problems of overrides name no flag
    flags = source_of(FLAGS, "{}", overrides, "")
    take_flat(flags)
    layered.lay(flags)
    return layered


def take_flat(source: Source) -> None:
    """Move keys that stand alone into their sections."""
    data = cast("dict[str, Any]", source.data)
    for key in [key for key in data if key in FLAT]:
        if key in SECTIONS and isinstance(data[key], dict):
            continue
        section, _, name = FLAT[key].partition(".")
        where, value = source.where((key,)), data.pop(key)
        given = data.setdefault(section, {})
        if not isinstance(given, dict):
            continue  # the reader of the section reports it
        if name in given:
            message = f"is `{section}.{name}`, which stands there too"
            source.problems.append(Problem(where, dotted((key,)), message))
            continue
        given[name] = value
        source.override((section, name), where)


def sections_of(source: Source) -> Mapping[str, Any]:
    """Return all sections; missing ones are empty."""
    data = cast("dict[str, Any]", source.data)
    return {name: data.get(name) or {} for name in SECTIONS}
