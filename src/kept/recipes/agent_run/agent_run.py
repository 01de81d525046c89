"""The page of an agent run, made from its journal."""

from typing import Any

from kept.orchestrator.document import agent_run_json, agent_run_page
from kept.recipes.agent_run.agent_reading import agent_run_of
from kept.store.reader import Run


def agent_run_report(run: Run) -> str:
    """The page of a run, how far it may have come."""
    record = agent_run_of(run)
    return agent_run_page(record) if record else f"# Agent run {run.id}\n\nIt never began.\n"


def agent_run_document(run: Run) -> dict[str, Any]:
    """The same for programs."""
    record = agent_run_of(run)
    return agent_run_json(record) if record else {"status": run.status}
