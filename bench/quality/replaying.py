"""Replies of a model that reflects, given to every arm in the order in which they are written down.

`bench/data/replies.jsonl` has the texts as such a model returns them: good ones, useless ones, some
of which leave the text as it is, and harmful ones. `<current>` stands where the model repeats the
text that it was shown. They were written once, by no model, so that what each is worth is known.
Imports the standard library alone: peers run it in environments of their own.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.quality.tasks import TRAIN, Task, Trial

FILE = Path(__file__).parent.parent / "data" / "replies.jsonl"

KINDS = {"good": "better", "useless": "", "harmful": "worse"}

TEMPLATE = """Improve this text:
```
<curr_param>
```

What came of it:
```
<side_info>
```

Reply with the whole new text between ``` lines."""
"""The prompt of every arm, with the places that gepa has for them."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One that was written down."""

    kind: str
    reply: str


@cache
def replies() -> tuple[Reply, ...]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return tuple(Reply(**json.loads(line)) for line in lines)


class Replayed(Trial):
    """A trial in which a rule is worth what its reply was written down as."""

    def __init__(self, task: Task, run: int) -> None:
        super().__init__(task, run)
        self._helps = task.better > 0

    def _kind(self, number: int) -> str:
        kind = KINDS[replies()[number].kind]
        # in a task where no rule helps, none of these does
        return kind if self._helps or kind == "worse" else ""


class Reflection:
    """Answers each prompt with the next reply, from the first again behind the last."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, prompt: str) -> str:
        reply = replies()[self.asked % len(replies())].reply
        self.asked += 1
        return reply.replace("<current>", shown_in(prompt))


def shown_in(prompt: str) -> str:
    """The text that a prompt shows, which is between the first fences."""
    found = re.search(r"^```\n(.*?)\n```$", prompt, re.DOTALL | re.MULTILINE)
    if found is None:
        raise ValueError(f"no text in the prompt {prompt!r:.200}")
    return found[1]


class Adapter:
    """The evaluator, for both: implements gepa's `GEPAAdapter`."""

    propose_new_texts = None

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def evaluate(
        self, batch: Sequence[int], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        scores = [self._trial.roll_out(candidate["text"], case) for case in batch]
        notes = [f"case {case}: {score:g}" for case, score in zip(batch, scores, strict=True)]
        # with all that gepa reads of an `EvaluationBatch`
        return SimpleNamespace(
            outputs=notes,
            scores=scores,
            trajectories=notes,
            objective_scores=None,
            num_metric_calls=len(scores),
        )

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        rows = [{"Feedback": note} for note in eval_batch.trajectories]
        return dict.fromkeys(components_to_update, rows)


SEEN = list(range(TRAIN))
"""Cases that may be reflected on."""
