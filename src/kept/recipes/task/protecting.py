"""From what a task says is protected to what no edit may touch."""

from collections.abc import Iterable, Mapping

from kept.core.protect import Heading, Protected, Region
from kept.core.text import sections
from kept.recipes.task.task import ProtectSpec
from kept.spec.source import Source
from kept.spec.yaml import Loc


def make_protected(spec: Iterable[ProtectSpec]) -> tuple[Protected, ...]:
    """What is protected, in every artifact that has it."""
    return tuple(map(_made, spec))


def _made(spec: ProtectSpec) -> Protected:
    if spec.section is not None:
        return Heading(spec.section)
    assert spec.begin is not None and spec.end is not None, "marks are two"
    return Region(spec.begin, spec.end)


def check_protected(source: Source, spec: Iterable[ProtectSpec], texts: Mapping[str, str]) -> None:
    """Report what is to be protected and stands nowhere: a misspelt mark protects nothing."""
    for number, one in enumerate(spec if texts else ()):
        loc = ("mutation", "protect", number)
        match _made(one):
            case Heading() as heading:
                _check_heading(source, (*loc, "section"), heading, texts)
            case Region() as region:
                _check_region(source, loc, region, texts)


def _check_heading(source: Source, loc: Loc, heading: Heading, texts: Mapping[str, str]) -> None:
    if not any(heading.stretches(text) for text in texts.values()):
        titles = dict.fromkeys(s.title for text in texts.values() for s in sections(text))
        hint = f"there are {', '.join(list(titles)[:12])}" if titles else "there are no headings"
        source.report(loc, f"no artifact has a section `{heading.title}`", hint)


def _check_region(source: Source, loc: Loc, region: Region, texts: Mapping[str, str]) -> None:
    found = {name: region.stretches(text) for name, text in texts.items()}
    if not any(found.values()):
        source.report((*loc, "begin"), f"no artifact has the mark `{region.begin}`")
    for name, stretches in found.items():
        if stretches and not stretches[-1].endswith(region.end):
            message = f"`{name}` has `{region.begin}` and no `{region.end}` behind it"
            source.report((*loc, "end"), message, "the rest of the file would be protected")
