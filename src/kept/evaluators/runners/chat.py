"""A prompt that is a template, as promptfoo has it: a text, or a chat in JSON.

A text is what the user says. A chat is a list of messages with `role` and `content`; in one that
is JSON before it is filled in, each text is filled in by itself, so that no quote breaks it.
"""

from collections.abc import Mapping
from typing import cast

from kept.core.model import Message, Role
from kept.core.parsing import ParseLimit, parse_json
from kept.evaluators.templates.fault import TemplateFault
from kept.evaluators.templates.filters import MOST
from kept.evaluators.templates.nunjucks import names_of, render

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class NoChat(ValueError):
    """Why a prompt cannot be sent."""


def chat_of(name: str, text: str, given: Mapping[str, object]) -> tuple[Message, ...]:
    """What a prompt says with these values; raises `NoChat`.

    A value that is not there is a slip of whoever wrote the prompt, and not nothing.
    """
    try:
        return _chat(name, text, given)
    except TemplateFault as fault:
        where = f" (line {fault.line})" if fault.line else ""
        raise NoChat(f"the prompt is no template: {fault}{where}") from fault
    except RecursionError as error:
        raise NoChat("the prompt is nested too deeply") from error


def _chat(name: str, text: str, given: Mapping[str, object]) -> tuple[Message, ...]:
    unknown = [one for one in names_of(text) if one not in given]
    if unknown:
        raise NoChat(f"the prompt asks for `{{{{{unknown[0]}}}}}`, which the model is not given")
    parsed = _json(text)
    if _is_chat(parsed):
        return _messages(_Filling(given).of(parsed))
    if name.endswith(".json"):
        raise NoChat(f"{name} is no list of messages in JSON")
    said = render(text, given).strip()
    made = _json(said)
    return _messages(made) if _is_chat(made) else (Message("user", said),)


def _json(text: str) -> object:
    if not text.lstrip().startswith("["):
        return None
    try:
        return parse_json(text)
    except ParseLimit as limit:
        raise NoChat(f"the prompt is JSON that cannot be read: {limit}") from limit
    except ValueError:
        return None


def is_chat(text: str) -> bool:
    """Whether a text is a chat as JSON, as it stands."""
    try:
        return _is_chat(_json(text))
    except NoChat:
        return False


def _is_chat(value: object) -> bool:
    rows = cast("list[object]", value) if isinstance(value, list) else []
    return bool(rows) and all(isinstance(row, dict) and "role" in row for row in rows)


class _Filling:
    """Texts that are filled in one by one, and bounded together."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._size = 0

    def of(self, value: object) -> object:
        """The value with every text in it filled in."""
        if isinstance(value, str):
            text = render(value, self._given)
            self._size += len(text)
            if self._size > MOST:
                raise NoChat("the messages of the prompt are too much text together")
            return text
        if isinstance(value, list):
            return [self.of(item) for item in cast("list[object]", value)]
        if isinstance(value, dict):
            return {key: self.of(one) for key, one in cast("dict[str, object]", value).items()}
        return value


def _messages(value: object) -> tuple[Message, ...]:
    rows = cast("list[dict[str, object]]", value)
    return tuple(Message(_role(row), _content(row)) for row in rows)


def _role(row: Mapping[str, object]) -> Role:
    role = str(row["role"])
    if role not in ROLES:
        raise NoChat(f"`{role}` is no role of a message; there are {', '.join(ROLES)}")
    return ROLES[role]


def _content(row: Mapping[str, object]) -> str:
    content = row.get("content")
    if isinstance(content, str):
        return content
    parts = cast("list[object]", content) if isinstance(content, list) else [content]
    texts: list[str] = []
    for part in parts:
        said = cast("dict[str, object]", part).get("text") if isinstance(part, dict) else None
        if not isinstance(said, str):
            raise NoChat("a message holds what is no text; pictures and tools are not sent here")
        texts.append(said)
    return "\n".join(texts)
