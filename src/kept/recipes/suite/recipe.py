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
"""Keys of other specs: a file with `tasks`, without these and those of a task, is a suite."""


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
        """Build the plan of a suite; a resumed run keeps its texts."""
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
        """Build the plan that measures the active prompts on the tasks."""
        made = super().measure(asked, context)
        # a measurement is no epoch of a registry
        return replace(made, plan=replace(made.plan, views=()))

    def command(self, spec: SpecSettings, request: Optimization) -> list[str]:
        """`agent optimize` with the given options."""
        given = flags({"epochs": request.epochs, "target": request.target})
        return ["agent", "optimize", spec_name(spec), *given, *set_flags(spec)]

    def resumed(self, request: Optimization, past: Run, settings: Sequence[str]) -> Optimization:
        """Same request; a newer `epochs` setting replaces the old number."""
        anew = any(setting.startswith("epochs=") for setting in settings)
        return replace(request, epochs=None) if anew else request


RECIPE = SuiteRecipe()
