"""Importers: task folders from existing files, ready for `kept check` and `optimize`.

The kind of source is recognized by its name and content. The source is never changed; the folder
holds copies. The generated YAML is readable: one key a line, short values on one line.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kept import settings
from kept.core.artifact import is_safe_path
from kept.core.parsing import parse_json
from kept.core.untyped import is_dict, is_list
from kept.errors import SetupError


@dataclass(frozen=True, slots=True)
class Draft:
    """Files of a task before they are written."""

    files: Mapping[str, str]
    """Texts by path, `task.yaml` among them."""
    notes: tuple[str, ...] = ()
    """Notes that the user should read before a run."""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])


def write(files: Mapping[str, str], folder: Path) -> list[Path]:
    """Write texts into a folder, which is made; refuses to overwrite files or to leave it."""
    for name in files:
        inside = is_safe_path(name) and (folder / name).resolve().is_relative_to(folder.resolve())
        if not inside:
            raise SetupError(f"`{name}` is not a path below {folder}")
    # unlike `exists`, `lexists` also finds broken links
    there = [name for name in files if os.path.lexists(folder / name)]
    if there:
        raise SetupError(
            f"{folder} already has {', '.join(there)}", hint="name a folder that is new or empty"
        )
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # `x` never overwrites, even a file made in the meantime
            with (folder / name).open("x", encoding="utf-8", newline="") as file:
                file.write(text)
    except OSError as error:
        raise SetupError(f"cannot write to {folder}: {error}") from error
    return [folder / name for name in files]


_KINDS = "a promptfoo config (.yaml), cases (.jsonl, .json, .csv), a SKILL.md or a function (.py)"


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of an import besides the source."""

    model: str | None = None
    """Model to ask; for a promptfoo config, one of its providers or a model of Kept's."""
    prompt: str | None = None
    """For a promptfoo config: the label of the prompt to begin with."""
    cases: Path | None = None
    """File of cases, for a skill or a function."""
    prompt_file: Path | None = None
    """For cases: the file of the prompt to begin with."""


def draft_from(given: str, wish: Wish) -> Draft:
    """Draft the task for a file, or for `file.py:function`."""
    from kept.models.providers import config_of

    file, colon, function = given.rpartition(":")
    named = bool(colon) and file.endswith(".py")
    path = Path(file if named else given)
    if path.is_dir():
        raise SetupError(f"{path} is a folder", hint=f"give {_KINDS}")
    if not path.is_file():
        raise SetupError(f"there is no file {path}", hint=f"give {_KINDS}")
    if path.suffix in (".yaml", ".yml") or (path.suffix == ".json" and _is_config(path)):
        from kept.recipes.importers.promptfoo.compile import Chosen, draft_of

        _unused(wish, "cases", "prompt_file")
        return draft_of(path, Chosen(prompt=wish.prompt, provider=wish.model, limited=True))
    model = wish.model or settings.model()
    if model is not None:
        config_of(model)  # refuses an invalid name before anything is written
    _unused(wish, "prompt")
    if path.suffix in (".jsonl", ".json", ".csv"):
        from kept.recipes.importers.cases import draft_of_cases

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
    """True if a JSON file is a promptfoo config, and not a list of cases."""
    try:
        data = parse_json(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return False
    return is_dict(data) and "prompts" in data


def text_of(path: Path, limited: bool = True) -> str:
    """Read a text file; raises `SetupError`. `limited` refuses more than 1 MiB."""
    from kept.spec.paths import decoded, near_file
    from kept.spec.source import shown

    try:
        return decoded(path.read_bytes(), limited).removeprefix("\ufeff")
    except OSError as error:
        hint = near_file(path) if not path.exists() else None
        raise SetupError(f"cannot read {shown(path)}: {error.strerror}", hint=hint) from error
    except ValueError as error:
        csv = path.suffix == ".csv" and "UTF-8" in str(error)
        hint = "save it as `CSV UTF-8`, as spreadsheets call it" if csv else None
        raise SetupError(f"{shown(path)} is {error}", hint=hint) from error


# scalars that YAML reads as text without quotes, except for these words
_PLAIN = re.compile(r"[A-Za-z_./][\w./ -]*[\w./]|[A-Za-z_]")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none"}
WIDE = 96


def task_text(head: str, parts: Mapping[str, Any]) -> str:
    """Return the YAML of a task with these parts in order; empty parts are left out."""
    said = {key: value for key, value in parts.items() if value not in ({}, [])}
    return head + "".join(_block(key, value) for key, value in said.items())


def _block(key: str, value: object, indent: str = "") -> str:
    """Return a key with its value, on one line if it fits."""
    line = f"{indent}{key}: {_flow(value)}"
    if len(line) > WIDE and is_list(value):
        rows = (f"{indent}  - {_flow(item)}\n" for item in value)
        return f"{indent}{key}:\n" + "".join(rows)
    if len(line) > WIDE and is_dict(value):
        rows = (_block(name, one, f"{indent}  ") for name, one in value.items())
        return f"{indent}{key}:\n" + "".join(rows)
    return line + "\n"


def _flow(value: object) -> str:
    if is_dict(value):
        inner = value.items()
        return "{" + ", ".join(f"{name}: {_flow(one)}" for name, one in inner) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(item) for item in cast("list[object]", value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
