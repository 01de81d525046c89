"""Which models work in an iteration: a pair for each tier, and how a flag spells one."""

from dataclasses import dataclass
from typing import NamedTuple

from kept.core.schedules.refine import Tier
from kept.errors import SetupError

MIXED = "refinement.mixed_body: tier_* set; ignoring legacy model/worker_model"
"""What is said where both tiers and plain models are given."""


class ModelPair(NamedTuple):
    """Who leads and who works; an empty name is the seed run's."""

    manager: str = ""
    worker: str = ""

    def over(self, seed: "ModelPair") -> "ModelPair":
        """This pair, with the seed's models where it names none."""
        return ModelPair(self.manager or seed.manager, self.worker or seed.worker)


SEEDS = ModelPair()
"""The pair of the seed run."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """A pair for each tier."""

    low: ModelPair = SEEDS
    mid: ModelPair = SEEDS
    high: ModelPair = SEEDS

    @property
    def trivial(self) -> bool:
        """Whether none of them names a model, so that every iteration has the seed's."""
        return not any((*self.low, *self.mid, *self.high))

    def of(self, tier: Tier) -> ModelPair:
        """The pair of one tier."""
        return {"low": self.low, "mid": self.mid, "high": self.high}[tier]


def parse_pair(text: str, flag: str) -> ModelPair:
    """A pair as a flag has it: `MANAGER:WORKER`, or `manager=...,worker=...` for names with colons.

    Raises `SetupError` where the colon that parts the two could be several.
    """
    text = text.strip()
    if text.startswith(("manager=", "worker=")):
        return _named(text, flag)
    if ":" not in text:
        raise SetupError(
            f"`{flag} {text}` names one model: a pair is `MANAGER:WORKER`",
            hint=f"`{flag} {text}:` leaves the worker's as it is, `{flag} :{text}` the manager's",
        )
    manager, _, worker = text.partition(":")
    if ":" in worker:
        ways = ", or ".join(f"`{one}` and `{two}`" for one, two in _ways(text))
        raise SetupError(
            f"`{flag} {text}` can be read in several ways: {ways}",
            hint=f"write `{flag} manager=...,worker=...`, where names may hold colons",
        )
    return ModelPair(manager.strip(), worker.strip())


def _ways(text: str) -> list[tuple[str, str]]:
    parts = text.split(":")
    return [(":".join(parts[:n]), ":".join(parts[n:])) for n in range(1, len(parts))]


def _named(text: str, flag: str) -> ModelPair:
    found: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals or key.strip() not in ("manager", "worker") or key.strip() in found:
            raise SetupError(
                f"`{flag} {text}`: `{item}` is neither `manager=...` nor `worker=...`",
                hint=f"write `{flag} manager=...,worker=...`; either may be left out",
            )
        found[key.strip()] = value.strip()
    return ModelPair(found.get("manager", ""), found.get("worker", ""))
