"""What forms are filled with: how many iterations, and a pair of models for each tier.

They lie in `view.json` of the home, are read at every use, and decide nothing by themselves: a
command line is told all that it is to do.
"""

import json
import threading
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)

from kept.core.schedules.refine import FEWEST, MOST
from kept.models.providers import parse
from kept.orchestrator.refine.tiers import ModelPair
from kept.orchestrator.run_folder.files import read_object
from kept.sandbox.coding_agents.harness import CLIS
from kept.store.files import write_whole
from kept.store.home import Home
from kept.ui.web.refusing import Refused

NAME = "view.json"
TIERS = ("low", "mid", "high")
_SPELLED = r"^([A-Za-z0-9][A-Za-z0-9_./:@+~-]*[A-Za-z0-9_])?$"
"""Nothing that a command line, YAML or a pair could take for something else."""


def _known(name: str) -> str:
    """A model that somebody offers, or none."""
    cli, colon, rest = name.partition(":")
    if name:
        parse(rest if colon and cli in CLIS else name)
    return name


ModelName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, max_length=200, pattern=_SPELLED),
    AfterValidator(_known),
]
Iterations = Annotated[int, Field(strict=True, ge=FEWEST, le=MOST)]


class Pair(BaseModel):
    """Who leads and who works in the iterations of a tier; empty is the seed run's."""

    model_config = ConfigDict(extra="forbid")

    manager: ModelName | None = None
    worker: ModelName | None = None

    @property
    def names(self) -> ModelPair:
        """As a refinement has it."""
        return ModelPair(self.manager or "", self.worker or "")


class Preferences(BaseModel):
    """What forms are filled with."""

    model_config = ConfigDict(extra="forbid")

    refinement_default_iterations: Iterations = 3
    refinement_tier_low: Pair = Pair()
    refinement_tier_mid: Pair = Pair()
    refinement_tier_high: Pair = Pair()

    @property
    def tiers(self) -> dict[str, ModelPair]:
        """The pairs by tier."""
        return {tier: getattr(self, f"refinement_tier_{tier}").names for tier in TIERS}


class Store:
    """Where preferences are kept."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()

    def read(self) -> Preferences:
        """What was chosen; what nobody would have chosen counts as nothing."""
        told = read_object(self._home.path / NAME)
        try:
            return Preferences.model_validate(told or {})
        except ValidationError:
            return Preferences()

    def write(self, chosen: Preferences) -> None:
        """Keep it, whole or not at all."""
        if self._home.index is None:
            raise Refused(409, "this run lies by itself, and nothing is written beside it")
        text = json.dumps(chosen.model_dump(), indent=2)
        with self._lock:
            self._home.make()
            write_whole(self._home.path / NAME, text.encode() + b"\n")


def problems_in(error: ValidationError) -> list[str]:
    """What is wrong, a line each, by the names that a form has."""
    return [f"{_place(one['loc'])}: {_words(one['msg'])}" for one in error.errors()]


def _place(loc: tuple[Any, ...]) -> str:
    names = {"refinement_default_iterations": "iterations"}
    parts = [names.get(str(one), str(one).removeprefix("refinement_")) for one in loc]
    return " ".join(part.replace("_", " ") for part in parts) or "the form"


def _words(message: str) -> str:
    if message.startswith("String should match pattern"):
        return "that is no name of a model; write provider/model, as in openai/gpt-5-mini"
    return message.removeprefix("Value error, ")
