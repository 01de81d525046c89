"""Components that a spec names: runners, scorers, proposers and the like.

A component is a class with a `Spec` and the methods of `Component`. A spec is validated in two
passes: the first finds the component by its `type` (or `kind`). The second validates the mapping
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
"""A text that a check read, or several by the path of the artifact that each replaces."""


class ComponentSpec(SpecModel):
    """Base of the specs of runners and scorers; subclasses add their own keys."""

    type: Text


class ProposerSpec(SpecModel):
    """Base of the specs of proposers; subclasses add their own keys."""

    kind: Text


class ModelBlock(Protocol):
    """A model as a spec names it."""

    @property
    def name(self) -> str:
        """`provider/model`."""
        ...

    def config(self, folder: Path) -> ModelConfig:
        """The model's config; its paths are relative to `folder`."""
        ...


@dataclass(frozen=True, slots=True)
class ModelNeed:
    """A model that a component calls."""

    role: Role
    named: ModelBlock | None = None
    """Model named by the component's spec; None for the model of the role."""
    by_agent: str = ""
    """Agent CLI that calls it; its single calls are not visible to Kept."""
    instead: Role | None = None
    """Fallback role if its own role has no model."""

    def resolve(self, models: ModelsSpec, folder: Path) -> tuple[Role, ModelConfig] | None:
        """Return the role and config of the model; None if no model is named.

        The default optimizer is KEPT_MODEL's; `SetupError` if that is not a model.
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
        """Return the config of the model; None if no model is named."""
        found = self.resolve(models, folder)
        return None if found is None else found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Resources that a component uses, and its maximum cost."""

    models: tuple[ModelNeed, ...] = ()
    commands: tuple[str, ...] = ()
    """Command lines, functions and quoted file names. The files in them affect the measurement: a
    runner must not see those of a scorer, and a resume compares them."""
    prompts: tuple[str, ...] = ()
    """Files that replace Kept's own prompts."""
    folders: tuple[str, ...] = ()
    """Working folders of commands."""
    case_fields: tuple[str, ...] = ()
    """Fields of a case that it uses."""
    assertions: tuple[str, ...] = ()
    """Fields of a case that hold assertions about the output."""
    worst_seconds: float = 0.0
    """Maximum duration of one use, in seconds."""
    worst_usd: float | None = 0.0
    """Maximum cost of one use in US dollars, without model calls; None if unknown."""
    metrics: tuple[str, ...] | None = None
    """Metrics that a scorer emits; None if they are known only after a run."""


def joined(parts: Iterable[Needs]) -> Needs:
    """Combine the needs of parts that run side by side."""
    # side by side: the longest duration counts, costs add up
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
    """One place of a spec, with the data that a check may compare it with."""

    source: Source
    loc: Loc
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Artifacts by path; empty if they could not be read."""
    cases: Cases | None = None
    """None if there are no cases, or if they could not be read."""
    metric: str = ""
    """Metric of the objective, if only this component emits metrics; else empty."""
    shown: tuple[str, ...] = ()
    """Fields of a case that the runner's model or agent sees."""
    given: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Files that an agent receives, by case; filled by the check of a runner."""
    found: dict[str, Read] = field(default_factory=dict[str, Read])
    """Texts that the check read, by display name; used by `build`, compared by a resume."""

    @property
    def folder(self) -> Path:
        """Folder of the spec, to which its paths are relative."""
        return self.source.folder

    @property
    def has_cases(self) -> bool:
        """True if the spec has a section `cases`, valid or not."""
        return said(self.source, ("cases",)) is not None

    def said(self, *keys: str | int) -> object:
        """Value of a key below this component, valid or not."""
        return said(self.source, (*self.loc, *keys))

    def elsewhere(self, *keys: str) -> object:
        """Value at a place of the whole spec, valid or not."""
        return said(self.source, keys)

    def at(self, *keys: str | int) -> Loc:
        """Place of a key below this component."""
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
        """Sandbox a command of a runner or proposer, which must not see the scorer."""
        ...

    def scorer(self, command: Command) -> Command:
        """Sandbox a command of a scorer."""
        ...

    def agent(self, command: Command, program: Program | None) -> Command:
        """Sandbox a command that starts an agent CLI."""
        ...


@dataclass(frozen=True, slots=True)
class BuildContext:
    """Inputs of `build`: picklable data, and services that each process creates for itself.

    Another process builds the same component from the same spec and context. `scratch` is a
    service: pickled, it becomes a new one.
    """

    folder: Path
    seed: Candidate
    sandbox: Sandboxing
    scratch: Scratch
    models: ModelsSpec = field(default_factory=ModelsSpec)
    metric: str = "score"
    """Metric of the objective, which a bare number is a value of."""
    rubric: str = ""
    """Notes for judges."""
    shown: tuple[str, ...] = ()
    """Fields of a case that the runner's model or agent sees."""
    given: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Files that an agent receives, by case."""
    measures_usage: bool = False
    """True if cases assert the time or cost of an answer."""
    max_output: int = MAX_OUTPUT
    """Maximum size of a command's output, in bytes."""
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Artifacts that may be edited, by path."""
    found: Mapping[str, Read] = field(default_factory=dict[str, Read])
    """Texts that the check of this component read."""
    name: str = ""
    """The name of a proposer, unique within its run."""


class Component(Generic[SpecT, Built]):
    """One kind of runner, scorer or proposer. It has no state; all data come as arguments.

    A subclass sets `Spec` and defines `build`; all other methods have defaults.
    """

    Spec: type[SpecT]
    parts: tuple[str, str] | None = None
    """The key of a list, and the key in each row that holds another component of this group."""

    def read(self, given: object) -> SpecT | None:
        """Read a spec for `check`; None if it is not valid enough for that."""
        try:
            return self.Spec.model_validate(given)
        except ValidationError:
            return None  # already reported by the validation of the spec

    def check(self, spec: SpecT, context: CheckContext) -> None:
        """Report problems beyond single values: missing files, fields, models, metrics."""
        metrics = self.needs(spec).metrics
        if metrics is not None:
            context.check_emitted(str(getattr(spec, "type", "")), metrics)

    def build(self, spec: SpecT, context: BuildContext) -> Built:
        """Build the component that a spec describes."""
        raise NotImplementedError

    def needs(self, spec: SpecT) -> Needs:
        """Resources that the component uses, and its maximum cost."""
        return Needs()

    def prompt_places(self, given: dict[str, object]) -> Iterator[tuple[Name, dict[str, object]]]:
        """Yield mappings that may name a file in `prompt`, each with the name of Kept's own prompt.

        `given` is the mapping in the spec, valid or not.
        """
        return iter(())

    def warnings(self, spec: SpecT, context: BuildContext) -> Iterable[str]:
        """Warnings to show before a run."""
        return ()


class Registry(Generic[Built]):
    """Components of one group by name; also the annotation of a field with a component's spec."""

    def __init__(
        self,
        group: str,
        own: Mapping[str, str],
        key: str = "type",
        default: Callable[[Mapping[str, object]], str | None] = lambda given: None,
    ) -> None:
        """`own` lists Kept's components as `module:Class`; `default` names unnamed mappings.

        `key` is the spec key that names the component: `type` or `kind`.
        """
        self.group = group
        self._own = own
        self._key = key
        self._default = default
        self._loaded: dict[str, Component[SpecModel, Built]] = {}

    @cached_property
    def _others(self) -> Mapping[str, EntryPoint]:
        """Components of other packages; they cannot replace Kept's own names."""
        found = {one.name: one for one in entry_points(group=self.group)}
        return {name: one for name, one in sorted(found.items()) if name not in self._own}

    @property
    def names(self) -> list[str]:
        """Names of all components: Kept's own, then those of other packages."""
        return [*self._own, *self._others]

    def get(self, name: str) -> Component[SpecModel, Built]:
        """Return a component by its name.

        Raises `KeyError` for an unknown name, and `ValueError` for a component that cannot be used.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def of(self, spec: SpecModel) -> Component[SpecModel, Built]:
        """Return the component that a spec was validated for."""
        return self.get(self.name(spec))

    def name(self, spec: SpecModel) -> str:
        """Name of the component of a spec."""
        return getattr(spec, self._key)

    def needs(self, spec: SpecModel) -> Needs:
        """Return the needs of the component that a spec describes."""
        return self.of(spec).needs(spec)

    def build(self, spec: SpecModel, context: BuildContext) -> Built:
        """Build the component that a spec describes."""
        return self.of(spec).build(spec, context)

    def validate(self, given: object) -> SpecModel:
        """Validate a mapping by the component that it names; raises `ValueError`."""
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
            # pydantic puts the member's name first for unions; `locate` expects it here too
            told = error.errors(include_url=False)
            below = [{**fault, "loc": (name, *fault["loc"])} for fault in told]
            details = cast("list[InitErrorDetails]", below)
            raise ValidationError.from_exception_data(error.title, details) from error

    def name_in(self, given: object) -> str | None:
        """Name of the component that a mapping names, or the default; None without one."""
        if not isinstance(given, dict):
            return None
        row = cast("dict[str, object]", given)
        name = row[self._key] if self._key in row else self._default(row)
        return name if isinstance(name, str) or name is None else str(name)

    def section(self, source: Source, loc: Loc) -> SpecModel | None:
        """Read the spec at a place of a source; None if it has problems, which are not reported."""
        try:
            return self.validate(said(source, loc))
        except ValueError:
            return None

    def places(self, source: Source, loc: Loc) -> Iterator[Loc]:
        """Yield the places of a component and of its parts, valid or not."""
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
        """Check the component at a place, as far as it can be read; return its spec.

        `given` replaces the value that the source has at the place.
        """
        given = said(context.source, context.loc) if given is None else given
        component = self._known(self.name_in(given))
        spec = component.read(given) if component is not None else None
        if component is not None and spec is not None:
            component.check(spec, context)
        return spec

    def prompt_places(self, source: Source, loc: Loc) -> Iterator[tuple[Name, dict[str, object]]]:
        """Yield the mappings below a place that may name a file in `prompt`, like `Component`."""
        for place in self.places(source, loc):
            given = said(source, place)
            component = self._known(self.name_in(given))
            if component is not None and isinstance(given, dict):
                yield from component.prompt_places(cast("dict[str, object]", given))

    def spec_of(self, name: object) -> type[SpecModel] | None:
        """Return the `Spec` class of a component; None for an unknown name."""
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
        """Let pydantic validate the field by `validate`."""
        return core_schema.no_info_plain_validator_function(self.validate)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "?"
