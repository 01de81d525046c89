"""Proposers that ask a model, as components: edit, rewrite, simplify and reflect."""

from collections.abc import Iterator
from typing import Literal, TypeVar, cast

from kept.core.ports import Proposer
from kept.errors import SetupError
from kept.models.context_window import room_of
from kept.models.prompts import Name, prompt
from kept.models.providers import ModelConfig
from kept.models.roles import Role, connect_role
from kept.proposers.llm import FORMS, ModelProposer
from kept.proposers.prompt_items import Sight
from kept.proposers.reflect import ReflectProposer
from kept.proposers.registry import ProposerComponent
from kept.spec.checks import check_asked, check_fields, check_price, read_prompt
from kept.spec.components import BuildContext, CheckContext, ModelNeed, Needs
from kept.spec.shared_sections import ModelsSpec, RoleSpec
from kept.spec.validate import Count, OneOrMore, SpecModel, Text, Whole, section

Kind = Literal["edit", "rewrite", "simplify", "reflect"]


class ByModelSpec(SpecModel):
    """A model that reads the artifacts and what went wrong, and answers with a change."""

    model: RoleSpec | None = None
    """Default: the model of `models.optimizer`, then `models.applier`, then KEPT_MODEL."""
    prompt: Text | None = None
    """File with a prompt that replaces the built-in one."""
    cases: Whole = 8
    """Train cases on which the incumbent is run first, for the model to see."""
    fields: OneOrMore | None = None
    """Fields of these cases; by default those shown to a runner's model, so no answers."""
    traces: Whole = 3
    """Number of these cases shown with their whole trace: the worst, and the best."""
    refused: Whole = 5
    """Number of rejected proposals that are shown with their verdicts."""
    kind: Kind


class SimplifyEditSpec(ByModelSpec):
    """Shorter text without loss of quality."""

    cases: Whole = 0
    traces: Whole = 0


class ReflectSpec(ByModelSpec):
    """A diagnosis of a few cases, and then edits."""

    cases: Whole = 24
    batch: Count = 6
    """Of these cases, how many the model is shown: those that can be won before all others."""
    traces: Whole = 6


Editor = tuple[Role, ModelConfig]
ByModel = TypeVar("ByModel", bound=ByModelSpec)


class ByModelComponent(ProposerComponent[ByModel]):
    """A model that reads the artifacts and what went wrong, and answers with a change."""

    def check(self, spec: ByModel, context: CheckContext) -> None:
        """Report a model that cannot be asked or has no price, and missing prompts and fields."""
        source, loc = context.source, context.loc
        if spec.prompt:
            text = read_prompt(source, context.at("prompt"), spec.prompt, spec.kind)
            context.found.update({spec.prompt: text} if text else {})
        check_fields(context, spec.fields)
        editor = _editor(spec, context)
        if editor is None:
            return
        role, config = editor
        # a model of a role is reported where the role is named
        by_role = spec.model is None and context.elsewhere("models", role) is not None
        own = context.at("model") if spec.model else loc
        check_asked(source, ("models", role) if by_role else own, config)
        if not by_role:
            check_price(source, loc, config)

    def build(self, spec: ByModel, context: BuildContext) -> Proposer:
        """Build the proposer; raises `SetupError` if its model cannot be asked."""
        (need,) = self.needs(spec).models
        editor = need.resolve(context.models, context.folder)
        assert editor is not None, "a spec without problems has a model"
        own = context.found.get(spec.prompt or "")
        text = own if isinstance(own, str) else prompt(spec.kind)
        fields = context.shown if spec.fields is None else spec.fields
        return make_editor(spec, editor, fields, text, context.name)

    def needs(self, spec: ByModel) -> Needs:
        """Its model: its own, that of a role, or that of KEPT_MODEL."""
        return Needs(
            models=(ModelNeed("optimizer", spec.model, instead="applier"),),
            prompts=(spec.prompt,) if spec.prompt else (),
        )

    def prompt_places(self, given: dict[str, object]) -> Iterator[tuple[Name, dict[str, object]]]:
        """The proposer itself."""
        yield cast("Name", given["kind"]), given


class EditComponent(ByModelComponent[ByModelSpec]):
    """A few precise edits, or whole texts, as `kind` says."""

    Spec = ByModelSpec


class SimplifyComponent(ByModelComponent[SimplifyEditSpec]):
    """Proposer of shorter text without loss of quality."""

    Spec = SimplifyEditSpec


class ReflectComponent(ByModelComponent[ReflectSpec]):
    """A diagnosis of a few cases, and then edits."""

    Spec = ReflectSpec


def make_editor(
    spec: ByModelSpec, editor: Editor, fields: tuple[str, ...], text: str, name: str
) -> Proposer:
    """Build the proposer of a spec, with its model and its prompt."""
    sight = Sight(fields, spec.cases, spec.traces, spec.refused)
    given = (connect_role(*editor), text, sight, FORMS[spec.kind], room_of(editor[1]), name)
    batch: int | None = getattr(spec, "batch", None)
    return ModelProposer(*given) if batch is None else ReflectProposer(*given, batch=batch)


def _editor(spec: ByModelSpec, context: CheckContext) -> Editor | None:
    """Model that edits; None if its absence was reported."""
    models = section(context.source, ("models",), ModelsSpec)
    if models is None and spec.model is None and context.elsewhere("models") is not None:
        return None
    need = ModelNeed("optimizer", spec.model, instead="applier")
    try:
        found = need.resolve(models or ModelsSpec(), context.folder)
    except SetupError as error:
        context.report((), f"KEPT_MODEL: {error.message}", error.hint)
        return None
    if found is None:
        hint = "name one in `models.optimizer` or in KEPT_MODEL, or give `proposers`"
        direct = context.loc == ("mutation", "mode")
        what = "`direct_edit` needs a model that edits" if direct else "there is no model to edit"
        context.report((), what, hint)
    return found
