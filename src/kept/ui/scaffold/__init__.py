"""The tasks that `kept init` writes: each runs at once, and is meant to be changed."""

from pathlib import Path

from kept.recipes.importers import write

_HERE = Path(__file__).parent
KINDS = ("prompt", "skill", "config", "code", "agent")
"""What a task may be about; the first is the default."""


def scaffold(kind: str, folder: Path) -> list[Path]:
    """Write the files of a task into a folder, which is made; refuses to overwrite any."""
    source = _HERE / kind
    files = [
        path
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    ]
    texts = {str(path.relative_to(source)): path.read_text(encoding="utf-8") for path in files}
    return write(texts, folder)
