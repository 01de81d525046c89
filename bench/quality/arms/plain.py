"""Best of N, and keeping at random: what a search is to beat."""

from random import Random

from bench.quality.order import End, Order, obey
from bench.quality.tasks import CASES, SEED, TRAIN, Trial


def best_of_n(trial: Trial, order: Order) -> End:
    """As many proposals as the money lasts for, each met with every case once; the highest wins."""
    cases = range(CASES)
    texts = [SEED] + [
        SEED + trial.rule(number, list(range(TRAIN)))[0]
        for number in range(order.rollouts // CASES - 1)
    ]
    means = [sum(trial.roll_out(text, case) for case in cases) / CASES for text in texts]
    at = max(range(len(texts)), key=means.__getitem__)
    return End(texts[at], means[at] - means[0])


def at_random(trial: Trial, order: Order) -> End:
    """Eight proposals, each kept or not by the toss of a coin."""
    toss = Random(f"toss {order.task} {order.rollouts}")
    rules = [trial.rule(number, list(range(TRAIN)))[0] for number in range(8)]
    return End(SEED + "".join(rule for rule in rules if toss.random() < 0.5), 0.0)


def main() -> None:
    obey(lambda trial, order: {"best": best_of_n, "random": at_random}[order.how](trial, order))


if __name__ == "__main__":
    main()
