"""Recipe that improves the artifacts of a task.yaml."""

from collections.abc import Mapping

from kept.core.plan import TASK
from kept.recipes.base import Compiled, Context, Recipe, Request

KEYS = ("artifacts", "runner", "scorer")
"""Keys by which a file is recognized as a task."""


class TaskRecipe(Recipe[Request]):
    """Improves files by a runner and a scorer."""

    name = TASK
    request = Request

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if there is any key of a task."""
        return any(key in keys for key in KEYS)

    def compile(self, request: Request, context: Context) -> Compiled:
        """Compile the plan of a task.yaml."""
        # imported at use: the import takes longer than most commands
        from kept.recipes.task.compile import compile_task

        return compile_task(context.source or context.spec, context.overrides, context.gate)


RECIPE = TaskRecipe()
