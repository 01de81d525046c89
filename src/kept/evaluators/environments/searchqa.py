"""SearchQA: a trivia question with the passages that a search found; answers are a few words.

Rows have `question`, `answers` (or `answer`) and `context`, passages behind `[DOC]` marks; `id` or
`key` tells them apart. Context is cut by whole passages, and both student and trace are told so.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kept.core.case import Case
from kept.core.rollout import Failure, Rollout
from kept.core.words import count
from kept.evaluators.environments.contract import Graded, Item, Posed, TurnOptions
from kept.evaluators.environments.fields import Fields, as_items, item, values
from kept.evaluators.environments.opened import About
from kept.evaluators.environments.reading import rows_in
from kept.evaluators.environments.replying import answer_in, quoted
from kept.evaluators.environments.skills import initial
from kept.evaluators.environments.squad import likeness

DOC = "[DOC]"

SYSTEM = """\
You answer trivia questions. You may be given passages that a search engine found; some are beside
the point. Think as long as you need, then give the answer alone, as few words as it takes, between
<answer> and </answer>."""

AGAIN = """\
Look at the question and the passages once more. If the answer should change, change it; in any
case give the final answer between <answer> and </answer>."""


@dataclass(frozen=True)
class SearchQa(TurnOptions):
    """One question a case."""

    max_context_chars: int = 6000
    """Characters of the passages; 0 for all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_context_chars < 0:
            raise ValueError("`max_context_chars` is less than 0")

    name = "searchqa"
    again = AGAIN
    data = (
        "SearchQA (huggingface.co/datasets/lucadiliello/searchqa): rows (question, answers, "
        "context; id or key) as JSON, JSON lines or CSV, in train/, val/ and test/ below "
        "`env.split_dir`; or with `split_mode: ratio` a file of them as `env.data_path`"
    )

    def skill(self) -> Mapping[str, str]:
        """A few lines to begin with."""
        return initial("searchqa")

    def read(self, path: Path) -> Iterable[Item]:
        """Questions of JSON, JSON lines or CSV."""
        fields = Fields()
        return as_items(fields, self._items(path, fields))

    def _items(self, path: Path, fields: Fields) -> Iterator[Item]:
        for row in rows_in(path):
            question = fields.text(row, ("question",))
            golds = fields.texts(row, ("answers", "answer"))
            context = row.data.get("context") or ""
            if not isinstance(context, str):
                fields.wrong(row, "`context` is no text")
                continue
            if question is not None and golds is not None:
                data: dict[str, object] = {"question": question, "answers": golds}
                yield item(row, {**data, "context": context})

    def pose(self, case: Case) -> Posed:
        """The question behind its passages."""
        data = values(case)
        context, left = cut_documents(data["context"], self.max_context_chars)
        parts = [f"Passages:\n\n{context}"] if context else []
        notes: tuple[str, ...] = ()
        if left:
            parts.append(f"[{left}]")
            notes = (f"{left}: the limit is {self.max_context_chars:,} characters",)
        parts.append(f"Question: {data['question']}")
        return Posed("\n\n".join(parts), SYSTEM, notes=notes)

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Exact match is hard, the overlap of words is soft."""
        answer = answer_in(rollout.output)
        if isinstance(answer, Failure):
            return answer
        found = likeness(answer, values(case)["answers"])
        why = "" if found.exact else f"{quoted(answer)} is not the answer that was expected"
        metrics = {"em": found.exact, "f1": found.f1, "sub_em": found.inside}
        told = f"exact match {found.exact:g}, F1 {found.f1:.2f}"
        return Graded(found.exact, found.f1, why, told, metrics)

    def about(self, case: Case) -> About:
        """The question, and what was expected."""
        data = values(case)
        golds: list[str] = data["answers"]
        return About(data["question"], "searchqa", " | ".join(golds), golds=tuple(golds))


def cut_documents(context: str, most: int) -> tuple[str, str]:
    """As many whole passages as there is room for, from the first; and what was left out."""
    documents = [one.strip() for one in context.split(DOC)]
    documents = [one for one in documents if one]
    kept: list[str] = []
    used = 0
    for document in documents:
        piece = f"{DOC} {document}"
        if most and used + len(piece) > most:
            break
        kept.append(piece)
        used += len(piece) + 1
    left = len(documents) - len(kept)
    if not kept and documents:
        first = documents[0][: most - len(DOC) - 1].rsplit(" ", 1)[0]
        return f"{DOC} {first}", f"the first passage is cut short, {left - 1} more are left out"
    if not left:
        return "\n".join(kept), ""
    verb = "is" if left == 1 else "are"
    return "\n".join(kept), f"{count(left, 'more passage')} {verb} left out"
