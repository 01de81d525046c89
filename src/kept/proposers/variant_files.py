"""Texts in files as a component: each is tried once, in order."""

from typing import Literal

from kept.proposers.registry import ProposerComponent
from kept.proposers.variants import Variant, Variants
from kept.spec.components import BuildContext, CheckContext
from kept.spec.paths import read_alternatives
from kept.spec.validate import SomeTexts, SpecModel


class VariantsSpec(SpecModel):
    """Files with finished alternative texts."""

    kind: Literal["variants"]
    files: SomeTexts


class VariantsComponent(ProposerComponent[VariantsSpec]):
    """Texts that already exist."""

    Spec = VariantsSpec

    def check(self, spec: VariantsSpec, context: CheckContext) -> None:
        """Read the texts; report files that match no artifact."""
        found = read_alternatives(context.source, context.at("files"), spec.files, context.texts)
        context.found.update({one.label: one.texts for one in found})

    def build(self, spec: VariantsSpec, context: BuildContext) -> Variants:
        """Build a proposer that tries each text once, in order."""
        found = context.found.items()
        read = (Variant(texts, label) for label, texts in found if not isinstance(texts, str))
        return Variants(tuple(read), context.name)
