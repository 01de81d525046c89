"""From the arguments of a peer's call to a call of `kept.optimize`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

from kept.adapters.cases import Data
from kept.api import Result, optimize
from kept.core.budget import Budget
from kept.core.ports import Gate, Guard, Proposer, Runner, Sink
from kept.errors import SetupError
from kept.recipes.function.validate import check_some
from kept.run import gate_of
from kept.store.home import Home

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
