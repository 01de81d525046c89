"""Request of an agent run, as stored for a resume."""

from dataclasses import dataclass

from kept.recipes.base import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Request):
    """A task for a manager and its workers."""

    task: str
    folder: str
    """Folder that paths are relative to."""
    inputs: tuple[str, ...] = ()
    output: str | None = None
    """Additional folder for the deliverables."""
    config: str | None = None
    settings: tuple[str, ...] = ()
    brief: str = ""
    parent_run_id: str | None = None
    tags: tuple[str, ...] = ()
