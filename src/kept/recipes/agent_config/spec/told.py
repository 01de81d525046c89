"""What a file means to be, told by its keys: without the models of all that may be in it."""

from typing import cast


def is_agent(data: object) -> bool:
    """Whether a file means to be an agent.yaml; whether it is one is another matter."""
    if not isinstance(data, dict):
        return False
    keys = cast("dict[str, object]", data)
    if any(key in keys for key in ("artifacts", "runner", "scorer")):
        return False
    if "prompts" in keys and "instructions" not in keys:
        # a promptfoo config
        return False
    tells = ("instructions", "test_cases", "test_cases_file")
    return isinstance(keys.get("model"), dict) or any(key in keys for key in tells)
