"""The call that a user of `gepa.optimize` has, answered by a run of Kept."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Unpack, cast

from kept.adapters.authors import FunctionAuthor
from kept.adapters.cases import check_rows, data_of
from kept.adapters.gepa.proposers import writers_of
from kept.adapters.gepa.runner import AdapterRunner
from kept.adapters.gepa.terms import TaskTerms, Terms, check_terms
from kept.adapters.identity import source_of_model
from kept.adapters.reflecting import Reflecting
from kept.adapters.starting import start
from kept.api import Result as Run
from kept.core.ports import Runner
from kept.errors import SetupError

NOBODY = FunctionAuthor(dict)
"""Stands for the author until the call says who that is."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to, under the name that gepa has for it."""

    best_candidate: Any
    """The promoted texts by component, or the text; the seed where nothing was proven better."""
    run: Run
    """The run itself: its folder, values, spend and verdicts."""

    @property
    def improved(self) -> bool:
        """Whether anything better than the seed was found."""
        return self.run.improved

    @property
    def candidates(self) -> list[Any]:
        """The seed and, where anything was proven better, the best; the others are in the run."""
        whole = isinstance(self.best_candidate, str)
        seed = self.run.seed.text if whole else dict(self.run.seed.texts)
        return [seed, self.best_candidate] if self.improved else [seed]

    @property
    def best_idx(self) -> int:
        """Of the candidates, which is the best."""
        return int(self.improved)

    @property
    def val_aggregate_scores(self) -> list[float | None]:
        """Their metric on the validation set; None of a seed that never ran."""
        run = self.run
        return [run.seed_value, run.best_value] if self.improved else [run.seed_value]

    @property
    def total_metric_calls(self) -> int:
        """Rollouts, those of a proof and of a claim among them."""
        return self.run.spend.rollouts

    @property
    def run_dir(self) -> str:
        """The folder of the run."""
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
    """Improve texts by a `GEPAAdapter`, and promote only what is proven better.

    Takes what `gepa.optimize` of gepa 0.1.4 takes. `docs/guide/from-gepa.md` says what becomes of
    each argument; one that means nothing here is refused by its name.

    Args:
        seed_candidate: texts by component.
        trainset: what proposers may look at; a list or a `DataLoader`.
        valset: what decides. Without one, or where it is the train set again, `split` shares the
            train set out, for what a proposer has seen is no evidence.
        adapter: evaluates a batch of them with a candidate.
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
        # gepa's own has one text whatever it asks and however it scores
        scores = terms.get("evaluator")
        parts = (runner.source, source_of_model(terms.get("task_lm")), source_of_model(scores))
        runner.source = "\n".join(parts)
    proposers = writers.proposers(reflecting(seed_candidate, terms))
    run = start(dict(seed_candidate), runner, data, proposers, terms)
    return Result(dict(run.best.texts), run)


def evaluator(adapter: Any) -> Runner:  # noqa: ANN401 # whatever has the methods of a GEPAAdapter
    """A `GEPAAdapter` as the `evaluate` of `kept.optimize`; a case's data is a data instance."""
    return AdapterRunner(adapter)


def reflecting(seed: Mapping[str, str], terms: Terms) -> Reflecting:
    """How a proposer looks at cases, whoever writes."""
    selector = terms.get("module_selector", "round_robin")
    if selector not in ("round_robin", "all"):
        hint = 'give "round_robin" or "all"'
        raise SetupError(f"`module_selector` is {selector!r:.60}", hint=hint)
    size = terms.get("reflection_minibatch_size", 3)
    skip = terms.get("skip_perfect_score", True)
    perfect = terms.get("perfect_score", 1.0) if skip else None
    return Reflecting(NOBODY, tuple(seed), size, selector == "all", perfect)


def check_texts(given: object) -> None:
    """Refuse what is no texts by component."""
    rows: Mapping[object, object] = (
        cast("Mapping[object, object]", given) if isinstance(given, Mapping) else {}
    )
    if not rows or not all(isinstance(n, str) and isinstance(t, str) for n, t in rows.items()):
        hint = 'give texts by component, as in {"system_prompt": "…"}'
        raise SetupError(f"`seed_candidate` is {given!r:.60}", hint=hint)


def items_of(given: Iterable[Any], name: str) -> list[Any]:
    """A list, or all that a `DataLoader` can fetch."""
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
