"""From what a task says about a model that proposes to the proposer.

`mutation.mode: direct_edit` in a task without `proposers` is such a model, with nothing said of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kept import settings
from kept.core.case import Cases
from kept.core.ports import Proposer
from kept.errors import SetupError
from kept.models.config import ModelConfig
from kept.models.prompts import prompt
from kept.models.providers import config_of
from kept.models.roles import Role, connect_role
from kept.models.window import room_of
from kept.proposers.forms import FORMS
from kept.proposers.model import ModelProposer
from kept.proposers.reflect import ReflectProposer
from kept.proposers.showing import Sight
from kept.proposers.spec import EditSpec, ReflectSpec, RewriteSpec, SimplifySpec
from kept.recipes.task.fields import fields_shown
from kept.recipes.task.models import check_asked, check_price
from kept.recipes.task.prompts import read_prompt
from kept.recipes.task.task import MutationSpec
from kept.spec.load import said, section
from kept.spec.models import ModelsSpec
from kept.spec.source import Source
from kept.spec.yaml import Loc

Editor = tuple[Role, ModelConfig]
ByModel = EditSpec | RewriteSpec | SimplifySpec | ReflectSpec


@dataclass(frozen=True, slots=True)
class Editing:
    """A model that proposes, ready to be made."""

    spec: ByModel
    editor: Editor | None
    """None where that was reported."""
    sight: Sight
    prompt: str
    prompts: Mapping[str, str]
    """The file that the prompt was read from, where the task has one."""

    def make(self, name: str) -> Proposer:
        """The proposer; a `SetupError` where the model cannot be asked."""
        assert self.editor is not None, "a task without problems has a model"
        model, form = connect_role(*self.editor), FORMS[self.spec.kind]
        room = room_of(self.editor[1])
        given = (model, self.prompt, self.sight, form, room, name)
        if isinstance(self.spec, ReflectSpec):
            return ReflectProposer(*given, batch=self.spec.batch)
        return ModelProposer(*given)


def edits_directly(source: Source) -> bool:
    """Whether a task leaves all proposing to a model that edits."""
    mutation = section(source, ("mutation",), MutationSpec)
    named = said(source, ("proposers",)) is not None
    return not named and mutation is not None and mutation.mode == "direct_edit"


def check_proposers(source: Source) -> None:
    """Report a task that nothing proposes a change for."""
    if said(source, ("proposers",)) is None and not edits_directly(source):
        source.report(("proposers",), "missing", "without one nothing is ever proposed")


def read_editing(source: Source, loc: Loc, spec: ByModel, cases: Cases | None) -> Editing:
    """Look at all that it names; what is wrong is reported."""
    text = None
    if spec.prompt:
        text = read_prompt(source, (*loc, "prompt"), spec.prompt, spec.kind)
    fields = fields_shown(source, (*loc, "fields"), spec.fields, cases)
    sight = Sight(fields, spec.cases, spec.traces, spec.refused)
    prompts = {spec.prompt: text} if spec.prompt and text else {}
    editor = _editor(source, loc, spec)
    if editor is not None:
        # of a role it is told where the role is named
        role: Loc = ("models", editor[0])
        by_role = spec.model is None and said(source, role) is not None
        check_asked(source, role if by_role else (*loc, "model") if spec.model else loc, editor[1])
        if not by_role:
            check_price(source, loc, editor[1])
    return Editing(spec, editor, sight, text or prompt(spec.kind), prompts)


def _editor(source: Source, loc: Loc, spec: ByModel) -> Editor | None:
    """The model that edits: of its own, of a role, or of the environment."""
    if spec.model is not None:
        return "optimizer", spec.model.config(source.folder)
    models = section(source, ("models",), ModelsSpec)
    if models is None and said(source, ("models",)) is not None:
        return None  # told already
    roles: tuple[Role, ...] = ("optimizer", "applier")
    for role in roles:
        found = getattr(models, role, None)
        if found is not None:
            return role, found.config(source.folder)
    named = settings.model()
    if named is None:
        hint = "name one in `models.optimizer` or in KEPT_MODEL, or give `proposers`"
        direct = loc == ("mutation", "mode")
        what = "`direct_edit` needs a model that edits" if direct else "there is no model to edit"
        source.report(loc, what, hint)
        return None
    try:
        return "optimizer", replace(config_of(named), folder=source.folder)
    except SetupError as error:
        source.report(loc, f"KEPT_MODEL: {error.message}", error.hint)
        return None
