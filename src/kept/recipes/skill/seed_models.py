"""The names that seed 004 has for models, as ours: teacher and student, backends, keys of Azure.

Pure: one mapping to another, and what is wrong with it. A teacher is our optimizer, a student our
target. A backend that is an agent CLI is no model: it is handed back by name, for whoever runs one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

from kept.models.config import REFERENCE
from kept.models.entra import SCOPE, is_scope

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
"""What `backend` alone says of a student; its teacher is then a chat model."""

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
"""The names of the seed that are known here."""


class Wrong(NamedTuple):
    """A key of the seed whose value cannot be used."""

    key: str
    message: str
    hint: str | None = None


@dataclass(slots=True)
class Mapped:
    """A section of models in our names."""

    models: dict[str, Any]
    wrong: list[Wrong] = field(default_factory=list[Wrong])
    agent: str | None = None
    """The agent CLI that the student is, where it is one."""


def from_seed(
    given: Mapping[str, Any],
    *,
    azure: bool = False,
    also: Mapping[str, Sequence[str]] | None = None,
) -> Mapped:
    """The section in our names; `azure` says that the environment has an address of Azure.

    `also` has the keys for all models that hold for one in our names too, by its name; all of them
    where it is not given.
    """
    known = {key: value for key, value in given.items() if key in KEYS and value not in (None, "")}
    mapped = Mapped({key: value for key, value in given.items() if key not in KEYS})
    mapped.wrong += _not_texts(known)
    said = {key: value for key, value in known.items() if isinstance(value, str)}
    mapped.wrong += _wrong_azure(said)
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
            # the seed's `openai_chat` is Azure's wherever Azure is set up
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
    """Whether `backend` says something of a model, where it was said of those in our names."""
    if said.get("backend") is None or mapped.agent is not None:
        return True
    theirs = any(role in said for role in ROLES)
    return theirs or not any("backend" in keys for keys in also.values())


def _with_shared(one: object, shared: Mapping[str, Mapping[str, str]]) -> object:
    """A model in our names with what was said of all; what it says itself stays so."""
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
    """What goes into every block, and what only into those of Azure."""
    effort = said.get("reasoning_effort")
    found = {ours: said[key] for key, ours in _AZURE.items() if key in said}
    key = said.get("azure_openai_api_key", "")
    if REFERENCE.fullmatch(key):
        found["api_key"] = key
    if mode := said.get("azure_openai_auth_mode"):
        found["auth"] = "identity" if mode in _IDENTITY else mode
    return {"any": {"effort": effort} if effort in _EFFORTS else {}, "azure_openai": found}


def _not_texts(known: Mapping[str, object]) -> Iterator[Wrong]:
    for key, value in known.items():
        if not isinstance(value, str):
            yield Wrong(key, "no text, where one was expected")


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
        # without the value: it may be a key
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
