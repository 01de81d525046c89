"""Recipe that measures the seed of another recipe, without changing anything."""

from kept.core.event import SpecSettings
from kept.core.plan import EVALUATE
from kept.recipes.base import Compiled, Context, Recipe, flags, set_flags, spec_name
from kept.recipes.evaluate.request import Evaluation, EvaluationFacts
from kept.recipes.registry import recipe_named


class EvaluateRecipe(Recipe[Evaluation]):
    """Measures the seed of another recipe."""

    name = EVALUATE
    request = Evaluation
    facts = EvaluationFacts
    keeps = False

    def compile(self, request: Evaluation, context: Context) -> Compiled:
        """Build the measuring plan of the wrapped recipe."""
        return recipe_named(request.of).measure(request, context)

    def command(self, spec: SpecSettings, request: Evaluation) -> list[str]:
        """`eval` with the given options."""
        wanted = request.wanted
        given = {
            "repeats": wanted.repeats if wanted.repeats > 1 else None,
            "limit": wanted.limit,
            "filter": wanted.filter,
            "split": wanted.split,
        }
        return ["eval", spec_name(spec), *flags(given), *set_flags(spec)]


RECIPE = EvaluateRecipe()
