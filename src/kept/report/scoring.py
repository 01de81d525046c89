"""How a run is scored, in words, and which functions do it.

Reads the fact that a recipe wrote of its scorer; one of another shape says nothing here.
"""

from collections.abc import Iterator
from typing import cast


def scorer_words(fact: object) -> str:
    """One line about a scorer or a runner; empty where nothing is known of it."""
    match fact:
        case {"command": str(command)}:
            return f"`{command}`"
        case {"type": "model", "model": str(model)}:
            return f"the model `{model}`"
        case {"type": "python", "function": str(function)}:
            return f"the Python function `{function}`"
        case {"type": "rules"}:
            rules = cast("dict[str, list[dict[str, str]]]", fact)["rules"]
            kinds = dict.fromkeys(rule["kind"] for rule in rules)
            return f"rules: {', '.join(kinds)}"
        case {"type": "composite"}:
            parts = [f"{part['name']} ({scorer_words(part['scorer'])})" for part in _parts(fact)]
            return f"a weighted mean of {', '.join(parts)}"
        case _:
            return ""


def scoring_functions(fact: object) -> Iterator[str]:
    """The Python functions of the user that take part."""
    match fact:
        case {"type": "python", "function": str(function)}:
            yield function
        case {"type": "composite"}:
            for part in _parts(fact):
                yield from scoring_functions(part["scorer"])
        case _:
            return


def _parts(fact: object) -> list[dict[str, object]]:
    return cast("dict[str, list[dict[str, object]]]", fact)["parts"]
