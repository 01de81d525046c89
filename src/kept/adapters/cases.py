"""Data of any shape as cases: a plain view for Kept, the thing itself for whoever evaluates it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, NamedTuple, cast

from kept.core.case import Case, Cases, split_cases
from kept.errors import SetupError
from kept.recipes.function.compile import parse_ratio, warn_of_overlaps


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
    if decides is not None and _same(shown, decides):
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


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
