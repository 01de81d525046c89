"""gepa, by `gepa.optimize` with a `run_dir`, in its own environment.

Resumed by the same call with the same `run_dir`, as its documentation says. All settings are its
defaults, but for a proposer that is a function of what it is shown, which needs no model.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.reliability.world import CASES, SEED, STEPS, finished, main, propose, report, scores

# by name, because types are checked in an environment that has another version of it
gepa: Any = import_module("gepa")

TRAIN = 60


class Adapter:
    """The evaluator. Implements gepa's `GEPAAdapter`."""

    propose_new_texts = None

    def __init__(self, port: int) -> None:
        self._port = port

    def evaluate(
        self, batch: Sequence[int], candidate: dict[str, str], capture_traces: bool = False
    ) -> Any:
        found = scores(self._port, candidate["text"], batch)
        names = list(map(str, batch))
        return gepa.EvaluationBatch(outputs=names, scores=found, trajectories=names)

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, str]]]:
        rows = [{"Case": name} for name in eval_batch.trajectories]
        return dict.fromkeys(components_to_update, rows)


class Quiet:
    """A log that goes nowhere."""

    def log(self, message: str) -> None:
        """Do nothing."""


class Progress:
    """Reports each candidate that gepa has accepted and evaluated on all validation cases."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told = 0

    def on_iteration_end(self, event: Mapping[str, Any]) -> None:
        state = event["state"]
        values = state.program_full_scores_val_set
        for n in range(self._told, len(values)):
            report(self._folder, state.program_candidates[n]["text"], values[n])
        self._told = len(values)


def next_text(
    candidate: dict[str, str],
    dataset: Mapping[str, Sequence[Mapping[str, str]]],
    components_to_update: list[str],
) -> dict[str, str]:
    """Propose by the text and by the minibatch, and by nothing else that a kill could lose."""
    seen = {name: [row["Case"] for row in dataset[name]] for name in components_to_update}
    return {name: propose(candidate[name], *cases) for name, cases in seen.items()}


def run(folder: Path, port: int) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    result = gepa.optimize(
        seed_candidate={"text": SEED},
        trainset=list(range(CASES, CASES + TRAIN)),
        valset=list(range(CASES)),
        adapter=Adapter(port),
        custom_candidate_proposer=next_text,
        max_metric_calls=(STEPS + 1) * CASES,
        logger=Quiet(),
        run_dir=str(folder),
        callbacks=[Progress(folder)],
    )
    texts = [one["text"] for one in result.candidates]
    pairs = list(zip(texts, result.val_aggregate_scores, strict=True))
    cases = [sorted(one.items()) for one in result.val_subscores]
    return {"best": result.best_candidate["text"], "finished": finished(pairs), "cases": cases}


if __name__ == "__main__":
    main(run)
