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
    """Cases, and the caller's object behind each case."""

    cases: Cases
    items: Mapping[str, Any]
    """Keyed by case id."""


def data_of(
    train: Iterable[Any],
    holdout: Iterable[Any] | None,
    test: Iterable[Any] = (),
    split: str = "3:5:2",
    seed: int = 0,
) -> Data:
    """Cases from the train set and validation set of another optimizer.

    A validation set must hold cases that proposers have not seen. If it is missing, or is the
    train set again, it is split off the train set. A test set is then split off too, unless one is
    given.
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
        # users of gepa often pass the train set twice, as the same objects in the same order
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
    """Refuse anything that is not a list of examples."""
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise SetupError(f"`{name}` is {given!r:.60}", hint="give a list of examples")


def plain(item: Any) -> object:  # noqa: ANN401 # whatever a peer has
    """Plain data of an object, without its methods; the object itself if it has no such form."""
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
"""Settings that may change without it being another model."""


def source_of_kind(thing: object) -> str:
    """Source text of an object's class. Its constructor arguments are not included."""
    kind = type(thing)
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        # defined at an interactive prompt: only the name is available
        return f"{kind.__module__}.{kind.__qualname__}"


def source_of_model(lm: object) -> str:
    """Fingerprint of a model: name and settings if it has them; source text for a function."""
    if lm is None or isinstance(lm, str):
        return str(lm)
    named = cast("Any", lm)
    if isinstance(getattr(named, "model", None), str):
        return f"{source_of_kind(named)}\n{named.model}\n{_settings(named)}"
    return source_of(named) if inspect.isroutine(named) else source_of_kind(named)


def _settings(lm: Any) -> str:  # noqa: ANN401 # whatever is called a model
    told = getattr(lm, "kwargs", None)
    found = cast("Mapping[str, object]", told if isinstance(told, Mapping) else {})
    # plain values only: the repr of other objects holds a memory address, which differs each time
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
"""Arguments passed to `kept.optimize` unchanged."""


class OwnTerms(TypedDict, total=False):
    """Arguments that every adapter takes."""

    reflection_lm: str | Callable[..., Any]
    """A function of a prompt, or `provider/model`, which Kept calls itself."""
    prompts: str | Path
    """Folder whose `component.md` replaces Kept's own prompt for the `reflection_lm`."""
    reflection_minibatch_size: int
    """Number of train cases shown before each proposal; default 3."""
    max_metric_calls: int
    """Limit on rollouts of all kinds: feedback, decision and proof."""
    run_dir: str | Path
    """Folder for runs. The last run in it, if there is one, is resumed."""
    seed: int

    testset: Sequence[Any]
    """Cases for the final claim."""
    split: str
    """Shares of train, holdout and test if there is no `valset`."""
    bounds: tuple[float, float]
    workers: int
    """Rollouts in flight; for a gepa adapter, cases passed to it at once; default 8."""
    width: int
    budget: Budget | int
    """Limits; a plain number limits the steps."""
    gate: Gate | Literal["strict", "race"]
    guards: Sequence[Guard]
    sinks: Sequence[Sink]
    home: str | Path
    resume: str
    usd_per_rollout: float
    usd_per_call: float
    """Highest cost of one call of a function that writes texts; required for a limit in USD."""


def start(
    seed: Mapping[str, str],
    runner: Runner,
    data: Data | None,
    proposers: Sequence[Proposer],
    terms: OwnTerms,
    gate: Literal["race"] | None = "race",
) -> Result:
    """Start the run with `kept.optimize`.

    With cases, the gate is the race unless the caller names another one. A cheaper rule would
    promote noise to users who read the result as proven. With `gate=None`, `kept.optimize`
    decides.
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
    """Refuse arguments that `kept.optimize` would refuse, before any slow work starts."""
    names = (*PASSED_ON, "budget", "timeout")
    check_some({name: terms[name] for name in names if name in terms})


def limits_of(terms: Mapping[str, object]) -> Budget | None:
    """Budget as given; a plain number becomes a limit on steps."""
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
    """Refuse a `max_metric_calls` that is no positive integer, or stands beside `max_rollouts`."""
    if calls is not None and (not isinstance(calls, int) or isinstance(calls, bool) or calls < 1):
        hint = "give a whole number of 1 or more"
        raise SetupError(f"`max_metric_calls` is {calls!r:.60}", hint=hint)
    if budget is not None and budget.max_rollouts is not None and calls is not None:
        hint = "they are the same: give one"
        raise SetupError("`max_metric_calls` and `budget.max_rollouts` are given", hint=hint)


def place(terms: Mapping[str, object]) -> dict[str, Any]:
    """Arguments `home` and `resume` for `run_dir`: its last run is resumed; empty without it."""
    given = cast("str | Path | None", terms.get("run_dir"))
    if given is None:
        return {}
    if "home" in terms or "resume" in terms:
        hint = "`run_dir` is the home, and its last run goes on"
        raise SetupError("`run_dir` and `home` or `resume` are given", hint=hint)
    runs = Home(Path(given)).folders()
    # a run killed before its first journal line has nothing to resume
    begun = bool(runs) and gate_of(runs[-1]) != ""
    return {"home": given, "resume": "last" if begun else None}
