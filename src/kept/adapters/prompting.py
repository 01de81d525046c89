"""What a model is told that writes a text anew: Kept's own prompt, or a file of the user's."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from kept.errors import SetupError
from kept.models.prompts import prompt, strange_places

FILE = "component.md"


def component_prompt(terms: Mapping[str, object], *, asked: bool = True) -> str:
    """The prompt of a call: that of its folder `prompts`, where it names one.

    Args:
        terms: those of the call.
        asked: whether there is a model that would be told so.
    """
    given = cast("str | Path | None", terms.get("prompts"))
    if given is None:
        return prompt("component")
    if not asked:
        raise SetupError(
            "`prompts` is for a `reflection_lm`", hint="give that too, or leave it out"
        )
    file = Path(given) / FILE
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = f"`kept prompts copy {given} component` makes it"
        raise SetupError(f"cannot read {file}: {why}", hint=hint) from error
    if not text.strip():
        raise SetupError(f"{file} is empty", hint="delete it, and leave `prompts` out")
    for line, words in strange_places("component", text):
        message = f"{file}:{line} `{words}` is no placeholder of the prompt `component`"
        raise SetupError(message, hint="it has none")
    return text
