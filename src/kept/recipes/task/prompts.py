"""The user's own prompts: a file for one model, or a folder for all models of a task.

`prompts: FOLDER` stands for a `prompt` at each place that asks a model and names none. The file has
the name of Kept's own prompt. The names are put into the source before it is read, so that no other
module needs to know of the folder. For an agent, the folder has the prompts of metric judges.
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
    """Put the files of the folder `prompts` where the task names no other prompt."""
    folder = _folder(source)
    if folder is None:
        return
    files = _check_names(source, folder)
    for name, place in _places(source):
        if f"{name}.md" in files and place.get("prompt") is None:
            place["prompt"] = f"{folder}/{name}.md"


def metric_prompts(source: Source) -> dict[Name, str]:
    """Read the prompts of metric judges from an agent's folder; report problems."""
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
    """Return the files that replace Kept's own prompts for judges of metrics."""
    found: dict[Name, str] = {}
    for name in METRICS:
        if (file := prompt_in_folder(source, name)) is not None:
            found[name] = file
    return found


def _check_names(source: Source, folder: str) -> list[str]:
    """Return the Markdown files of a folder; report those without the name of a prompt."""
    files = sorted(path.name for path in (source.folder / folder).iterdir() if path.suffix == ".md")
    for file in files:
        if file.removesuffix(".md") not in NAMES:
            near = get_close_matches(file, [f"{name}.md" for name in NAMES], n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(NAMES)}"
            source.report(("prompts",), f"`{folder}/{file}` has the name of no prompt", hint)
    return files


def prompt_in_folder(source: Source, name: Name) -> str | None:
    """Return the file of this name in the folder `prompts`; None if there is none."""
    folder = _folder(source)
    file = f"{folder}/{name}.md"
    return file if folder is not None and (source.folder / file).is_file() else None


def _folder(source: Source) -> str | None:
    """Return the folder that a task names, if it exists; problems are reported elsewhere."""
    given = said(source, ("prompts",))
    if not isinstance(given, str) or not is_safe_path(given.rstrip("/")):
        return None
    folder = given.rstrip("/")
    return folder if (source.folder / folder).is_dir() else None


def check_prompts_folder(source: Source) -> None:
    """Report a folder that does not exist."""
    given = said(source, ("prompts",))
    if isinstance(given, str) and is_safe_path(given.rstrip("/")) and _folder(source) is None:
        source.report(("prompts",), f"there is no folder `{given}`", _where_it_is(source, given))


def _where_it_is(source: Source, given: str) -> str:
    """Return a hint: the right path, if the folder exists as seen from here, or how to make it."""
    here, base = Path(given).absolute(), source.folder.absolute()
    if here.is_dir() and here != base and here.is_relative_to(base):
        where = f"it is named as seen from {source.path.name}"
        return f"{where}: write `prompts: {here.relative_to(base)}`"
    return f"`kept prompts copy {shown(source.folder / given)}` makes it"


def _places(source: Source) -> Iterator[tuple[Name, dict[str, object]]]:
    """Yield the mappings of a task that may name a prompt, with the name of Kept's own."""
    rows = said(source, ("proposers",))
    for at in range(len(cast("list[object]", rows)) if isinstance(rows, list) else 0):
        yield from PROPOSERS.prompt_places(source, ("proposers", at))
    yield from SCORERS.prompt_places(source, ("scorer",))
