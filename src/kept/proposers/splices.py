"""Changes at a place, as edits that name it: a target must stand in the text exactly once."""

from collections.abc import Iterator

from kept.core.differ import changes
from kept.core.edit import Edit, Replace, Write, cuts_word
from kept.core.text import lines_of


def replace_at(path: str, text: str, start: int, end: int, new: str) -> Replace:
    """Put `new` in the place of a stretch, with as much of the lines around as makes it unique.

    The text is not empty: nothing could be named in it.
    """
    left, right = start, end
    while right - left < len(text) and (
        not _once(text, text[left:right]) or cuts_word(text, left, right)
    ):
        # a line further on both sides; in the end the whole text, which is there just once
        left = text.rfind("\n", 0, max(0, left - 1)) + 1 if left else 0
        after = text.find("\n", right)
        right = len(text) if after < 0 else after + 1
    return Replace(path, text[left:right], text[left:start] + new + text[end:right])


def edits_between(path: str, before: str, after: str) -> tuple[Edit, ...]:
    """Edits of single stretches that turn one text into another.

    Of stretches rather than of the whole text, so that they still apply when another step has
    changed something else meanwhile.
    """
    if not before:
        return (Write(path, after),) if after else ()
    edits: list[Edit] = []
    text = before
    # from the end: what stands before a stretch is then still as it was
    for start, end, new in reversed(list(_changes(before, after))):
        edit = replace_at(path, text, start, end, new)
        edits.append(edit)
        text = text.replace(edit.old, edit.new, 1)
    return tuple(edits) if text == after else (Write(path, after),)


def _changes(before: str, after: str) -> Iterator[tuple[int, int, str]]:
    old, new = lines_of(before), lines_of(after)
    offsets = [0]
    for line in old:
        offsets.append(offsets[-1] + len(line))
    for change in changes(old, new):
        inserted = "".join(new[change.new_start : change.new_end])
        yield offsets[change.start], offsets[change.end], inserted


def _once(text: str, part: str) -> bool:
    first = text.find(part) if part else -1
    return first >= 0 and text.find(part, first + 1) < 0
