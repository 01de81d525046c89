"""From what a task says about guards to guards."""

from collections.abc import Collection, Iterator, Mapping

from kept.core.case import Cases
from kept.core.copying import copy_guard
from kept.core.guard import EmptyGuard, LengthGuard, SectionsGuard, StuffingGuard
from kept.core.ports import Guard
from kept.core.text import sections, title_key
from kept.recipes.task.spec_guards import GuardsSpec, LengthGuardSpec, SectionsGuardSpec
from kept.spec.load import section
from kept.spec.source import Source


def make_guards(spec: GuardsSpec, cases: Cases, kinds: Collection[str]) -> tuple[Guard, ...]:
    """The guards of a task; some depend on the kinds of its proposers."""
    return tuple(_guards(spec, cases, kinds))


def _guards(spec: GuardsSpec, cases: Cases, kinds: Collection[str]) -> Iterator[Guard]:
    if "prune" in kinds:
        # two removals that are each fine leave nothing when one is rebased onto the other
        yield EmptyGuard()
    if spec.length is not None:
        yield _length(spec.length)
    if spec.stuffing is not None:
        yield StuffingGuard(spec.stuffing.max_density, spec.stuffing.max_repetition)
    if spec.sections is not None:
        keep = spec.sections.keep
        yield SectionsGuard(None if keep == "all" else keep, spec.sections.max_level)
    if spec.copied is not None and not cases.implicit:
        said = spec.copied.allow_train
        # putting train cases into the text is what `demos` is for
        yield copy_guard(cases, allow_train="demos" in kinds if said is None else said)


def _length(spec: LengthGuardSpec) -> LengthGuard:
    unsaid = spec.max_growth is None and spec.max_tokens is None and spec.max_chars is None
    return LengthGuard(3.0 if unsaid else spec.max_growth, spec.max_tokens, spec.max_chars)


def check_guards(source: Source, texts: Mapping[str, str]) -> None:
    """Report sections that are to be kept and that no artifact has."""
    spec = section(source, ("guards", "sections"), SectionsGuardSpec)
    if spec is None or not texts:
        return
    keep, deepest = spec.keep, spec.max_level
    found = [s for text in texts.values() for s in sections(text) if s.level <= deepest]
    have = {one.key: one.title for one in found}
    if keep == "all":
        if not have:
            source.report(("guards", "sections"), "no artifact has a heading to keep")
        return
    for number, title in enumerate(keep):
        if title_key(title) not in have:
            hint = f"there are {', '.join(have.values())}" if have else "there are no headings"
            loc = ("guards", "sections", "keep", number)
            source.report(loc, f"no artifact has a section `{title}`", hint)
