"""Components that a spec names: runners, scorers, proposers and the like.

A component is a class with a `Spec` and the methods of `Component`. A spec is validated in two
passes: the first finds the component by its `type` (or `kind`), the second validates the mapping
against the component's `Spec`, at its place. So all problems are reported at once, with lines.

Kept's own components are listed in tables and imported at use. Others are found by entry points.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, InitErrorDetails, PydanticKnownError, core_schema

from kept import settings
from kept.core.artifact import Candidate
from kept.core.case import Cases
from kept.models.prompts import Name
from kept.models.providers import ModelConfig, config_of
from kept.models.roles import Role
from kept.sandbox.coding_agents.definition import Program
from kept.sandbox.command import Command
from kept.sandbox.workspace import MAX_OUTPUT, Scratch
from kept.spec.shared_sections import ModelsSpec
from kept.spec.source import Source
from kept.spec.validate import SpecModel, Text, said
from kept.spec.yaml import Loc

SpecT = TypeVar("SpecT", bound=SpecModel)
Built = TypeVar("Built")

Read = str | Mapping[str, str]
"""A text that a check read, or several by the path of the artifact that each stands for."""


class ComponentSpec(SpecModel):
    """The spec of a runner or a scorer: derive from it, and add the keys of your own."""

    type: Text


class ProposerSpec(SpecModel):
    """The spec of a proposer: derive from it, and add the keys of your own."""

    kind: Text


class ModelBlock(Protocol):
    """A model as a spec names it."""

    @property
    def name(self) -> str:
        """`provider/model`."""
        ...

    def config(self, folder: Path) -> ModelConfig:
        """The model's config; paths begin in a folder."""
        ...


@dataclass(frozen=True, slots=True)
class ModelNeed:
    """A model that a component asks."""

    role: Role
    named: ModelBlock | None = None
    """The model that the component's spec names; None for the model of the role."""
    by_agent: str = ""
    """The agent CLI that asks it, whose calls are not seen one by one."""
    instead: Role | None = None
    """The role whose model is asked where its own role has none."""

    def resolve(self, models: ModelsSpec, folder: Path) -> tuple[Role, ModelConfig] | None:
        """The role and config of the model; None where no model is named.

        An optimizer that no spec names is the one of KEPT_MODEL; a `SetupError` where that is none.
        """
        if self.named is not None:
            return self.role, self.named.config(folder)
        for role in (self.role, self.instead):
            block: ModelBlock | None = getattr(models, role) if role is not None else None
            if role is not None and block is not None:
                return role, block.config(folder)
        named = settings.model() if self.role == "optimizer" else None
        return (self.role, replace(config_of(named), folder=folder)) if named else None

    def config(self, models: ModelsSpec, folder: Path) -> ModelConfig | None:
        """The config of the model; None where no model is named."""
        found = self.resolve(models, folder)
        return None if found is None else found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a component uses, and what it costs at most."""

    models: tuple[ModelNeed, ...] = ()
    commands: tuple[str, ...] = ()
    """Command lines, functions and quoted file names. The files that they name decide what is
    measured: a runner must not see those of a scorer, and a resume compares them."""
    prompts: tuple[str, ...] = ()
    """Files that stand for Kept's own prompts."""
    folders: tuple[str, ...] = ()
    """Folders that commands run in."""
    case_fields: tuple[str, ...] = ()
    """Fields of a case that it uses."""
    assertions: tuple[str, ...] = ()
    """Fields of a case that hold assertions about the output."""
    worst_seconds: float = 0.0
    """The longest that one use can take."""
    worst_usd: float | None = 0.0
    """The most that one use can cost besides calls of models; None where it is not known."""
    metrics: tuple[str, ...] | None = None
    """The metrics that a scorer emits; None where only a run shows them."""


def joined(parts: Iterable[Needs]) -> Needs:
    """The needs of a component that uses several others side by side."""
    found = tuple(parts)
    worst = [one.worst_usd for one in found]
    return Needs(
        models=tuple(model for one in found for model in one.models),
        commands=tuple(line for one in found for line in one.commands),
        prompts=tuple(file for one in found for file in one.prompts),
        folders=tuple(folder for one in found for folder in one.folders),
        case_fields=tuple(dict.fromkeys(name for one in found for name in one.case_fields)),
        assertions=tuple(dict.fromkeys(name for one in found for name in one.assertions)),
        worst_seconds=max((one.worst_seconds for one in found), default=0.0),
        worst_usd=None if None in worst else sum(usd for usd in worst if usd is not None),
    )


@dataclass(frozen=True, slots=True)
class CheckContext:
    """One place of a spec, with what a check may compare it with."""

    source: Source
    loc: Loc
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Artifacts by path; empty where they could not be read."""
    cases: Cases | None = None
    """None where there are no cases, or where they could not be read."""
    metric: str = ""
    """The metric of the objective, where this component alone emits it."""
    shown: tuple[str, ...] = ()
    """Fields of a case that the runner's model or agent sees."""
    given: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of each case, the files that an agent is given; the check of a runner fills it."""
    found: dict[str, Read] = field(default_factory=dict[str, Read])
    """Texts that the check read, by the names that a person knows them by. `build` gets them, and a
    resume compares them."""

    @property
    def folder(self) -> Path:
        """The folder of the spec, where its paths begin."""
        return self.source.folder

    @property
    def has_cases(self) -> bool:
        """True where the spec has a section `cases`, right or wrong."""
        return said(self.source, ("cases",)) is not None

    def said(self, *keys: str | int) -> object:
        """The value of a key below this component, right or wrong."""
        return said(self.source, (*self.loc, *keys))

    def elsewhere(self, *keys: str) -> object:
        """The value at a place of the whole spec, right or wrong."""
        return said(self.source, keys)

    def at(self, *keys: str | int) -> Loc:
        """The place of a key below this component."""
        return (*self.loc, *keys)

    def report(self, keys: Loc | str, message: str, hint: str | None = None) -> None:
        """Report a problem with a key of this component."""
        below = (keys,) if isinstance(keys, str) else keys
        self.source.report((*self.loc, *below), message, hint)

    def check_emitted(self, kind: str, metrics: Iterable[str]) -> None:
        """Report an objective whose metric this component does not emit."""
        emitted = tuple(metrics)
        if emitted and self.metric and self.metric not in emitted:
            hint = f"it emits {', '.join(emitted)}"
            message = f"the scorer `{kind}` does not emit `{self.metric}`"
            self.source.report(("objective", "primary_metric"), message, hint)


class Sandboxing(Protocol):
    """Puts the commands of a run into its sandbox."""

    def runner(self, command: Command) -> Command:
        """A command of a runner or a proposer, which sees nothing of the scorer."""
        ...

    def scorer(self, command: Command) -> Command:
        """A command of a scorer."""
        ...

    def agent(self, command: Command, program: Program | None) -> Command:
        """A command that starts an agent CLI."""
        ...


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What components are built with: picklable data, and services that each process makes.

    Another process builds the same component from the same spec and context. `scratch` is a
    service: pickled, it becomes a new one.
    """

    folder: Path
    seed: Candidate
    sandbox: Sandboxing
    scratch: Scratch
    models: ModelsSpec = field(default_factory=ModelsSpec)
    metric: str = "score"
    """The metric of the objective: what a bare number means."""
    rubric: str = ""
    """Notes for judges."""
    shown: tuple[str, ...] = ()
    """Fields of a case that the runner's model or agent sees."""
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Of each case, the files that an agent is given."""
    measures_usage: bool = False
    """True where cases assert what an answer takes or costs."""
    max_output: int = MAX_OUTPUT
    """Bytes that a command may leave."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """The artifacts that may be edited."""
    found: Mapping[str, Read] = field(default_factory=dict[str, Read])
    """Texts that the check of this component read."""
    name: str = ""
    """The name of a proposer, unique within its run."""


class Component(Generic[SpecT, Built]):
    """One kind of runner, scorer or proposer. Has no state: all that it needs comes as arguments.

    A subclass names its `Spec`, and defines `build`; the rest has defaults.
    """

    Spec: type[SpecT]
    parts: tuple[str, str] | None = None
    """The key of a list, and the key in each row that holds another component of this group."""

    def read(self, given: object) -> SpecT | None:
        """The spec as far as `check` can use it; None where it is too wrong for that."""
        try:
            return self.Spec.model_validate(given)
        except ValidationError:
            return None  # reported when the spec was validated

    def check(self, spec: SpecT, context: CheckContext) -> None:
        """Report what is wrong with a spec whose values are each right: files, fields, models."""
        metrics = self.needs(spec).metrics
        if metrics is not None:
            context.check_emitted(str(getattr(spec, "type", "")), metrics)

    def build(self, spec: SpecT, context: BuildContext) -> Built:
        """The component that a spec describes."""
        raise NotImplementedError

    def needs(self, spec: SpecT) -> Needs:
        """What the component uses, and what it costs at most."""
        return Needs()

    def prompt_places(self, given: dict[str, object]) -> Iterator[tuple[Name, dict[str, object]]]:
        """The mappings that may name a file in `prompt`, each with Kept's own prompt there.

        `given` is what a spec says, right or wrong.
        """
        return iter(())

    def warnings(self, spec: SpecT, context: BuildContext) -> Iterable[str]:
        """What should be known before a run."""
        return ()


class Registry(Generic[Built]):
    """The components of one group, by name; the annotation of a field that holds one's spec."""

    def __init__(
        self,
        group: str,
        own: Mapping[str, str],
        key: str = "type",
        default: Callable[[Mapping[str, object]], str | None] = lambda given: None,
    ) -> None:
        """`own` are Kept's, each as `module:Class`; `default` is the name of a mapping without one.

        Keys of specs name their component: `type`, or `kind`.
        """
        self.group = group
        self._own = own
        self._key = key
        self._default = default
        self._loaded: dict[str, Component[SpecModel, Built]] = {}

    @cached_property
    def _others(self) -> Mapping[str, EntryPoint]:
        """Those of other packages; a name of Kept's own stays Kept's."""
        found = {one.name: one for one in entry_points(group=self.group)}
        return {name: one for name, one in sorted(found.items()) if name not in self._own}

    @property
    def names(self) -> list[str]:
        """The names of all components: Kept's own, then those of other packages."""
        return [*self._own, *self._others]

    def get(self, name: str) -> Component[SpecModel, Built]:
        """A component by its name.

        Raises `KeyError` for an unknown name, and `ValueError` for a component that cannot be used.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def of(self, spec: SpecModel) -> Component[SpecModel, Built]:
        """The component that a spec was validated for."""
        return self.get(self.name(spec))

    def name(self, spec: SpecModel) -> str:
        """The name by which a spec means its component."""
        return getattr(spec, self._key)

    def needs(self, spec: SpecModel) -> Needs:
        """The needs of the component that a spec describes."""
        return self.of(spec).needs(spec)

    def build(self, spec: SpecModel, context: BuildContext) -> Built:
        """The component that a spec describes."""
        return self.of(spec).build(spec, context)

    def validate(self, given: object) -> SpecModel:
        """The spec of the component that a mapping names; a `ValueError` where it is none."""
        if isinstance(given, SpecModel):
            return given
        if not isinstance(given, dict):
            raise PydanticKnownError("dict_type")
        row = cast("dict[str, object]", given)
        name = self.name_in(row)
        if name is None:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": f"'{self._key}'"})
        try:
            component = self.get(name)
        except KeyError:
            known = ", ".join(f"'{one}'" for one in self.names)
            faults = {"discriminator": f"'{self._key}'", "tag": name, "expected_tags": known}
            raise PydanticKnownError("union_tag_invalid", faults) from None
        try:
            return component.Spec.model_validate(row)
        except ValidationError as error:
            # the name stands in front, as for a member of a union
            told = error.errors(include_url=False)
            below = [{**fault, "loc": (name, *fault["loc"])} for fault in told]
            details = cast("list[InitErrorDetails]", below)
            raise ValidationError.from_exception_data(error.title, details) from error

    def name_in(self, given: object) -> str | None:
        """The name of the component that a mapping means; None where it says none."""
        if not isinstance(given, dict):
            return None
        row = cast("dict[str, object]", given)
        name = row[self._key] if self._key in row else self._default(row)
        return name if isinstance(name, str) or name is None else str(name)

    def section(self, source: Source, loc: Loc) -> SpecModel | None:
        """The spec at a place of a source; None where it has problems, which are not reported."""
        try:
            return self.validate(said(source, loc))
        except ValueError:
            return None

    def places(self, source: Source, loc: Loc) -> Iterator[Loc]:
        """The place of a component, and those of its parts, whether right or wrong."""
        yield loc
        given = said(source, loc)
        component = self._known(self.name_in(given))
        if component is None or component.parts is None or not isinstance(given, dict):
            return
        rows, key = component.parts
        parts = cast("dict[str, object]", given).get(rows)
        for number in range(len(cast("list[object]", parts)) if isinstance(parts, list) else 0):
            yield from self.places(source, (*loc, rows, number, key))

    def check(self, context: CheckContext, given: object = None) -> SpecModel | None:
        """Check the component at a place, as far as it can be read; the spec that was checked.

        `given` stands for what the source has at the place.
        """
        given = said(context.source, context.loc) if given is None else given
        component = self._known(self.name_in(given))
        spec = component.read(given) if component is not None else None
        if component is not None and spec is not None:
            component.check(spec, context)
        return spec

    def prompt_places(self, source: Source, loc: Loc) -> Iterator[tuple[Name, dict[str, object]]]:
        """The mappings below a place that may name a file in `prompt`, as `Component` says."""
        for place in self.places(source, loc):
            given = said(source, place)
            component = self._known(self.name_in(given))
            if component is not None and isinstance(given, dict):
                yield from component.prompt_places(cast("dict[str, object]", given))

    def spec_of(self, name: object) -> type[SpecModel] | None:
        """The model of the spec of a component; None for an unknown name."""
        component = self._known(name) if isinstance(name, str) else None
        return None if component is None else component.Spec

    def _known(self, name: str | None) -> Component[SpecModel, Built] | None:
        try:
            return None if name is None else self.get(name)
        except (KeyError, ValueError):
            return None

    def _load(self, name: str) -> Component[SpecModel, Built]:
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            return cast("Component[SpecModel, Built]", getattr(import_module(module), attribute)())
        point = self._others[name]
        try:
            made: object = point.load()()
        except (ImportError, AttributeError, TypeError) as error:
            message = f"`{name}` of the package `{_package(point)}` cannot be loaded: {error}"
            raise ValueError(message) from error
        if not isinstance(made, Component):
            message = f"`{point.value}` of the package `{_package(point)}` is no component"
            raise ValueError(f"{message}: derive it from `kept.extend.Component`")
        return cast("Component[SpecModel, Built]", made)

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Have pydantic validate the field by `validate`, and dump it as what it is."""
        return core_schema.no_info_plain_validator_function(self.validate)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"
