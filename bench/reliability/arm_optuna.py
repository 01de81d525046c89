"""Optuna, with `JournalStorage(JournalFileBackend(...))`, in its own environment.

Resumed by `load_if_exists=True` and the trials that are left. The sampler is pickled after every
trial, as Optuna's FAQ says for studies that are to be reproducible; the pickle is replaced whole.
"""

import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

from bench.reliability.world import CASES, STEPS, finished, main, report, scores

# by name, because types are checked in an environment that has another version of it
optuna: Any = import_module("optuna")
journal: Any = import_module("optuna.storages.journal")

COMPLETE = optuna.trial.TrialState.COMPLETE
TRIALS = STEPS + 1
"""The others evaluate their seed besides."""


def text_of(params: dict[str, float]) -> str:
    """Write parameters as a text, whose good lines are the closer ones."""
    good = 8 - int(8 * abs(params["x"] - 0.3) + 8 * abs(params["y"] - 0.6))
    return "good\n" * max(0, good) + repr(sorted(params.items()))


def run(folder: Path, port: int) -> dict[str, Any]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(exist_ok=True)
    kept_sampler = folder.parent / "sampler.pkl"
    sampler = optuna.samplers.TPESampler(seed=0)
    if kept_sampler.exists():
        sampler = pickle.loads(kept_sampler.read_bytes())
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(
            journal.JournalFileBackend(str(folder / "journal.log"))
        ),
        study_name="bench",
        sampler=sampler,
        direction="maximize",
        load_if_exists=True,
    )

    def objective(trial: Any) -> float:
        params = {name: trial.suggest_float(name, 0.0, 1.0) for name in ("x", "y")}
        found = scores(port, text_of(params), range(CASES))
        return sum(found) / len(found)

    def after(study: Any, trial: Any) -> None:
        fresh = kept_sampler.with_suffix(".new")
        fresh.write_bytes(pickle.dumps(study.sampler))
        fresh.replace(kept_sampler)
        report(folder, text_of(trial.params), trial.value)

    left = TRIALS - len(study.get_trials(states=(COMPLETE,)))
    if left > 0:
        study.optimize(objective, n_trials=left, callbacks=[after])
    done = study.get_trials(states=(COMPLETE,))
    pairs = [(text_of(trial.params), trial.value) for trial in done]
    return {"best": study.best_params, "finished": finished(pairs)}


if __name__ == "__main__":
    main(run)
