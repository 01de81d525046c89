"""Conversion of adapter arguments: cases, fingerprints, and `kept.optimize` calls.

Data of any shape becomes a case: Kept sees a plain view, the evaluator gets the original object.
Fingerprints let a resume detect that something answers or measures differently than before.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, cast

from kept.api import Result, optimize
from kept.core.budget import Budget
from kept.core.case import Case, Cases, split_cases
from kept.core.ports import Gate, Guard, Proposer, Runner, Sink
from kept.errors import SetupError
from kept.recipes.function.compile import parse_ratio, source_of, warn_of_overlaps
from kept.recipes.function.validate import check_some
from kept.run import gate_of
from kept.store.home import Home


class Data(NamedTuple):
    """Cases, and what each stands for."""

    cases: Cases
    items: Mapping[str, Any]
    """By the id of the case."""


def data_of(
    train: Iterable[Any],
    holdout: Iterable[Any] | None,
    test: Iterable[Any] = (),
    split: str = "3:5:2",
    seed: int = 0,
) -> Data:
    """Cases of what a peer calls its train set and validation set.

    What a proposer has seen is no evidence, so a validation set that is missing, or is the train
    set once more, is split off the train set; so is a test set then, unless there is one.
    """
    for name, given in (("trainset", train), ("valset", holdout), ("testset", test)):
        if given is not None or name != "valset":
            check_rows(name, given)
    shown, sealed = list(train), list(test)
    decides = None if holdout is None else list(holdout)
    if not shown:
        raise SetupError("`trainset` is empty", hint="give the examples that a proposer may see")
    if (
        decides is not None
        and len(shown) == len(decides)
        and all(a is b for a, b in zip(shown, decides, strict=True))
    ):
        decides = None
    items = {f"train-{n:04}": item for n, item in enumerate(shown)}
    decisive = {f"val-{n:04}": item for n, item in enumerate(decides or ())}
    last = {f"test-{n:04}": item for n, item in enumerate(sealed)}
    if decides is None:
        ratio = parse_ratio(split)
        shares = split_cases(_cases(items), (*ratio[:2], 0) if last else ratio, seed)
        cases = Cases(shares.train, shares.holdout, (*shares.test, *_cases(last)))
    else:
        cases = Cases(_cases(items), _cases(decisive), _cases(last))
    warn_of_overlaps(cases)
    return Data(cases, {**items, **decisive, **last})


def check_rows(name: str, given: object) -> None:
    """Refuse what is no list of things."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise SetupError(f"`{name}` is {given!r:.60}", hint="give a list of examples")


def plain(item: Any) -> object:  # noqa: ANN401 # whatever a peer has
    """What can be seen of a thing without its methods; the thing itself where that is all."""
    if is_dataclass(item) and not isinstance(item, type):
        return asdict(item)
    for method in ("toDict", "model_dump"):
        if callable(told := getattr(item, method, None)) and not isinstance(item, type):
            return told()
    if isinstance(item, Mapping | list | tuple | str | int | float | None):
        return cast("object", item)
    return vars(item) if hasattr(item, "__dict__") else item


def _cases(items: Mapping[str, Any]) -> tuple[Case, ...]:
    return tuple(Case(id_, plain(item)) for id_, item in items.items())


SECRET = ("api_key", "api_secret", "token")
"""Settings that may change without another model."""


def source_of_kind(thing: object) -> str:
    """The text of a thing's class. What else it was made with is not seen."""
    kind = type(thing)
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        # made at a prompt: its name is all there is
        return f"{kind.__module__}.{kind.__qualname__}"


def source_of_model(lm: object) -> str:
    """A model by its name, with its settings where it has them; a function by its text."""
    if lm is None or isinstance(lm, str):
        return str(lm)
    named = cast("Any", lm)
    if isinstance(getattr(named, "model", None), str):
        return f"{source_of_kind(named)}\n{named.model}\n{_settings(named)}"
    return source_of(named) if inspect.isroutine(named) else source_of_kind(named)


def _settings(lm: Any) -> str:  # noqa: ANN401 # whatever is called a model
    told = getattr(lm, "kwargs", None)
    found = cast("Mapping[str, object]", told if isinstance(told, Mapping) else {})
    # of anything else than plain values, an address in memory would be another every time
    plain = {
        name: value if isinstance(value, str | int | float | None) else type(value).__qualname__
        for name, value in found.items()
        if name not in SECRET
    }
    return json.dumps(plain, sort_keys=True)


PASSED_ON = (
    *("gate", "guards", "sinks", "bounds", "workers", "width", "usd_per_rollout"),
    *("home", "resume"),
)
"""Arguments that are those of `kept.optimize`."""


class OwnTerms(TypedDict, total=False):
    """What every adapter takes."""

    reflection_lm: str | Callable[..., Any]
    """A function of a prompt, or `provider/model`, which is asked by Kept."""
    prompts: str | Path
    """A folder whose `component.md` stands for what Kept tells the `reflection_lm`."""
    reflection_minibatch_size: int
    """Train cases that are looked at before a proposal; 3."""
    max_metric_calls: int
    """Rollouts of all kinds: those that proposers look at, that decide and that prove."""
    run_dir: str | Path
    """The folder for runs. The last run in it, if there is one, goes on."""
    seed: int

    testset: Sequence[Any]
    """Cases for the claim at the end."""
    split: str
    """Shares of train, holdout and test, where there is no `valset`."""
    bounds: tuple[float, float]
    workers: int
    """Rollouts in flight; of a gepa adapter, cases that it is given at once; 8."""
    width: int
    budget: Budget | int
    """Limits; a number is a number of steps."""
    gate: Gate | Literal["strict", "race"]
    guards: Sequence[Guard]
    sinks: Sequence[Sink]
    home: str | Path
    resume: str
    usd_per_rollout: float
    usd_per_call: float
    """The most that a call of a function which writes may cost; needed for a limit of money."""


def start(
    seed: Mapping[str, str],
    runner: Runner,
    data: Data | None,
    proposers: Sequence[Proposer],
    terms: OwnTerms,
    gate: Literal["race"] | None = "race",
) -> Result:
    """Have `kept.optimize` do it.

    With cases by a race, unless another gate is named: a smaller rule would be cheaper, and would
    promote noise to somebody who was told that it is proven. None leaves it to `kept.optimize`.
    """
    options: dict[str, Any] = {name: terms[name] for name in PASSED_ON if name in terms}
    if data is not None:
        options.setdefault("gate", gate)
    return optimize(
        dict(seed),
        runner,
        data.cases if data else None,
        proposers=list(proposers),
        budget=_budget(terms),
        random_seed=terms.get("seed", 0),
        **options,
        **place(terms),
    )


def check_own(terms: Mapping[str, object]) -> None:
    """Refuse what `kept.optimize` would, before anything that takes long."""
    names = (*PASSED_ON, "budget", "timeout")
    check_some({name: terms[name] for name in names if name in terms})


def limits_of(terms: Mapping[str, object]) -> Budget | None:
    """The budget that was given, where a number is one of steps."""
    budget = cast("Budget | int | None", terms.get("budget"))
    return Budget(max_iterations=budget) if isinstance(budget, int) else budget


def _budget(terms: OwnTerms) -> Budget:
    budget, calls = limits_of(terms), terms.get("max_metric_calls")
    if budget is None and calls is None:
        hint = "give max_metric_calls=…, or budget=kept.Budget(…)"
        raise SetupError("nothing says how long to go on", hint=hint)
    check_calls(budget, calls)
    budget = budget or Budget()
    return budget if calls is None else replace(budget, max_rollouts=calls)


def check_calls(budget: Budget | None, calls: object) -> None:
    """Refuse two limits of the same, and one that is no number."""
    if calls is not None and (not isinstance(calls, int) or isinstance(calls, bool) or calls < 1):
        hint = "give a whole number of 1 or more"
        raise SetupError(f"`max_metric_calls` is {calls!r:.60}", hint=hint)
    if budget is not None and budget.max_rollouts is not None and calls is not None:
        hint = "they are the same: give one"
        raise SetupError("`max_metric_calls` and `budget.max_rollouts` are given", hint=hint)


def place(terms: Mapping[str, object]) -> dict[str, Any]:
    """Where the run is, and whether there is one to go on with; nothing without `run_dir`."""
    given = cast("str | Path | None", terms.get("run_dir"))
    if given is None:
        return {}
    if "home" in terms or "resume" in terms:
        hint = "`run_dir` is the home, and its last run goes on"
        raise SetupError("`run_dir` and `home` or `resume` are given", hint=hint)
    runs = Home(Path(given)).folders()
    # one that was killed before its first line has nothing to go on with
    begun = bool(runs) and gate_of(runs[-1]) != ""
    return {"home": given, "resume": "last" if begun else None}
