"""gepa, through `gepa.optimize`, as a careful user writes it; `how` is the size of its minibatch.

Its proposer fixes a case of the minibatch that it reflects on, as a model would. It has the same 50
cases: 15 to reflect on, 35 to choose by, for it keeps no test set.
"""

from collections.abc import Sequence
from itertools import count

from bench.arms.gepa import Quiet, Reflects, gepa
from bench.quality.order import End, Order, obey
from bench.quality.tasks import CASES, SEED, TRAIN, Trial


class Adapter(Reflects):
    """The evaluator; implements gepa's `GEPAAdapter`."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.seen: list[int] = list(range(TRAIN))
        """What was reflected on last."""

    def evaluate(
        self, batch: Sequence[int], candidate: dict[str, str], capture_traces: bool = False
    ):
        if capture_traces:
            self.seen = list(batch)
        scores = [self._trial.roll_out(candidate["text"], case) for case in batch]
        outputs = [""] * len(scores)
        return gepa.EvaluationBatch(outputs=outputs, scores=scores, trajectories=outputs)


def act(trial: Trial, order: Order) -> End:
    adapter, numbers = Adapter(trial), count()

    def propose(
        candidate: dict[str, str], dataset: object, components_to_update: list[str]
    ) -> dict[str, str]:
        rule, _ = trial.rule(next(numbers), adapter.seen)
        return {name: candidate[name] + rule for name in components_to_update}

    result = gepa.optimize(
        seed_candidate={"text": SEED},
        trainset=list(range(TRAIN)),
        valset=list(range(TRAIN, CASES)),
        adapter=adapter,
        custom_candidate_proposer=propose,
        max_metric_calls=order.rollouts,
        reflection_minibatch_size=int(order.how) if order.how else None,
        logger=Quiet(),
    )
    scores = result.val_aggregate_scores
    return End(result.best_candidate["text"], max(scores) - scores[0])


if __name__ == "__main__":
    obey(act)
