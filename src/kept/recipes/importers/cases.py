"""Importer of case files: JSON lines, a JSON list, or csv, with line numbers.

The task asks a model with a prompt about each case, and scores the answers. It has a default
money limit, because a first run must not cost an unknown amount. Column names become single
words, since a prompt refers to a field by one word.
"""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kept.core.case import POSSIBLE_ANSWER_NAMES, answer_field
from kept.core.parsing import parse_json
from kept.core.text import count
from kept.core.untyped import is_dict, is_list
from kept.errors import Problem, SetupError, SpecError
from kept.models.providers import ModelConfig, config_of
from kept.models.roles import is_free, unbounded
from kept.recipes.importers import Draft, task_text, text_of
from kept.spec.shared_sections import ModelSpec
from kept.spec.source import kind_of, shown

USD = 5
"""Default money limit in dollars: enough for a first run with a small model."""

STEPS = 20


def budget_of(*models: object, steps: int = STEPS) -> tuple[dict[str, Any], list[str]]:
    """Return a budget of steps and, if all models have a price, of dollars; with notes on it.

    Args:
        *models: `provider/model`, or the block of a task.
        steps: maximum number of steps.
    """
    configs = [_config(model) for model in models]
    budget: dict[str, Any] = {"max_iterations": steps}
    if all(config is not None and is_free(config) for config in configs):
        return budget, []
    unknown = [n for c, n in zip(configs, models, strict=True) if c is None or unbounded(c)]
    if unknown:
        name = unknown[0]
        name = name.get("model") if is_dict(name) else name
        note = f"what `{name}` costs at most is not known, so the task has no limit of money"
        return budget, [note]
    note = f"a run may spend ${USD:g}: `budget.max_usd`"
    return {**budget, "max_usd": USD}, [note]


def _config(model: object) -> ModelConfig | None:
    try:
        if isinstance(model, str):
            return config_of(model)
        return ModelSpec.model_validate(model).config(Path())
    except (SetupError, ValueError):
        return None  # a check of the task reports what is wrong with it


_ODD = re.compile(r"[^\w-]+")


def named(rows: Sequence[dict[str, Any]], file: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows with names that prompts can use, and a note on each renamed column."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    names: dict[str, str] = {}
    for n, column in enumerate(columns, 1):
        word = _ODD.sub("_", column).strip("_") if _ODD.search(column) else column
        # in the template of an example, a number alone would mean a position
        names[column] = f"field_{word or n}" if not word or word.isdigit() else word
    taken: dict[str, str] = {}
    for column, name in names.items():
        if name in taken:
            hint = "a prompt names a field by letters, digits, `_` and `-` alone"
            message = f"the columns `{taken[name]}` and `{column}` of {file} are both `{name}`"
            raise SetupError(message, hint=hint)
        taken[name] = column
    notes = [
        f"the column `{column}` is the field `{name}`, which a prompt can name"
        for column, name in names.items()
        if name != column
    ]
    return [{names[column]: value for column, value in row.items()} for row in rows], notes


SUFFIXES = (".jsonl", ".json", ".csv")


class Wrong(Protocol):
    """Callback that collects the problem of a line."""

    def __call__(self, line: int, message: str, hint: str | None = None) -> None:
        """Collect the problem; all are reported together."""
        ...


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a file; raises `SpecError` with every row that is wrong."""
    text = text_of(path, limited=False)
    found: list[tuple[int, object]] = []
    problems: list[Problem] = []

    def wrong(line: int, message: str, hint: str | None = None) -> None:
        problems.append(Problem(f"{shown(path)}:{line}", "", message, hint))

    if path.suffix == ".csv":
        table = read_csv(text, wrong)
        _check_answers(table.header, wrong)
        found = [*table.rows]
    elif path.suffix == ".json":
        found = _list(text, wrong)
    else:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    found.append((number, parse_json(line)))
                except ValueError as error:
                    wrong(number, f"not JSON: {getattr(error, 'msg', error)}")
    rows: list[dict[str, Any]] = []
    for line, value in found:
        if not is_dict(value):
            wrong(line, f"{kind_of(value)}, where an object with fields was expected")
            continue
        lack = [name for name in (rows[0] if rows else ()) if name not in value]
        if lack:
            wrong(line, f"no `{lack[0]}`, which the rows before have")
        rows.append(value)
    if not rows and not problems:
        wrong(1, "there are no cases in it")
    if problems:
        raise SpecError(problems)
    return rows


def _list(text: str, wrong: Wrong) -> list[tuple[int, object]]:
    try:
        data: Any = parse_json(text)
    except ValueError as error:
        wrong(getattr(error, "lineno", 1), f"not JSON: {getattr(error, 'msg', error)}")
        return []
    if not is_list(data):
        wrong(1, "not a list of cases")
        return []
    # numbered by place in the list: the lines are not known
    return list(enumerate(data, 1))


class Table(NamedTuple):
    """A csv: its column names, and its rows with their line numbers."""

    header: list[str]
    rows: list[tuple[int, dict[str, str]]]


def read_csv(text: str, wrong: Wrong) -> Table:
    """Read the valid rows of a csv; wrong rows are reported by line."""
    first = text.lstrip().partition("\n")[0]
    # the separator is a comma, unless the first line only has another sign
    others = (sign for sign in (";", "\t") if sign in first)
    between = "," if "," in first else next(others, ",")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=between, strict=True)
    table = Table([], [])
    try:
        for row in reader:
            if not table.header:
                table.header.extend(cell.strip() for cell in row)
                twice = (name for name in table.header if table.header.count(name) > 1)
                for name in dict.fromkeys(twice):
                    wrong(1, f"two columns are named `{name}`")
            elif any(cell.strip() for cell in row):
                if len(row) != len(table.header):
                    message = (
                        f"{count(len(row), 'cell')}, where the first line has {len(table.header)}"
                    )
                    wrong(reader.line_num, message, "put quotes round a text with a comma")
                    continue
                table.rows.append((reader.line_num, dict(zip(table.header, row, strict=True))))
    except csv.Error as error:
        wrong(reader.line_num, f"not csv: {error}")
    return table


def _check_answers(header: list[str], wrong: Wrong) -> None:
    """Report columns of assertions: a table of promptfoo is imported with its config."""
    for name in (name for name in header if name.startswith("__expected")):
        hint = "a config names it under `tests`: `kept init --from` with that config"
        wrong(1, f"`{name}` is what promptfoo asserts, and not an answer", hint)


LOCAL = "local/smollm2"
"""Default model: it needs no key."""

BY_LABEL: dict[str, Any] = {"type": "python", "function": "score:score"}
"""Scorer that compares with the right answer, in `score.py`."""

_MOST_LABELS = 20
_DEMOS = "<!-- demos:start -->\n<!-- demos:end -->"
_PLACE = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")
_SCORE = '''\
"""Whether an answer is right. Change it to what right means for you."""

SIGNS = ".,:;!?*_`~()[]{{}}<>|\\"'\\u201c\\u201d\\u2018\\u2019"


def plain(text):
    words = (word.strip(SIGNS) for word in str(text).lower().split())
    return " ".join(word for word in words if word) or str(text).strip().lower()


def score(output, case):
    expected = plain(case[{field}])
    exact = plain(output) == expected
    return {{"score": float(exact or {right}), "exact": float(exact)}}
'''
_WITHIN = 'f" {expected} " in f" {plain(output)} "'
_NAMED = "chosen(output) == [expected]"
_CHOSEN = '''

LABELS = {labels}


def chosen(output):
    """The labels that the last line names; where it names none, those of the whole answer."""
    lines = [line for line in str(output).splitlines() if line.strip()]
    return (named(lines[-1]) if lines else []) or named(output)


def named(text):
    left, found = f" {{plain(text)}} ", []
    # the longest first: `not spam` does not name `spam`
    for label in sorted(map(plain, LABELS), key=len, reverse=True):
        if f" {{label}} " in left:
            denied = f" not {{label}} " in left
            found.append(f"not {{label}}" if denied else label)
            left = left.replace(f" {{label}} ", " | ")
    return found
'''
_DRAFTS = {
    "1-only-the-answer": "Answer with the {answer} only, nothing else.",
    "2-step-by-step": "Think step by step, then give the {answer} in the last line.",
}
"""Last sentence of each variant of a prompt, by the name of its file."""


def few_labels(rows: list[dict[str, Any]], answer: str) -> list[str]:
    """Return the labels of which each answer is one; none if answers are free texts."""
    # few distinct answers, each for more than two rows on average
    labels = list(dict.fromkeys(str(row.get(answer)) for row in rows))
    return labels if 1 < len(labels) <= _MOST_LABELS and len(labels) < len(rows) / 2 else []


def draft_of_cases(path: Path, model: str | None = None, prompt: Path | None = None) -> Draft:
    """Draft a task that asks a model about every row, and compares with the answer field.

    Args:
        path: the file of the cases.
        model: `provider/model` to ask.
        prompt: file with the prompt to begin with; by default one is written.
    """
    rows, notes = named(read_rows(path), path.name)
    names = [name for name in rows[0] if name != "id"]
    answer = answer_field(names, POSSIBLE_ANSWER_NAMES)
    inputs = [name for name in names if name != answer]
    if answer is None or not inputs:
        known = ", ".join(f"`{name}`" for name in names)
        hint = f"name the field with the right answer `expected`; there are {known}"
        raise SetupError(f"{path.name} does not say what a right answer is", hint=hint)
    if len({str(row[answer]) for row in rows}) == 1:
        notes.append(f"the `{answer}` of every row is `{rows[0][answer]}`: no prompt can do better")
    labels = few_labels(rows, answer)
    texts = _own(prompt, inputs, answer, notes) if prompt else _written(labels, inputs, answer)
    budget, about_money = budget_of(model or LOCAL)
    notes += about_money
    example = [*(f"{name}: {{{name}}}" for name in inputs), f"{answer}: {{{answer}}}"]
    task: dict[str, Any] = {
        "artifacts": {"include": ["prompt.md"]},
        "models": {"target": model or LOCAL},
        "runner": {"prompt": "prompt.md", "input": inputs},
        "scorer": BY_LABEL,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": [
            {"kind": "variants", "files": ["drafts/*.md"]},
            {"kind": "demos", "file": "prompt.md", "template": "\n".join(example)},
        ],
        "cases": {"file": "cases.jsonl", "split": "3:5:2", "expected": answer},
        "budget": budget,
    }
    if model is None:
        notes.append(f"no model is named, so `{LOCAL}` is asked: it is small, and free")
    else:
        task["models"] |= {"optimizer": model}
        task["proposers"].append({"kind": "edit"})
    files = {
        "task.yaml": task_text(f"# From {path.name}, by `kept init --from`.\n", task),
        **texts,
        "score.py": score_text(answer, labels),
        "cases.jsonl": _lines(path, rows),
    }
    return Draft(files, tuple(notes))


def _written(labels: list[str], inputs: list[str], answer: str) -> dict[str, str]:
    """Write a prompt and its variants, if the user has none."""
    ask = "Answer the question."
    if labels:
        ask = f"Which is it: {', '.join(labels[:-1])} or {labels[-1]}?"
    fields = "\n".join(f"{name}: {{{{{name}}}}}" for name in inputs)
    fields = f"{{{{{inputs[0]}}}}}" if len(inputs) == 1 else fields
    drafts = {
        f"drafts/{name}.md": f"{ask}\n\n{fields}\n\n{text.format(answer=answer)}\n"
        for name, text in _DRAFTS.items()
    }
    return {"prompt.md": f"{ask}\n\n{_DEMOS}\n\n{fields}\n", **drafts}


def _own(prompt: Path, inputs: list[str], answer: str, notes: list[str]) -> dict[str, str]:
    """Return the user's prompt with marks for examples, and variants of it."""
    text = text_of(prompt).strip()
    if not text:
        raise SetupError(f"{prompt} is empty", hint="give a file with the prompt to begin with")
    if not _PLACE.search(text):
        # the prompt may have the single braces of Python's str.format
        single = re.compile(rf"\{{({'|'.join(map(re.escape, inputs))})\}}")
        text, times = single.subn(r"{{\1}}", text)
        if times:
            notes.append("`{field}` of the prompt is written as `{{field}}`, which Kept fills in")
    unknown = [name for name in _PLACE.findall(text) if name not in inputs]
    if unknown:
        known = ", ".join(f"`{{{{{name}}}}}`" for name in inputs)
        message = f"{prompt} asks for `{{{{{unknown[0]}}}}}`, which the cases do not have"
        raise SetupError(message, hint=f"there are {known}")
    if "<!-- demos:start -->" not in text:
        # examples go before the paragraph with the input, else to the end
        parts = re.split(r"\n[ \t]*\n", text)
        at = next((n for n, part in enumerate(parts) if _PLACE.search(part)), len(parts))
        text = "\n\n".join([*parts[:at], _DEMOS, *parts[at:]])
    drafts = {
        f"drafts/{name}.md": f"{text}\n\n{more.format(answer=answer)}\n"
        for name, more in _DRAFTS.items()
    }
    return {"prompt.md": f"{text}\n", **drafts}


def score_text(answer: str, labels: list[str]) -> str:
    """Return score.py: the output names the right label; without labels, it has the answer."""
    text = _SCORE.format(field=json.dumps(answer), right=_NAMED if labels else _WITHIN)
    return text + (_CHOSEN.format(labels=labels) if labels else "")


def _lines(path: Path, rows: list[dict[str, Any]]) -> str:
    ids = [str(row["id"]) for row in rows if "id" in row]
    doubled = [id_ for n, id_ in enumerate(ids) if id_ in ids[:n]]
    if doubled:
        from kept.errors import Problem

        raise SpecError([Problem(f"{path.name}:1", "", f"the id `{doubled[0]}` stands twice")])
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
