"""What a tool that a model may use gives back."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kept.core.rollout import FREE, Usage


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What came of using a tool once: the text that the model is told."""

    text: str
    wrong: bool = False
    """Whether the text says what is wrong with the call: the model may make a better one."""
    context: tuple[str, ...] = ()
    """Passages that were found, for whoever judges what was made of them."""
    usage: Usage = FREE
    """What calls to models inside it used."""
    seconds: float = 0.0
    """How long it was waited for, written down with it: a resume does not wait again."""
    changes: Mapping[str, bytes | None] = field(default_factory=dict[str, bytes | None])
    """Files that it changed of those it works on, by path; None for what it removed. A resume does
    not use the tool again, and changes the same."""
    stamp: int = 0
    """Which change of those files this is: of two that change the same one, the later holds."""
