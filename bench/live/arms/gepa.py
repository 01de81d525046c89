"""gepa, through `gepa.optimize`, as a careful user writes it.

It has the questions that may be looked at to reflect on and all others to choose by, for it keeps
no test set. It is told the right answer, and what is wrong, as feedback.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from bench.arms.gepa import Quiet, gepa
from bench.live.order import Answered, Asking, End, Order, Spent, obey, questions
from bench.live.sets import Question

TEXT = "system_prompt"


class Adapter:
    """Implements gepa's `GEPAAdapter`."""

    propose_new_texts = None

    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def evaluate(
        self, batch: Sequence[Question], candidate: dict[str, str], capture_traces: bool = False
    ):
        found = self._asking.roll_out(candidate[TEXT], batch)
        return gepa.EvaluationBatch(
            outputs=[one.said for one in found],
            scores=[one.score for one in found],
            trajectories=found if capture_traces else None,
        )

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        seen: list[Answered] = eval_batch.trajectories
        rows = [
            {"Inputs": one.question.input, "Generated Outputs": one.said, "Feedback": one.remark}
            for one in seen
        ]
        return dict.fromkeys(components_to_update, rows)


def act(order: Order) -> End:
    asking, cases = Asking(order), questions(order)
    try:
        result = gepa.optimize(
            seed_candidate={TEXT: order.seed},
            trainset=cases[: order.train],
            valset=cases[order.train :],
            adapter=Adapter(asking),
            reflection_lm=partial(reflect, asking),
            max_metric_calls=order.rollouts,
            # when the money ends in the middle of an iteration, what was found before it stands
            stop_callbacks=partial(is_spent, asking),
            raise_on_exception=False,
            logger=Quiet(),
        )
    except Spent:
        return End(order.seed, 0.0, short=True)
    scores = result.val_aggregate_scores
    return End(result.best_candidate[TEXT], max(scores) - scores[0], asking.spent)


def reflect(asking: Asking, prompt: str | list[dict[str, str]]) -> str:
    """What the model says to a prompt of gepa's, which may come as messages."""
    messages = [{"content": prompt}] if isinstance(prompt, str) else prompt
    return asking.write("\n\n".join(one["content"] for one in messages))


def is_spent(asking: Asking, state: object) -> bool:
    return asking.spent


if __name__ == "__main__":
    obey(act)
