"""Recipe that optimizes the prompts of agent runs on a suite of tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kept.core.event import SpecSettings
from kept.core.plan import SUITE
from kept.recipes.base import Compiled, Context, Recipe, flags, set_flags, spec_name
from kept.recipes.evaluate.request import Evaluation
from kept.recipes.suite.request import Optimization, SuiteFacts
from kept.store.reader import Run

_OTHERS = ("_base_", "gradient", "train", "evaluation", "prompts", "instructions")
"""A file with `tasks` and none of these, nor of a task, means to be a suite."""


class SuiteRecipe(Recipe[Optimization]):
    """Optimizes the prompts of agent runs."""

    name = SUITE
    request = Optimization
    facts = SuiteFacts

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if there are tasks, and no keys of another spec."""
        others = ("artifacts", "runner", "scorer", *_OTHERS)
        return "tasks" in keys and not any(key in keys for key in others)

    def compile(self, request: Optimization, context: Context) -> Compiled:
        """The plan of a suite; one that goes on has the texts that it began with."""
        from kept.recipes.suite.compile import compile_suite

        past = context.past
        return compile_suite(
            context.source or context.spec,
            context.overrides,
            context.gate,
            asked=request,
            texts=past.candidate(past.state.seed).texts if past else None,
        )

    def measure(self, asked: Evaluation, context: Context) -> Compiled:
        """The plan that measures the prompts in use on the tasks."""
        made = super().measure(asked, context)
        # what is measured is no epoch of a registry
        return replace(made, plan=replace(made.plan, views=()))

    def command(self, spec: SpecSettings, request: Optimization) -> list[str]:
        """`agent optimize` with the options that were given."""
        given = flags({"epochs": request.epochs, "target": request.target})
        return ["agent", "optimize", spec_name(spec), *given, *set_flags(spec)]

    def resumed(self, request: Optimization, past: Run, settings: Sequence[str]) -> Optimization:
        """The same request; what was set last is what is meant."""
        anew = any(setting.startswith("epochs=") for setting in settings)
        return replace(request, epochs=None) if anew else request


RECIPE = SuiteRecipe()
