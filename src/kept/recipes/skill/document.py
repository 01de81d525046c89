"""The skill as a document: its protected regions, and edits in the format of optimizers.

Pure. Regions are written by code: a model's reply can never change one. If a model rewrites the
whole document, the regions are restored.
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
"""Region with guidance from whole epochs."""

APPENDIX = Region("<!-- APPENDIX_START -->", "<!-- APPENDIX_END -->")
"""Region with reminders of rules that were not followed."""

REGIONS = (SLOW_UPDATE, APPENDIX)
MARKERS = tuple(marker for region in REGIONS for marker in (region.begin, region.end))

OPS = ("append", "insert_after", "replace", "delete")

FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
"""Frontmatter of a skill, by which agents find it; the group is its content."""

NEXT = "\n\n"
"""Separator of paragraphs."""

Item = Mapping[str, Any]
"""One edit, suggestion or whole skill as a model wrote it, with fields added by code."""


def region_text(text: str, region: Region) -> str:
    """Return the content of a region; empty if there is none."""
    found = region.stretches(text)
    return found[0].removeprefix(region.begin).removesuffix(region.end).strip() if found else ""


def without_markers(text: str) -> str:
    """Return a text without the markers of regions."""
    for marker in MARKERS:
        text = text.replace(marker, "")
    return text


def body_of(text: str) -> str:
    """Return a skill without its regions; an unclosed marker starts no region."""
    for region in REGIONS:
        for stretch in region.stretches(text):
            if stretch.endswith(region.end):
                text = text.replace(stretch, "")
    return without_markers(text).strip()


def rewritten(old: str, new: str) -> str:
    """Return a new body with the regions of the old skill, whatever the writer made of them.

    The frontmatter of the old skill is restored, too, if the writer left it out.
    """
    body = _as_in(old, body_of(new))
    gap = _as_in(old, NEXT)
    if (head := FRONT.match(old)) is not None and FRONT.match(body) is None:
        body = f"{head[0].rstrip()}{gap}{body}"
    regions = [stretch for region in REGIONS for stretch in region.stretches(old)]
    # in their order in the old skill
    regions.sort(key=old.index)
    return gap.join([body, *regions]) + _as_in(old, "\n")


def _as_in(text: str, said: str) -> str:
    """Return a model's text with the line endings of most lines; models know only one."""
    windows = text.count("\r\n")
    return _ended(said, "\r\n" if windows > text.count("\n") - windows else "\n")


def _ended(said: str, ending: str) -> str:
    return said.replace("\r\n", "\n").replace("\n", ending)


def _ending_at(text: str, at: int) -> str:
    """Return the ending of the line at a place; for the last line, that of the line before."""
    end = text.find("\n", at)
    end = text.rfind("\n") if end < 0 else end
    return "\r\n" if end > 0 and text[end - 1] == "\r" else "\n"


def edit_of(item: Item, text: str) -> Edit:
    """Return the edit that a model meant, for the text to which it applies."""
    path = str(item.get("file") or SKILL)
    said = str(item.get("target") or "")
    # tries each line ending, since a text may mix them
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
    """Return the edit behind the whole line with the target: a rule goes between lines."""
    places = target_places(text, target)
    at = places[0] if places else 0
    ending = _ending_at(text, at)
    if len(places) != 1:
        return InsertAfter(path, target, ending + content)  # does not apply, and is reported
    end = text.find(ending, at + len(target.rstrip("\r\n")))
    return InsertAfter(path, text[at : len(text) if end < 0 else end], ending + content)


def _appended(path: str, content: str, text: str) -> Edit:
    """Return the edit at the end of the body, before the protected regions."""
    places = [at for region in REGIONS if (at := text.find(region.begin)) >= 0]
    if not places:
        return Append(path, f"{content}\n")
    first = min(places)
    marker = next(region.begin for region in REGIONS if text.startswith(region.begin, first))
    return Replace(path, marker, f"{content}{_as_in(text, NEXT)}{marker}")


@dataclass(frozen=True, slots=True)
class Tried:
    """Edits in order, with a report of each."""

    candidate: Candidate
    reports: tuple[EditReport, ...]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits, including those that do not apply."""
        return tuple(report.edit for report in self.reports)

    @property
    def failing(self) -> list[int]:
        """Places of the edits that changed nothing."""
        return [n for n, one in enumerate(self.reports) if one.fate != "applied"]


def try_edits(candidate: Candidate, items: Sequence[Item], rules: Rules) -> Tried:
    """Apply items to a candidate one by one, each to the text that those before it left."""
    reports: list[EditReport] = []
    for item in items:
        path = str(item.get("file") or SKILL)
        edit = edit_of(item, candidate.texts.get(path, ""))
        applied = apply_edits(candidate, (edit,), rules)
        candidate = applied.candidate
        reports += applied.reports
    return Tried(candidate, tuple(reports))
