"""Recipe that refines a finished agent run."""

from collections.abc import Sequence

from kept.core.event import SpecSettings
from kept.core.plan import REFINE
from kept.recipes.base import Compiled, Context, Recipe, set_flags, spec_name
from kept.recipes.refine.request import Refinement, RefinementFacts, with_more
from kept.recipes.registry import facts_of
from kept.store.reader import Run


class RefineRecipe(Recipe[Refinement]):
    """Runs a task again with its findings, and keeps a better deliverable."""

    name = REFINE
    request = Refinement
    facts = RefinementFacts

    def compile(self, request: Refinement, context: Context) -> Compiled:
        """Build the plan of a refinement; a resumed one keeps its prompts."""
        from kept.recipes.refine.compile import compile_refine

        facts = facts_of(context.past, RefinementFacts) if context.past else None
        return compile_refine(request, context.watched, facts.artifacts if facts else None)

    def command(self, spec: SpecSettings, request: Refinement) -> list[str]:
        """`refine` with the run, or with the task that it belongs to."""
        name = f"--target={request.target}" if request.target else spec_name(spec)
        return ["refine", name, *set_flags(spec)]

    def resumed(self, request: Refinement, past: Run, settings: Sequence[str]) -> Refinement:
        """Same refinement, perhaps with more money for readings."""
        return with_more(request, tuple(settings), past.settings.budget.max_rollouts_usd)


RECIPE = RefineRecipe()
