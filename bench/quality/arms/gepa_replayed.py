"""gepa, its model replaced by recorded replies; `how` is the size of its minibatch."""

from bench.arms.gepa import Quiet, gepa
from bench.quality.order import End, Order, obey
from bench.quality.replaying import SEEN, TEMPLATE, Adapter, Reflection, Replayed
from bench.quality.tasks import CASES, SEED, TRAIN, Trial


def act(trial: Trial, order: Order) -> End:
    result = gepa.optimize(
        seed_candidate={"text": SEED},
        trainset=SEEN,
        valset=list(range(TRAIN, CASES)),
        adapter=Adapter(trial),
        reflection_lm=Reflection(),
        reflection_prompt_template=TEMPLATE,
        reflection_minibatch_size=int(order.how) if order.how else None,
        max_metric_calls=order.rollouts,
        logger=Quiet(),
    )
    scores = result.val_aggregate_scores
    return End(result.best_candidate["text"], max(scores) - scores[0])


if __name__ == "__main__":
    obey(act, Replayed)
