"""Guards and protected regions from the spec of a task."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kept.core.artifact import Heading, Protected, Region
from kept.core.case import Cases
from kept.core.guards import EmptyGuard, LengthGuard, SectionsGuard, StuffingGuard, copy_guard
from kept.core.ports import Guard
from kept.core.text import sections, title_key
from kept.recipes.task.spec import GuardsSpec, ProtectSpec, SectionsGuardSpec
from kept.spec.source import Source
from kept.spec.validate import section
from kept.spec.yaml import Loc


def make_guards(spec: GuardsSpec, cases: Cases, kinds: Collection[str]) -> tuple[Guard, ...]:
    """Build the guards of a task; some depend on the kinds of its proposers."""
    return tuple(_guards(spec, cases, kinds))


def _guards(spec: GuardsSpec, cases: Cases, kinds: Collection[str]) -> Iterator[Guard]:
    if "prune" in kinds:
        # two valid removals can leave nothing if one is rebased onto the other
        yield EmptyGuard()
    length = spec.length
    if length is not None:
        limits = (length.max_growth, length.max_tokens, length.max_chars)
        unsaid = all(limit is None for limit in limits)
        # the default limit is 3 times the seed
        yield LengthGuard(3.0 if unsaid else length.max_growth, *limits[1:])
    if spec.stuffing is not None:
        yield StuffingGuard(spec.stuffing.max_density, spec.stuffing.max_repetition)
    if spec.sections is not None:
        keep = spec.sections.keep
        yield SectionsGuard(None if keep == "all" else keep, spec.sections.max_level)
    if spec.copied is not None and not cases.implicit:
        said = spec.copied.allow_train
        # `demos` is meant to copy train cases into the text
        yield copy_guard(cases, allow_train="demos" in kinds if said is None else said)


def check_guards(source: Source, texts: Mapping[str, str]) -> None:
    """Report sections to keep that no artifact has."""
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


def make_protected(spec: Iterable[ProtectSpec]) -> tuple[Protected, ...]:
    """Build the protected parts, which apply to every artifact that has them."""
    return tuple(map(_made, spec))


def _made(spec: ProtectSpec) -> Protected:
    if spec.section is not None:
        return Heading(spec.section)
    assert spec.begin is not None and spec.end is not None, "marks are two"
    return Region(spec.begin, spec.end)


def check_protected(source: Source, spec: Iterable[ProtectSpec], texts: Mapping[str, str]) -> None:
    """Report protected parts that no artifact has: a misspelt mark protects nothing."""
    for number, one in enumerate(spec if texts else ()):
        loc = ("mutation", "protect", number)
        match _made(one):
            case Heading() as heading:
                if not any(heading.stretches(text) for text in texts.values()):
                    titles = dict.fromkeys(
                        s.title for text in texts.values() for s in sections(text)
                    )
                    known = f"there are {', '.join(list(titles)[:12])}"
                    hint = known if titles else "there are no headings"
                    message = f"no artifact has a section `{heading.title}`"
                    source.report((*loc, "section"), message, hint)
            case Region() as region:
                _check_region(source, loc, region, texts)


def _check_region(source: Source, loc: Loc, region: Region, texts: Mapping[str, str]) -> None:
    found = {name: region.stretches(text) for name, text in texts.items()}
    if not any(found.values()):
        source.report((*loc, "begin"), f"no artifact has the mark `{region.begin}`")
    for name, stretches in found.items():
        if stretches and not stretches[-1].endswith(region.end):
            message = f"`{name}` has `{region.begin}` and no `{region.end}` behind it"
            source.report((*loc, "end"), message, "the rest of the file would be protected")
