"""The skill as a document: its protected regions, and edits in the words that optimizers use.

Pure. A region belongs to code: what a model says is never read as a change of one, and where a
model writes the whole document anew, the regions are put back as they were.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kept.core.artifact import Candidate, Region, Rules
from kept.core.edit import (
    Append,
    Delete,
    Edit,
    EditReport,
    InsertAfter,
    Replace,
    apply_edits,
    target_places,
)

SKILL = "SKILL.md"
"""The artifact that every skill has."""

SLOW_UPDATE = Region("<!-- SLOW_UPDATE_START -->", "<!-- SLOW_UPDATE_END -->")
"""What was learnt over whole epochs."""

APPENDIX = Region("<!-- APPENDIX_START -->", "<!-- APPENDIX_END -->")
"""Reminders of rules that were there, and were not followed."""

REGIONS = (SLOW_UPDATE, APPENDIX)
MARKERS = tuple(marker for region in REGIONS for marker in (region.begin, region.end))

OPS = ("append", "insert_after", "replace", "delete")

FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
"""The head of a skill, by which agents find it; what stands in it is the group."""

NEXT = "\n\n"
"""Between paragraphs."""

Item = Mapping[str, Any]
"""One edit, suggestion or whole skill, as a model wrote it and with what code adds to it."""


def region_text(text: str, region: Region) -> str:
    """What stands in a region; empty where there is none."""
    found = region.stretches(text)
    return found[0].removeprefix(region.begin).removesuffix(region.end).strip() if found else ""


def without_markers(text: str) -> str:
    """A text that opens and closes no region."""
    for marker in MARKERS:
        text = text.replace(marker, "")
    return text


def body_of(text: str) -> str:
    """A skill without its regions; what is behind a marker that no other closes is no region."""
    for region in REGIONS:
        for stretch in region.stretches(text):
            if stretch.endswith(region.end):
                text = text.replace(stretch, "")
    return without_markers(text).strip()


def rewritten(old: str, new: str) -> str:
    """A new body with the regions of the old skill, whatever the writer made of them.

    The head of the old one, too, where the writer left it out.
    """
    body = _as_in(old, body_of(new))
    gap = _as_in(old, NEXT)
    if (head := FRONT.match(old)) is not None and FRONT.match(body) is None:
        body = f"{head[0].rstrip()}{gap}{body}"
    regions = [stretch for region in REGIONS for stretch in region.stretches(old)]
    # in the order in which they stand
    regions.sort(key=old.index)
    return gap.join([body, *regions]) + _as_in(old, "\n")


def _as_in(text: str, said: str) -> str:
    """What a model wrote, with the line endings that most lines have; models know but one kind."""
    windows = text.count("\r\n")
    return _ended(said, "\r\n" if windows > text.count("\n") - windows else "\n")


def _ended(said: str, ending: str) -> str:
    return said.replace("\r\n", "\n").replace("\n", ending)


def _ending_at(text: str, at: int) -> str:
    """How the line ends that a place is on; the last one as the one before it."""
    end = text.find("\n", at)
    end = text.rfind("\n") if end < 0 else end
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def edit_of(item: Item, text: str) -> Edit:
    """The edit that a model meant, for the text that it is to be made in."""
    path = str(item.get("file") or SKILL)
    said = str(item.get("target") or "")
    # as it stands in a text whose lines do not all end alike, too
    forms = (said, _ended(said, "\n"), _ended(said, "\r\n"))
    target = next((form for form in forms if form in text), said)
    ending = _ending_at(text, max(0, text.find(target)))
    content = _ended(without_markers(str(item.get("content") or "")).strip("\r\n"), ending)
    match item["op"]:
        case "replace":
            return Replace(path, target, content)
        case "delete":
            return Delete(path, target)
        case "insert_after":
            return _inserted(path, target, content, text)
        case _:
            return _appended(path, content, text)


def _inserted(path: str, target: str, content: str, text: str) -> Edit:
    """Behind the line that holds the target: a rule is put between lines, not into one."""
    places = target_places(text, target)
    at = places[0] if places else 0
    ending = _ending_at(text, at)
    if len(places) != 1:
        return InsertAfter(path, target, ending + content)  # which is reported, and changes nothing
    end = text.find(ending, at + len(target.rstrip("\r\n")))
    return InsertAfter(path, text[at : len(text) if end < 0 else end], ending + content)


def _appended(path: str, content: str, text: str) -> Edit:
    """At the end of the body: behind a protected region nobody would look for rules."""
    places = [at for region in REGIONS if (at := text.find(region.begin)) >= 0]
    if not places:
        return Append(path, f"{content}\n")
    first = min(places)
    marker = next(region.begin for region in REGIONS if text.startswith(region.begin, first))
    return Replace(path, marker, f"{content}{_as_in(text, NEXT)}{marker}")


@dataclass(frozen=True, slots=True)
class Tried:
    """Edits in the order in which they are made, and what became of each."""

    candidate: Candidate
    reports: tuple[EditReport, ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All of them, also those that do not apply."""
        return tuple(report.edit for report in self.reports)

    @property
    def failing(self) -> list[int]:
        """Places of those that changed nothing."""
        return [n for n, one in enumerate(self.reports) if one.fate != "applied"]


def try_edits(candidate: Candidate, items: Sequence[Item], rules: Rules) -> Tried:
    """What items make of a candidate, each read for the text that those before it left."""
    reports: list[EditReport] = []
    for item in items:
        path = str(item.get("file") or SKILL)
        edit = edit_of(item, candidate.texts.get(path, ""))
        applied = apply_edits(candidate, (edit,), rules)
        candidate = applied.candidate
        reports += applied.reports
    return Tried(candidate, tuple(reports))
