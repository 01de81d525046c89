"""The runners that a spec may name."""

from collections.abc import Mapping

from kept.core.ports import Runner
from kept.spec.components import ModelNeed, Needs, Registry
from kept.spec.source import Source

_HERE = "kept.evaluators.runners"


def _kind(given: Mapping[str, object]) -> str:
    """What a runner without a type is, by the keys that it has."""
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
    """The needs of the runner of a task; none where its section has problems."""
    spec = RUNNERS.section(source, ("runner",))
    return Needs() if spec is None else RUNNERS.needs(spec)


def model_asked(needs: Needs) -> ModelNeed | None:
    """The model that a runner asks itself, call by call."""
    return next((model for model in needs.models if not model.by_agent), None)
