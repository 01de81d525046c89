"""What models are told to do, one Markdown file each; a spec may name a file of its own instead.

The text of a user stands for the whole file. What a model is to look at, and the form of its reply,
are added by whoever asks, and are no part of it.
"""

from functools import lru_cache
from importlib.resources import files
from typing import Literal

Name = Literal["component", "edit", "rewrite", "simplify", "reflect", "judge", "judge_pair"]


@lru_cache
def prompt(name: Name) -> str:
    """One of Kept's own."""
    return files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
