"""Value types, models and text files of an agent.yaml.

Models are the agent's own, its judges' and the embedder. A text comes from the candidate if it
has one, else from disk.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from kept.core.artifact import is_safe_path
from kept.core.llm import Effort
from kept.core.untyped import is_dict
from kept.errors import Problem
from kept.models.providers import ModelConfig, check_provider
from kept.spec.paths import near_file
from kept.spec.shared_sections import reference
from kept.spec.source import Source, shown
from kept.spec.validate import Count, Finite, SpecModel, Text
from kept.spec.yaml import Loc, YamlFault, read_yaml

AuthProvider = Literal["api_key", "oauth_token", "bedrock", "vertex", "foundry", "custom"]

NEVER_ASKED = ("oauth_token", "bedrock", "vertex", "foundry")
"""Authentication methods of Anthropic that Kept does not support; it uses a key."""


class LlmDefaults(SpecModel):
    """Defaults of a provider in a config.yaml, for models that do not set the values."""

    provider: Annotated[Text, AfterValidator(check_provider)]
    name: Text | None = None
    temperature: Annotated[Finite, Field(ge=0, le=2)] | None = 0.3
    max_tokens: Count | None = 1000
    top_p: Annotated[Finite, Field(ge=0, le=1)] | None = None
    endpoint: Text | None = None
    api_key: Annotated[Text | None, BeforeValidator(reference)] = None
    """`${NAME}`; by default the provider's usual variable."""
    api_version: Text | None = None
    auth_provider: AuthProvider | None = None


class LlmSpec(LlmDefaults):
    """One model: its address and settings."""

    # excluded from dumps if unset, as hashes of runs are made from dumps
    cache: Annotated[bool | None, Field(exclude_if=lambda given: given is None)] = None
    """True to cache replies for other runs; the default is True for critic and applier only."""
    name: Text  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride] # frozen, and narrower

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report missing keys, and keys of other providers."""
        provider = said.get("provider")
        if provider == "azure_openai" and said.get("endpoint", "") is None:
            yield "`endpoint` is missing: it says where your Azure resource is"
        if said.get("api_version") is not None and provider not in (None, "azure_openai"):
            yield "`api_version` goes with `provider: azure_openai`"
        if said.get("auth_provider") is not None and provider not in (None, "anthropic"):
            yield "`auth_provider` goes with `provider: anthropic`"

    @property
    def full_name(self) -> str:
        """`provider/model`."""
        return f"{self.provider}/{self.name}"

    def config(
        self, folder: Path, *, timeout: float = 300.0, effort: Effort | None = None
    ) -> ModelConfig:
        """Config for connecting to the model; paths are relative to `folder`."""
        address = self.endpoint
        if address is not None and self.provider == "ollama":
            # in other tools, Ollama's endpoint is the server, without the path of the chat API
            bare = not urlsplit(address).path.strip("/")
            address = f"{address.rstrip('/')}/v1" if bare else address
        return ModelConfig(
            provider=self.provider,
            model=self.name,
            base_url=address,
            api_key=self.api_key,
            api_version=self.api_version,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            effort=effort,
            timeout=timeout,
            cache=self.cache,
            folder=folder,
        )


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions of an agent, with the metadata of their front matter."""

    text: str
    version: str
    """Version of the front matter; else derived from the content."""
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of the front matter, such as author, description and tags."""


class Texts:
    """Reads text files by the names in an agent.yaml."""

    def __init__(self, source: Source, given: Mapping[str, str]) -> None:
        self._source = source
        self._given = given
        self.read: dict[str, str] = {}
        """Texts of files inside the folder, by relative path."""

    def get(self, loc: Loc, name: str) -> str | None:
        """Text of a file; None, and a report, if it is not available."""
        path = clean(name)
        text = self._given[path] if path in self._given else self._from_disk(loc, name)
        if text is not None and is_safe_path(path):
            self.read[path] = text
        return text

    def _from_disk(self, loc: Loc, name: str) -> str | None:
        path = self._source.folder / name
        try:
            return path.read_text(encoding="utf-8-sig")
        except OSError as error:
            hint = None if path.exists() else near_file(path)
            self._source.report(loc, f"cannot read `{name}`: {error.strerror}", hint)
        except UnicodeDecodeError:
            self._source.report(loc, f"`{name}` is not UTF-8 text")
        return None


def clean(name: str) -> str:
    """Normalize a path: `./a.md` becomes `a.md`."""
    return Path(name).as_posix()


def check_there(source: Source, loc: Loc, name: str, *, folder: bool = False) -> None:
    """Report a named file that is missing; `folder` also allows folders and patterns."""
    path = source.folder / name
    if folder and any(sign in name for sign in "*?["):
        if not any(source.folder.glob(name)):
            source.report(loc, f"`{name}` matches nothing")
    elif not path.exists():
        source.report(loc, f"there is no file `{name}`", near_file(path))
    elif path.is_dir() and not folder:
        source.report(loc, f"`{name}` is a folder, where a file was expected")


def instructions_of(source: Source, name: str, text: str) -> Instructions:
    """Text of a file without its front matter; front matter that is no YAML is reported."""
    head, body = _split(text)
    about: dict[str, Any] = {}
    if head is not None:
        try:
            data: object = read_yaml(head).data
        except YamlFault as fault:
            where = f"{shown(source.folder / name)}:{fault.line + 1}"
            source.problems.append(
                Problem(where, "", f"the head is not YAML: {fault.message}", fault.hint)
            )
            data = {}
        if is_dict(data):
            about = data
        else:
            # text between two horizontal rules
            body = text
    version = about.pop("version", None)
    return Instructions(body, _auto(body) if version is None else str(version), about)


def inline_of(text: str) -> Instructions:
    """Instructions whose text is in the agent.yaml itself."""
    return Instructions(text, _auto(text))


def _split(text: str) -> tuple[str | None, str]:
    """Split into front matter, if any, and the rest."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != "---":
        return None, text
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "".join(lines[1:number]), "".join(lines[number + 1 :]).lstrip("\r\n")
    return None, text


def _auto(text: str) -> str:
    return f"auto-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def not_blank(text: str) -> str:
    """Refuse a blank text."""
    if not text.strip():
        raise ValueError("blank, where a text was expected")
    return text


def _below(text: str) -> str:
    if not is_safe_path(text.rstrip("/")):
        raise ValueError(f"`{text}` is not a path below the agent's folder")
    return text.rstrip("/")


Words = Annotated[Text, AfterValidator(not_blank)]
Below = Annotated[Text, AfterValidator(_below)]
"""A path below the agent's folder."""
Share = Annotated[Finite, Field(ge=0, le=1)]
Loose = dict[str, Any]
"""A mapping that is kept unchanged."""


def one_of(said: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Problem unless exactly one of some keys is given; None if it is."""
    if not set(keys) <= said.keys():
        return None
    given = [key for key in keys if said[key] is not None]
    names = " or ".join(f"`{key}`" for key in keys)
    if len(given) == 1:
        return None
    return f"give {names}" if not given else f"give {names}, not both"
