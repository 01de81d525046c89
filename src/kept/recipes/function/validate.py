"""Checks of the arguments of `kept.optimize` and `kept.compare`.

They refuse at run time what a type checker would refuse, before it can mean something else.
"""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any, cast

from kept.core.budget import Budget
from kept.core.case import Cases
from kept.core.ports import Gate, Runner
from kept.errors import SetupError

log = logging.getLogger("kept")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_gain(value: object) -> bool:
    return _is_amount(value) and 0 < cast("float", value) < inf


def _is_range(value: object) -> bool:
    if not isinstance(value, tuple | list) or len(cast("Sequence[object]", value)) != 2:
        return False
    low, high = cast("Sequence[object]", value)
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return False
    return isfinite(low) and isfinite(high) and low < high


def _is_list(value: object, *methods: str) -> bool:
    """True if it is a list of objects that have these methods."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        return False
    items = cast("Sequence[object]", value)
    return all(callable(getattr(item, method, None)) for item in items for method in methods)


def _awaited(sinks: Sequence[object]) -> bool:
    """True if a method of a sink is a coroutine function: Kept does not await sinks."""
    names = ("on_event", "on_rollout")
    told = (getattr(sink, name, None) for sink in sinks for name in names)
    return any(map(inspect.iscoroutinefunction, told))


@dataclass(frozen=True, slots=True)
class _Check:
    """Condition on one argument, and the message if it does not hold."""

    name: str
    holds: Callable[[object], bool]
    message: str
    """Message with braces for the value that was given."""
    hint: str
    optional: bool = False


def _texts(name: str, called: str) -> _Check:
    """Return the check of an argument that is an artifact."""
    return _Check(
        name,
        lambda value: isinstance(value, str | Path | Mapping),
        f"{called} is {{}}, not a text, a Path, or texts by name",
        "pass the text itself, or pathlib.Path(…) of its file",
    )


_CHECKS: tuple[_Check, ...] = (
    _texts("artifact", "the artifact"),
    _Check(
        "evaluate",
        lambda value: callable(value) or isinstance(value, Runner),
        "`evaluate` is {}, not a function",
        "pass a function of a candidate, or of a candidate and a case",
    ),
    _Check(
        "cases",
        lambda value: isinstance(value, Iterable | Cases) and not isinstance(value, str | Mapping),
        "`cases` is {}, not a list of cases",
        "pass a list; a case may be any value",
        optional=True,
    ),
    _Check(
        "proposers",
        lambda value: not isinstance(value, str) and isinstance(value, Sequence),
        "`proposers` is not a list",
        "write proposers=[…], also for one",
    ),
    _Check(
        "schedule",
        lambda value: value in ("bandit", "in_turn"),
        "`schedule` is {}, not a schedule",
        'give "bandit" or "in_turn"',
    ),
    _Check(
        "gate",
        lambda value: (
            value in ("strict", "race", "repeats")
            or (isinstance(value, Gate) and not isinstance(value, type))
        ),
        "`gate` is {}, not a gate",
        'give "strict", "race", "repeats", or a gate such as kept.Sigma()',
        optional=True,
    ),
    _Check(
        "guards",
        lambda value: _is_list(value, "check"),
        "`guards` is {}, not a list of guards",
        "write guards=[…], also for one; without any, guards=[]",
        optional=True,
    ),
    _Check(
        "budget",
        lambda value: _is_count(value) or isinstance(value, Budget),
        "`budget` is {}, not a budget",
        "give a number of steps, 1 or more, or kept.Budget(…)",
    ),
    _Check(
        "metric",
        lambda value: isinstance(value, str) and value != "",
        "`metric` is {}, not a name",
        'give the name of the measure that decides, as in metric="score"',
    ),
    _Check(
        "direction",
        lambda value: value in ("maximize", "minimize"),
        "`direction` is {}, not a direction",
        'give "maximize" or "minimize"',
    ),
    _Check(
        "deterministic",
        lambda value: isinstance(value, bool),
        "`deterministic` is {}, not True or False",
        "write deterministic=True where repeats never differ",
    ),
    _Check(
        "bounds",
        _is_range,
        "`bounds` is {}, not a least and a greatest value",
        "write bounds=(least, greatest), as in bounds=(0, 1)",
        optional=True,
    ),
    _Check(
        "least",
        _is_gain,
        "`least` is {}, not a gain",
        "give the least gain worth knowing of, more than 0",
        optional=True,
    ),
    _Check(
        "passes",
        _is_count,
        "`passes` is {}, not a whole number of 1 or more",
        "give how often the cases may be evaluated at most",
        optional=True,
    ),
    _Check(
        "workers", _is_count, "`workers` is {}, not a whole number of 1 or more", "give 1 or more"
    ),
    _Check(
        "width",
        _is_count,
        "`width` is {}, not a whole number of 1 or more",
        "leave it out: it is chosen so that the workers are busy",
        optional=True,
    ),
    _Check(
        "timeout",
        lambda value: _is_amount(value) and value != 0,
        "`timeout` is {}, not a number of seconds",
        "give more than 0, or leave it out for no limit",
        optional=True,
    ),
    _Check(
        "usd_per_rollout",
        lambda value: _is_amount(value) and value != inf,
        "`usd_per_rollout` is {}, not a price",
        "give the most that one call of evaluate may cost, in US dollars",
        optional=True,
    ),
    _Check(
        "random_seed",
        lambda value: isinstance(value, int),
        "`random_seed` is {}, not a whole number",
        "give any whole number; the same one draws the same again",
    ),
    _Check(
        "home",
        lambda value: isinstance(value, str | Path),
        "`home` is {}, not a folder",
        "give the path of a folder for runs",
        optional=True,
    ),
    _Check(
        "resume",
        lambda value: isinstance(value, str),
        "`resume` is {}, not the id of a run",
        'give an id, the start of one, or "last"',
        optional=True,
    ),
    _Check(
        "sinks",
        lambda value: _is_list(value, "on_event") and not _awaited(cast("list[object]", value)),
        "`sinks` is {}, not a list of sinks",
        "a sink has a plain method on_event(event, state), as kept.Sink says",
    ),
)


def _limit(name: str, holds: Callable[[object], bool], what: str, hint: str) -> _Check:
    return _Check(name, holds, f"`{name}` of the budget is {{}}, not {what}", hint, optional=True)


_LIMITS = (
    *(
        _limit(name, _is_count, "a whole number of 1 or more", "give 1 or more, or leave it out")
        for name in ("max_iterations", "max_failures", "max_rollouts")
    ),
    _limit("max_minutes", _is_gain, "a number of minutes", "give more than 0, or leave it out"),
    _limit(
        "max_usd",
        lambda value: _is_amount(value) and value != inf,
        "a number of US dollars",
        "give 0 or more, or leave it out",
    ),
    _Check(
        "max_rollouts_usd",
        lambda value: False,  # only a race of refinements has a separate limit for its readings
        "`max_rollouts_usd` of the budget is {}, a limit that Kept sets by itself",
        "give max_usd=…, which limits all that costs money",
        optional=True,
    ),
)
"""Limits that a budget may have: the same as that of a task."""


def check_call(given: Mapping[str, object]) -> None:
    """Refuse an argument of a wrong type, or a misspelt word."""
    _check_each(given)
    _check_evaluate(given["evaluate"], given["cases"])
    _check_money(given["budget"], given["usd_per_rollout"])


def check_comparison(given: Mapping[str, object]) -> None:
    """Refuse wrong arguments of a comparison, which has no steps and needs cases."""
    budget = given["budget"]
    _check_limits(budget)
    if given["cases"] is None:
        raise SetupError("a comparison needs `cases`", hint="pass a list; a case may be any value")
    others = challengers_of(given["b"])
    if not others:
        raise SetupError("there is nothing to compare with: `b` is empty", hint="give one or more")
    names = [f"b[{n}]" for n in range(len(others))] if others is given["b"] else ["b"]
    for name, artifact in zip(("a", *names), (given["a"], *others), strict=True):
        _check_one(_texts(name, f"`{name}`"), artifact)
    _check_each({**given, "budget": budget or Budget()})
    _check_evaluate(given["evaluate"], given["cases"])
    _check_money(budget, given["usd_per_rollout"])


def challengers_of(b: object) -> Sequence[Any]:
    """Return the artifacts to compare with; a single one as a list of one."""
    return cast("Sequence[Any]", b) if isinstance(b, list | tuple) else (b,)


def check_some(given: Mapping[str, object]) -> None:
    """Refuse given arguments of a wrong type; arguments that are missing are not checked."""
    _check_each(given)


def _check_each(given: Mapping[str, object]) -> None:
    wanted = [(check, given[check.name]) for check in _CHECKS if check.name in given]
    if isinstance(budget := given.get("budget"), Budget):
        wanted += [(check, getattr(budget, check.name)) for check in _LIMITS]
    wrong = [(check, value) for check, value in wanted if _is_wrong(check, value)]
    # a single problem keeps its hint apart; several are listed with their hints
    if len(wrong) == 1:
        _check_one(*wrong[0])
    if wrong:
        raise SetupError("\n".join(f"{_told(*one)} (hint: {one[0].hint})" for one in wrong))


def _check_one(check: _Check, value: object) -> None:
    if _is_wrong(check, value):
        raise SetupError(_told(check, value), hint=check.hint)


def _is_wrong(check: _Check, value: object) -> bool:
    return not (check.optional and value is None) and not check.holds(value)


def _told(check: _Check, value: object) -> str:
    return check.message.format(f"{value!r:.60}")


def _check_limits(budget: object) -> None:
    """Refuse limits of steps, which mean nothing for a comparison."""
    if budget is None:
        return
    wrong = f"is {budget!r:.60}, not a kept.Budget"
    if isinstance(budget, Budget):
        limits = ("max_iterations", "max_failures")
        wrong = " and ".join(f"`{name}`" for name in limits if getattr(budget, name) is not None)
        wrong = wrong and f"has {wrong}"
    if wrong:
        hint = "give kept.Budget(max_rollouts=…), or leave it out"
        raise SetupError(f"`budget` {wrong}: a comparison has no steps", hint=hint)


def _check_money(budget: object, usd_per_rollout: object) -> None:
    if isinstance(budget, Budget) and budget.max_usd is not None and usd_per_rollout is None:
        raise SetupError(
            "a money budget needs to know what one evaluation can cost",
            hint="pass usd_per_rollout=…, the most that one call of evaluate may cost",
        )


def _check_evaluate(evaluate: object, cases: object) -> None:
    """Refuse a function with a signature that does not fit; warn if it takes no case."""
    if isinstance(evaluate, Runner):
        return
    try:
        signature = inspect.signature(cast("Callable[..., Any]", evaluate))
    except (TypeError, ValueError):
        return  # a function in C may have no signature
    takes: list[int] = []
    for n in (1, 2):
        with suppress(TypeError):
            signature.bind(*range(n))
            takes.append(n)
    if not takes:
        hint = "write it as evaluate(candidate), or evaluate(candidate, case)"
        raise SetupError(f"`evaluate` takes {signature}, not a candidate and a case", hint=hint)
    if takes == [2] and cases is None:
        hint = "pass `cases`, or write it as evaluate(candidate)"
        raise SetupError("`evaluate` needs a case, and there are no `cases`", hint=hint)
    if takes == [1] and cases is not None:
        log.warning("`evaluate` takes no case, so it says the same of every one")
