"""Pages of `kept view`; the CLI finds them through the entry point `kept.pages`.

This module imports nothing of the extra `web`, so that it can name missing packages.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from kept.errors import SetupError
from kept.settings import install_command
from kept.store.home import Home

NEEDED = ("fastapi", "jinja2", "uvicorn")
"""Packages of the extra `web`."""


class Pages:
    """Server of the pages, and export of one run's page into a file."""

    def __init__(self) -> None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            raise SetupError(
                f"packages that the pages need are not installed: {names}",
                hint=install_command("web"),
            )

    def serve(self, home: Home, path: str, port: int, opened: Callable[[str], None]) -> None:
        """Serve the runs of a home until interrupted; `opened` gets the link with its token."""
        from kept.ui.web.server import serve

        serve(home, path, port, opened)

    def export(self, folder: Path) -> str:
        """Page of a run as one self-contained file."""
        from kept.ui.web.server import export

        return export(folder)
