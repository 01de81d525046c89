"""The call that a user of `gepa.optimize_anything` has: one function that scores a candidate."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Unpack, cast

from kept.adapters.cases import data_of
from kept.adapters.gepa.calling import Result, check_texts, items_of, reflecting
from kept.adapters.gepa.config import terms_of
from kept.adapters.gepa.proposers import writers_of
from kept.adapters.gepa.runner import AdapterRunner
from kept.adapters.gepa.terms import AnythingTerms, check_terms
from kept.adapters.starting import start
from kept.errors import SetupError
from kept.recipes.function.compile import source_of

TEXT = "current_candidate"
"""The name that a candidate of one text has in side information."""

WISHES = {"objective": "What is wanted", "background": "What to know"}


class Evaluating:
    """Its evaluator, with the methods of an adapter."""

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
        """Each of them by a call of its own."""
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
        """Side information, with what it says of each component."""
        return {
            name: [_record(name, candidate, info, score) for info, score in rows]
            for name in components_to_update
            if (rows := [*zip(eval_batch.trajectories, eval_batch.scores, strict=True)])
        }

    def _one(self, item: object, candidate: dict[str, str]) -> tuple[Any, dict[str, Any]]:
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
    """What `log` of gepa's module is told during one call, if that module is there at all."""

    def __init__(self) -> None:
        self._module: Any = sys.modules.get("gepa.optimize_anything")
        self._context: Any = self._module.LogContext() if self._module else None
        if self._module:
            self._module.set_log_context(self._context)

    def end(self) -> str:
        """All that was said."""
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
    """Improve a text by a function that scores it, and promote only what is proven better.

    Takes what `optimize_anything` of gepa 0.1.4 takes; what its `config` says may as well be said
    by the arguments of `optimize`.

    Args:
        seed_candidate: a text, or texts by name.
        evaluator: `evaluator(candidate)` or `evaluator(candidate, example)`; returns a score, or a
            score and side information.
        dataset: what to evaluate on; without it the candidate is all there is.
        valset: what decides; without it, a part of the dataset.
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
    """What side information says of one component: what holds for all, and what is its own."""
    own = {f"{other}_specific_info" for other in candidate}
    found = {key: value for key, value in info.items() if key not in own}
    found |= dict(info.get(f"{name}_specific_info") or {})
    return {"score": score, **found}
