"""What a subtask is to be done with, told before anybody is sent (R31)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from kept.orchestrator.record import How, Need

RULE = """\
Every subtask says what it is done with: in `tools`, names of the tools that there are, or in
`tool_manifest`, a list of objects with `capability` (what has to be possible) and
`reuse_or_generate`: `reuse` with `tool` or `pattern_id`, `synthesize` with `archetype_id` and
`recipe_params`, `generate` with `assumptions` (a list). A plan without that is not taken."""
"""For a manager whose plans must."""

_WITH: Mapping[How, tuple[tuple[str, ...], ...]] = {
    "reuse": (("tool", "pattern_id"),),
    "synthesize": (("archetype_id",), ("recipe_params",)),
    "generate": (("assumptions",),),
}
"""What goes with each way, one name of each group."""


def needs_of(rows: Sequence[object]) -> tuple[Need, ...]:
    """The rows of a manifest that say something."""
    return tuple(_need(row) for row in map(_row, rows) if not any(_faults(row)))


def manifest_faults(
    subtask: str, rows: Sequence[object], named: Sequence[str], tools: Sequence[str]
) -> Iterator[str]:
    """All that is wrong with what one subtask says it is done with."""
    there = ", ".join(tools)
    if not rows and not named:
        yield f"subtask `{subtask}` does not say what it is done with: `tools` (of {there})"
    for number, row in enumerate(map(_row, rows), 1):
        at = f"row {number} of the `tool_manifest` of subtask `{subtask}`"
        yield from (f"{at} {fault}" for fault in _faults(row))
        tool = row.get("tool")
        if isinstance(tool, str) and tool_name(tool) not in tools:
            yield f"{at} names the tool `{tool}`; there is {there}"


def tool_name(name: str) -> str:
    """As providers take it: the original has dots in its names, and one for all of arithmetic."""
    plain = name.strip().replace(".", "_")
    return "arithmetic" if plain.startswith("arithmetic") else plain


def _row(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _faults(row: Mapping[str, Any]) -> Iterator[str]:
    if not str(row.get("capability") or "").strip():
        yield "has no `capability`"
    how = row.get("reuse_or_generate")
    if how not in _WITH:
        yield f"has `reuse_or_generate` {how!r}, which is one of {', '.join(_WITH)}"
        return
    for names in _WITH[cast("How", how)]:
        if not any(name in row for name in names):
            yield f"is to {how} and has no {' or '.join(f'`{name}`' for name in names)}"


def _need(row: Mapping[str, Any]) -> Need:
    given = row.get("assumptions")
    assumed = cast("list[object]", given) if isinstance(given, list) else []
    of = row.get("tool") or row.get("pattern_id") or row.get("archetype_id") or ""
    return Need(
        capability=str(row["capability"]).strip(),
        how=row["reuse_or_generate"],
        of=str(of),
        assumptions=tuple(str(one) for one in assumed),
    )
