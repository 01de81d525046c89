"""What a model is shown, fitted to what it can read: by whole items, the least important go first.

Pure. Half a trace or half a file would be taken for all of it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kept.core.model import Image, Message
from kept.core.words import count
from kept.models.fencing import fences
from kept.models.window import picture_tokens, tokens_of

TAGS = 20
"""Tokens that the tags round an item take, and the lines between."""

SPACE = "\n\n"


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to be shown."""

    what: str
    """In a word or two, for who reads what was left out: `trace`, `refused proposal`."""
    title: str
    text: str
    material: bool = True
    """Whether it is shown as material that gives no orders; else it is what somebody wants done."""
    needed: bool = False
    """Whether nothing can be done without it."""
    images: tuple[Image, ...] = ()
    """Pictures, shown behind the text."""

    @property
    def tokens(self) -> int:
        """About how many it takes."""
        pictures = sum(map(picture_tokens, self.images))
        return tokens_of(self.title) + tokens_of(self.text) + TAGS + pictures


@dataclass(frozen=True, slots=True)
class Fitted:
    """What is shown, and what is not."""

    items: tuple[Item, ...]
    left_out: tuple[Item, ...] = ()

    @property
    def tokens(self) -> int:
        """About how many it takes."""
        return sum(item.tokens for item in self.items)

    @property
    def unseen(self) -> str:
        """What is not shown, in words; empty when all is."""
        counted = Counter(item.what for item in self.left_out)
        words = ", ".join(count(n, what) for what, n in counted.items())
        return f"not shown to the model, which has no room for it: {words}" if words else ""

    def message(self) -> Message:
        """All that is shown, as one message; pictures stand behind the text of their item."""
        material = [item for item in self.items if item.material]
        marked = iter(fences([(item.what.replace(" ", "-"), item.text) for item in material]))
        text = ""
        images: list[Image] = []
        for item in self.items:
            shown = next(marked) if item.material else item.text
            text += f"{SPACE if text else ''}{item.title}{SPACE}{shown}"
            images += [replace(image, at=len(text)) for image in item.images]
        return Message("user", text, tuple(images))


def fit(items: Sequence[Item], room: int | None) -> Fitted:
    """As many items as there is room for, the most important first; all where that is unknown."""
    used = sum(item.tokens for item in items)
    left_out: set[int] = set()
    for at in reversed(range(len(items))):
        if room is None or used <= room:
            break
        if not items[at].needed:
            used -= items[at].tokens
            left_out.add(at)
    kept = tuple(item for at, item in enumerate(items) if at not in left_out)
    return Fitted(kept, tuple(items[at] for at in sorted(left_out)))
