"""Proposers from the spec of a task, including model-based ones.

All dependencies are read and checked first, so that all problems are reported at once.
`mutation.mode: direct_edit` without `proposers` means one model-based proposer with defaults.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from string import Formatter
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from kept import settings
from kept.core.artifact import NoSpan, Value
from kept.core.case import Case, Cases, implicit_cases
from kept.core.ports import Proposer
from kept.errors import SetupError
from kept.evaluators.runners.coding_agent import AgentProposerSpec
from kept.models.context_window import room_of
from kept.models.prompts import prompt
from kept.models.providers import ModelConfig, config_of
from kept.models.roles import Role, connect_role
from kept.proposers.external import AgentProposer, CommandProposer
from kept.proposers.few_shot import DemoSets, Layout, fields
from kept.proposers.llm import FORMS, ModelProposer
from kept.proposers.numeric.search import Numeric
from kept.proposers.numeric.space import Axis, Choices, Numbers, Space
from kept.proposers.prompt_items import Sight
from kept.proposers.prune import Prune
from kept.proposers.reflect import ReflectProposer
from kept.proposers.spec import (
    AxisSpec,
    ByModelSpec,
    CommandProposerSpec,
    DemosSpec,
    EditSpec,
    NumericSpec,
    ProposerSpec,
    PruneSpec,
    ReflectSpec,
    RewriteSpec,
    SimplifySpec,
    VariantsSpec,
)
from kept.proposers.variants import Variant, Variants
from kept.recipes.task.cases import fields_shown
from kept.recipes.task.command_lines import check_script
from kept.recipes.task.make_coding_agent import Sending, check_agent, harness_of
from kept.recipes.task.models import check_asked, check_price
from kept.recipes.task.prompts import prompt_in_folder, read_prompt
from kept.recipes.task.spec import MutationSpec
from kept.sandbox.command import Command
from kept.sandbox.workspace import Scratch
from kept.spec.locate.tree import read_value
from kept.spec.paths import Alternative, read_alternatives
from kept.spec.shared_sections import ModelsSpec
from kept.spec.source import Source, kind_of
from kept.spec.validate import said, section
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


_SPECS: TypeAdapter[Any] = TypeAdapter(ProposerSpec)

_UNREAD = {
    *("startup", "train_sample", "units", "between", "count", "timeout_seconds", "network"),
    *("cases", "traces", "refused", "batch"),
}
"""Keys of proposers that say nothing about which files they need."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What only a proposer that runs something needs."""

    scratch: Scratch
    hold: Callable[[Command], Command]
    """Puts walls round a command."""
    sending: Sending
    """What agents are sent out with."""


Make = Callable[[str, Tools], Proposer]
"""Makes a proposer, given its name."""


@dataclass(frozen=True, slots=True)
class Proposing:
    """Proposers that are ready to be made."""

    kinds: tuple[str, ...]
    makers: tuple[Make, ...]
    alternatives: tuple[tuple[Alternative, ...], ...] = ()
    """Texts that were read, by `variants` proposer: a run depends on them."""
    prompts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of models that propose, by the files that a task has for them."""
    told: tuple[str, ...] = ()
    """The file that each proposer has its prompt of; empty where it has Kept's own or none."""
    agents: tuple[AgentProposerSpec, ...] = ()
    editors: tuple[ModelConfig, ...] = ()
    """Models that edit."""

    @property
    def names(self) -> list[str]:
        """A name of its own for each."""
        nth = [self.kinds[: at + 1].count(kind) for at, kind in enumerate(self.kinds)]
        return [f"{k}-{n}" if n > 1 else k for k, n in zip(self.kinds, nth, strict=True)]

    @property
    def own_prompts(self) -> dict[str, str]:
        """The file of each proposer that has a prompt of the user's own, by its name."""
        return {name: file for name, file in zip(self.names, self.told, strict=True) if file}

    def make(self, tools: Tools) -> tuple[Proposer, ...]:
        """The proposers, each with a name of its own."""
        return tuple(make(name, tools) for name, make in zip(self.names, self.makers, strict=True))


def read_proposers(source: Source, texts: Mapping[str, str], cases: Cases | None) -> Proposing:
    """Look at all that the proposers of a spec name; what is wrong is reported.

    Cases that the spec names and that could not be read are not complained of again.
    """
    data = cast("dict[str, object]", source.data)
    if cases is None and data.get("cases") is None:
        cases = implicit_cases()
    kinds: list[str] = []
    makers: list[Make] = []
    alternatives: list[tuple[Alternative, ...]] = []
    prompts: dict[str, str] = {}
    told: list[str] = []
    agents: list[AgentProposerSpec] = []
    editors: list[ModelConfig] = []
    for loc, spec in _specs(source):
        kinds.append(spec.kind)
        told.append((isinstance(spec, ByModelSpec | AgentProposerSpec) and spec.prompt) or "")
        match spec:
            case VariantsSpec():
                found = read_alternatives(source, (*loc, "files"), spec.files, texts)
                alternatives.append(found)
                makers.append(partial(_make_variants, found))
            case NumericSpec():
                makers.append(_numeric(source, loc, spec, texts, cases))
            case PruneSpec():
                makers.append(_prune(source, loc, spec, texts))
            case DemosSpec():
                makers.append(_demos(source, loc, spec, texts, cases))
            case CommandProposerSpec():
                makers.append(_command(source, loc, spec, cases))
            case EditSpec() | RewriteSpec() | SimplifySpec() | ReflectSpec():
                editing = read_editing(source, loc, spec, cases)
                prompts |= editing.prompts
                editors += (editing.editor[1],) if editing.editor else ()
                makers.append(partial(_make_edit, editing))
            case AgentProposerSpec():
                agents.append(spec)
                own = None
                if spec.prompt:
                    own = read_prompt(source, (*loc, "prompt"), spec.prompt, "agent") or None
                    prompts |= {spec.prompt: own} if own else {}
                makers.append(_agent(source, loc, spec, cases, own))
    return Proposing(
        kinds=tuple(kinds),
        makers=tuple(makers),
        alternatives=tuple(alternatives),
        prompts=prompts,
        told=tuple(told),
        agents=tuple(agents),
        editors=tuple(editors),
    )


def _specs(source: Source) -> Iterator[tuple[Loc, ProposerSpec]]:
    """The proposers of a spec that are right in themselves; the others were reported.

    Of `numeric` also one that is wrong: each of its axes is looked at for itself.
    """
    rows = cast("dict[str, object]", source.data).get("proposers")
    if edits_directly(source):
        own = prompt_in_folder(source, "edit")
        yield ("mutation", "mode"), EditSpec(kind="edit", prompt=own)
    for at, row in enumerate(cast("list[object]", rows) if isinstance(rows, list) else ()):
        try:
            yield ("proposers", at), _SPECS.validate_python(_without_unread(row))
        except ValidationError:
            if said(source, ("proposers", at, "kind")) == "numeric":
                yield ("proposers", at), NumericSpec.model_construct(kind="numeric", axes=())


def _without_unread(row: object) -> object:
    """A proposer without wrong values that no file is looked up by, so that the rest is seen."""
    if not isinstance(row, dict):
        return row
    given = cast("dict[str, object]", row)
    try:
        _SPECS.validate_python(given)
    except ValidationError as error:
        # the first part of each place is the kind
        wrong = {fault["loc"][1] for fault in error.errors() if len(fault["loc"]) > 1}
        if wrong <= _UNREAD:
            return {key: value for key, value in given.items() if key not in wrong}
    return given


def _make_variants(found: tuple[Alternative, ...], name: str, tools: Tools) -> Proposer:
    return Variants(tuple(Variant(row.texts, row.label) for row in found), name)


def _make_edit(editing: Editing, name: str, tools: Tools) -> Proposer:
    return editing.make(name)


def _numeric(
    source: Source, loc: Loc, spec: NumericSpec, texts: Mapping[str, str], cases: Cases | None
) -> Make:
    if cases is not None and not cases.train:
        message = "there is no train case to measure points on"
        source.report(loc, message, "give train a share in `cases.split`")
    axes: list[Axis] = []
    start: list[Value] = []
    places: list[tuple[str, str]] = []
    rows = said(source, (*loc, "axes"))
    for at in range(len(cast("list[object]", rows)) if isinstance(rows, list) else 0):
        here = (*loc, "axes", at)
        file, path = said(source, (*here, "file")), said(source, (*here, "path"))
        if not (isinstance(file, str) and file and isinstance(path, str) and path):
            continue  # told already
        if (file, path) in places:
            source.report((*here, "path"), f"`{path}` has two axes")
        places.append((file, path))
        value = _current(source, here, file, path, texts)
        axis = section(source, here, AxisSpec)
        if axis is None or value is None:
            continue
        domain = _domain(axis)
        axes.append(Axis(file, path, domain))
        start.append(value)
        if not domain.holds(value):
            source.report((*here, "path"), f"it is {kind_of(value)}, {_not_in(axis)}")

    def make(name: str, tools: Tools) -> Proposer:
        return Numeric(Space(tuple(axes)), tuple(start), name, spec.startup, spec.train_sample)

    return make


def _domain(axis: AxisSpec) -> Numbers | Choices:
    if axis.choices is not None:
        return Choices(axis.choices)
    assert axis.range is not None, "an axis has a range or choices"
    low, high = axis.range
    return Numbers(low, high, axis.type == "int", axis.log, axis.step)


def _current(
    source: Source, loc: Loc, file: str, path: str, texts: Mapping[str, str]
) -> Value | None:
    """The value that an axis has now; None, and a report, when there is none."""
    if file not in texts:
        if texts:
            known = ", ".join(list(texts)[:12])
            source.report((*loc, "file"), f"`{file}` is no artifact", f"there are {known}")
        return None
    value = read_value(file, texts[file], path)
    if isinstance(value, NoSpan):
        source.report((*loc, "path"), value.detail)
        return None
    return value


def _not_in(axis: AxisSpec) -> str:
    if axis.choices is not None:
        return "which is none of the `choices`"
    assert axis.range is not None
    kind = "whole number" if axis.type == "int" else "number"
    return f"which is no {kind} from {axis.range[0]:g} to {axis.range[1]:g}"


def _prune(source: Source, loc: Loc, spec: PruneSpec, texts: Mapping[str, str]) -> Make:
    chosen = dict.fromkeys(texts) if spec.files is None else {}
    for at, pattern in enumerate(spec.files or ()):
        hits = [path for path in texts if fnmatchcase(path, pattern)]
        if not hits and texts:
            known = ", ".join(list(texts)[:12])
            message = f"`{pattern}` matches no artifact"
            source.report((*loc, "files", at), message, f"there are {known}")
        chosen.update(dict.fromkeys(hits))

    def make(name: str, tools: Tools) -> Proposer:
        return Prune(tuple(chosen), spec.units, name)

    return make


def _demos(
    source: Source, loc: Loc, spec: DemosSpec, texts: Mapping[str, str], cases: Cases | None
) -> Make:
    layout = Layout(spec.template, spec.begin, spec.end, spec.between)
    if spec.file in texts and layout.region(texts[spec.file]) is None:
        message = f"`{spec.file}` has not got `{spec.begin}` … `{spec.end}` just once"
        source.report((*loc, "file"), message, "put these two marks where examples are to stand")
    elif spec.file not in texts and texts:
        source.report((*loc, "file"), f"`{spec.file}` is no artifact")
    if cases is None:
        pass
    elif cases.implicit or not cases.train:
        source.report(loc, "there are no train cases to show as examples", "give `cases`")
    else:
        _check_template(source, (*loc, "template"), spec.template, cases.train)

    def make(name: str, tools: Tools) -> Proposer:
        return DemoSets(spec.file, layout, *spec.count, name)

    return make


def _check_template(source: Source, loc: Loc, template: str, train: tuple[Case, ...]) -> None:
    try:
        named = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        hint = "write a brace that is meant as such twice"
        source.report(loc, f"not a template: {error}", hint)
        return
    if not named:
        source.report(loc, "names no field of the case", "write it as in `{input}`")
    for name in dict.fromkeys(named):
        # what a dot or a bracket would reach into is nobody's business
        without = next((case for case in train if name not in fields(case)), None)
        if without is not None:
            known = ", ".join(f"`{field}`" for field in fields(without))
            source.report(loc, f"case `{without.id}` has no field `{name}`", f"it has {known}")


def _command(source: Source, loc: Loc, spec: CommandProposerSpec, cases: Cases | None) -> Make:
    folder = source.folder / spec.cwd
    if not folder.is_dir():
        source.report((*loc, "cwd"), f"there is no folder `{spec.cwd}`")
    check_script(source, loc)
    seen = fields_shown(source, (*loc, "fields"), spec.fields, cases)

    def make(name: str, tools: Tools) -> Proposer:
        command = tools.hold(Command(spec.command, folder, spec.timeout_seconds))
        if spec.network is not None and command.view is not None:
            command = replace(command, view=replace(command.view, network=spec.network))
        return CommandProposer(command, tools.scratch, name, seen)

    return make


def _agent(
    source: Source, loc: Loc, spec: AgentProposerSpec, cases: Cases | None, own: str | None
) -> Make:
    check_agent(source, loc, spec)
    seen = fields_shown(source, (*loc, "fields"), spec.fields, cases)
    if spec.usd_per_call is None and said(source, ("budget", "max_usd")) is not None:
        message = "what a proposal costs at most is not known, so `max_usd` could not be kept"
        source.report(loc, message, "give `usd_per_call`")

    def make(name: str, tools: Tools) -> Proposer:
        harness = harness_of(spec, tools.sending)
        return AgentProposer(harness, name, spec.usd_per_call, seen, own)

    return make
