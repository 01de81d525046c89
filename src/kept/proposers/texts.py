"""A text that a model may rewrite as a whole: a file, or one value of a file.

A file may begin with a head of YAML between two lines of dashes. That is about the text and no part
of it, and stays.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kept.core.edit import Edit, SetValue, Write
from kept.core.values import NoSpan
from kept.spec.locate.locate import read_value
from kept.spec.locate.nodes import Table, Unreadable

RULE = "---"


@dataclass(frozen=True, slots=True)
class TextAxis:
    """One text, and how long it may become."""

    path: str
    """As the spec names it."""
    file: str
    key: str = ""
    """The value that is meant; empty for the file as a whole."""
    max_chars: int = 8000

    def read(self, texts: Mapping[str, str]) -> str | NoSpan:
        """The text as it stands."""
        if self.file not in texts:
            return NoSpan("target missing", f"there is no {self.file}")
        if not self.key:
            return body_of(texts[self.file])
        value = read_value(self.file, texts[self.file], self.key)
        return value if isinstance(value, NoSpan) else str(value)

    def edits(self, texts: Mapping[str, str], new: str) -> tuple[Edit, ...]:
        """What makes it another text."""
        if self.key:
            return (SetValue(self.file, self.key, new),)
        old = texts[self.file]
        head = old[: len(old) - len(body_of(old))]
        if not head and body_of(new) != new:
            # it begins with what would be taken for a head, and dropped
            head = f"{RULE}\nversion: 1\n{RULE}\n"
        return (Write(self.file, head + new),)


def body_of(text: str) -> str:
    """A text without its head."""
    lines = text.splitlines(keepends=True)
    if not lines or lines[0].rstrip() != RULE:
        return text
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == RULE:
            head = "".join(lines[1:number])
            # prose between two rules is no head
            return "".join(lines[number + 1 :]).lstrip("\r\n") if _is_mapping(head) else text
    return text


def _is_mapping(text: str) -> bool:
    # the YAML library takes longer to import than most runs to start
    from kept.spec.locate.yaml import read_yaml

    try:
        found = read_yaml(text)
    except Unreadable:
        return False
    return isinstance(found, Table) and bool(found.entries)
