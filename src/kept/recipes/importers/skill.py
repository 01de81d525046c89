"""Importer of a SKILL.md: a model applies it, and labels or a judge score the result.

Files that the skill mentions within its folder come along, because it needs them.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from kept.core.case import POSSIBLE_ANSWER_NAMES, answer_field
from kept.core.untyped import dict_in
from kept.errors import SetupError
from kept.recipes.importers import Draft, task_text, text_of
from kept.recipes.importers.cases import (
    BY_LABEL,
    LOCAL,
    budget_of,
    few_labels,
    read_rows,
    score_text,
)
from kept.spec.yaml import YamlFault, read_yaml

READ = (".md", ".txt")
"""Suffixes of files that a model can be shown; other files are run, or filled in."""

_PATH = re.compile(r"[\w.@+~%-]+(?:/[\w.@+~%-]+)*/?")
_LINK = re.compile(r"\]\(<?([^)<>\n]+?)>?(?:\s+\"[^\"\n]*\")?\)")


class Named(NamedTuple):
    """Files that a skill names."""

    texts: dict[str, str]
    """Texts of the files, by paths relative to the skill."""
    notes: list[str]


def named_files(skill: Path, text: str, taken: tuple[str, ...]) -> Named:
    """Read the files that a skill names, and those that its texts name in turn.

    Args:
        skill: path of its file.
        text: text of that file.
        taken: names of the task's own files.
    """
    home = skill.parent.resolve()
    found = Named({}, [])
    waiting = [(skill, text)]
    seen = {skill.resolve()}
    while waiting:
        source, said = waiting.pop(0)
        for path in _paths(source, home, said):
            if path in seen:
                continue
            seen.add(path)
            note = _take(path, home, taken, found)
            if note:
                found.notes.append(note)
            elif path.suffix in READ:
                waiting.append((path, found.texts[path.relative_to(home).as_posix()]))
    return found


def _paths(source: Path, home: Path, text: str) -> Iterator[Path]:
    """Yield existing paths that a text names, relative to its folder or to the skill's."""
    links = (unquote(link.partition("#")[0]) for link in _LINK.findall(text))
    words = (form for word in _PATH.findall(text) for form in (word, word.rstrip(".")))
    for name in dict.fromkeys((*links, *words)):
        if not name.strip("./") or Path(name).is_absolute():
            continue
        for folder in (source.parent.resolve(), home):
            path = (folder / name).resolve()
            # a word means a folder only if it ends with a slash
            if path.is_file() or (name.endswith("/") and path.is_dir()):
                yield path
                break


def _take(path: Path, home: Path, taken: tuple[str, ...], found: Named) -> str:
    """Add a file to the texts; return the reason if it cannot be added, else an empty text."""
    if not path.is_relative_to(home):
        return f"the skill names {path.name}, which is not in its folder: it is not copied"
    name = path.relative_to(home).as_posix()
    if path.is_dir():
        return f"the skill names the folder {name}/: what no text of it names is not copied"
    if name in taken:
        return f"the skill names {name}, which the task has of its own: it is not copied"
    try:
        found.texts[name] = text_of(path)
    except SetupError as error:
        return f"{error.message}: it is not copied"
    return ""


FIELD = "task"
"""Field of a case that says what is to be done."""

_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)


def draft_of_skill(path: Path, model: str | None = None, cases: Path | None = None) -> Draft:
    """Draft a task that applies a skill to every case.

    Cases with a right answer are scored by it; others by a judge, by the purpose of the skill.
    """
    text = text_of(path)
    if not text.strip():
        raise SetupError(f"{path} is empty", hint="a skill says what to do, and how")
    name, purpose = _told(path, text)
    rows = read_rows(cases) if cases is not None else [{FIELD: purpose}]
    fields = [key for key in rows[0] if key != "id"]
    # the model that applies the skill must not see the right answer
    answer = answer_field(fields, POSSIBLE_ANSWER_NAMES)
    # all fields may be shown if the only one is the answer
    open_ = [key for key in fields if key != answer] or fields
    asked = FIELD if FIELD in fields else open_[0] if len(open_) == 1 else None
    if asked is None:
        known = ", ".join(f"`{key}`" for key in fields)
        hint = f"name the field that says what is to be done `{FIELD}`; there are {known}"
        raise SetupError(f"{cases} has several fields", hint=hint)
    labelled = answer is not None and answer != asked
    named = named_files(path, text, ("task.yaml", "SKILL.md", "cases.jsonl", "score.py"))
    read = ["SKILL.md", *(name for name in named.texts if name.endswith(READ))]
    means = f"The task is done, as somebody would do it who has this skill: {purpose}"
    judge = {"type": "judge", "criteria": [{"name": "done", "means": means}]}
    asker = model or LOCAL
    budget, notes = budget_of(asker)
    task: dict[str, Any] = {
        "id": name,
        "artifacts": {"include": read},
        "models": {"target": asker, **({} if labelled else {"judge": asker}), "optimizer": asker},
        "runner": {"prompt": read if len(read) > 1 else "SKILL.md", "input": asked},
        "scorer": BY_LABEL if labelled else judge,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": [{"kind": "edit"}, {"kind": "prune"}],
        "cases": {"file": "cases.jsonl", "split": "3:5:2" if len(rows) > 4 else "0:1:0"},
        "budget": budget,
    }
    scripts: dict[str, str] = {}
    if labelled:
        assert answer is not None, "labelled cases have an answer"
        task["cases"]["expected"] = answer
        scripts["score.py"] = score_text(answer, few_labels(rows, answer))
    notes += _about_files(named, read)
    if cases is None:
        notes.append(
            "cases.jsonl has one task, from the skill's own description, which proves nothing: "
            "write down twenty that people bring to it"
        )
    if model is None:
        work = "to write" if labelled else "to judge or to write"
        notes.append(f"no model is named, so `{LOCAL}` is asked: too small {work}")
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    files = {
        "task.yaml": task_text(f"# From {path.name}, by `kept init --from`.\n", task),
        "SKILL.md": text,
        **named.texts,
        **scripts,
        "cases.jsonl": lines,
    }
    return Draft(files, tuple(notes))


def _about_files(named: Named, read: list[str]) -> list[str]:
    """Return notes on the files that a skill names: shown, copied, or left out."""
    notes = [*named.notes]
    if shown := read[1:]:
        notes.append(f"the model is shown {', '.join(shown)} too, and they may be edited")
    if other := [name for name in named.texts if name not in read]:
        notes.append(
            f"{', '.join(other)} {'is' if len(other) == 1 else 'are'} copied, but a model cannot "
            "open files: `runner.agent` has an agent work by the skill"
        )
    return notes


def _told(path: Path, text: str) -> tuple[str, str]:
    """Return the name and the purpose of a skill."""
    title = _TITLE.search(text)
    named = title[1].strip() if title else path.parent.name or "skill"
    front = _FRONT.match(text)
    if front is None:
        body = [line.strip() for line in text.splitlines() if line.strip()]
        said = next((line for line in body if not line.startswith("#")), named)
        return _slug(named), said
    try:
        said = read_yaml(front[1]).data
    except YamlFault as fault:
        message = f"{path}:{fault.line + 1} is not YAML: {fault.message}"
        raise SetupError(message, hint="the lines between `---` are YAML") from fault
    given = dict_in(said)
    return _slug(str(given.get("name") or named)), str(given.get("description") or named)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "skill"
