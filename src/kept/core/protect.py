"""Stretches of an artifact that no edit may touch, and whether one did.

Their text stays, and how many there are, and in which order. Pure.
"""

import re
from dataclasses import dataclass

_END_OF_LINE = re.compile(r"[ \t]*\n?")


def uncommented(text: str) -> str:
    """A text of Markdown as who works by it reads it: without comments, such as markers."""
    # no pattern: each comment that is never closed would cost one more pass over the text
    parts: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        parts.append(text[at:start])
        rest = _END_OF_LINE.match(text, end + 3)
        at = rest.end() if rest else end + 3
    return "".join((*parts, text[at:])).strip()


@dataclass(frozen=True, slots=True)
class Region:
    """From one marker to the next other one, markers included."""

    begin: str
    end: str

    def __str__(self) -> str:
        return f"inside `{self.begin}` … `{self.end}`"

    def stretches(self, text: str) -> list[str]:
        """Every such stretch of a text."""
        found: list[str] = []
        at = 0
        while (start := text.find(self.begin, at)) >= 0:
            stop = text.find(self.end, start + len(self.begin))
            # a region that never closes protects the rest of the text
            at = len(text) if stop < 0 else stop + len(self.end)
            found.append(text[start:at])
        return found

    def touched(self, before: str, after: str) -> bool:
        """Whether a change of a text is one of these stretches too."""
        # a loose end marker protects nothing by itself, but who reads the file may stop at it
        loose = before.count(self.end) != after.count(self.end)
        return loose or self.stretches(before) != self.stretches(after)


@dataclass(frozen=True, slots=True)
class Heading:
    """A section of Markdown, from its heading to the next one that is not below it."""

    title: str

    def __str__(self) -> str:
        return f"the section `{self.title}`"

    def stretches(self, text: str) -> list[str]:
        """Every section of this title, without the space behind it."""
        from kept.core.text import section_texts  # slow to import, and seldom needed

        return [section.rstrip() for section in section_texts(text, self.title)]

    def touched(self, before: str, after: str) -> bool:
        """Whether a change of a text is one of these sections too."""
        return self.stretches(before) != self.stretches(after)


Protected = Region | Heading
