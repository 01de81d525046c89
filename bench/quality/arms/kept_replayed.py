"""Kept, by the call that a user of gepa has; its model is replaced by replies as gepa's is.

One step at a time, so that replies are read in their order.
"""

import tempfile

from bench.quality.arms.kept import claimed
from bench.quality.order import End, Order, obey
from bench.quality.replaying import SEEN, TEMPLATE, Adapter, Reflection, Replayed
from bench.quality.tasks import CASES, SEED, TRAIN, Trial
from kept.adapters import gepa

DECIDES = 25
"""Cases that decide; the others are sealed."""


def act(trial: Trial, order: Order) -> End:
    with tempfile.TemporaryDirectory(prefix="kept-quality-") as home:
        result = gepa.optimize(
            seed_candidate={"text": SEED},
            trainset=SEEN,
            valset=list(range(TRAIN, TRAIN + DECIDES)),
            testset=list(range(TRAIN + DECIDES, CASES)),
            adapter=Adapter(trial),
            reflection_lm=Reflection(),
            reflection_prompt_template=TEMPLATE,
            max_metric_calls=order.rollouts,
            bounds=(0.0, 1.0),
            width=1,
            home=home,
        )
    return End(result.best_candidate["text"], claimed(result.run))


if __name__ == "__main__":
    obey(act, Replayed)
