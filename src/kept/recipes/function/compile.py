"""Parts of a plan from the arguments of `kept.optimize` and `kept.compare`."""

import hashlib
import inspect
import linecache
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import CodeType
from typing import TYPE_CHECKING, Any, Literal, cast

from kept.core.artifact import Candidate, is_safe_path
from kept.core.case import (
    Case,
    Cases,
    case_text,
    fault_in,
    find_overlaps,
    implicit_cases,
    overlap_words,
    split_cases,
    too_few,
)
from kept.core.llm import Message, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Gate, Guard, Probe, Proposer, Proving, Runner, Scorer
from kept.core.text import count
from kept.errors import SetupError
from kept.evaluators.runners.function import FunctionRunner, RecordedScorer
from kept.gates.seed_rules import Strict
from kept.proposers.function import FunctionProposer
from kept.proposers.variants import Variant, Variants
from kept.recipes.gate_choice import gate_without_cases, repeats_of

if TYPE_CHECKING:
    from kept.recipes.compare.compile import Version

log = logging.getLogger("kept")

GateName = Literal["strict", "race", "repeats"]

BY_MODEL = ("edit", "reflect", "rewrite", "simplify")
"""Kinds of model proposers in a task; from Python each is a function of `kept`."""

ProposerLike = Proposer | Callable[..., Any] | str
"""A proposer, a function of the brief, or a text to try."""


def artifact_texts(artifact: str | Path | Mapping[str, str]) -> dict[str, str]:
    """Return the texts of an artifact by name; raises `SetupError` for what is not text."""
    if isinstance(artifact, Path):
        try:
            # `newline=""` keeps line endings as they are
            with artifact.open(encoding="utf-8", newline="") as file:
                return {artifact.name: file.read()}
        except (OSError, UnicodeDecodeError) as error:
            hint = "pass the Path of a file with UTF-8 text"
            raise SetupError(f"cannot read {artifact}: {error}", hint=hint) from error
    if isinstance(artifact, str) and len(artifact) < 200 and Path(artifact).is_file():
        log.warning("`%s` is taken as the text itself; for the file, pass a Path", artifact)
    texts = {"text": artifact} if isinstance(artifact, str) else dict(artifact)
    if not texts:
        message = "there is nothing to improve: the artifact has no texts"
        raise SetupError(message, hint='pass texts by name, as in {"prompt.md": "…"}')
    _check_names(texts)
    for name, text in texts.items():
        try:
            text.encode("utf-8", "surrogateescape")
        except (AttributeError, UnicodeEncodeError) as error:
            message = f"`{name}` is not a text that can be written as UTF-8"
            raise SetupError(message, hint="pass a str; decode bytes first") from error
    return texts


def _check_names(texts: Mapping[Any, object]) -> None:
    """Refuse names that are not valid paths of files below a folder."""
    hint = 'name each as a file, as in {"prompt.md": "…", "tools/search.md": "…"}'
    for name in texts:
        if not isinstance(name, str) or not is_safe_path(name):
            raise SetupError(f"{name!r:.60} is no name of a text", hint=hint)
        # a name cannot be both a file and a folder of another file
        above = [str(folder) for folder in PurePosixPath(name).parents if str(folder) in texts]
        if above:
            raise SetupError(f"`{above[0]}` cannot be a text and hold `{name}`", hint=hint)


def make_versions(
    first: str | Path | Mapping[str, str], others: Sequence[str | Path | Mapping[str, str]]
) -> "list[Version]":
    """Name the versions to compare: a file by its path, a text by a letter.

    A text or a file replaces the only text of the first version, whatever that is called.
    """
    # imported at use: only comparisons need it
    from kept.recipes.compare.compile import Version

    made: list[Version] = []
    for number, given in enumerate((first, *others)):
        texts = artifact_texts(given)
        if made and not isinstance(given, Mapping) and len(made[0].texts) == 1:
            texts = dict(zip(made[0].texts, texts.values(), strict=True))
        letter = chr(ord("A") + number) if number < 26 else f"text {number}"
        made.append(Version(str(given) if isinstance(given, Path) else letter, texts))
    return made


def make_cases(given: Iterable[Any] | Cases | None, split: str, seed: int) -> Cases:
    """Split the cases, and warn of too few or overlapping ones."""
    if given is None:
        return implicit_cases()
    if isinstance(given, Cases):
        if fault := fault_in(given):
            raise SetupError(fault, hint="kept.split_cases shares cases out")
        _check_data([*given.train, *given.holdout, *given.test])
        _warn_of_few(given)
        return given
    items = list(given)
    if not items:
        raise SetupError("`cases` is empty", hint="leave it out when there are no cases")
    ids = [_case_id(item, number) for number, item in enumerate(items)]
    doubled = [id_ for id_, times in Counter(ids).items() if times > 1]
    if doubled:
        message = f"case ids stand more than once: {', '.join(doubled[:5])}"
        raise SetupError(message, hint="give each case an `id` of its own, or none an `id`")
    cases = [
        item if isinstance(item, Case) else Case(id_, item)
        for id_, item in zip(ids, items, strict=True)
    ]
    _check_data(cases)
    shared = split_cases(cases, parse_ratio(split), seed)
    if fault := fault_in(shared):
        message = f"{fault} (split {split} of {count(len(cases), 'case')})"
        raise SetupError(message, hint="give more cases, or holdout a larger share")
    _warn_of_few(shared)
    warn_of_overlaps(shared)
    return shared


def warn_of_overlaps(cases: Cases) -> None:
    """Warn of cases that are in more than one split."""
    if found := find_overlaps(cases):
        log.warning("%s; what is kept may only fit those", overlap_words(found))


def warned(told: tuple[str, ...]) -> tuple[str, ...]:
    """Log warnings at once, before the run costs money, and return them unchanged."""
    for words in told:
        log.warning("%s", words)
    return told


def _warn_of_few(cases: Cases) -> None:
    if few := too_few(cases):
        log.warning("%s", few)


def _check_data(cases: Sequence[Case]) -> None:
    """Refuse data that cannot be written as text: a resume recognizes a run by its cases."""
    for case in cases:
        try:
            case_text(case)
        except (TypeError, ValueError, RecursionError) as error:
            hint = "give texts, numbers, lists and mappings, or objects that hold them"
            message = f"the case `{case.id}` cannot be written down: {error}"
            raise SetupError(message, hint=hint) from error


def _case_id(item: object, number: int) -> str:
    if isinstance(item, Case):
        return item.id
    if isinstance(item, Mapping):
        named = cast("Mapping[str, object]", item)
        if "id" in named:
            return str(named["id"])
    return f"{number:04}"


def parse_ratio(split: str) -> tuple[int, ...]:
    """Return the numbers of a split such as `3:5:2`."""
    parts = split.split(":") if isinstance(split, str) else []  # pyright: ignore[reportUnnecessaryIsInstance] # whatever a call was given
    shares = tuple(int(part) for part in parts if part.strip().isdigit())
    if len(parts) != 3 or len(shares) != 3 or not any(shares):
        raise SetupError(f"`{split}` is not a split", hint="write train:holdout:test, as in 3:5:2")
    return shares


def make_runner(
    given: Callable[..., Any] | Runner,
    seed: Candidate,
    metric: str,
    workers: int,
    timeout: float | None,
) -> tuple[Runner, Scorer]:
    """Return the runner and the scorer: a function is both, a `Runner` may be."""
    if not isinstance(given, Runner):
        runner = FunctionRunner(given, metric, workers, timeout)
        if runner.takes_text and len(seed.texts) != 1:
            names = ", ".join(f"`{name}`" for name in seed.texts)
            hint = "leave the annotation out, and read candidate.texts by name"
            message = f"`evaluate` takes a `str`, and the artifact has several texts: {names}"
            raise SetupError(message, hint=hint)
        return runner, RecordedScorer()
    if timeout is not None:
        hint = "leave `timeout` out, or pass a function"
        raise SetupError("a `Runner` keeps its own time", hint=hint)
    return given, given if isinstance(given, Scorer) else RecordedScorer()


def make_proposers(texts: Mapping[str, str], given: Sequence[ProposerLike]) -> Iterable[Proposer]:
    """Yield proposers for what was given; all texts to try become a single one."""
    names: dict[str, int] = {}
    plain = [text for text in given if isinstance(text, str)]
    if words := [text for text in plain if text in BY_MODEL]:
        hint = f'write kept.{words[0]}(model="provider/model")'
        raise SetupError(f'"{words[0]}" among `proposers` is a text to try', hint=hint)
    if plain:
        if len(texts) != 1:
            message = "a plain text can only stand for an artifact with one text"
            raise SetupError(message, hint="write a function that returns texts by name")
        path = next(iter(texts))
        yield Variants(tuple(Variant({path: text}, str(n)) for n, text in enumerate(plain, 1)))
    for proposer in given:
        if isinstance(proposer, str):
            continue
        if isinstance(proposer, Proposer):
            yield proposer
            continue
        if getattr(proposer, "__module__", "") == "kept.recipes.function.proposers":
            name = getattr(proposer, "__name__", "edit")
            hint = f'write kept.{name}(model="provider/model")'
            raise SetupError(f"kept.{name} makes a proposer, and is none itself", hint=hint)
        if not callable(proposer):
            hint = "a proposer is a function of the brief, a text to try, or a kept.Proposer"
            raise SetupError(f"among `proposers` is {proposer!r:.60}", hint=hint)
        _check_proposer(proposer)
        name = getattr(proposer, "__name__", "function")
        names[name] = names.get(name, 0) + 1
        yield FunctionProposer(proposer, name if names[name] == 1 else f"{name}-{names[name]}")
    if not given:
        raise SetupError(
            "there is no proposer", hint="pass proposers=[…]: functions, or texts to try"
        )


def _check_proposer(function: Callable[..., Any]) -> None:
    """Refuse a function that does not take a brief, if its signature is known."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    for arguments in ((1,), (1, 2)):
        try:
            signature.bind(*arguments)
        except TypeError:
            continue
        return
    name = getattr(function, "__name__", "function")
    hint = "write it as propose(brief), or propose(brief, scope)"
    raise SetupError(f"the proposer `{name}` takes {signature}, not a brief", hint=hint)


def check_fields(made: Sequence[Proposer], cases: Cases) -> None:
    """Refuse a field for a model to see that no train case has."""
    known = {key for case in cases.train if isinstance(case.data, Mapping) for key in case.data}  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] # any mapping
    for proposer in made:
        named: tuple[str, ...] = getattr(getattr(proposer, "sight", None), "fields", ())
        for field in named if cases.train else ():
            if field not in known:
                there = ", ".join(f"`{key}`" for key in sorted(map(str, known)))  # pyright: ignore[reportUnknownArgumentType] # any mapping
                hint = f"there are {there}" if known else "the cases have no fields: leave it out"
                message = f"`{proposer.name}` is to see `{field}`, which no train case has"
                raise SetupError(message, hint=hint)


def check_paid(made: Sequence[Proposer], max_usd: float | None) -> None:
    """Refuse a money limit if a model that proposes has no maximum price of a call."""
    if max_usd is None:
        return
    # imported at use: most runs ask no model
    from kept.models.prices import Pricing

    for proposer in made:
        model = getattr(proposer, "model", None)
        if isinstance(model, Pricing):
            request = ModelRequest((Message("user", ""),))
            if model.worst_usd(request) is None:
                message = f"what a call of `{proposer.name}` costs at most is not known"
                hint = 'give model={"provider": …, "model": …, "price": …, "max_tokens": …}'
                raise SetupError(f"{message}, so `max_usd` could not be kept", hint=hint)


def make_probes(evaluate: object, made: Sequence[Proposer]) -> tuple[Probe, ...]:
    """Return probes of the endpoints of Kept's own models; those of functions are not known."""
    asking = [evaluate, *made, *(getattr(proposer, "author", None) for proposer in made)]
    models: list[object] = [getattr(one, "model", None) for one in asking]
    if not any(models):
        return ()
    # imported at use: most runs ask no model
    from kept.models.roles import probes_of_models

    return probes_of_models(models)


def with_gate(plan: Plan, gate: Gate | GateName | None, began: str = "") -> Plan:
    """Return the plan with the gate of a name; without one, with the default gate.

    A resumed run without a gate argument keeps the gate that it began with.
    """
    if gate == "strict" or (gate is None and began == "strict"):
        return replace(plan, gate=Strict())
    if gate == "repeats":
        return replace(plan, gate=repeats_of(plan))
    if gate is None and plan.cases.implicit and not began:
        return replace(plan, gate=gate_without_cases(plan), not_race="there are no cases")
    if gate is None or gate == "race":
        # imported at use: a run without cases needs neither the race nor its statistics
        from kept.gates.race import PRESETS
        from kept.recipes.race_choice import default_gate

        gate, why = (PRESETS["balanced"], "") if gate else default_gate(plan, began)
        plan = replace(plan, not_race=why)
    return replace(plan, gate=gate)


def racing(plan: Plan) -> Plan:
    """Return the plan with the parts of a race if its gate is one; else unchanged."""
    if not isinstance(plan.gate, Proving):
        return plan
    from kept.recipes.race_choice import with_race

    return with_race(plan)


def make_guards(given: Sequence[Guard] | None, cases: Cases) -> tuple[Guard, ...]:
    """Return the given guards; by default the one against copied cases."""
    if given is not None:
        return tuple(given)
    if cases.implicit:
        return ()
    # imported at use: without cases there is nothing to copy from
    from kept.core.guards import copy_guard

    return (copy_guard(cases, allow_train=True),)


def source_of(function: object) -> str:
    """Return a hash of a function's source, so that a resume notices another measure.

    An object that is not a function may identify itself by an attribute `source`.
    """
    try:
        told = getattr(function, "source", None)
        source = told if isinstance(told, str) else _lines_of(cast("Any", function))
    except (OSError, TypeError):
        # typed at a prompt, or a callable object: only its name is known
        source = getattr(function, "__qualname__", type(function).__qualname__)
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _lines_of(function: Any) -> str:  # noqa: ANN401 # a function, a method, a class, a callable
    """Return the source of a function, by the line numbers in its code object.

    `inspect.getsource` finds the end with a tokenizer: as much work as hundreds of rollouts.
    """
    plain = inspect.unwrap(function)
    code = getattr(plain, "__code__", None)
    # Python 3.12 places all constants of a multi-line lambda at its first line
    if not isinstance(code, CodeType) or code.co_name == "<lambda>":
        return inspect.getsource(function)
    lines = linecache.getlines(code.co_filename, getattr(plain, "__globals__", None))
    found = lines[code.co_firstlineno - 1 : _last_line(code)]
    if not found:
        raise OSError("its source is not to be had")
    return "".join(found)


def _last_line(code: CodeType) -> int:
    """Return the last line of a function, with its nested functions."""
    ends = [end for _, end, _, _ in code.co_positions() if end is not None]
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, CodeType)]
    return max([code.co_firstlineno, *ends, *inner])
