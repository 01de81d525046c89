"""Which model is meant, where it is, and how it is asked."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kept import settings
from kept.core.model import Effort

REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A variable of the environment inside a text, as `${NAME}`."""

SHAPES = ("temperature", "top_p", "max_tokens", "seed", "effort")
"""What shapes a reply, and a config may say for requests that do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars for a million tokens."""

    input: float
    output: float
    cached: float | None = None
    """Of tokens that the provider had at hand; by default as any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One model as a spec names it. Holds no secret: keys are read where they are used."""

    provider: str
    model: str
    base_url: str | None = None
    api_key: str | None = None
    """`${NAME}`; by default the variable that the provider is known by."""
    api_version: str | None = None
    """Of Azure; without it, its path `v1` is used, which needs none."""
    identity: str | None = None
    """The client id of a managed identity of Azure; by default the one that the machine has."""
    token_scope: str | None = None
    """What tokens of that identity are for; by default Azure's public cloud."""
    auth: Literal["api_key", "identity"] | None = None
    """Of Azure: by a key alone, or by an identity although there is a key; else as can be."""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    effort: Effort | None = None
    context_window: int | None = None
    """Tokens that it can read and write at once, where the list does not say."""
    stream: bool = False
    """Whether replies are taken piece by piece, so that one that stalls is noticed early."""
    timeout: float = 300.0
    """Seconds for one try."""
    stall: float = 60.0
    """Seconds without a byte after which a stream is cut."""
    tries: int = 6
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    price: Price | None = None
    """Where it is not, or not rightly, in the list of prices."""
    cache: bool | None = None
    """Whether replies are kept for other runs; None leaves it to the role."""
    folder: Path = field(default_factory=Path.cwd)
    """Where paths begin."""

    @property
    def name(self) -> str:
        """As a spec spells it."""
        return f"{self.provider}/{self.model}"


def expand(text: str) -> str:
    """A text with its variables filled in; one that is not set is left as it stands."""
    return REFERENCE.sub(lambda found: settings.variable(found[1]) or found[0], text)


def unset(text: str) -> list[str]:
    """The variables that a text needs and the environment has not."""
    return [name for name in REFERENCE.findall(text) if settings.variable(name) is None]
