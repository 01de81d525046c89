"""Calls for users of dspy: a module, a metric, examples."""

import contextvars
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Unpack, cast

from kept.adapters.arguments import OwnTerms, check_own, data_of, start
from kept.adapters.dspy.program import Demos, ModuleRunner, Program, trouble_of
from kept.adapters.reflection import (
    ModelAuthor,
    Reflecting,
    author_of,
    component_prompt,
    usd_per_call,
)
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Proposer
from kept.core.rollout import Failure, Usage
from kept.core.untyped import is_dict
from kept.engine.user_code import call_apart
from kept.errors import SetupError


class Terms(OwnTerms, total=False):
    """Arguments of `optimize` besides a module, a metric and examples."""

    max_demos: int
    """Number of demos that a predictor may be given, default 4; with 0 only instructions change."""
    perfect_score: float
    """Score at which an example needs no improvement; default 1."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A `dspy.LM`, or any function of a prompt, used as the model that writes instructions."""

    lm: Any
    context: contextvars.Context
    usd: float | None = None
    """Charge per call when dspy does not report a cost; None if unknown."""
    name: str = "reflection_lm"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        """One reply, with the tokens that dspy counted and the cost that it reports."""
        return await call_apart(self.context.copy().run, self._ask, request.messages[-1].text)

    def _ask(self, prompt: str) -> ModelReply | Failure:
        dspy: Any = import_module("dspy")
        # a caller module gets only our replies, while the model's history is shared
        seen = SimpleNamespace(history=[])
        callers = [*(dspy.settings.caller_modules or ()), seen]
        with dspy.context(caller_modules=callers), dspy.track_usage() as tracker:
            try:
                told = self.lm(prompt)
            except (Exception, SystemExit) as error:  # noqa: BLE001 # the port wrapper: theirs is a value
                return replace(trouble_of(error), blame="infrastructure")
        first = cast("Any", told[0] if isinstance(told, list) and told else told)
        # a reasoning model may return a dict with more than its text
        text = first.get("text") if is_dict(first) else first
        if not isinstance(text, str):
            words = f"`{self.name}` returned {told!r:.200}, not a text"
            return Failure("parse", "infrastructure", words)
        rows = [row for rows in tracker.usage_data.values() for row in rows]
        tokens = [sum(int(row.get(f"{kind}_tokens") or 0) for row in rows) for kind in _KINDS]
        return ModelReply(text, Usage(len(rows), *tokens, usd=self._cost(seen.history)))

    def _cost(self, history: list[dict[str, Any]]) -> float:
        """Cost as dspy reports it, else the given charge; replies from the cache are free."""
        paid = [row for row in history if not getattr(row["response"], "cache_hit", False)]
        costs = [row["cost"] for row in paid]
        if (history and None not in costs) or self.usd is None:
            return sum(float(cost or 0.0) for cost in costs)
        return self.usd


_KINDS = ("prompt", "completion")


def optimize(
    module: Any,  # noqa: ANN401 # a dspy.Module
    metric: Callable[..., Any],
    trainset: Iterable[Any],
    valset: Iterable[Any] | None = None,
    **terms: Unpack[Terms],
) -> Any:  # noqa: ANN401 # a dspy.Module
    """A copy of the module with the instructions and demos that are proven better.

    The module itself stays as it is. Where nothing was proven, the copy is like it. The run is the
    attribute `kept_run` of the copy.

    Args:
        module: with one predictor or more; runs with the models that are set when this is called.
        metric: `metric(example, prediction)`, with a trace and a predictor behind it where it asks
            for them; returns a number, or a `dspy.Prediction` with `score` and `feedback`.
        trainset: examples that proposers may look at, with their inputs named.
        valset: examples that decide. Without them, `split` shares the train set out.
        **terms: see `Terms`.
    """
    unknown = [name for name in terms if name not in Terms.__annotations__]
    if unknown:
        hint = f"there are {', '.join(Terms.__annotations__)}"
        raise SetupError(f"`{unknown[0]}` is no argument of this call", hint=hint)
    check_own(terms)
    demos, seed = terms.get("max_demos", 4), terms.get("seed", 0)
    _check(module, metric, demos)
    program = Program(module, demos=demos > 0)
    testset = terms.get("testset", ())
    data = data_of(trainset, valset, testset, terms.get("split", "3:5:2"), seed)
    for id_, example in data.items.items():
        try:
            example.inputs()
        except (AttributeError, ValueError) as error:
            hint = 'write dspy.Example(…).with_inputs("question")'
            raise SetupError(f"the example {id_} does not say its inputs", hint=hint) from error
    workers = terms.get("workers", 8)
    runner = ModuleRunner(program, metric, data.items, workers=workers, seed=seed)
    run = start(program.texts, runner, data, [*_proposers(program, demos, terms)], terms)
    best = program.built(run.best.texts)
    best.kept_run = run
    return best


def _check(module: object, metric: object, demos: object) -> None:
    """Refuse what a type checker would have refused."""
    if not callable(getattr(module, "named_predictors", None)):
        raise SetupError(f"`module` is {module!r:.60}", hint="give a dspy.Module")
    if not callable(metric):
        hint = "give a function of an example and a prediction"
        raise SetupError(f"`metric` is {metric!r:.60}, not a function", hint=hint)
    if not isinstance(demos, int) or demos < 0:
        raise SetupError(f"`max_demos` is {demos!r:.60}", hint="give a whole number of 0 or more")


class Optimizer:
    """`optimize` in the shape of dspy's optimizers: constructed once, then given a program."""

    def __init__(self, metric: Callable[..., Any], **terms: Unpack[Terms]) -> None:
        self._metric = metric
        self._terms = terms

    def compile(
        self,
        student: Any,  # noqa: ANN401 # a dspy.Module
        *,
        trainset: Iterable[Any],
        teacher: None = None,
        valset: Iterable[Any] | None = None,
    ) -> Any:  # noqa: ANN401 # a dspy.Module
        """A copy of the program with the texts that are proven better."""
        if teacher is not None:
            hint = "demos are what the program itself did well"
            raise SetupError("`teacher` means nothing here", hint=hint)
        return optimize(student, self._metric, trainset, valset, **self._terms)


def _proposers(program: Program, demos: int, terms: Terms) -> Iterator[Proposer]:
    lm = terms.get("reflection_lm") or import_module("dspy").settings.lm
    if isinstance(lm, str):
        author = author_of(lm, terms)
    elif lm is not None:
        counts = isinstance(lm, import_module("dspy").BaseLM)
        usd = terms.get("usd_per_call") if counts else usd_per_call(terms)
        author = ModelAuthor(LanguageModel(lm, contextvars.copy_context(), usd))
    else:
        hint = "call dspy.configure(lm=…), or give reflection_lm=…"
        raise SetupError("there is no model to write instructions", hint=hint)
    author = replace(author, told=component_prompt(terms))
    size, perfect = terms.get("reflection_minibatch_size", 3), terms.get("perfect_score", 1.0)
    yield Reflecting(author, program.instructions, size, perfect=perfect)
    if demos > 0:
        yield Demos(demos)
