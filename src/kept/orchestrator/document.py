"""A whole agent run for people and programs: its story, and the loss with its parts."""

from typing import Any

import msgspec

from kept.orchestrator.loss import loss_words, run_loss
from kept.orchestrator.record import AgentRun
from kept.orchestrator.telling import story


def agent_run_text(record: AgentRun) -> str:
    """The whole story, with the loss."""
    lines = [*story(record)]
    if record.status != "running":
        lines.append(f"loss: {loss_words(run_loss(record))}")
    return "\n".join(lines)


def agent_run_page(record: AgentRun) -> str:
    """The same as Markdown."""
    return f"# Agent run {record.run_id}\n\n```text\n{agent_run_text(record)}\n```\n"


def agent_run_json(record: AgentRun) -> dict[str, Any]:
    """All of it, for programs."""
    parts = run_loss(record).parts() if record.status != "running" else None
    return {**msgspec.to_builtins(record), "loss": parts}
