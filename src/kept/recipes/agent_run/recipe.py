"""Recipe of `kept agent run`: a manager and its workers perform a task."""

from collections.abc import Sequence
from dataclasses import replace

from kept.core.event import SpecSettings
from kept.core.plan import AGENT_RUN
from kept.recipes.agent_run.request import Asked
from kept.recipes.base import Compiled, Context, Recipe
from kept.store.reader import Run


class AgentRunRecipe(Recipe[Asked]):
    """Runs a task once; there is nothing to improve."""

    name = AGENT_RUN
    request = Asked
    keeps = False

    def compile(self, request: Asked, context: Context) -> Compiled:
        """Build the plan of an agent run; a resumed one keeps its texts and limits."""
        from kept.recipes.agent_run.compile import before_of, compile_agent_run

        past = context.past
        return compile_agent_run(request, context.watched, before_of(past) if past else None)

    def command(self, spec: SpecSettings, request: Asked) -> list[str]:
        """Return an empty list: a task is run once."""
        return []

    def resumed(self, request: Asked, past: Run, settings: Sequence[str]) -> Asked:
        """Same task, with limits that were set since."""
        return replace(request, settings=(*request.settings, *settings))


RECIPE = AgentRunRecipe()
