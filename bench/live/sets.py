"""The public data sets in the formats that they are published in, and samples of them.

A folder of data has `gsm8k/*.jsonl`, `bbh/*.json` and `ifeval/*.jsonl`; a set that is not there is
left out. Imports the standard library alone.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

from bench.live.answers import same_answer, same_number
from bench.live.following import broken, supported

SETS = ("gsm8k", "bbh", "ifeval")

SEEDS = {
    "gsm8k": "Solve the problem. Write the final number on the last line, after ####.",
    "bbh": "Answer the question. End with a line that says: the answer is ANSWER",
    "ifeval": "Do what the request says.",
}
"""The prompts that arms begin with: what somebody types who has the data and no time."""


class BadData(Exception):
    """A file is not in the format of its set."""


@dataclass(frozen=True, slots=True)
class Question:
    """One row: what a model is shown, and what tells whether its answer is right."""

    id: str
    set: str
    input: str
    wanted: str
    """The answer, in words for a proposer."""
    row: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of IFEval, with the terms of its instructions."""

    def grade(self, said: str) -> tuple[float, str]:
        """1 for a right answer and 0 for any other, and what there is to say of it."""
        if self.set == "ifeval":
            missed = broken(said, self.row)
            return float(not missed), f"not followed: {', '.join(missed)}" if missed else "right"
        same = same_number if self.set == "gsm8k" else same_answer
        return (1.0, "right") if same(said, self.wanted) else (0.0, f"the answer is {self.wanted}")


@dataclass(frozen=True, slots=True)
class Sample:
    """What arms may see, and what they are measured on afterwards."""

    set: str
    cases: tuple[Question, ...]
    fresh: tuple[Question, ...]
    left_out: int = 0
    """Rows with instructions that cannot be checked here."""


def grade(output: str, case: Mapping[str, Any]) -> tuple[float, str]:
    """The same for a question that was written as JSON."""
    return Question(**case).grade(output)


def read_sample(folder: Path, name: str, cases: int, fresh: int) -> Sample | None:
    """So many rows of a set, the same each time; None where the folder has nothing of it."""
    if not (folder / name).is_dir():
        return None
    seen, unseen, left_out = _READERS[name](folder / name)
    chance = Random(f"{name} sample")
    if unseen is None:
        chance.shuffle(seen)
        seen, unseen = seen[:cases], seen[cases:]
    else:
        chance.shuffle(seen)
        chance.shuffle(unseen)
    if len(seen) < cases or len(unseen) < fresh:
        have = f"{len(seen)} to search with and {len(unseen)} fresh ones"
        raise BadData(f"{folder / name} is too small for {cases} + {fresh} questions: {have}")
    return Sample(name, tuple(seen[:cases]), tuple(unseen[:fresh]), left_out)


Read = tuple[list[Question], list[Question] | None, int]


def _gsm8k(folder: Path) -> Read:
    """`question` and `answer`, which ends with the number behind `####`; train and test apart."""
    parts: dict[str, list[Question]] = {"train": [], "test": []}
    for file in sorted(folder.glob("*.jsonl")):
        part = next((name for name in parts if file.name.startswith(name)), None)
        if part is None:
            continue
        for number, row in _rows(file):
            question, answer = (_text(file, number, row, key) for key in ("question", "answer"))
            if "####" not in answer:
                raise BadData(f"{file}:{number}: no `answer` with a number behind ####")
            wanted = answer.rpartition("####")[2].strip()
            parts[part].append(Question(f"{part}-{number}", "gsm8k", question, wanted))
    return parts["train"], parts["test"], 0


def _bbh(folder: Path) -> Read:
    """One file a task, each with `examples` of `input` and `target`."""
    found: list[Question] = []
    for file in sorted(folder.glob("*.json")):
        rows = _list(_load(file, file.read_text(encoding="utf-8"), ""), "examples")
        if rows is None:
            raise BadData(f"{file}: no list of `examples`")
        for number, row in enumerate(rows, 1):
            texts = (_text(file, number, row, "input"), _text(file, number, row, "target"))
            found.append(Question(f"{file.stem}-{number}", "bbh", *texts))
    return found, None, 0


def _ifeval(folder: Path) -> Read:
    """`prompt`, `instruction_id_list` and as many `kwargs`."""
    found: list[Question] = []
    left_out = 0
    for file in sorted(folder.glob("*.jsonl")):
        for number, row in _rows(file):
            prompt = _text(file, number, row, "prompt")
            kinds, terms = _list(row, "instruction_id_list"), _list(row, "kwargs")
            if kinds is None or terms is None:
                raise BadData(f"{file}:{number}: no `instruction_id_list` with `kwargs`")
            if len(kinds) != len(terms):
                raise BadData(f"{file}:{number}: not as many `kwargs` as instructions")
            if not supported(row):
                left_out += 1
                continue
            rules: dict[str, Any] = {"instruction_id_list": kinds, "kwargs": terms}
            id_ = f"ifeval-{row.get('key', number)}"
            found.append(Question(id_, "ifeval", prompt, ", ".join(kinds), rules))
    return found, None, left_out


_READERS = {"gsm8k": _gsm8k, "bbh": _bbh, "ifeval": _ifeval}


def _rows(file: Path) -> Sequence[tuple[int, Any]]:
    lines = enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    return [(number, _load(file, line, f":{number}")) for number, line in lines if line.strip()]


def _load(file: Path, text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadData(f"{file}{place}: not JSON ({error})") from error


def _list(row: Any, name: str) -> list[Any] | None:
    value = cast("dict[str, Any]", row).get(name) if isinstance(row, dict) else None
    return cast("list[Any]", value) if isinstance(value, list) else None


def _text(file: Path, number: int, row: Any, name: str) -> str:
    value = cast("dict[str, Any]", row).get(name) if isinstance(row, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise BadData(f"{file}:{number}: no text `{name}`")
    return value
