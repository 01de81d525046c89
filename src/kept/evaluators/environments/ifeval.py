"""IFEval: prompts with instructions that a program can check, in rows as its authors publish them.

A row has `key`, `prompt`, `instruction_id_list` and `kwargs`, one mapping for each instruction.
A case is solved where every instruction is followed; `soft` is the share that is.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.checks import CHECKS, Kind, unmet
from kept.evaluators.environments.contract import Environment, Graded, Item, Posed
from kept.evaluators.environments.fields import Fields, as_items, item, values
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.reading import Row, rows_in
from kept.evaluators.environments.skills import initial

__all__ = ["IfEval"]


@dataclass(frozen=True)
class IfEval(Environment):
    """One prompt a case."""

    name = "ifeval"
    data = (
        "IFEval (huggingface.co/datasets/google/IFEval): a file of rows (prompt, "
        "instruction_id_list, kwargs) as `env.data_path`; or with `split_mode: split_dir` such "
        "rows in train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
        return initial("ifeval")

    def read(self, path: Path) -> Iterable[Item]:
        """Prompts of JSON lines or JSON."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            prompt = fields.text(row, ("prompt",))
            wanted = _wanted(row, fields)
            if prompt is not None and wanted is not None:
                kinds, given = [kind for kind, _ in wanted], [args for _, args in wanted]
                data = {"prompt": prompt, "instruction_id_list": kinds, "kwargs": given}
                yield item(row, data)

    def pose(self, case: Case) -> Posed:
        """The prompt as it stands."""
        return Posed(values(case)["prompt"])

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Every instruction is checked, on the reply as it stands."""
        wanted = instructions(case)
        text = rollout.output
        faults = [(kind, unmet(kind, text, args)) for kind, args in wanted]
        broken = [f"{kind}: {fault}" for kind, fault in faults if fault]
        share = 1 - len(broken) / len(wanted)
        loose = all(
            any(not unmet(kind, one, args) for one in loosened(text)) for kind, args in wanted
        )
        metrics = {"loose": float(loose), "followed": share}
        told = f"{len(wanted) - len(broken)} of {len(wanted)} instructions are followed"
        return Graded(float(not broken), share, "; ".join(broken), told, metrics)

    def about(self, case: Case) -> About:
        """The prompt, and what kinds of instructions it has; nothing is hidden."""
        data = values(case)
        return About(data["prompt"], ", ".join(data["instruction_id_list"]))


def instructions(case: Case) -> list[tuple[Kind, Mapping[str, Any]]]:
    """The instructions of a case, each with its arguments."""
    data = values(case)
    return list(zip(data["instruction_id_list"], data["kwargs"], strict=True))


def loosened(text: str) -> list[str]:
    """A reply without what models like to put around it: a first or last line, and stars."""
    lines = text.split("\n")
    cut = ("\n".join(part).strip() for part in (lines, lines[1:], lines[:-1], lines[1:-1]))
    found = [text, *cut]
    found += [one.replace("*", "") for one in found]
    return [one for one in dict.fromkeys(found) if one.strip()]


def _wanted(row: Row, fields: Fields) -> list[tuple[str, dict[str, Any]]] | None:
    """The instructions of a row; None where something is wrong with them, which is reported."""
    kinds: object = row.data.get("instruction_id_list")
    given: object = row.data.get("kwargs")
    if not isinstance(kinds, list) or not kinds or not isinstance(given, list):
        fields.wrong(row, "`instruction_id_list` and `kwargs` are no lists")
        return None
    names, rows = cast("list[object]", kinds), cast("list[object]", given)
    if len(names) != len(rows):
        fields.wrong(row, f"there are {len(names)} instructions, and `kwargs` for {len(rows)}")
        return None
    found: list[tuple[str, dict[str, Any]]] = []
    for name, args in zip(names, rows, strict=True):
        fault = _fault(name, args)
        if fault:
            fields.wrong(row, fault)
            return None
        plain = {key: one for key, one in cast("dict[str, Any]", args).items() if one is not None}
        found.append((str(name), plain))
    return found


def _fault(name: object, args: object) -> str:
    if not isinstance(name, str) or name not in CHECKS:
        return f"`{name}` is an instruction that nobody here can check"
    if not isinstance(args, dict):
        return f"the `kwargs` of `{name}` are no mapping"
    held = cast("dict[str, Any]", args)
    for key, kind in CHECKS[name].takes.items():
        value = held.get(key)
        if value is None:
            return f"`{name}` lacks `{key}`"
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"`{key}` of `{name}` is `{value}`, which it cannot be"
    return ""
