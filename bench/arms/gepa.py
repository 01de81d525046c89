"""gepa, through `gepa.optimize`, in its own environment.

Written as a careful user of gepa would: no log, a batch on a pool of threads where evaluations take
time, and the proposer as a plain function, which spares gepa the prompt and the parsing of a reply;
`reflects` has it call a model, which is how it is mostly used. With a `folder` it saves its state
there, which it needs to resume. With several `proposals` an iteration it takes that many parents at
once and evaluates all of their minibatches as one batch.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from itertools import count
from typing import Any

from bench.reading import Order, Reading, Stopwatch, read_order, tell
from bench.world import EVALUATOR_SECONDS, SEED, TRAIN, line, score

# by name, because Kept's environment, where types are checked, does not have it
gepa: Any = import_module("gepa")
stopping: Any = import_module("gepa.utils.stop_condition")
sampling: Any = import_module("gepa.strategies.proposal_sampling")

Batch = tuple[dict[str, str], Sequence[int]]


class Reflects:
    """What every `GEPAAdapter` here has in common: there is nothing to reflect on."""

    propose_new_texts = None

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: object, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        return {name: [{"Feedback": "none"}] for name in components_to_update}


class Adapter(Reflects):
    """The evaluator, counting; implements gepa's `GEPAAdapter`."""

    def __init__(self, order: Order) -> None:
        self.calls = 0
        self._slow = order.task == "slow"
        self._pool = ThreadPoolExecutor(order.workers) if self._slow else None

    def evaluate(
        self, batch: Sequence[int], candidate: dict[str, str], capture_traces: bool = False
    ):
        return self.batch_evaluate([(candidate, batch)])[0]

    def batch_evaluate(self, items: Sequence[Batch]) -> list[Any]:
        flat = [candidate["text"] for candidate, batch in items for _ in batch]
        if self._pool is None:
            scores = [score(text) for text in flat]
        else:
            scores = list(self._pool.map(evaluate_slowly, flat))
        self.calls += len(scores)
        results: list[Any] = []
        for _, batch in items:
            part, scores = scores[: len(batch)], scores[len(batch) :]
            outputs = [""] * len(part)
            results.append(gepa.EvaluationBatch(outputs=outputs, scores=part, trajectories=outputs))
        return results


class Quiet:
    """A log that goes nowhere."""

    def log(self, message: str) -> None:
        """Nothing to do."""


class FirstIteration:
    """A callback that reads the watch when the next iteration begins."""

    def __init__(self, watch: Stopwatch, adapter: Adapter) -> None:
        self._watch = watch
        self._adapter = adapter
        self.reading: Reading | None = None

    def on_iteration_start(self, event: object) -> None:
        if self.reading is None:
            self.reading = self._watch.read(self._adapter.calls, repeated=self._adapter.calls)


def evaluate_slowly(text: str) -> float:
    time.sleep(EVALUATOR_SECONDS)
    return score(text)


def proposer(order: Order) -> Callable[..., dict[str, str]]:
    numbers = count()

    def propose(
        candidate: dict[str, str], dataset: object, components_to_update: list[str]
    ) -> dict[str, str]:
        added = line(next(numbers), order.one_in)
        return {name: candidate[name] + added for name in components_to_update}

    return propose


def model() -> Callable[[object], str]:
    """Answers any prompt with the next candidate, which loses."""
    numbers = count()
    return lambda prompt: f"```\n{SEED}{line(next(numbers), 0)}\n```"


def run(order: Order, adapter: Adapter, stop: object, *callbacks: object) -> None:
    several = sampling.IndependentSampling(order.proposals) if order.proposals > 1 else None
    gepa.optimize(
        seed_candidate={"text": SEED},
        trainset=list(range(TRAIN)),
        valset=list(range(order.cases)),
        adapter=adapter,
        custom_candidate_proposer=None if order.reflects else proposer(order),
        reflection_lm=model() if order.reflects else None,
        stop_callbacks=stop,
        sampling_strategy=several,
        logger=Quiet(),
        run_dir=order.folder or None,
        callbacks=list(callbacks),
    )


def instant(order: Order) -> Reading:
    adapter = Adapter(order)
    watch = Stopwatch()
    run(order, adapter, stopping.MaxMetricCallsStopper(order.rollouts))
    return watch.read(adapter.calls)


def slow(order: Order) -> Reading:
    adapter = Adapter(order)
    watch = Stopwatch()
    run(order, adapter, stopping.TimeoutStopCondition(order.seconds))
    return watch.read(adapter.calls)


def make(order: Order) -> Reading:
    adapter = Adapter(order)
    watch = Stopwatch()
    run(order, adapter, stopping.MaxCandidateProposalsStopper(order.steps))
    return watch.read(adapter.calls)


def resume(order: Order) -> Reading:
    adapter = Adapter(order)
    watch = Stopwatch()
    begun = FirstIteration(watch, adapter)
    run(order, adapter, stopping.MaxCandidateProposalsStopper(order.steps + 1), begun)
    assert begun.reading is not None, "no iteration began"
    return begun.reading


def main() -> None:
    order = read_order()
    task = {"instant": instant, "slow": slow, "make": make, "resume": resume}[order.task]
    tell(task(order))


if __name__ == "__main__":
    main()
