"""Registry of proposers that a spec may name."""

from collections.abc import Iterable
from typing import TypeVar, cast

from pydantic import ValidationError

from kept.core.ports import Proposer
from kept.spec.components import Component, Registry
from kept.spec.validate import SpecModel

_HERE = "kept.proposers"

PROPOSERS: Registry[Proposer] = Registry(
    "kept.proposers",
    {
        "variants": f"{_HERE}.variant_files:VariantsComponent",
        "numeric": f"{_HERE}.numeric.component:NumericComponent",
        "prune": f"{_HERE}.prune:PruneComponent",
        "demos": f"{_HERE}.few_shot:DemosComponent",
        "command": f"{_HERE}.external:CommandProposerComponent",
        "edit": f"{_HERE}.by_model:EditComponent",
        "rewrite": f"{_HERE}.by_model:EditComponent",
        "simplify": f"{_HERE}.by_model:SimplifyComponent",
        "reflect": f"{_HERE}.by_model:ReflectComponent",
        "agent": f"{_HERE}.external:AgentProposerComponent",
    },
    key="kind",
)

S = TypeVar("S", bound=SpecModel)

_UNREAD = {
    *("startup", "train_sample", "units", "between", "count", "timeout_seconds", "network"),
    *("cases", "traces", "refused", "batch"),
}
"""Keys of proposers that have no effect on which files they need."""


class ProposerComponent(Component[S, Proposer]):
    """One kind of proposer."""

    def read(self, given: object) -> S | None:
        """Parse the spec without its wrong values, if no file depends on these."""
        try:
            return self.Spec.model_validate(given)
        except ValidationError as error:
            wrong = {fault["loc"][0] for fault in error.errors() if fault["loc"]}
        if not isinstance(given, dict) or not wrong or not wrong <= _UNREAD:
            return None
        return super().read(_without(cast("dict[str, object]", given), wrong))


def _without(given: dict[str, object], keys: Iterable[object]) -> dict[str, object]:
    return {key: value for key, value in given.items() if key not in {*keys}}
