"""From cases to a task: a prompt that is asked about them, and what tells a right answer."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kept.errors import SetupError, SpecError
from kept.intake import Draft
from kept.intake.money import budget_of
from kept.intake.naming import named
from kept.intake.rows import read_rows
from kept.intake.yaml import task_text

ANSWERS = (
    *("expected", "expected_output", "answer", "label", "target", "output", "ideal", "gold"),
    *("completion", "response", "reference", "category", "class"),
)
"""What people call the field with the right answer, the likeliest first."""

LOCAL = "local/smollm2"
"""Asked where nobody is named: it needs no key."""

_MOST_LABELS = 20
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
    "1-only-the-answer": "{ask}\n\n{fields}\n\nAnswer with the {answer} only, nothing else.",
    "2-step-by-step": "{ask}\n\n{fields}\n\n"
    "Think step by step, then give the {answer} in the last line.",
}


def answer_among(names: Sequence[str]) -> str | None:
    """The field that people call the right answer, however it is written; None where none is."""
    plain = {name.lower(): name for name in reversed(names)}
    return next((plain[name] for name in ANSWERS if name in plain), None)


def draft_of_cases(path: Path, model: str | None = None) -> Draft:
    """A task that asks a model about every row, and compares with the field that is the answer."""
    rows, notes = named(read_rows(path), path.name)
    names = [name for name in rows[0] if name != "id"]
    answer = answer_among(names)
    inputs = [name for name in names if name != answer]
    if answer is None or not inputs:
        known = ", ".join(f"`{name}`" for name in names)
        hint = f"name the field with the right answer `expected`; there are {known}"
        raise SetupError(f"{path.name} does not say what a right answer is", hint=hint)
    labels = list(dict.fromkeys(str(row[answer]) for row in rows))
    ask = "Answer the question."
    if len(labels) == 1:
        notes.append(f"the `{answer}` of every row is `{labels[0]}`: no prompt can do better")
    few = 1 < len(labels) <= _MOST_LABELS and len(labels) < len(rows) / 2
    if few:
        ask = f"Which is it: {', '.join(labels[:-1])} or {labels[-1]}?"
    fields = "\n".join(f"{name}: {{{{{name}}}}}" for name in inputs)
    fields = f"{{{{{inputs[0]}}}}}" if len(inputs) == 1 else fields
    drafts = {
        f"drafts/{name}.md": text.format(ask=ask, fields=fields, answer=answer) + "\n"
        for name, text in _DRAFTS.items()
    }
    budget, about_money = budget_of(model or LOCAL)
    notes += about_money
    demos = "<!-- demos:start -->\n<!-- demos:end -->"
    task: dict[str, Any] = {
        "artifacts": {"include": ["prompt.md"]},
        "models": {"target": model or LOCAL},
        "runner": {"prompt": "prompt.md", "input": inputs},
        "scorer": {"type": "python", "function": "score:score"},
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": [
            {"kind": "variants", "files": ["drafts/*.md"]},
            {"kind": "demos", "file": "prompt.md", "template": _example(inputs, answer)},
        ],
        "cases": {"file": "cases.jsonl", "split": "3:5:2"},
        "budget": budget,
    }
    if model is None:
        notes.append(f"no model is named, so `{LOCAL}` is asked: it is small, and free")
    else:
        task["models"] |= {"optimizer": model}
        task["proposers"].append({"kind": "edit"})
    files = {
        "task.yaml": task_text(f"# From {path.name}, by `kept init --from`.\n", task),
        "prompt.md": f"{ask}\n\n{demos}\n\n{fields}\n",
        **drafts,
        "score.py": _score(answer, labels if few else []),
        "cases.jsonl": _lines(path, rows),
    }
    return Draft(files, tuple(notes))


def _score(answer: str, labels: list[str]) -> str:
    """What tells a right answer: of few labels, the one that it names; else that it is in it."""
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
