"""A section that is protected: what touches it, and what stands beside it."""

import pytest

from kept.core.artifact import Artifact, Candidate, Heading, Rules
from kept.core.edit import Append, Delete, Edit, InsertAfter, Replace, Write, apply_edits

TEXT = """# Skill

Read it.

## Limits

Never guess.

### Figures

As they stand.

## Style

Short.
"""


def fate(edit: Edit, text: str = TEXT) -> str:
    rules = Rules({"a.md": Artifact("a.md", (Heading("limits"),))})
    return apply_edits(Candidate({"a.md": text}), (edit,), rules).reports[0].fate


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a.md", "Never guess", "Guess"),
        Replace("a.md", "As they stand", "Rounded"),
        Replace("a.md", "## Limits", "## Advice"),
        Replace("a.md", "## Limits", "### Limits"),
        Delete("a.md", "### Figures\n"),
        InsertAfter("a.md", "As they stand.\n", "Or so.\n"),
        # it would still be there, and be a heading no more
        Replace("a.md", "Read it.\n", "Read it.\n```\n"),
        Replace("a.md", "Read it.\n\n", "Read it.\n\n<!-- -->"),
        Append("a.md", "\n## Limits\n\nNone.\n"),
        Write("a.md", "# Skill\n"),
        Write("a.md", TEXT.replace("Never", "Always")),
    ],
)
def test_a_protected_section_stays_as_it_is(edit: Edit):
    assert fate(edit) == "protected"


@pytest.mark.parametrize(
    "edit",
    [
        Replace("a.md", "Read it.", "Read all of it."),
        Replace("a.md", "Short.", "Plain."),
        InsertAfter("a.md", "Read it.\n", "\n## Steps\n\nOne.\n"),
        Replace("a.md", "## Style", "## Tone"),
        Delete("a.md", "## Style\n\nShort.\n"),
        Append("a.md", "\n## Example\n\nNone.\n"),
        Write("a.md", TEXT.replace("Short.", "Plain.")),
    ],
)
def test_what_stands_beside_it_is_free(edit: Edit):
    assert fate(edit) == "applied"


def test_behind_the_last_section_another_may_follow():
    last = TEXT[: TEXT.index("\n## Style")]
    assert fate(Append("a.md", "\n\n## Style\n\nShort.\n"), last) == "applied"
    assert fate(Append("a.md", "And more.\n"), last) == "protected"


def test_what_is_protected_has_words():
    assert str(Heading("Limits")) == "the section `Limits`"
