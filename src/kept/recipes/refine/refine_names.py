"""Who works in an iteration, by name, and what is said where a name is none.

A run of others names its models as they are called there: that is no mistake of whoever refines it.
"""

from typing import NamedTuple

from kept.errors import SetupError
from kept.models.providers import parse
from kept.recipes.refine.refine_asked import Refinement
from kept.sandbox.coding_agents.harness import CLIS

_FLAGS = {"manager": "--model", "worker": "--worker-model"}


class Who(NamedTuple):
    """A model by name."""

    role: str
    name: str
    inherited: bool
    """Whether the seed run names it, and no flag does."""


def parted(role: str, name: str) -> tuple[str, str]:
    """The agent CLI that a worker was, if any, and the model."""
    cli, colon, rest = name.partition(":")
    return (cli, rest) if role == "worker" and colon and cli in CLIS else ("", name)


def check_names(named: list[Who], asked: Refinement) -> None:
    """Refuse names that are none, all of them at once, and say where each is from."""
    problems: list[str] = []
    inherited = False
    for who in dict.fromkeys(named):
        try:
            parse(parted(who.role, who.name)[1])
        except ValueError as error:
            inherited |= who.inherited
            problems.append(f"{_from(who, asked)}: {error}")
    if problems:
        hint = (
            "name others with --model and --worker-model; `openai_compatible/NAME` is asked of the "
            "server that OPENAI_COMPATIBLE_BASE_URL names"
        )
        raise SetupError("\n".join(problems), hint=hint if inherited else None)


def _from(who: Who, asked: Refinement) -> str:
    if who.inherited:
        return f"the {who.role} of the seed run, `{who.name}`"
    at = 0 if who.role == "manager" else 1
    tiers = {"low": asked.low, "mid": asked.mid, "high": asked.high}
    flags = [f"--tier-{tier}" for tier, pair in tiers.items() if pair[at] == who.name]
    return flags[0] if flags else _FLAGS[who.role]
