"""Blanks that were left to be filled in, in the result and in the deliverables.

Where L0 looks for the marks of something unwritten, this looks for values that were never put in.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.texts import PROSE, flaw, line_at, suffix_of, texts_of, told
from kept.orchestrator.record import Finding

ANYWHERE = (
    (r"(?<!\w)XX+(?:\.X+)?\s?%", "a share without a number"),
    (r"(?<!\w)[$€£]XX+", "an amount without a number"),
    (r"(?i)\blorem ipsum\b", "filler"),
    (r"(?i)\[(?:insert|your|todo|tbd|placeholder|fill in)\b[^\]\n]{0,60}\]", "a blank"),
    (r"(?i)<(?:insert|your|placeholder)[ _-][^>\n]{0,60}>", "a blank"),
    (r"(?i)\b(?:placeholder text|content goes here|text goes here)\b", "filler"),
)
IN_PROSE = ((r"\{\{\s*\w[^{}\n]{0,60}\}\}", "a template that was not filled in"),)
"""Where templates are code, they are meant."""

MOST = 5
"""Findings that a manager is told of at once."""


def placeholder(submission: Submission) -> CheckResult:
    """No blank in what the manager says came out, nor in any file."""
    found = [*_in_result(submission), *_in_files(submission)]
    if not found:
        return Passed()
    words = "; ".join(map(told, found[:MOST]))
    return Rejected(reason=f"blanks were not filled in: {words}", findings=tuple(found))


def _in_result(submission: Submission) -> Iterator[Finding]:
    for name, text in _texts_in("final_result", submission.final_result):
        yield from _blanks(name, text, (*ANYWHERE, *IN_PROSE), submission.task)
        if text.strip() in ("TODO", "TBD", "???", "...", "…", "N/A", "XXX"):
            yield flaw(name, f"`{text.strip()}` is no value", "placeholder")


def _in_files(submission: Submission) -> Iterator[Finding]:
    for path, text in texts_of(submission.files):
        prose = suffix_of(path) in PROSE
        patterns = (*ANYWHERE, *IN_PROSE) if prose else ANYWHERE
        for found in _blanks(path, text, patterns, submission.task):
            yield found
            break


def _blanks(
    name: str, text: str, patterns: Sequence[tuple[str, str]], task: str
) -> Iterator[Finding]:
    for pattern, what in patterns:
        found = re.search(pattern, text)
        # what the task itself spells so is its subject
        if found and found[0] not in task:
            detail = f"`{found[0]}` is {what}"
            yield flaw(name, detail, "placeholder", line_at(text, found.start()))


def _texts_in(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _texts_in(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(cast("Sequence[object]", value)):
            yield from _texts_in(f"{name}[{number}]", inner)
