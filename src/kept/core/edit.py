"""Edits: one operation on one artifact each, and a report of what became of every one.

An edit's target must stand in the text exactly once, and not begin or end within a word. A missing
or ambiguous target is reported and nothing is changed: never the first hit, never an append
instead. Every applied edit becomes a `Splice`, which inverts exactly.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from unicodedata import combining

from kept.core.artifact import Candidate, Locator, NoSpan, Region, Rules, Value, locate_line_value
from kept.core.text import changes, lines_of


class _Edit:
    """Base class of edits at run time; the type checker sees the union `Edit`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Replace(_Edit):
    """Put `new` where `old` stands."""

    path: str
    old: str
    new: str
    op: Literal["replace"] = "replace"


@dataclass(frozen=True, slots=True)
class InsertAfter(_Edit):
    """Put `text` right behind `anchor`."""

    path: str
    anchor: str
    text: str
    op: Literal["insert_after"] = "insert_after"


@dataclass(frozen=True, slots=True)
class Delete(_Edit):
    """Take `text` out."""

    path: str
    text: str
    op: Literal["delete"] = "delete"


@dataclass(frozen=True, slots=True)
class Append(_Edit):
    """Put `text` at the end, on a line of its own, with the line endings that are there."""

    path: str
    text: str
    op: Literal["append"] = "append"


@dataclass(frozen=True, slots=True)
class Write(_Edit):
    """Make `text` the whole content; creates the file where the rules allow new ones."""

    path: str
    text: str
    op: Literal["write"] = "write"


@dataclass(frozen=True, slots=True)
class SetValue(_Edit):
    """Set one named value, leaving the text around it as it is."""

    path: str
    key: str
    value: Value
    op: Literal["set_value"] = "set_value"


@dataclass(frozen=True, slots=True)
class Fill(_Edit):
    """Make `text` what stands between two markers; they come to the end where they are not there.

    The one edit that a region so marked is not protected from: no reply of a model is read as one.
    """

    path: str
    begin: str
    end: str
    text: str
    op: Literal["fill"] = "fill"


# A checker needs the closed union to see that a match is complete; the journal needs one class to
# hang its reader on, which then picks the edit by its `op`.
if TYPE_CHECKING:
    Edit = Replace | InsertAfter | Delete | Append | Write | SetValue | Fill
else:
    Edit = _Edit

# Surrogates, but for those that stand for bytes which are not UTF-8.
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")

Fate = Literal[
    "applied",
    "target missing",
    "ambiguous",
    "protected",
    "outside scope",
    "over limit",
    "no change",
]


@dataclass(frozen=True, slots=True)
class Splice:
    """Exact change of the text by an applied edit."""

    path: str
    start: int
    removed: str
    inserted: str
    creates: bool = False
    """The file did not exist before."""


@dataclass(frozen=True, slots=True)
class EditReport:
    """Result of applying one edit."""

    edit: Edit
    fate: Fate
    detail: str = ""
    splice: Splice | None = None


@dataclass(frozen=True, slots=True)
class Applied:
    """A candidate and the report of every edit that was to make it."""

    candidate: Candidate
    reports: tuple[EditReport, ...]

    @property
    def complete(self) -> bool:
        """True if every edit took effect."""
        return all(report.fate == "applied" for report in self.reports)


def apply_edits(
    candidate: Candidate,
    edits: Sequence[Edit],
    rules: Rules,
    locate: Locator = locate_line_value,
) -> Applied:
    """Apply edits in order, each to the text that the ones before it left.

    A path that is no artifact's is looked up as `Rules.find` says.
    """
    texts = dict(candidate.texts)
    reports: list[EditReport] = []
    for given in edits:
        meant = rules.find(given.path, texts, whole=isinstance(given, Write))
        edit = given if meant == given.path else replace(given, path=meant)
        found = _resolve(edit, texts, rules, locate)
        refusal = found if isinstance(found, EditReport) else _refused(edit, found, texts, rules)
        if refusal is not None:
            reports.append(refusal)
            continue
        assert isinstance(found, Splice)
        texts[found.path] = _spliced(texts.get(found.path, ""), found)
        reports.append(EditReport(edit, "applied", splice=found))
    return Applied(Candidate(texts, candidate.blobs), tuple(reports))


def partly_applied(reports: Sequence[EditReport]) -> str:
    """`1 of 2 edits applied: why the first of the others was not`; empty where all were."""
    refused = [report for report in reports if report.fate not in ("applied", "no change")]
    if not refused or len(refused) == len(reports):
        return ""
    took = sum(report.fate == "applied" for report in reports)
    why = refused[0].detail or refused[0].fate
    if refused[0].fate in ("target missing", "ambiguous", "protected"):
        why = f"{refused[0].fate}, {why}"
    return f"{took} of {len(reports)} edits applied: {why}"


def reapply(candidate: Candidate, reports: Sequence[EditReport]) -> Candidate:
    """Apply reported edits again to a candidate."""
    texts = dict(candidate.texts)
    for report in reports:
        if report.splice is not None:
            splice = report.splice
            texts[splice.path] = _spliced(texts.get(splice.path, ""), splice)
    return Candidate(texts, candidate.blobs)


def invert(candidate: Candidate, reports: Sequence[EditReport]) -> Candidate:
    """Take applied edits back: the candidate as it was before them."""
    texts = dict(candidate.texts)
    for report in reversed(reports):
        splice = report.splice
        if splice is None:
            continue
        if splice.creates:
            del texts[splice.path]
            continue
        back = Splice(splice.path, splice.start, splice.inserted, splice.removed)
        texts[splice.path] = _spliced(texts[splice.path], back)
    return Candidate(texts, candidate.blobs)


def changed_paths(before: Candidate, after: Candidate) -> tuple[str, ...]:
    """Paths whose content differs, sorted."""
    paths = before.texts.keys() | after.texts.keys()
    return tuple(sorted(p for p in paths if before.texts.get(p) != after.texts.get(p)))


def not_shorter(before: Candidate, after: Candidate) -> str:
    """That there is no less to read than before, in words; empty when there is."""
    was, now = (sum(map(len, one.texts.values())) for one in (before, after))
    return "" if now < was else f"the texts would have {now} characters, and have {was} now"


def changed_lines(before: Candidate, after: Candidate) -> int:
    """Lines removed plus lines added between two candidates."""
    paths = changed_paths(before, after)
    return sum(sum(line_counts(before.texts.get(p, ""), after.texts.get(p, ""))) for p in paths)


def line_counts(before: str, after: str) -> tuple[int, int]:
    """Lines removed and lines added between two texts."""
    removed = added = 0
    for change in changes(_lines(before), _lines(after)):
        removed += change.end - change.start
        added += change.new_end - change.new_start
    return removed, added


def diff(before: Candidate, after: Candidate) -> str:
    """A unified diff from one candidate to another."""
    parts: list[str] = []
    for path in changed_paths(before, after):
        old = _lines(before.texts.get(path, ""), ends=True)
        new = _lines(after.texts.get(path, ""), ends=True)
        names = (f"a/{path}" if path in before.texts else "/dev/null", f"b/{path}")
        for line in difflib.unified_diff(old, new, *names):
            # difflib leaves a last line without newline bare, which would glue two lines together
            parts.append(line if line.endswith("\n") else f"{line}\n\\ no newline at end of file\n")
    return "".join(parts)


def _lines(text: str, *, ends: bool = False) -> list[str]:
    # not splitlines: it also splits at form feeds and the like, which `diff` and `patch` do not
    *lines, last = text.split("\n")
    return [line + "\n" if ends else line for line in lines] + ([last] if last else [])


def _resolve(
    edit: Edit, texts: dict[str, str], rules: Rules, locate: Locator
) -> Splice | EditReport:
    """The exact change an edit asks for, or why there is none."""
    if not rules.allows(edit.path):
        return EditReport(edit, "outside scope", rules.refusal(edit.path, texts))
    text = texts.get(edit.path)
    if text is None and not isinstance(edit, Write):
        return EditReport(edit, "target missing", f"`{edit.path}` does not exist")
    before = text or ""
    match edit:
        case Replace(old=old, new=new):
            splice = _at_unique(edit, before, old, new)
        case Delete(text=old):
            splice = _at_unique(edit, before, old, "")
        case InsertAfter(anchor=anchor, text=new):
            splice = _at_unique(edit, before, anchor, anchor + new)
            if isinstance(splice, Splice):
                splice = Splice(edit.path, splice.start + len(anchor), "", new)
        case Append(text=new):
            splice = Splice(edit.path, len(before), "", _appended(before, new))
        case Write(text=new):
            splice = Splice(edit.path, 0, before, new, creates=text is None)
        case Fill():
            splice = _filled(edit, before)
        case SetValue():
            splice = _set(edit, before, locate)
    if isinstance(splice, Splice) and splice.removed == splice.inserted and not splice.creates:
        return EditReport(edit, "no change", "the text already reads so")
    return splice


def _appended(before: str, text: str) -> str:
    """Text to append so that it starts on a line of its own."""
    last = before.rfind("\n")
    if last < 0:
        return f"\n{text}" if before else text
    ending = "\r\n" if before[:last].endswith("\r") else "\n"
    glue = "" if last == len(before) - 1 else ending
    return glue + text.replace("\r\n", "\n").replace("\n", ending)


def _set(edit: SetValue, before: str, locate: Locator) -> Splice | EditReport:
    span = locate(edit.path, before, edit.key)
    if isinstance(span, NoSpan):
        return EditReport(edit, span.why, span.detail)
    new = span.render(edit.value)
    return Splice(edit.path, span.start, before[span.start : span.end], new)


def _filled(edit: Fill, before: str) -> Splice | EditReport:
    if edit.begin in edit.text or edit.end in edit.text:
        return EditReport(edit, "outside scope", "the text holds the markers of its region")
    whole = f"{edit.begin}\n{edit.text.strip()}\n{edit.end}"
    found = Region(edit.begin, edit.end).stretches(before)
    if not found:
        return Splice(edit.path, len(before), "", _appended(before, f"\n{whole}\n"))
    if len(found) > 1 or not found[0].endswith(edit.end):
        return EditReport(edit, "ambiguous", f"`{edit.begin}` stands more than once, or never ends")
    if "\r\n" in found[0]:
        whole = whole.replace("\r\n", "\n").replace("\n", "\r\n")
    return Splice(edit.path, before.find(edit.begin), found[0], whole)


def _at_unique(edit: Edit, text: str, target: str, new: str) -> Splice | EditReport:
    if not target:
        return EditReport(edit, "target missing", "the target is empty")
    at = text.find(target)
    if at < 0:
        return EditReport(edit, "target missing", f"not in `{edit.path}`")
    places = target_places(text, target)
    if len(places) > 1:
        return EditReport(edit, "ambiguous", f"stands more than once in `{edit.path}`")
    if not places:
        inside = _cut_word(text, at, at + len(target))
        return EditReport(edit, "target missing", f"stands only inside of the word `{inside}`")
    return Splice(edit.path, places[0], target, new)


SHOWN_CHARS = 40
"""Characters of a word that are shown on each side of a cut."""


def target_places(text: str, target: str, most: int = 2) -> list[int]:
    """Find the first places of a target that cut no word, at most so many."""
    found: list[int] = []
    at = text.find(target) if target else -1
    while at >= 0 and len(found) < most:
        if not cuts_word(text, at, at + len(target)):
            found.append(at)
        # overlapping hits count, too: "a a" stands twice in "a a a"
        at = text.find(target, at + 1)
    return found


def cuts_word(text: str, start: int, end: int) -> bool:
    """True for a target that begins or ends in the middle of a word.

    `Answer` in `# Answering` is no place to edit: deleting it would leave `# ing`.
    """
    return _is_inside(text, start) or _is_inside(text, end)


def _is_inside(text: str, at: int) -> bool:
    return 0 < at < len(text) and _in_word(text[at - 1]) and _in_word(text[at])


def _cut_word(text: str, start: int, end: int) -> str:
    """The word that a target cuts; of a long one the part around the cut."""
    at = start if _is_inside(text, start) else end
    begin, stop = at, at
    while begin > max(0, at - SHOWN_CHARS) and _in_word(text[begin - 1]):
        begin -= 1
    while stop < min(len(text), at + SHOWN_CHARS) and _in_word(text[stop]):
        stop += 1
    return text[begin:stop]


def _in_word(char: str) -> bool:
    # from U+0E00 on (Thai, Chinese, Japanese, …) words stand without spaces between them
    return (char.isalnum() or char == "_" or bool(combining(char))) and char < "\u0e00"


def _refused(edit: Edit, splice: Splice, texts: dict[str, str], rules: Rules) -> EditReport | None:
    if _HALF.search(splice.inserted):
        return EditReport(edit, "outside scope", "half a character, which no file can hold")
    artifact = rules.artifacts.get(splice.path)
    if artifact is None:
        return None
    before = texts.get(splice.path, "")
    after = _spliced(before, splice)
    limit = artifact.max_chars
    if limit is not None and len(after) > max(limit, len(before)):
        return EditReport(edit, "over limit", f"{len(after)} characters, {limit} allowed")
    own = Region(edit.begin, edit.end) if isinstance(edit, Fill) else None
    for stretch in artifact.protected:
        if stretch != own and stretch.touched(before, after):
            return EditReport(edit, "protected", str(stretch))
    return None


def _spliced(text: str, splice: Splice) -> str:
    return text[: splice.start] + splice.inserted + text[splice.start + len(splice.removed) :]


def replace_at(path: str, text: str, start: int, end: int, new: str) -> Replace:
    """Put `new` in the place of a stretch, with as much of the lines around as makes it unique.

    The text is not empty: nothing could be named in it.
    """
    left, right = start, end
    while right - left < len(text) and (
        not _once(text, text[left:right]) or cuts_word(text, left, right)
    ):
        # a line further on both sides; in the end the whole text, which is there just once
        left = text.rfind("\n", 0, max(0, left - 1)) + 1 if left else 0
        after = text.find("\n", right)
        right = len(text) if after < 0 else after + 1
    return Replace(path, text[left:right], text[left:start] + new + text[end:right])


def edits_between(path: str, before: str, after: str) -> tuple[Edit, ...]:
    """Edits of single stretches that turn one text into another.

    Of stretches rather than of the whole text, so that they still apply when another step has
    changed something else meanwhile.
    """
    if not before:
        return (Write(path, after),) if after else ()
    edits: list[Edit] = []
    text = before
    # from the end: what stands before a stretch is then still as it was
    for start, end, new in reversed(list(_changes(before, after))):
        edit = replace_at(path, text, start, end, new)
        edits.append(edit)
        text = text.replace(edit.old, edit.new, 1)
    return tuple(edits) if text == after else (Write(path, after),)


def _changes(before: str, after: str) -> Iterator[tuple[int, int, str]]:
    old, new = lines_of(before), lines_of(after)
    offsets = [0]
    for line in old:
        offsets.append(offsets[-1] + len(line))
    for change in changes(old, new):
        inserted = "".join(new[change.new_start : change.new_end])
        yield offsets[change.start], offsets[change.end], inserted


def _once(text: str, part: str) -> bool:
    first = text.find(part) if part else -1
    return first >= 0 and text.find(part, first + 1) < 0
