"""The prompts of a config: inline, or in files of text, Markdown, JSON, YAML and csv."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, cast

from kept.core.parsing import parse_json
from kept.evaluators.runners.chat import is_chat
from kept.evaluators.scorers.assertions.python import FILE
from kept.evaluators.templates.fault import TemplateFault
from kept.evaluators.templates.nunjucks import names_of
from kept.recipes.importers.promptfoo.files import found_files, read_file
from kept.spec.source import Source, kind_of
from kept.spec.yaml import Loc, YamlFault, read_yaml

SUFFIXES = (".txt", ".md", ".j2", ".json", ".yaml", ".yml", ".csv")
_BETWEEN = re.compile(r"\r?\n---[ \t]*(?:\r?\n|$)")
_PROGRAMS = (".py", ".js", ".ts", ".mjs", ".cjs", ".sh", ".rb")


class Prompt(NamedTuple):
    """One of them."""

    label: str
    text: str
    loc: Loc
    chat: bool = False
    """Whether it is a list of messages in JSON."""


def read_prompts(source: Source, entries: tuple[object, ...]) -> list[Prompt]:
    """All of them; what is wrong with any is reported."""
    found: list[Prompt] = []
    for number, entry in enumerate(entries):
        loc = ("prompts", number)
        name, label = _entry(source, loc, entry)
        if name is not None:
            found += _read(source, loc, name, label)
    for prompt in found:
        check_template(source, prompt.loc, prompt.text, f"the prompt `{prompt.label}`")
    labels = [prompt.label for prompt in found]
    return [
        prompt._replace(label=f"{prompt.label}-{labels[:n].count(prompt.label) + 1}")
        if labels.count(prompt.label) > 1
        else prompt
        for n, prompt in enumerate(found)
    ]


def check_template(source: Source, loc: Loc, text: str, what: str) -> None:
    """Report a text that is no template, or that asks for the environment."""
    try:
        names = names_of(text)
    except TemplateFault as fault:
        where = f", line {fault.line}" if fault.line else ""
        source.report(loc, f"{what}{where}: {fault}", "put what it works out into a variable")
        return
    if "env" in names:
        refuse_env(source, loc, what)


def refuse_env(source: Source, loc: Loc, what: str) -> None:
    """Report what asks for variables of the environment."""
    hint = "variables of the environment may be secrets; give the value in `vars`"
    source.report(loc, f"{what} asks for `env`", hint)


def _entry(source: Source, loc: Loc, entry: object) -> tuple[str | None, str | None]:
    """The text or file of an entry, and its label."""
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
    parts = _BETWEEN.split(text) if file.suffix != ".md" else [text]
    parts = [part.strip() for part in parts if part.strip()]
    if not parts:
        source.report(loc, f"`{file.name}` is empty")
    for number, part in enumerate(parts, 1):
        own = f"{name}-{number}" if len(parts) > 1 else name
        yield Prompt(own, part, loc, is_chat(part))


def _chat(source: Source, loc: Loc, file: Path, text: str) -> str | None:
    """Messages as JSON, each on lines of its own so that it can be edited."""
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
    keys = [_keys(row) for row in rows]
    if not rows or not all({"role", "content"} <= one for one in keys):
        source.report(loc, f"`{file.name}` is no list of messages with `role` and `content`")
        return None
    return json.dumps(rows, ensure_ascii=False, indent=2)


def _keys(row: object) -> set[str]:
    return set(cast("dict[str, object]", row)) if isinstance(row, dict) else set()
