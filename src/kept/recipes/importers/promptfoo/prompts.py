"""Prompts of a promptfoo config: inline, or in files of text, Markdown, JSON, YAML and csv.

Files are named directly or by pattern, below the config's folder.
"""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import NamedTuple, cast

from kept.core.parsing import parse_json
from kept.evaluators.runners.model import is_chat
from kept.evaluators.scorers.assertions.python import FILE
from kept.evaluators.templates.render import TemplateFault, names_of
from kept.spec.paths import decoded, glob, near_file
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Document, Loc, YamlFault, read_yaml


def found_files(source: Source, loc: Loc, name: str) -> list[Path]:
    """Return the files of a name or a pattern; report it if there are none."""
    if not any(sign in name for sign in "*?["):
        path = source.folder / name
        if not is_below(source, path):
            refuse_outside(source, loc, name)
            return []
        if path.is_file():
            return [path]
        source.report(loc, f"there is no file `{name}`", near_file(path))
        return []
    try:
        hits = sorted(hit for hit in glob(source.folder, name.removeprefix("./")) if hit.is_file())
    except ValueError as error:
        source.report(loc, f"`{name}` is not a pattern: {error}")
        return []
    if not hits:
        source.report(loc, f"`{name}` matches no file")
    outside = [hit for hit in hits if not is_below(source, hit)]
    for hit in outside:
        refuse_outside(source, loc, hit.relative_to(source.folder).as_posix())
    return [hit for hit in hits if hit not in outside]


def is_below(source: Source, path: Path) -> bool:
    """True if a file is in the config's folder after links are resolved.

    Files are sent to a provider: a config from elsewhere must not read any file on the machine.
    """
    try:
        return path.resolve().is_relative_to(source.folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def refuse_outside(source: Source, loc: Loc, name: str) -> None:
    """Report a file that is not below the config's folder."""
    hint = "copy it there, or put the config into the folder that holds both"
    source.report(loc, f"`{name}` is not below the folder of the config", hint)


def plain(value: object) -> object:
    """Return YAML values as JSON values: a date becomes its ISO text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return [plain(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in cast("dict[str, object]", value).items()}
    return value


def read_values(text: str) -> Document:
    """Parse YAML or JSON into JSON values; raises `YamlFault`."""
    document = read_yaml(text)
    return replace(document, data=plain(document.data))


def read_file(source: Source, loc: Loc, path: Path, limited: bool = False) -> str | None:
    """Read a text file; None, with a report, if it cannot. `limited` refuses over 1 MiB."""
    try:
        return decoded(path.read_bytes(), limited).removeprefix("\ufeff")
    except OSError as error:
        source.report(loc, f"cannot read `{path.name}`: {error.strerror}")
    except ValueError as error:
        source.report(loc, f"`{path.name}` is {error}")
    return None


SUFFIXES = (".txt", ".md", ".j2", ".json", ".yaml", ".yml", ".csv")
_BETWEEN = re.compile(r"\r?\n---[ \t]*(?:\r?\n|$)")
_PROGRAMS = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")


class Prompt(NamedTuple):
    """A prompt of a config."""

    label: str
    text: str
    loc: Loc
    chat: bool = False
    """True if it is a list of messages in JSON."""


def read_prompts(source: Source, entries: tuple[object, ...]) -> list[Prompt]:
    """Read all prompts of a config, and report problems."""
    found: list[Prompt] = []
    for number, entry in enumerate(entries):
        loc = ("prompts", number)
        name, label = _entry(source, loc, entry)
        if name is not None:
            found += _read(source, loc, name, label)
    for prompt in found:
        check_template(source, prompt.loc, prompt.text, f"the prompt `{prompt.label}`")
    # repeated labels are numbered
    labels = [prompt.label for prompt in found]
    return [
        prompt._replace(label=f"{prompt.label}-{labels[:n].count(prompt.label) + 1}")
        if labels.count(prompt.label) > 1
        else prompt
        for n, prompt in enumerate(found)
    ]


def check_template(source: Source, loc: Loc, text: str, what: str) -> None:
    """Report a text that is not a template, or that asks for environment variables."""
    try:
        names = names_of(text)
    except TemplateFault as fault:
        where = f", line {fault.line}" if fault.line else ""
        source.report(loc, f"{what}{where}: {fault}", "put what it works out into a variable")
        return
    if "env" in names:
        refuse_env(source, loc, what)


def refuse_env(source: Source, loc: Loc, what: str) -> None:
    """Report a template that asks for environment variables."""
    hint = "variables of the environment may be secrets; give the value in `vars`"
    source.report(loc, f"{what} asks for `env`", hint)


def _entry(source: Source, loc: Loc, entry: object) -> tuple[str | None, str | None]:
    """Return the text or file of an entry, and its label."""
    if isinstance(entry, str) and entry.strip():
        return entry, None
    if isinstance(entry, dict):
        said = cast("dict[str, object]", entry)
        odd = [key for key in said if key not in ("id", "raw", "label", "description", "display")]
        for key in odd:
            source.report((*loc, key), "unknown key", "known keys: id, raw, label")
        text = said.get("raw", said.get("id"))
        label = said.get("label", said.get("display"))
        if isinstance(text, str) and text.strip():
            return text, label if isinstance(label, str) and label else None
    told = kind_of(cast("object", entry))
    source.report(loc, f"{told}, where a prompt was expected", "a text, or file://…")
    return None, None


def _read(source: Source, loc: Loc, name: str, label: str | None) -> Iterator[Prompt]:
    path = name.removeprefix(FILE)
    # a short line that ends like a file name is a file, even without `file://`
    is_file = name.startswith(FILE) or (
        "\n" not in name and len(name) < 200 and path.endswith((*SUFFIXES, *_PROGRAMS))
    )
    if name.startswith(("exec:", "langfuse://", "portkey://", "helicone://")) or (
        is_file and re.search(rf"(?:{'|'.join(map(re.escape, _PROGRAMS))})(?::\w+)?$", path)
    ):
        hint = "write down what it makes: a text, or messages in JSON"
        source.report(loc, f"`{name}` is made by a program, which is not run here", hint)
        return
    if not is_file:
        yield Prompt(label or f"prompt-{int(loc[-1]) + 1}", name.strip(), loc, is_chat(name))
        return
    files = found_files(source, loc, path)
    for file in files:
        if file.suffix not in SUFFIXES:
            hint = f"there are {', '.join(SUFFIXES)}"
            source.report(loc, f"`{path}` is no file of prompts that is known here", hint)
            continue
        text = read_file(source, loc, file, limited=True)
        if text is not None:
            own = label if label and len(files) == 1 else None
            yield from _of_file(source, loc, file, text, own)


def _of_file(
    source: Source, loc: Loc, file: Path, text: str, label: str | None
) -> Iterator[Prompt]:
    name = label or file.stem
    if file.suffix == ".csv":
        for number, row in enumerate(csv.DictReader(text.splitlines()), 1):
            if not row.get("prompt"):
                source.report(loc, f"{file.name}:{number + 1} has no cell `prompt`")
                continue
            yield Prompt(row.get("label") or f"{name}-{number}", row["prompt"].strip(), loc)
        return
    if file.suffix in (".yaml", ".yml", ".json"):
        chat = _chat(source, loc, file, text)
        if chat is not None:
            yield Prompt(name, chat, loc, True)
        return
    # `---` separates prompts, but in Markdown it may be a rule
    parts = _BETWEEN.split(text) if file.suffix != ".md" else [text]
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        source.report(loc, f"`{file.name}` is empty")
    for number, part in enumerate(parts, 1):
        own = f"{name}-{number}" if len(parts) > 1 else name
        yield Prompt(own, part, loc, is_chat(part))


def _chat(source: Source, loc: Loc, file: Path, text: str) -> str | None:
    """Return messages as indented JSON, so that each can be edited."""
    try:
        data = parse_json(text) if file.suffix == ".json" else read_yaml(text).data
    except ValueError as error:
        why = getattr(error, "msg", None) or str(error)
        source.report(loc, f"`{file.name}` is not JSON: {why}")
        return None
    except YamlFault as fault:
        source.report(loc, f"`{file.name}`, line {fault.line}, is not YAML: {fault.message}")
        return None
    rows = cast("list[object]", data) if isinstance(data, list) else []
    keys = [
        set(cast("dict[str, object]", row)) if isinstance(row, dict) else set[str]() for row in rows
    ]
    if not rows or not all({"role", "content"} <= one for one in keys):
        source.report(loc, f"`{file.name}` is no list of messages with `role` and `content`")
        return None
    return json.dumps(rows, ensure_ascii=False, indent=2)
