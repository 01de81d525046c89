"""What a run of an agent.yaml would do, for `kept check`."""

from collections.abc import Iterator
from typing import Any, cast

from kept.core.plan import EVAL
from kept.core.words import count
from kept.recipes.recipes import Compiled
from kept.ui.cli.names import path_from_here


def outline_agent(made: Compiled) -> dict[str, Any]:
    """All of it as a document."""
    plan = made.plan
    told = cast("dict[str, Any]", plan.facts[EVAL])
    return {
        "spec": plan.facts["spec"],
        "recipe": "agent",
        "name": told["name"],
        "agent": told["agent"],
        "texts": sorted(plan.seed.texts),
        "cases": len(plan.cases.holdout),
        "turns": _turns(made),
        "rollouts": told["asked"],
        "workers": plan.workers,
        "warnings": list(made.warnings),
    }


def agent_rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same for a person."""
    agent = told["agent"]
    yield "spec", f"{path_from_here(told['spec'])} (agent), in order"
    yield "agent", f"{told['name']}: {agent['model']}"
    yield "texts", ", ".join(told["texts"])
    yield "tools", ", ".join(agent["tools"]) or "none"
    yield "metrics", ", ".join(agent["metrics"]) or "none: a case passes that comes to an answer"
    if agent["prompts"]:
        yield "judges", f"told by your {', '.join(agent['prompts'])}"
    turns = f", {count(told['turns'], 'turn')}" if told["turns"] > told["cases"] else ""
    yield "cases", f"{told['cases']}{turns}, {told['workers']} at once"


def _turns(made: Compiled) -> int:
    data = (cast("dict[str, Any]", case.data) for case in made.plan.cases.holdout)
    return sum(len(one.get("turns") or (one,)) for one in data)
