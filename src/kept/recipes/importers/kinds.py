"""Which kind of thing somebody brings, told by its name and what is in it."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kept import settings
from kept.core.parsing import parse_json
from kept.errors import SetupError
from kept.models.providers import config_of
from kept.recipes.importers.intake import Draft

_KINDS = "a promptfoo config (.yaml), cases (.jsonl, .json, .csv), a SKILL.md or a function (.py)"


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody says besides."""

    model: str | None = None
    """Who is asked; of a promptfoo config, a provider of it or a model of Kept's."""
    prompt: str | None = None
    """Of a promptfoo config, the label of the prompt to begin with."""
    cases: Path | None = None
    """For a skill or a function."""
    prompt_file: Path | None = None
    """For cases: the prompt to begin with."""


def draft_from(given: str, wish: Wish) -> Draft:
    """The task that a file, or `file.py:function`, stands for."""
    file, colon, function = given.rpartition(":")
    named = bool(colon) and file.endswith(".py")
    path = Path(file if named else given)
    if path.is_dir():
        raise SetupError(f"{path} is a folder", hint=f"give {_KINDS}")
    if not path.is_file():
        raise SetupError(f"there is no file {path}", hint=f"give {_KINDS}")
    if path.suffix in (".yaml", ".yml") or (path.suffix == ".json" and _is_config(path)):
        from kept.recipes.importers.promptfoo.choosing import Chosen
        from kept.recipes.importers.promptfoo.draft import draft_of

        _unused(wish, "cases", "prompt_file")
        return draft_of(path, Chosen(prompt=wish.prompt, provider=wish.model, limited=True))
    model = wish.model or settings.model()
    if model is not None:
        config_of(model)  # one that is none is refused before anything is written
    _unused(wish, "prompt")
    if path.suffix in (".jsonl", ".json", ".csv"):
        from kept.recipes.importers.asking import draft_of_cases

        _unused(wish, "cases")
        return draft_of_cases(path, model, wish.prompt_file)
    _unused(wish, "prompt_file")
    if path.suffix == ".md":
        from kept.recipes.importers.skill import draft_of_skill

        return draft_of_skill(path, model, wish.cases)
    if path.suffix == ".py":
        from kept.recipes.importers.function import draft_of_function

        return draft_of_function(path, function if named else "", model, wish.cases)
    raise SetupError(f"{path} is nothing that a task can be made from", hint=f"give {_KINDS}")


def _unused(wish: Wish, *names: str) -> None:
    for name in names:
        if getattr(wish, name) is not None:
            raise SetupError(f"--{name.replace('_', '-')} means nothing for this kind of file")


def _is_config(path: Path) -> bool:
    """Whether a JSON file is a config, and not a list of cases."""
    try:
        data = parse_json(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "prompts" in cast("dict[str, object]", data)
