"""Registry of the runners that a spec may name."""

from collections.abc import Mapping

from kept.core.ports import Runner
from kept.spec.components import ModelNeed, Needs, Registry
from kept.spec.source import Source

_HERE = "kept.evaluators.runners"


def _kind(given: Mapping[str, object]) -> str:
    """Type of a runner whose section has none, by its keys."""
    if "agent" in given:
        return "agent"
    return "model" if "model" in given or "prompt" in given else "command"


RUNNERS: Registry[Runner] = Registry(
    "kept.runners",
    {
        "command": f"{_HERE}.command:CommandRunnerComponent",
        "model": f"{_HERE}.model:ModelRunnerComponent",
        "agent": f"{_HERE}.coding_agent:AgentRunnerComponent",
    },
    default=_kind,
)


def runner_needs(source: Source) -> Needs:
    """Needs of a task's runner; empty if its section has problems."""
    spec = RUNNERS.section(source, ("runner",))
    return Needs() if spec is None else RUNNERS.needs(spec)


def model_asked(needs: Needs) -> ModelNeed | None:
    """Model that a runner calls itself; None if an agent CLI calls it or there is none."""
    return next((model for model in needs.models if not model.by_agent), None)
