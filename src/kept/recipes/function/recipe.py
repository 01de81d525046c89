"""Recipe of `kept.optimize`: a function evaluates, and only the calling program can resume."""

from kept.core.plan import FUNCTION
from kept.recipes.base import Recipe, Request


class FunctionRecipe(Recipe[Request]):
    """Improves texts by a Python function."""

    name = FUNCTION
    request = Request


RECIPE = FunctionRecipe()
