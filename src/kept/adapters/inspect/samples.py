"""The samples of a task as cases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

from kept.adapters.cases import Data
from kept.core.case import Case, fault_in, split_cases
from kept.core.words import count
from kept.errors import SetupError
from kept.recipes.function.compile import parse_ratio, warn_of_overlaps

SHOWN = ("input", "choices", "target", "metadata", "sandbox", "files", "setup")
"""What makes a sample the one that it is."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which samples of a dataset there are, as `inspect_ai.eval` is told."""

    limit: int | tuple[int, int] | None = None
    ids: tuple[str, ...] | None = None
    """Or patterns of them."""

    def of(self, rows: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        """Those that are meant."""
        if self.ids is not None:
            return [row for row in rows if any(fnmatchcase(row[0], id_) for id_ in self.ids)]
        if isinstance(self.limit, tuple):
            return rows[self.limit[0] : self.limit[1]]
        return rows[: self.limit]


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples by their ids."""

    by_id: Mapping[str, Any]
    choice: Choice

    @staticmethod
    def read(task: Any, choice: Choice) -> "Samples":  # noqa: ANN401 # a Task
        """Those of a task; one without an id is known by its place, as in Inspect."""
        if not hasattr(task, "dataset") or not hasattr(task, "scorer"):
            hint = "return inspect_ai.Task(…)"
            raise SetupError(f"the task function returned {task!r:.80}", hint=hint)
        problems: list[str] = []
        if task.scorer is None:
            problems.append("the task has no scorer: nothing could be compared")
        if task.sample_source is not None:
            problems.append("the samples of the task are made while it runs: give it a dataset")
        rows = [
            (str(sample.id if sample.id is not None else number), sample)
            for number, sample in enumerate(task.dataset, 1)
        ]
        twice = [id_ for id_, times in Counter(id_ for id_, _ in rows).items() if times > 1]
        if twice:
            problems.append(f"sample ids stand more than once: {', '.join(twice[:5])}")
        rows = choice.of(rows)
        if not rows and task.sample_source is None:
            problems.append("the task has no samples")
        if problems:
            raise SetupError("; ".join(problems))
        return Samples(dict(rows), choice)

    def copy(self, case: str) -> Any:  # noqa: ANN401 # a Sample
        """A sample to be changed at will."""
        sample = self.by_id[case]
        id_ = sample.id if sample.id is not None else int(case)
        return sample.model_copy(deep=True, update={"id": id_})

    def data(self, split: str, seed: int) -> Data:
        """Samples as cases, shared out."""
        cases = [Case(id_, _plain(sample)) for id_, sample in self.by_id.items()]
        shared = split_cases(cases, parse_ratio(split), seed)
        if fault := fault_in(shared):
            message = f"{fault} (split {split} of {count(len(cases), 'sample')})"
            raise SetupError(message, hint="give more samples, or holdout a larger share")
        warn_of_overlaps(shared)
        return Data(shared, {})

    def other(self, theirs: "Samples") -> "Samples":
        """Those of another, held once where they are like ours: a dataset may be large."""
        mine = self.by_id
        rows = {
            id_: mine[id_] if id_ in mine and mine[id_] == sample else sample
            for id_, sample in theirs.by_id.items()
        }
        return Samples(rows, self.choice)

    def same(self, other: "Samples") -> bool:
        """Whether both are the same samples in the same places."""
        mine, theirs = self.by_id, other.by_id
        return mine.keys() == theirs.keys() and all(
            _plain(sample) == _plain(theirs[id_]) for id_, sample in mine.items()
        )


def choice_of(terms: Mapping[str, Any]) -> Choice:
    """What a call says of it."""
    limit, ids = terms.get("limit"), terms.get("sample_id")
    if limit is not None and ids is not None:
        raise SetupError("both `limit` and `sample_id` are given", hint="give one of them")
    if ids is None:
        return Choice(cast("int | None", limit))
    many = cast("Iterable[object]", ids) if isinstance(ids, list | tuple) else [ids]
    return Choice(ids=tuple(str(one) for one in many))


def _plain(sample: Any) -> dict[str, Any]:  # noqa: ANN401 # a Sample
    told = sample.model_dump(mode="json", include=set(SHOWN), exclude_none=True, fallback=str)
    if isinstance(told["input"], list):
        # messages have ids that are drawn anew whenever they are made
        rows = cast("list[dict[str, Any]]", told["input"])
        told["input"] = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    return told
