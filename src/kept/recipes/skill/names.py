"""Every spelling of a key: in its section, alone as older configs have it, and as a flag.

`batch_size: 40` at the top of a file and `--batch_size 40` both mean `train.batch_size`.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from kept.errors import Problem
from kept.recipes.skill.seed_models import KEYS as MODEL_KEYS
from kept.recipes.skill.spec import SECTIONS
from kept.spec.yaml import YamlFault, read_yaml

ALIASES: Mapping[str, str] = {
    "teacher_model": "model.teacher",
    "student_model": "model.student",
    "optimizer_model": "model.teacher",
    "target_model": "model.student",
    "optimizer_backend": "model.teacher_backend",
    "target_backend": "model.student_backend",
    "edit_budget": "optimizer.learning_rate",
    "env": "env.name",
    "mode": "env.mode",
    "prompt": "env.prompt",
}
"""Names that differ from those in the sections."""

_OWN = ("optimizer", "target")
"""Keys of `model` that are names of sections too: never meant alone."""


def _flat() -> dict[str, str]:
    found: dict[str, str] = {}
    for section, models in SECTIONS.items():
        keys = [key for model in models for key in model.model_fields if key not in _OWN]
        keys += MODEL_KEYS if section == "model" else ()
        found |= {key: f"{section}.{key}" for key in keys if key != "name"}
    return {**found, **ALIASES}


FLAT: Mapping[str, str] = _flat()
"""Where each key that stands alone belongs."""

TEXTS = frozenset(
    f"{section}.{key}"
    for section, models in SECTIONS.items()
    for model in models
    for key, field in model.model_fields.items()
    if field.annotation is str
)
"""Keys that hold a text and nothing else: paths, for the most part."""

OPTIONS = "cfg-options"
"""The flag behind which any number of `section.key=value` may stand."""


class Flags(NamedTuple):
    """What a command line sets."""

    found: list[str]
    """As `KEY=VALUE`."""
    problems: list[Problem]


def no_options() -> Collection[str]:
    """No options of any environment."""
    return ()


def flags_of(
    words: Sequence[str],
    own: Sequence[str] = (),
    options: Callable[[], Collection[str]] = no_options,
) -> Flags:
    """The flags in the spelling of the source, and what is wrong with them.

    `own` are flags of the command itself, of which one may be meant. `options` names what
    environments take, and is called only for a flag that is no key of a section: it imports them.
    """
    given = Flags([], [])
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            given.problems.append(Problem(word, "", "neither a flag nor what belongs to one"))
        elif name.replace("_", "-") == OPTIONS:
            while left and not left[0].startswith("--"):
                given.found.append(left.pop(0))
        elif (key := _key(name.replace("-", "_"), options)) is None:
            meant = _meant(name, (*own, *options()))
            given.problems.append(Problem(f"--{name}", "", "there is no such flag", meant))
            # what follows it is its value, and no further problem
            if not equals and left and not left[0].startswith("--"):
                left.pop(0)
        elif not equals and (not left or left[0].startswith("--")):
            given.problems.append(Problem(f"--{name}", key, "what it is to be is missing"))
        else:
            given.found.append(override(key, value if equals else left.pop(0)))
    return given


def _key(name: str, options: Callable[[], Collection[str]]) -> str | None:
    """The key that a flag stands for: of a section, or an option of an environment."""
    return FLAT.get(name) or (f"env.{name}" if name in options() else None)


def override(key: str, value: str) -> str:
    """`KEY=VALUE`; the name of a file is what it is, and no YAML."""
    if key in TEXTS and not _reads_so(value):
        value = json.dumps(value, ensure_ascii=False)
    return f"{key}={value}"


def _reads_so(text: str) -> bool:
    try:
        return read_yaml(text).data == text
    except YamlFault:
        return False


def _meant(name: str, own: Sequence[str]) -> str:
    near = get_close_matches(name.replace("-", "_"), [*own, *FLAT], n=1, cutoff=0.7)
    if near:
        return f"did you mean `--{near[0]}`?"
    return "any key can be set with --cfg-options section.key=value"
