"""What Kept measures itself, where a task asks for it: it must not be that of another run."""

from kept.core.objective import OWN
from kept.evaluators.runners.runners import ModelRunnerSpec
from kept.models.roles import is_kept
from kept.recipes.task.task import TaskSpec
from kept.spec.load import section
from kept.spec.models import ModelsSpec
from kept.spec.source import Source


def check_own_measures(source: Source, task: TaskSpec) -> None:
    """Report a model whose replies are kept: one that is kept costs nothing, and takes no time."""
    breakers = [one.lower or one.higher for one in task.policy.tie_breakers]
    named = [name for name in OWN if name in {*breakers, *(one.metric for one in task.constraints)}]
    runner = section(source, ("runner",), ModelRunnerSpec)
    if not named or runner is None:
        return
    target = runner.model or (section(source, ("models",), ModelsSpec) or ModelsSpec()).target
    if target is not None and is_kept("target", target.config(source.folder)):
        names = ", ".join(f"`{name}`" for name in named)
        message = f"{names} of a reply that is kept for other runs would be nothing"
        source.report(("models", "target"), message, "set `cache: false`")
