"""Level-0 check of deliverables (rule R34): six cheap tests before anything expensive.

In this order: no_placeholder, no_text_loop, file_size_delta, no_duplicate_headings,
balanced_delimiters, json_valid_if_claimed. Only the first flaw of a file is reported, and no
model is called. Differences from the source are in docs/decisions/0054.

The completion check applies them to every declared deliverable.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kept.core.parsing import parse_json
from kept.core.text import sections, words_of
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.files import fingerprint, likeness, owed
from kept.orchestrator.checks.text import (
    MARKDOWN,
    PROSE,
    flaw,
    line_at,
    paragraphs,
    suffix_of,
    text_of,
    told,
    unbalanced,
)
from kept.orchestrator.record import Finding

MARKERS = (
    *(r"\bTODO\b", r"\bXXX\b", r"(?<![\w?])\?\?\?", r"\bLorem ipsum\b", r"\bTBD\b", r"\bFIXME\b"),
    *(r"\bTITLE GOES HERE\b", r"\bAuthor Name\b", r"\bto be filled\b"),
)
"""Patterns of placeholders for unwritten text; case-sensitive."""

LOOP = 0.85
"""Similarity of two paragraphs above which one repeats the other."""

LEAST_WORDS = 20
"""Minimum words of a paragraph that can count as a repetition."""

NEAR = 200
"""Number of earlier paragraphs compared for similarity; equal ones are found at any distance."""

GROWTH = 2.5
"""Growth factor above which a file was probably written over and over."""

STUB = 512
"""Bytes below which a file was only a start, so that any growth is fine."""

CLAIMS_JSON = (".json", ".geojson", ".ipynb")


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One deliverable, with the data needed to check it."""

    path: str
    data: bytes
    task: str = ""
    before: int | None = None
    """Bytes at the check before; None for a new file."""
    text: str | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", text_of(self.path, self.data))


def no_placeholder(look: Look) -> Finding | None:
    """Refuse placeholders, except those that the task itself contains."""
    for marker in MARKERS:
        found = re.search(marker, look.text or "")
        if found and found[0] not in look.task:
            line = line_at(look.text or "", found.start())
            return flaw(look.path, f"`{found[0]}` stands for something unwritten", "", line)
    return None


def no_text_loop(look: Look) -> Finding | None:
    """Refuse a paragraph that repeats an earlier one."""
    if look.text is None or suffix_of(look.path) not in PROSE | {""}:
        return None
    repeated = repeated_paragraph(paragraphs(look.text))
    if repeated is None:
        return None
    first = " ".join(repeated.split()[:8])
    return flaw(look.path, f"a paragraph repeats an earlier one: `{first} …`")


def repeated_paragraph(parts: Sequence[str]) -> str | None:
    """Return the first long paragraph that repeats an earlier one; None if there is none."""
    # rows of tables may well be alike
    spoken = ((part, words_of(part)) for part in parts if not part.lstrip().startswith("|"))
    long = [(part, words) for part, words in spoken if len(words) >= LEAST_WORDS]
    if len(long) < 2:
        # fingerprints are slow, and most files have at most one long paragraph
        return None
    seen: set[str] = set()
    prints: list[int] = []
    for part, words in long:
        whole, now = " ".join(words), fingerprint(part)
        if whole in seen or any(likeness(now, one) > LOOP for one in prints[-NEAR:]):
            return part
        seen.add(whole)
        prints.append(now)
    return None


def file_size_delta(look: Look) -> Finding | None:
    """Refuse a file that has become many times larger."""
    if look.before is None or look.before < STUB or len(look.data) <= GROWTH * look.before:
        return None
    times = len(look.data) / look.before
    return flaw(look.path, f"{times:.1f} times as large as before, over {GROWTH:g}")


def no_duplicate_headings(look: Look) -> Finding | None:
    """Refuse two equal headings below the same parent."""
    if look.text is None or suffix_of(look.path) not in MARKDOWN:
        return None
    seen: set[tuple[tuple[int, str], ...]] = set()
    path: list[tuple[int, str]] = []
    for section in sections(look.text):
        # headings above this one, by level; equal headings below different parents are fine
        path = [*(head for head in path if head[0] < section.level), (section.level, section.key)]
        if tuple(path) in seen:
            return flaw(look.path, f"the heading `{section.title}` stands twice")
        seen.add(tuple(path))
    return None


def balanced_delimiters(look: Look) -> Finding | None:
    """Refuse unbalanced delimiters."""
    return None if look.text is None else unbalanced(look.path, look.text)


def json_valid_if_claimed(look: Look) -> Finding | None:
    """Refuse files with a JSON suffix that are not valid JSON."""
    kind = suffix_of(look.path)
    if kind not in (*CLAIMS_JSON, ".jsonl"):
        return None
    if look.text is None:
        return flaw(look.path, "is called JSON and is no text")
    # `.jsonl` has one document per line, the others one per file
    rows = [look.text] if kind in CLAIMS_JSON else look.text.splitlines()
    for number, row in enumerate(rows, 1):
        if kind == ".jsonl" and not row.strip():
            continue
        try:
            parse_json(row)
        except ValueError as error:
            line = number if kind == ".jsonl" else getattr(error, "lineno", None)
            return flaw(look.path, f"is called JSON and is not: {error}", "", line)
    return None


L0: Mapping[str, Callable[[Look], Finding | None]] = {
    "no_placeholder": no_placeholder,
    "no_text_loop": no_text_loop,
    "file_size_delta": file_size_delta,
    "no_duplicate_headings": no_duplicate_headings,
    "balanced_delimiters": balanced_delimiters,
    "json_valid_if_claimed": json_valid_if_claimed,
}
"""Tests by name, in the order in which they run."""


def l0_flaws(looks: Sequence[Look]) -> Iterator[Finding]:
    """Yield the first flaw of each deliverable, with the rule it breaks."""
    for look in looks:
        for rule, check in L0.items():
            found = check(look)
            if found is not None:
                yield replace(found, rule=rule)
                break


def l0(submission: Submission) -> CheckResult:
    """Refuse unfinished deliverables; if none is declared, every file counts as one."""
    declared = [path for path in owed(submission) if path in submission.files]
    looks = [
        Look(
            path=path,
            data=submission.files[path],
            task=submission.task,
            before=submission.previous.get(path),
        )
        for path in declared or sorted(submission.files)
    ]
    found = tuple(l0_flaws(looks))
    if not found:
        return Passed()
    words = "; ".join(f"{one.rule}: {told(one)}" for one in found)
    return Rejected(reason=f"deliverables are not finished: {words}", findings=found)
