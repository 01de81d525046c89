"""What the manager of an iteration is told in its first turn: 10 to 40 lines, always the same."""

from collections.abc import Sequence

from kept.core.words import one_line
from kept.orchestrator.refine.findings import Findings
from kept.orchestrator.run_folder.read import SeedDefect

MOST_LINES = 40

_RANK = {
    **dict.fromkeys(("critical", "high"), 0),
    **dict.fromkeys(("warning", "medium"), 1),
}
_WIDTH = 300
"""Characters of one line."""

_OPENING = (
    "## REFINEMENT CONTEXT",
    "",
    "This run goes on from the deliverable of an earlier one; it does not start from nothing.",
    "That deliverable is in `input/`, for you and for every worker.",
)
_CLOSING = (
    "",
    "Objective: leave what works as it is, and mend what is listed above.",
    "First have `input/` copied to `output/`, then change what has to change.",
    "Complete when every point above is settled and nothing else has become worse.",
)


def brief_text(findings: Findings, broke: Sequence[str] = ()) -> str:
    """The brief; sections that would be empty are left out.

    `broke` says what an attempt since then has made worse, where this one starts before it.
    """
    head = [*_OPENING, *_standing(findings)]
    parts = [
        _section(
            "Defects that critics found:",
            [
                f"[{one.severity}] {one.summary}{_at(one.evidence)}"
                for one in _worst_first(findings)
            ],
        ),
        _section(
            "Completions that were refused:",
            [f"{one.gate}: {one.reason}" for one in findings.refusals],
        ),
        _section(
            "Metrics that fall short:",
            [f"{name}: +{gap:g} needed" for name, gap in findings.gaps.items()],
        ),
        _section("The attempt before this one was no better. It broke:", broke),
    ]
    room = MOST_LINES - len(head) - len(_CLOSING)
    return "\n".join([*head, *_fitted([one for one in parts if one], room), *_CLOSING])


def _standing(findings: Findings) -> list[str]:
    if findings.loss is None:
        return []
    rows = [f"Prior loss: {findings.loss:.3f} (lower is better)"]
    return rows + [f"  {name}: {value:g}" for name, value in findings.signals.items()]


def _worst_first(findings: Findings) -> list[SeedDefect]:
    return sorted(findings.defects, key=lambda one: _RANK.get(one.severity.lower(), 2))


def _at(evidence: str) -> str:
    return f" ({evidence})" if evidence else ""


def _section(title: str, rows: Sequence[str]) -> list[str]:
    return ["", title, *(f"  - {one_line(row, _WIDTH)}" for row in rows)] if rows else []


def _fitted(parts: list[list[str]], room: int) -> list[str]:
    """All sections, the longest cut until there is room; each says how much it leaves out."""
    kept = [len(part) for part in parts]
    while sum(kept) > room:
        kept[kept.index(max(kept))] -= 1
    rows: list[str] = []
    for part, size in zip(parts, kept, strict=True):
        if size == len(part):
            rows += part
        else:
            rows += [*part[: size - 1], f"  - … and {len(part) - size + 1} more"]
    return rows
