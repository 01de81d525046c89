"""What the models of an agent run are told: three prompts, and six texts that can be improved."""

import re
from collections.abc import Mapping

from kept.models.prompts import ARTIFACTS, RunPrompt, filled, prompt

ROLES: tuple[RunPrompt, ...] = ("manager", "worker", "critic")

_SECTION = re.compile(
    r"^##[ \t]+`?([\w.-]+)`?[ \t]*\n(.*?)(?=^##[ \t]|\Z)", re.MULTILINE | re.DOTALL
)


def own_artifacts() -> dict[str, str]:
    """Kept's own."""
    return {name: prompt(name) for name in ARTIFACTS}


def own_prompts() -> dict[str, str]:
    """Kept's own."""
    return {name: prompt(name) for name in ROLES}


def tool_texts(text: str) -> dict[str, str]:
    """What workers are told of each tool, by its name: a section of Markdown each."""
    found = _SECTION.findall(text)
    return {name.replace(".", "_"): " ".join(body.split()) for name, body in found if body.strip()}


def joined(*parts: str) -> str:
    """Texts one after another, those that are there."""
    return "\n\n".join(part.strip() for part in parts if part.strip())


def place(text: str, values: Mapping[str, str]) -> str:
    """A text with what its placeholders hold."""
    return filled(text, values)
