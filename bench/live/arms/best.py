"""Best of N: so many prompts written by the model at once, each met with every case; the best wins.

Every one is written from the seed and other three questions with their answers, so that N more or
less independent ideas compete.
"""

from itertools import count
from random import Random

from bench.live.order import Asking, End, Order, Spent, obey, questions

SHOWN = 3
"""Questions that a prompt is written from."""

WRITE = """Below is a prompt for a language model, and questions that the model is asked after it, \
with what a right answer is. Write a better prompt. Reply with the prompt alone.

# Prompt

{prompt}

# Questions

{questions}
"""


def act(order: Order) -> End:
    asking, cases = Asking(order), questions(order)
    means: dict[str, float] = {}
    try:
        for number in count():
            if (number + 1) * len(cases) > order.rollouts:
                break
            prompt = order.seed if number == 0 else write(asking, order, number)
            found = asking.roll_out(prompt, cases)
            means[prompt] = sum(one.score for one in found) / len(found)
    except Spent:
        # what was being measured when the money ended is not chosen from
        pass
    best = max(means, key=means.__getitem__, default=order.seed)
    claimed = means[best] - means[order.seed] if means else 0.0
    return End(best, claimed, asking.spent)


def write(asking: Asking, order: Order, number: int) -> str:
    chosen = Random(number).sample(questions(order)[: order.train], SHOWN)
    shown = "\n\n".join(f"{one.input}\n\nRight: {one.wanted}" for one in chosen)
    return asking.write(WRITE.format(prompt=order.seed, questions=shown)).strip()


if __name__ == "__main__":
    obey(act)
