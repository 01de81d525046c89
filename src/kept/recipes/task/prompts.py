"""Prompts of the user's own: a file for one model that is asked, or a folder for all of them.

`prompts: FOLDER` of a task is the same as naming, wherever a model is asked and no prompt is named,
the file of that folder that has the name of Kept's own. It is laid into the source before that is
read, so that nobody else needs to know of it. Of an agent it is what judges of metrics are told.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import cast

from kept.core.artifact import is_safe_path
from kept.evaluators.scorers.registry import SCORERS
from kept.models.prompts import METRICS, NAMES, Name
from kept.proposers.registry import PROPOSERS
from kept.spec.checks import read_prompt
from kept.spec.source import Source, shown
from kept.spec.validate import said


def take_prompts(source: Source) -> None:
    """Name the files of the folder `prompts` where no other is named."""
    folder = _folder(source)
    if folder is None:
        return
    files = _check_names(source, folder)
    for name, place in _places(source):
        if f"{name}.md" in files and place.get("prompt") is None:
            place["prompt"] = f"{folder}/{name}.md"


def metric_prompts(source: Source) -> dict[Name, str]:
    """What judges of metrics are told by the folder of an agent; what is wrong is reported."""
    check_prompts_folder(source)
    folder = _folder(source)
    if folder is not None:
        _check_names(source, folder)
    found: dict[Name, str] = {}
    for name, file in metric_prompt_files(source).items():
        text = read_prompt(source, ("prompts",), file, name)
        if text is not None:
            found[name] = text
    return found


def metric_prompt_files(source: Source) -> dict[Name, str]:
    """The files that stand for Kept's own, where judges of metrics are asked."""
    found: dict[Name, str] = {}
    for name in METRICS:
        if (file := prompt_in_folder(source, name)) is not None:
            found[name] = file
    return found


def _check_names(source: Source, folder: str) -> list[str]:
    """The files of a folder; one that has the name of no prompt is reported."""
    files = sorted(path.name for path in (source.folder / folder).iterdir() if path.suffix == ".md")
    for file in files:
        if file.removesuffix(".md") not in NAMES:
            near = get_close_matches(file, [f"{name}.md" for name in NAMES], n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(NAMES)}"
            source.report(("prompts",), f"`{folder}/{file}` has the name of no prompt", hint)
    return files


def prompt_in_folder(source: Source, name: Name) -> str | None:
    """The file of the folder `prompts` that has this name, where there is one."""
    folder = _folder(source)
    file = f"{folder}/{name}.md"
    return file if folder is not None and (source.folder / file).is_file() else None


def _folder(source: Source) -> str | None:
    """The folder that a task names, if it is one; what is wrong with it is told elsewhere."""
    given = said(source, ("prompts",))
    if not isinstance(given, str) or not is_safe_path(given.rstrip("/")):
        return None
    folder = given.rstrip("/")
    return folder if (source.folder / folder).is_dir() else None


def check_prompts_folder(source: Source) -> None:
    """Report a folder that is not there."""
    given = said(source, ("prompts",))
    if isinstance(given, str) and is_safe_path(given.rstrip("/")) and _folder(source) is None:
        source.report(("prompts",), f"there is no folder `{given}`", _where_it_is(source, given))


def _where_it_is(source: Source, given: str) -> str:
    """The name that was meant, where the folder is there as seen from here; else how to make it."""
    here, base = Path(given).absolute(), source.folder.absolute()
    if here.is_dir() and here != base and here.is_relative_to(base):
        where = f"it is named as seen from {source.path.name}"
        return f"{where}: write `prompts: {here.relative_to(base)}`"
    return f"`kept prompts copy {shown(source.folder / given)}` makes it"


def _places(source: Source) -> Iterator[tuple[Name, dict[str, object]]]:
    """The mappings of a task that may name a prompt, each with Kept's own prompt there."""
    rows = said(source, ("proposers",))
    for at in range(len(cast("list[object]", rows)) if isinstance(rows, list) else 0):
        yield from PROPOSERS.prompt_places(source, ("proposers", at))
    yield from SCORERS.prompt_places(source, ("scorer",))
