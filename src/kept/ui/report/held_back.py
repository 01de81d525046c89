"""What a failed command may have lacked because of the walls round it, judged by its words."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kept.settings import is_set

_NO_NETWORK = re.compile(
    r"network is unreachable|name or service not known|temporary failure in name resolution"
    r"|could not resolve host|getaddrinfo|nodename nor servname",
    re.IGNORECASE,
)
_BY_KEPT = re.compile(r"`[\w-]+/[^`]+` (?:answered \d{3}|failed|did not answer)")
"""Words about a model that Kept asks itself, which has no walls round it."""

_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def held_back(message: str, sandbox: Mapping[str, Any]) -> Iterator[str]:
    """What to write into the task, where that is what was missing."""
    if _BY_KEPT.search(message):
        return
    if sandbox.get("network") != "on" and _NO_NETWORK.search(message):
        yield "commands have no network here: `sandbox: {network: on}` in the task opens it"
    passed = sandbox.get("env") or ()
    for name in dict.fromkeys(_NAME.findall(message)):
        if is_set(name) and name not in passed and not name.startswith("KEPT_"):
            yield f"`{name}` is set here, and commands do not get it: `sandbox: {{env: [{name}]}}`"
