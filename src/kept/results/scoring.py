"""How a run is scored, in words, and which functions do it.

Reads the fact that a recipe wrote of its scorer; one of another shape says nothing here.
"""

from collections.abc import Iterator
from typing import Any, cast


def scorer_words(fact: object) -> str:
    """One line about a scorer or a runner; empty where nothing is known of it."""
    match fact:
        case {"command": str(command)}:
            return f"`{command}`"
        case {"type": "agent", "agent": str(agent), "model": str(model)}:
            return f"the agent `{agent}` with `{model}`"
        case {"type": "model", "model": str(model)}:
            return f"the model `{model}`"
        case {"type": "python", "function": str(function)}:
            return f"the Python function `{function}`"
        case {"type": "rules"}:
            rules = cast("dict[str, list[dict[str, str]]]", fact)["rules"]
            kinds = dict.fromkeys(rule["kind"] for rule in rules)
            return f"rules: {', '.join(kinds)}"
        case {"type": "judge"}:
            return _judge_words(cast("dict[str, Any]", fact))
        case {"type": "assertions"}:
            return "what each case asserts"
        case {"type": "composite"}:
            parts = [f"{part['name']} ({scorer_words(part['scorer'])})" for part in _parts(fact)]
            return f"a weighted mean of {', '.join(parts)}"
        case _:
            return ""


def _judge_words(fact: dict[str, Any]) -> str:
    names = [criterion["name"] for criterion in fact.get("criteria", ())]
    names += ["a comparison in both orders"] if fact.get("pairwise") else []
    judges = [f"{one['provider']}/{one['model']}" for one in fact.get("judges") or ()]
    by = f" by {', '.join(judges)}" if judges else ""
    times = f", {fact['draws']} draws each" if fact.get("draws", 1) > 1 else ""
    floor = f"; rules cap it at {fact.get('cap') or 0:g}" if fact.get("rules") else ""
    pairwise = cast("dict[str, Any]", fact.get("pairwise") or {})
    own = [str(one["prompt"]) for one in (fact, pairwise) if one.get("prompt")]
    told = f"; told by your {' and '.join(own)}" if own else ""
    return f"judged{by}{times}: {', '.join(names)}{floor}{told}"


def judges(fact: object) -> bool:
    """Whether models take part as judges."""
    match fact:
        case {"type": "judge"}:
            return True
        case {"type": "composite"}:
            return any(judges(part["scorer"]) for part in _parts(fact))
        case _:
            return False


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
