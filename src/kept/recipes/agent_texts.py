"""The prompts of an agent run: Kept's own, or files of a folder that stand for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kept.agents.texts import ARTIFACTS, ROLES, own_artifacts, own_prompts
from kept.prompts import RUN
from kept.spec.load import said
from kept.spec.source import Source


@dataclass(frozen=True, slots=True)
class RunTexts:
    """What models are told in a run."""

    prompts: Mapping[str, str]
    """Of manager, worker and critic."""
    artifacts: Mapping[str, str]
    """The six that can be improved."""


def run_texts(source: Source) -> RunTexts:
    """All of them; what is wrong with those of a folder is reported."""
    prompts, artifacts = own_prompts(), own_artifacts()
    given = said(source, ("prompts",))
    if not isinstance(given, str) or not given:
        return RunTexts(prompts, artifacts)
    folder = source.folder / given
    if not folder.is_dir():
        hint = f"`kept prompts copy {given} {' '.join(RUN[:3])}` makes one"
        source.report(("prompts",), f"there is no folder `{given}`", hint)
        return RunTexts(prompts, artifacts)
    # at use: it takes longer to import than most runs need for all else, and few have a folder
    from kept.recipes.prompting import read_prompt

    _check_names(source, folder)
    for name in RUN:
        path = folder / f"{name}.md"
        text = (
            read_prompt(source, ("prompts",), f"{given}/{name}.md", name)
            if path.is_file()
            else None
        )
        if text is not None:
            (artifacts if name in ARTIFACTS else prompts)[name] = text
    assert set(prompts) == set(ROLES), "no other prompt is asked for"
    return RunTexts(prompts, artifacts)


def _check_names(source: Source, folder: Path) -> None:
    for path in sorted(folder.glob("*.md")):
        if path.stem not in RUN:
            near = get_close_matches(path.stem, RUN, n=1)
            hint = f"did you mean `{near[0]}.md`?" if near else f"there are {', '.join(RUN)}"
            source.report(("prompts",), f"`{path.name}` is no prompt of an agent run", hint)
