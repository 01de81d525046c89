"""From cases to a task: a prompt that is asked about them, and what tells a right answer."""

import json
import re
from pathlib import Path
from typing import Any

from kept.core.labels import POSSIBLE_ANSWER_NAMES, answer_field
from kept.errors import SetupError, SpecError
from kept.recipes.importers.intake import Draft
from kept.recipes.importers.money import budget_of
from kept.recipes.importers.naming import named
from kept.recipes.importers.reading import text_of
from kept.recipes.importers.rows import read_rows
from kept.recipes.importers.yaml import task_text

LOCAL = "local/smollm2"
"""Asked where nobody is named: it needs no key."""

BY_LABEL: dict[str, Any] = {"type": "python", "function": "score:score"}
"""The scorer that compares with the right answer, in `score.py`."""

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
"""What variants of a prompt end with."""


def few_labels(rows: list[dict[str, Any]], answer: str) -> list[str]:
    """The labels that an answer is one of; none where answers are free texts."""
    labels = list(dict.fromkeys(str(row.get(answer)) for row in rows))
    return labels if 1 < len(labels) <= _MOST_LABELS and len(labels) < len(rows) / 2 else []


def draft_of_cases(path: Path, model: str | None = None, prompt: Path | None = None) -> Draft:
    """A task that asks a model about every row, and compares with the field that is the answer.

    Args:
        path: the file of the cases.
        model: `provider/model` that is asked.
        prompt: a file with the prompt to begin with; by default one is written.
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
    task: dict[str, Any] = {
        "artifacts": {"include": ["prompt.md"]},
        "models": {"target": model or LOCAL},
        "runner": {"prompt": "prompt.md", "input": inputs},
        "scorer": BY_LABEL,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": [
            {"kind": "variants", "files": ["drafts/*.md"]},
            {"kind": "demos", "file": "prompt.md", "template": _example(inputs, answer)},
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
    """A prompt and its variants, where nobody has one."""
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
    """The user's prompt with marks for examples in it, and variants of it."""
    text = text_of(prompt).strip()
    if not text:
        raise SetupError(f"{prompt} is empty", hint="give a file with the prompt to begin with")
    if not _PLACE.search(text):
        # the braces of Python's str.format
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
        text = _marked(text)
    drafts = {
        f"drafts/{name}.md": f"{text}\n\n{more.format(answer=answer)}\n"
        for name, more in _DRAFTS.items()
    }
    return {"prompt.md": f"{text}\n", **drafts}


def _marked(text: str) -> str:
    """A prompt with marks for examples: before the paragraph with the input, else at the end."""
    paragraphs = re.split(r"\n[ \t]*\n", text)
    at = next((n for n, part in enumerate(paragraphs) if _PLACE.search(part)), len(paragraphs))
    return "\n\n".join([*paragraphs[:at], _DEMOS, *paragraphs[at:]])


def score_text(answer: str, labels: list[str]) -> str:
    """Text of score.py: of few labels, an answer names one; else the right answer is in it."""
    text = _SCORE.format(field=json.dumps(answer), right=_NAMED if labels else _WITHIN)
    return text + (_CHOSEN.format(labels=labels) if labels else "")


def _example(inputs: list[str], answer: str) -> str:
    return "\n".join([*(f"{name}: {{{name}}}" for name in inputs), f"{answer}: {{{answer}}}"])


def _lines(path: Path, rows: list[dict[str, Any]]) -> str:
    ids = [str(row["id"]) for row in rows if "id" in row]
    doubled = [id_ for n, id_ in enumerate(ids) if id_ in ids[:n]]
    if doubled:
        from kept.errors import Problem

        raise SpecError([Problem(f"{path.name}:1", "", f"the id `{doubled[0]}` stands twice")])
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
