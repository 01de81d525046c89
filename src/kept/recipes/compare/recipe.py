"""Recipe that compares texts with each other, without changing anything."""

from kept.core.event import SpecSettings
from kept.core.plan import COMPARE
from kept.recipes.base import Compiled, Context, Recipe, flags, set_flags, spec_name
from kept.recipes.compare.request import Comparing, ComparisonFacts


class CompareRecipe(Recipe[Comparing]):
    """Tests whether texts are better than the first."""

    name = COMPARE
    request = Comparing
    facts = ComparisonFacts
    keeps = False

    def compile(self, request: Comparing, context: Context) -> Compiled:
        """Build the plan of a comparison."""
        from kept.recipes.compare.compile import compile_comparison

        return compile_comparison(context.spec, request, context.overrides)

    def command(self, spec: SpecSettings, request: Comparing) -> list[str]:
        """Words and options of `compare`; empty for a call from Python."""
        if not spec.path:
            return []
        given = {"cases": request.cases, "passes": request.passes, "least": request.least}
        plan = ["--plan"] if request.plan else []
        task = ["--task", spec_name(spec)]
        return ["compare", *request.words, *task, *flags(given), *plan, *set_flags(spec)]


RECIPE = CompareRecipe()
