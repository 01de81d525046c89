"""`kept check SPEC`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kept.cli.command import Command
from kept.cli.options import json_option, set_option

LIMITS = {"files": "file", "changed_lines": "changed line"}

MAX_ARTIFACTS = 20
"""Artifacts that are listed by name."""


@click.command(cls=Command, examples=("kept check task.yaml", "kept check task.yaml --json"))
@click.argument("spec", type=click.Path(path_type=Path))
@set_option
@json_option
def check(spec: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Say what a run of SPEC would do, and the most it can cost.

    Reads the spec and every file it names, and tells all that is wrong. Runs neither runner nor
    scorer nor proposer, writes nothing and spends nothing. Of your code only a Python function that
    scores is looked at by importing it.
    """
    from kept.cli import output
    from kept.cli.problems import told_as_json
    from kept.cli.texts import pairs
    from kept.recipes.outline import outline
    from kept.registry import compile_spec

    with told_as_json(as_json):
        compiled = compile_spec(spec, settings)
    told = outline(compiled)
    if as_json:
        output.document({"ok": True, **told})
        return
    output.answer(output.visible(pairs(_rows(told))))
    for warning in compiled.warnings:
        output.warn(warning)


def _rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from kept.cli.names import path_from_here
    from kept.core.words import count

    yield "spec", f"{path_from_here(told['spec'])} ({told['recipe']}), in order"
    yield "artifacts", _artifacts(told["artifacts"])
    for one in told["artifacts"][:MAX_ARTIFACTS]:
        yield "", f"{one['path']}, {_size(one['bytes'])}" + _carried(one)
    sizes = told["limits"]
    limits = [count(sizes[name], one) for name, one in LIMITS.items() if sizes[name]]
    yield "change", f"at most {' and '.join(limits)} a candidate" if limits else "of any size"
    if told["protected"]:
        yield "", f"protected: {', '.join(told['protected'])}"
    if told["guidance"]:
        yield "guidance", ", ".join(told["guidance"])
    yield "cases", _cases(told["cases"])
    yield "runner", _command(told["runner"])
    yield "scorer", _command(told["scorer"])
    yield "proposers", ", ".join(told["proposers"])
    yield from _decision(told)
    budget = ", ".join(f"{name} {n:g}" for name, n in told["budget"].items())
    yield "budget", budget
    yield "at once", f"width {told['width']}, workers {told['workers']}"
    yield "at most", _at_most(told)


def _artifacts(found: list[dict[str, Any]]) -> str:
    from kept.core.words import are, count

    more = len(found) - MAX_ARTIFACTS
    hidden = f"; {more} {are(more)} not listed here" if more > 0 else ""
    return f"{count(len(found), 'file')}, {_size(sum(one['bytes'] for one in found))}{hidden}"


def _carried(one: dict[str, Any]) -> str:
    return "" if one["editable"] else ", carried and not edited"


def _size(n: int) -> str:
    from kept.core.words import count

    return count(n, "byte") if n < 10_000 else f"{n / 1024:.0f} KiB"


def _cases(counts: dict[str, int] | None) -> str:
    if counts is None:
        return "none: one run of the whole command decides"
    return ", ".join(f"{n} {split}" for split, n in counts.items())


def _command(facts: Any) -> str:  # noqa: ANN401 # whatever a recipe says of it
    if not isinstance(facts, dict) or "command" not in facts:
        kind: object = facts.get("type", "") if isinstance(facts, dict) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] # any document
        return str(kind)  # pyright: ignore[reportUnknownArgumentType] # any document
    seconds = f", up to {facts['timeout_seconds']:g} s" if "timeout_seconds" in facts else ""
    return f"`{facts['command']}`{seconds}"


def _decision(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    objective, gate = told["objective"], told["gate"]
    yield "metric", f"{objective['metric']}, {objective['direction']}"
    yield "gate", f"{gate['name']}: {told['rule']['words']}"
    if gate["name"] == "race":
        yield "", ", ".join(f"{name} {value}" for name, value in told["rule"]["numbers"].items())
    if objective["constraints"]:
        yield "", f"unless one of these is broken: {', '.join(objective['constraints'])}"
    if objective["tie_breakers"]:
        yield "", f"ties are broken by {', then '.join(objective['tie_breakers'])}"


def _at_most(told: dict[str, Any]) -> str:
    from kept.core.words import count
    from kept.report.words import duration

    most = told["at_most"]
    rollouts, seconds, usd = most["rollouts"], most["seconds"], most["usd"]
    parts = ["rollouts without limit" if rollouts is None else count(rollouts, "rollout")]
    parts.append("time without limit" if seconds is None else duration(seconds))
    parts.append("money without limit" if usd is None else f"${usd:.2f}")
    return ", ".join(parts)
