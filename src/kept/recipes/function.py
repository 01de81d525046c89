"""What a call of `kept.optimize` is given, checked and made into the parts of a plan.

What a type checker would have refused is refused here too, before it means something else.
"""

import hashlib
import inspect
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from kept.core.budget import Budget
from kept.core.case import Case, Cases, fault_in, find_overlaps, implicit_cases, split_cases
from kept.core.plan import Plan
from kept.core.ports import Gate, Guard, Proposer, Proving
from kept.errors import SetupError
from kept.gates import Strict
from kept.proposers.function import FunctionProposer
from kept.proposers.variants import Variant, Variants

log = logging.getLogger("kept")

ProposerLike = Proposer | Callable[..., Any] | str
"""A proposer, a function of the brief, or a text to try."""


def check_types(artifact: object, evaluate: object, proposers: object) -> None:
    """Refuse what a type checker would have refused, before it means something else."""
    if not isinstance(artifact, str | Path | Mapping):
        raise SetupError(f"the artifact is {artifact!r:.60}, not a text, a Path, or texts by name")
    if not callable(evaluate):
        raise SetupError(f"`evaluate` is {evaluate!r:.60}, not a function")
    if isinstance(proposers, str) or not isinstance(proposers, Sequence):
        raise SetupError("`proposers` is not a list", hint="write proposers=[…], also for one")


def check_words(gate: object, budget: object, way: object) -> None:
    """Refuse a misspelt word, which would otherwise mean something else."""
    if gate not in ("strict", "race") and not isinstance(gate, Gate):
        hint = 'give "strict", "race", or a gate such as kept.Sigma()'
        raise SetupError(f"`gate` is {gate!r:.60}, not a gate", hint=hint)
    if isinstance(budget, bool) or not isinstance(budget, int | Budget):
        hint = "give a number of steps, or kept.Budget(…)"
        raise SetupError(f"`budget` is {budget!r:.60}, not a budget", hint=hint)
    if way not in ("maximize", "minimize"):
        hint = 'give "maximize" or "minimize"'
        raise SetupError(f"`direction` is {way!r:.60}, not a direction", hint=hint)


def artifact_texts(artifact: str | Path | Mapping[str, str]) -> dict[str, str]:
    """The texts of an artifact by name."""
    if isinstance(artifact, Path):
        try:
            with artifact.open(encoding="utf-8", newline="") as file:
                return {artifact.name: file.read()}
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"cannot read {artifact}: {error}") from error
    if isinstance(artifact, str) and len(artifact) < 200 and Path(artifact).is_file():
        log.warning("`%s` is taken as the text itself; for the file, pass a Path", artifact)
    texts = {"text": artifact} if isinstance(artifact, str) else dict(artifact)
    if not texts:
        raise SetupError("there is nothing to improve: the artifact has no texts")
    for name, text in texts.items():
        try:
            text.encode("utf-8", "surrogateescape")
        except (AttributeError, UnicodeEncodeError) as error:
            raise SetupError(f"`{name}` is not a text that can be written as UTF-8") from error
    return texts


def make_cases(given: Iterable[Any] | Cases | None, split: str, seed: int) -> Cases:
    """What to evaluate on, split."""
    if given is None:
        return implicit_cases()
    if isinstance(given, Cases):
        if fault := fault_in(given):
            raise SetupError(fault)
        return given
    items = list(given)
    if not items:
        raise SetupError("`cases` is empty", hint="leave it out when there are no cases")
    ids = [_case_id(item, number) for number, item in enumerate(items)]
    doubled = [id_ for id_, times in Counter(ids).items() if times > 1]
    if doubled:
        raise SetupError(f"case ids stand more than once: {', '.join(doubled[:5])}")
    cases = [Case(id_, item) for id_, item in zip(ids, items, strict=True)]
    shared = split_cases(cases, parse_ratio(split), seed)
    if fault := fault_in(shared):
        raise SetupError(f"{fault} (split {split} of {len(cases)})", hint="give more cases")
    for overlap in find_overlaps(shared)[:5]:
        log.warning(
            "case %s (%s) and case %s (%s) are %.0f %% alike: what is kept may only fit both",
            *overlap[:4],
            100 * overlap.likeness,
        )
    return shared


def _case_id(item: object, number: int) -> str:
    if isinstance(item, Mapping):
        named = cast("Mapping[str, object]", item)
        if "id" in named:
            return str(named["id"])
    return f"{number:04}"


def parse_ratio(split: str) -> tuple[int, ...]:
    """`3:5:2` as numbers."""
    parts = split.split(":")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise SetupError(f"`{split}` is not a split", hint="write train:holdout:test, as in 3:5:2")
    return tuple(int(part) for part in parts)


def make_proposers(texts: Mapping[str, str], given: Sequence[ProposerLike]) -> Iterable[Proposer]:
    """Proposers of what was given; texts to try become one of them."""
    names: dict[str, int] = {}
    plain = [text for text in given if isinstance(text, str)]
    if plain:
        if len(texts) != 1:
            raise SetupError("a plain text can only stand for an artifact with one text")
        path = next(iter(texts))
        yield Variants(tuple(Variant({path: text}, str(n)) for n, text in enumerate(plain, 1)))
    for proposer in given:
        if isinstance(proposer, str):
            continue
        if isinstance(proposer, Proposer):
            yield proposer
            continue
        name = getattr(proposer, "__name__", "function")
        names[name] = names.get(name, 0) + 1
        yield FunctionProposer(proposer, name if names[name] == 1 else f"{name}-{names[name]}")
    if not given:
        raise SetupError(
            "there is no proposer", hint="pass proposers=[…]: functions, or texts to try"
        )


def make_gate(gate: Gate | Literal["strict", "race"]) -> Gate:
    """The gate that a word means."""
    if gate == "race":
        # at use: most runs do without it and the statistics behind it
        from kept.gates.race import Race

        return Race()
    return Strict() if isinstance(gate, str) else gate


def racing(plan: Plan) -> Plan:
    """The plan, with what a race needs besides its gate if it is one."""
    if not isinstance(plan.gate, Proving):
        return plan
    from kept.recipes.racing import with_race

    return with_race(plan)


def make_guards(given: Sequence[Guard] | None, cases: Cases) -> tuple[Guard, ...]:
    """The guards that were given, or the one against copied cases."""
    if given is not None:
        return tuple(given)
    if cases.implicit:
        return ()
    # at use: without cases there is nothing to copy from
    from kept.core.copying import copy_guard

    return (copy_guard(cases, allow_train=True),)


def source_of(function: Callable[..., Any]) -> str:
    """A hash of a function's source, so that a resume notices another measure."""
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        # typed at a prompt, or a callable object: its name is all there is
        source = getattr(function, "__qualname__", type(function).__qualname__)
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]
