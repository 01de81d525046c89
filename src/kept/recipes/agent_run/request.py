"""What an agent run was asked for, as it is written down for a resume."""

from dataclasses import dataclass

from kept.recipes.base import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Request):
    """A task for a manager and its workers."""

    task: str
    folder: str
    """Where it was asked: paths begin there."""
    inputs: tuple[str, ...] = ()
    output: str | None = None
    """Where the deliverables are to be put besides."""
    config: str | None = None
    settings: tuple[str, ...] = ()
    brief: str = ""
    parent_run_id: str | None = None
    tags: tuple[str, ...] = ()
