"""The runner, the scorer and the proposers of a task, checked and built.

`mutation.mode: direct_edit` without `proposers` means one model-based proposer with defaults.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import cast

from kept.core.case import Cases, implicit_cases
from kept.core.ports import Proposer
from kept.evaluators.runners.registry import RUNNERS, runner_needs
from kept.evaluators.scorers.registry import SCORERS
from kept.proposers.registry import PROPOSERS
from kept.recipes.task.prompts import prompt_in_folder
from kept.recipes.task.spec import MutationSpec, TaskSpec
from kept.spec.command_lines import check_script
from kept.spec.components import BuildContext, CheckContext, Needs, Read
from kept.spec.source import Source
from kept.spec.validate import SpecModel, check_folder, said, section
from kept.spec.yaml import Loc

_RUNNER = ("runner",)
_SCORER = ("scorer",)
_DIRECTLY = ("mutation", "mode")


def check_runner(
    source: Source, texts: Mapping[str, str], cases: Cases | None
) -> dict[str, tuple[str, ...]]:
    """Report problems of a runner; returns the files that an agent gets for each case."""
    check_folder(source, (*_RUNNER, "cwd"))
    check_script(source, _RUNNER)
    context = CheckContext(source, _RUNNER, texts, cases)
    RUNNERS.check(context)
    return context.given


def check_scorer(source: Source, texts: Mapping[str, str], cases: Cases | None) -> None:
    """Report problems of a scorer and of its parts."""
    named = said(source, ("objective", "primary_metric"))
    metric = named if isinstance(named, str) else ""
    for loc in SCORERS.places(source, _SCORER):
        check_folder(source, (*loc, "cwd"))
        check_script(source, loc)
        # a part of a scorer does not have to give the primary metric
        whole = metric if loc == _SCORER else ""
        SCORERS.check(CheckContext(source, loc, texts, cases, metric=whole))


@dataclass(frozen=True, slots=True)
class Proposing:
    """Checked proposers of a task, ready to be built."""

    specs: tuple[SpecModel, ...] = ()
    found: tuple[Mapping[str, Read], ...] = ()
    """Texts that the check of each proposer read; the run depends on them."""

    @property
    def kinds(self) -> list[str]:
        """Kind of each proposer."""
        return [PROPOSERS.name(spec) for spec in self.specs]

    @property
    def names(self) -> list[str]:
        """Unique name of each proposer: its kind, numbered from the second of a kind on."""
        kinds = self.kinds
        nth = [kinds[: at + 1].count(kind) for at, kind in enumerate(kinds)]
        return [f"{k}-{n}" if n > 1 else k for k, n in zip(kinds, nth, strict=True)]

    @property
    def needs(self) -> list[Needs]:
        """Needs of each proposer."""
        return [PROPOSERS.needs(spec) for spec in self.specs]

    @property
    def own_prompts(self) -> dict[str, str]:
        """Prompt files of the user's own, by the name of their proposer."""
        rows = zip(self.names, self.needs, strict=True)
        return {name: needs.prompts[0] for name, needs in rows if needs.prompts}

    def build(self, context: BuildContext) -> tuple[Proposer, ...]:
        """Build the proposers, each with a unique name."""
        rows = zip(self.specs, self.names, self.found, strict=True)
        return tuple(
            PROPOSERS.build(spec, replace(context, name=name, found=found))
            for spec, name, found in rows
        )

    def warnings(self, context: BuildContext) -> Iterator[str]:
        """Yield what the user should know of them before a run."""
        for spec in self.specs:
            yield from PROPOSERS.of(spec).warnings(spec, context)


def edits_directly(source: Source) -> bool:
    """True if a task leaves all proposals to a model that edits."""
    mutation = section(source, ("mutation",), MutationSpec)
    named = said(source, ("proposers",)) is not None
    return not named and mutation is not None and mutation.mode == "direct_edit"


def check_proposers(source: Source) -> None:
    """Report a task without a proposer."""
    if said(source, ("proposers",)) is None and not edits_directly(source):
        source.report(("proposers",), "missing", "without one nothing is ever proposed")


def read_proposers(source: Source, texts: Mapping[str, str], cases: Cases | None) -> Proposing:
    """Check the proposers of a spec, read all that they name, and report problems.

    Cases that the spec names and that could not be read are not reported again.
    """
    data = cast("dict[str, object]", source.data)
    if cases is None and data.get("cases") is None:
        cases = implicit_cases()
    shown = runner_needs(source).case_fields
    specs: list[SpecModel] = []
    found: list[Mapping[str, Read]] = []
    for loc, given in _rows(source):
        context = CheckContext(source, loc, texts, cases, shown=shown)
        spec = PROPOSERS.check(context, given)
        if spec is not None:
            specs.append(spec)
            found.append(context.found)
    return Proposing(tuple(specs), tuple(found))


def _rows(source: Source) -> Iterator[tuple[Loc, object]]:
    """Yield the place of each proposer in the spec, with its value."""
    if edits_directly(source):
        yield _DIRECTLY, {"kind": "edit", "prompt": prompt_in_folder(source, "edit")}
    rows = said(source, ("proposers",))
    for at, row in enumerate(cast("list[object]", rows) if isinstance(rows, list) else ()):
        yield ("proposers", at), row


def needs_of(task: TaskSpec, proposing: Proposing) -> list[Needs]:
    """Return the needs of the runner, the scorer and the proposers of a task."""
    return [RUNNERS.needs(task.runner), SCORERS.needs(task.scorer), *proposing.needs]
