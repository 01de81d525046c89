"""Drop-in `gepa.optimize` and `gepa.optimize_anything`, executed as runs of Kept.

`optimize_anything` takes one function that scores a candidate.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Unpack, cast

from kept.adapters.arguments import check_rows, data_of, source_of_model, start
from kept.adapters.gepa.arguments import AnythingTerms, TaskTerms, Terms, check_terms, terms_of
from kept.adapters.gepa.proposers import writers_of
from kept.adapters.gepa.runner import AdapterRunner
from kept.adapters.reflection import FunctionAuthor, Reflecting
from kept.api import Result as Run
from kept.core.ports import Runner
from kept.errors import SetupError
from kept.recipes.function.compile import source_of

NOBODY = FunctionAuthor(dict)
"""Placeholder author; replaced when the arguments of the call are known."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a run under the names that gepa uses."""

    best_candidate: Any
    """Promoted texts by component, or the single text; the seed if nothing was proven better."""
    run: Run
    """Run behind the result: its folder, values, spend and verdicts."""

    @property
    def improved(self) -> bool:
        """True if anything better than the seed was found."""
        return self.run.improved

    @property
    def candidates(self) -> list[Any]:
        """The seed, and the best if it was proven better; other candidates are in the run."""
        whole = isinstance(self.best_candidate, str)
        seed = self.run.seed.text if whole else dict(self.run.seed.texts)
        return [seed, self.best_candidate] if self.improved else [seed]

    @property
    def best_idx(self) -> int:
        """Index of the best candidate in `candidates`."""
        return int(self.improved)

    @property
    def val_aggregate_scores(self) -> list[float | None]:
        """Validation metric of each candidate; None for a seed that never ran."""
        run = self.run
        return [run.seed_value, run.best_value] if self.improved else [run.seed_value]

    @property
    def total_metric_calls(self) -> int:
        """Number of rollouts, including those for proofs and the claim."""
        return self.run.spend.rollouts

    @property
    def run_dir(self) -> str:
        """Folder of the run."""
        return str(self.run.folder)

    def __str__(self) -> str:
        return str(self.run)


def optimize(
    seed_candidate: Mapping[str, str],
    trainset: Iterable[Any],
    valset: Iterable[Any] | None = None,
    adapter: Any = None,  # noqa: ANN401 # whatever has the methods of a GEPAAdapter
    **terms: Unpack[TaskTerms],
) -> Result:
    """Improve texts by a `GEPAAdapter`, and promote only candidates that are proven better.

    Takes what `gepa.optimize` of gepa 0.1.4 takes. `docs/guide/from-gepa.md` says what becomes of
    each argument. Arguments without effect here are refused by name.

    Args:
        seed_candidate: texts by component.
        trainset: cases that proposers may see; a list or a `DataLoader`.
        valset: cases that decide. Without one, or if it is the train set again, `split` divides the
            train set, because cases that a proposer has seen are no evidence.
        adapter: evaluates a candidate on a batch of cases.
        **terms: see `TaskTerms`.
    """
    check_terms(terms, TaskTerms.__annotations__)
    check_texts(seed_candidate)
    used = adapter if adapter is not None else _default_adapter(terms)
    if adapter is not None and (terms.get("task_lm") or terms.get("evaluator")):
        hint = "leave `task_lm` and `evaluator` out: they are for gepa's own adapter"
        raise SetupError("there is an `adapter` already", hint=hint)
    if not callable(getattr(used, "evaluate", None)):
        hint = "give what has `evaluate` and `make_reflective_dataset`, as a GEPAAdapter"
        raise SetupError(f"`adapter` is {used!r:.60}, which has no `evaluate`", hint=hint)
    data = data_of(
        items_of(trainset, "trainset"),
        None if valset is None else items_of(valset, "valset"),
        terms.get("testset", ()),
        terms.get("split", "3:5:2"),
        terms.get("seed", 0),
    )
    writers = writers_of(terms, getattr(used, "propose_new_texts", None))
    runner = AdapterRunner(used, data.items)
    if adapter is None:
        # gepa's default adapter has the same source for every model and evaluator, so add both
        scores = terms.get("evaluator")
        parts = (runner.source, source_of_model(terms.get("task_lm")), source_of_model(scores))
        runner.source = "\n".join(parts)
    proposers = writers.proposers(reflecting(seed_candidate, terms))
    run = start(dict(seed_candidate), runner, data, proposers, terms)
    return Result(dict(run.best.texts), run)


def evaluator(adapter: Any) -> Runner:  # noqa: ANN401 # whatever has the methods of a GEPAAdapter
    """A `GEPAAdapter` as the `evaluate` of `kept.optimize`; case data is a data instance."""
    return AdapterRunner(adapter)


def reflecting(seed: Mapping[str, str], terms: Terms) -> Reflecting:
    """Reflecting proposer as configured by the call, with a placeholder author."""
    selector = terms.get("module_selector", "round_robin")
    if selector not in ("round_robin", "all"):
        hint = 'give "round_robin" or "all"'
        raise SetupError(f"`module_selector` is {selector!r:.60}", hint=hint)
    size = terms.get("reflection_minibatch_size", 3)
    skip = terms.get("skip_perfect_score", True)
    perfect = terms.get("perfect_score", 1.0) if skip else None
    return Reflecting(NOBODY, tuple(seed), size, selector == "all", perfect)


def check_texts(given: object) -> None:
    """Refuse a seed that is not a mapping of component names to texts."""
    rows: Mapping[object, object] = (
        cast("Mapping[object, object]", given) if isinstance(given, Mapping) else {}
    )
    if not rows or not all(isinstance(n, str) and isinstance(t, str) for n, t in rows.items()):
        hint = 'give texts by component, as in {"system_prompt": "…"}'
        raise SetupError(f"`seed_candidate` is {given!r:.60}", hint=hint)


def items_of(given: Iterable[Any], name: str) -> list[Any]:
    """List of all items, from an iterable or from a `DataLoader`."""
    loader = cast("Any", given)
    if hasattr(loader, "all_ids") and hasattr(loader, "fetch"):
        return list(loader.fetch(loader.all_ids()))
    check_rows(name, given)
    return list(given)


def _default_adapter(terms: TaskTerms) -> Any:  # noqa: ANN401 # gepa's own
    lm = terms.get("task_lm")
    if lm is None:
        hint = "give an `adapter`, or a `task_lm` for gepa's own"
        raise SetupError("nothing evaluates a candidate", hint=hint)
    try:
        module = import_module("gepa.adapters.default_adapter.default_adapter")
    except ImportError as error:
        hint = "pip install gepa, or give an `adapter`"
        raise SetupError("`task_lm` needs gepa's own adapter", hint=hint) from error
    return module.DefaultAdapter(model=lm, evaluator=terms.get("evaluator"))


TEXT = "current_candidate"
"""Component name of a candidate that is a single text."""

WISHES = {"objective": "What is wanted", "background": "What to know"}


class Evaluating:
    """The user's evaluator function with the methods of an adapter."""

    def __init__(self, function: Callable[..., Any], *, whole: bool, alone: bool) -> None:
        self.function = function
        self._whole = whole
        parameters = inspect.signature(function).parameters
        if "opt_state" in parameters:
            hint = "leave it out: what a candidate scores must not depend on others before it"
            raise SetupError("`evaluator` asks for `opt_state`", hint=hint)
        takes_any = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
        self._shows = not alone and (takes_any or "example" in parameters)

    def evaluate(
        self, batch: Sequence[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        """Evaluate the items one call at a time."""
        rows = [self._one(item, candidate) for item in batch]
        return SimpleNamespace(
            outputs=[None for _ in rows],
            scores=[score for score, _ in rows],
            trajectories=[info for _, info in rows] if capture_traces else None,
            objective_scores=[info.get("scores") for _, info in rows],
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: SimpleNamespace,
        components_to_update: list[str],
    ) -> dict[str, list[dict[str, Any]]]:
        """Side information of each evaluation, per component."""
        return {
            name: [_record(name, candidate, info, score) for info, score in rows]
            for name in components_to_update
            if (rows := [*zip(eval_batch.trajectories, eval_batch.scores, strict=True)])
        }

    def _one(self, item: object, candidate: dict[str, str]) -> tuple[Any, dict[str, Any]]:
        # `example` is passed only if the evaluator takes it and there is a dataset
        given = {"example": item} if self._shows else {}
        log = _Log()
        try:
            told = self.function(candidate[TEXT] if self._whole else candidate, **given)
        finally:
            said = log.end()
        score, info = cast("tuple[Any, Any]", told) if isinstance(told, tuple) else (told, None)
        found: dict[str, Any] = dict(info or {})
        if said:
            found["_gepa_log" if "log" in found else "log"] = said
        return score, found


class _Log:
    """Capture of gepa's `log` calls during one evaluation; empty if gepa is not loaded."""

    def __init__(self) -> None:
        self._module: Any = sys.modules.get("gepa.optimize_anything")
        self._context: Any = self._module.LogContext() if self._module else None
        if self._module:
            self._module.set_log_context(self._context)

    def end(self) -> str:
        """All text logged so far; stops the capture."""
        if not self._module:
            return ""
        self._module.set_log_context(None)
        return cast("str", self._context.drain())


def optimize_anything(
    seed_candidate: str | Mapping[str, str],
    *,
    evaluator: Callable[..., Any],
    dataset: Iterable[Any] | None = None,
    valset: Iterable[Any] | None = None,
    config: Any = None,  # noqa: ANN401 # theirs, or a mapping like it
    **terms: Unpack[AnythingTerms],
) -> Result:
    """Improve a text by a scoring function, and promote only texts that are proven better.

    Takes the arguments of `optimize_anything` of gepa 0.1.4. Settings in its `config` may also be
    given as arguments of `optimize`.

    Args:
        seed_candidate: a text, or texts by name.
        evaluator: `evaluator(candidate)` or `evaluator(candidate, example)`; returns a score, or a
            score and side information.
        dataset: cases to evaluate on; without it the candidate is evaluated alone.
        valset: cases that decide; without it, a part of the dataset.
        config: gepa's `GEPAConfig`, or a mapping like it.
        **terms: see `AnythingTerms`.
    """
    if seed_candidate is None:  # pyright: ignore[reportUnnecessaryComparison] # theirs may be
        hint = "write a first text, however rough"
        raise SetupError("there is no text to improve", hint=hint)
    check_terms(terms, AnythingTerms.__annotations__)
    wishes = {title: str(terms.pop(name, "")) for name, title in WISHES.items()}
    known = terms_of(config, terms)
    whole = isinstance(seed_candidate, str)
    if not whole:
        check_texts(seed_candidate)
    if not callable(evaluator):
        hint = "give a function of a candidate, or of a candidate and an example"
        raise SetupError(f"`evaluator` is {evaluator!r:.60}, not a function", hint=hint)
    seed = {TEXT: seed_candidate} if isinstance(seed_candidate, str) else dict(seed_candidate)
    data = None
    if dataset is not None:
        decides = None if valset is None else items_of(valset, "valset")
        split, number = known.get("split", "3:5:2"), known.get("seed", 0)
        rows = items_of(dataset, "dataset")
        data = data_of(rows, decides, known.get("testset", ()), split, number)
    known.setdefault("skip_perfect_score", False)
    workers = known.setdefault("workers", 8)
    adapter = Evaluating(evaluator, whole=whole, alone=data is None)
    runner = AdapterRunner(adapter, data.items if data else None, batch=1, calls=workers)
    runner.source = source_of(evaluator)
    writers = writers_of(known, None, {title: text for title, text in wishes.items() if text})
    run = start(seed, runner, data, writers.proposers(reflecting(seed, known)), known)
    return Result(run.best[TEXT] if whole else dict(run.best.texts), run)


def _record(
    name: str, candidate: Mapping[str, str], info: Mapping[str, Any], score: object
) -> dict[str, Any]:
    """Side information for one component: the shared entries and those specific to it."""
    own = {f"{other}_specific_info" for other in candidate}
    found = {key: value for key, value in info.items() if key not in own}
    found |= dict(info.get(f"{name}_specific_info") or {})
    return {"score": score, **found}
