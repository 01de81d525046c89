"""BIG-Bench Hard: puzzles in files `TASK.json` with `examples` of `input` and `target`.

The file gives the type of its cases. A target is a choice `(B)`, a word such as `Yes` or `True`, a
number, or a text; each is compared as what it is.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.contract import Environment, Graded, Item, Posed
from kept.evaluators.environments.fields import Fields, as_items, id_of, item, values
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.reading import Row, rows_in
from kept.evaluators.environments.replying import answer_in, quoted
from kept.evaluators.environments.skills import initial
from kept.evaluators.environments.squad import token_f1

SYSTEM = """\
You solve puzzles. Think step by step, then give the answer alone between <answer> and </answer>.
Where there are options with letters, the answer is the letter in brackets, as in (B)."""

_CHOICE = re.compile(r"\(([A-Z])\)")
_LETTER = re.compile(r"\A\(?([A-Za-z])\)?(?:[.:)\s].*)?\Z", re.DOTALL)
_SPLIT = ("items", "train", "val", "test")
"""Names of files that say nothing of their content."""


@dataclass(frozen=True)
class Bbh(Environment):
    """One puzzle a case."""

    name = "bbh"
    data = (
        "BIG-Bench Hard (github.com/suzgunmirac/BIG-Bench-Hard): a JSON file of its folder bbh/, "
        "or that folder, as `env.data_path` (rows with input and target); or with `split_mode: "
        "split_dir` such rows in train/, val/ and test/ below `env.split_dir`"
    )

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
        return initial("bbh")

    def read(self, path: Path) -> Iterable[Item]:
        """Puzzles of one task, or of all tasks of a folder."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            puzzle, target = fields.text(row, ("input",)), fields.texts(row, ("target",))
            if puzzle is not None and target is not None:
                data = {"input": puzzle, "target": target[0], "task": _task(row)}
                yield item(row, data)

    def pose(self, case: Case) -> Posed:
        """The puzzle as it stands."""
        return Posed(values(case)["input"], SYSTEM)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Right or wrong; of a text, the words that are right count softly."""
        answer = answer_in(rollout.output)
        if isinstance(answer, Failure):
            return answer
        target = values(case)["target"]
        right = float(same(answer, target))
        soft = right if right or not _is_list(target) else token_f1(answer, target)
        why = "" if right else f"{quoted(answer)} is not the answer that was expected"
        return Graded(right, soft, why)

    def about(self, case: Case) -> About:
        """The puzzle, its task, and what was expected."""
        data = values(case)
        return About(data["input"], data["task"], data["target"])


def same(answer: str, target: str) -> bool:
    """Whether an answer is the target, as what the target is."""
    choice = _CHOICE.fullmatch(target)
    if choice is not None:
        marked = _CHOICE.findall(answer)
        plain = _LETTER.match(answer.strip())
        said = marked[-1] if marked else plain[1].upper() if plain else ""
        return said == choice[1]
    return _bare(answer) == _bare(target)


def _bare(text: str) -> str:
    return " ".join(text.casefold().strip().strip(".!\"'`*").split())


def _is_list(target: str) -> bool:
    return len(target.split()) > 1


def _task(row: Row) -> str:
    """As the row says, else as its file is called."""
    told = row.data.get("task")
    if isinstance(told, str) and told:
        return told
    if row.path.stem not in _SPLIT:
        return row.path.stem
    return id_of(row).rpartition("-")[0] or "bbh"
