"""What a skill is refused for before anything is spent on it."""

from dataclasses import dataclass
from typing import cast

from kept.core.artifact import Candidate
from kept.core.case import SPLITS
from kept.core.copying import copy_guard
from kept.core.golds import gold_guard
from kept.core.ports import Guard
from kept.evaluators.environments.opened import SKILL, Opened
from kept.recipes.skill.document import FRONT
from kept.spec.yaml import YamlFault, read_yaml

_KEPT = ("name",)
"""Keys that a skill is found by."""

EMPTY = (None, "")


def guards_of(opened: Opened) -> tuple[Guard, ...]:
    """Frontmatter that can be read, no gold answers, no text of cases."""
    told = [(case.id, opened.about(case)) for split in SPLITS for case in opened.cases.of(split)]
    golds = [
        (case, text)
        for case, about in told
        for gold in about.golds
        # of a long answer a single line is too much already
        for text in (gold, *gold.splitlines())
    ]
    tasks = [about.task for _, about in told]
    return (Frontmatter(), gold_guard(golds, tasks), copy_guard(opened.cases))


@dataclass(frozen=True, slots=True)
class Frontmatter:
    """Refuses a skill whose head can no longer be read, or that has another name."""

    name: str = "frontmatter"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """What is wrong with the head of SKILL.md; None where there never was one."""
        before = _head(seed.texts.get(SKILL, ""))
        if not isinstance(before, dict):
            return None
        after = _head(candidate.texts.get(SKILL, ""))
        if isinstance(after, str):
            return f"{SKILL} has no frontmatter that can be read: {after}"
        for key, value in before.items():
            if key not in after:
                return f"the frontmatter of {SKILL} has lost `{key}`"
            if value not in EMPTY and after[key] in EMPTY:
                return f"the frontmatter of {SKILL} has nothing in `{key}`"
        for key in _KEPT:
            if before.get(key) != after.get(key):
                return f"the frontmatter of {SKILL} has another `{key}`"
        return None


def _head(text: str) -> dict[str, object] | str:
    """The frontmatter of a skill, or why there is none."""
    found = FRONT.match(text)
    if found is None:
        return "it does not begin with one"
    try:
        data = read_yaml(found[1]).data
    except YamlFault as fault:
        return f"line {fault.line + 1}: {fault.message}"
    return cast("dict[str, object]", data) if isinstance(data, dict) else "it is no mapping"
