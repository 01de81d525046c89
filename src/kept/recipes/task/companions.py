"""Files that go with a task by their names: what is read beside it, what is written beside it."""

from collections.abc import Collection
from pathlib import Path

from kept.recipes.task.task import LoggingSpec
from kept.spec.files import read_text
from kept.spec.load import section
from kept.spec.source import Source
from kept.store.files import link_in
from kept.store.results import is_results_file

GUIDANCE = {"instruction": "prompt.md", "rubric": "rubric.md"}
"""What a brief calls it, and the file of the task's folder that holds it."""


def read_guidance(source: Source, artifacts: Collection[str]) -> dict[str, str]:
    """What the task's folder says to whoever proposes and judges.

    A file that is an artifact is what the run improves, and not what it is told.
    """
    found: dict[str, str] = {}
    for name, file in GUIDANCE.items():
        path = source.folder / file
        if path.is_file() and file not in artifacts:
            text = read_text(source, (), path)
            if text is not None:
                found[name] = text
    return found


def check_outputs(source: Source, artifacts: Collection[str]) -> None:
    """Refuse to write where something stands that is not ours."""
    first = section(source, ("logging",), LoggingSpec, unread=("candidate_dir",))
    second = section(source, ("logging",), LoggingSpec, unread=("results_file",))
    results = first.results_file if first else None
    candidates = second.candidate_dir if second else None
    if results is not None:
        loc, path = ("logging", "results_file"), source.folder / results
        _check_place(source, loc, path)
        if path.is_dir():
            source.report(
                loc, f"`{results}` is a folder", f"name a file, as in `{results}/results.jsonl`"
            )
        elif results in artifacts or (path.exists() and not is_results_file(path)):
            hint = "name another file: this one would be written to"
            source.report(loc, f"`{results}` is there and holds something else", hint)
    if candidates is not None:
        loc, path = ("logging", "candidate_dir"), source.folder / candidates
        _check_place(source, loc, path)
        if path.exists() and not path.is_dir():
            source.report(loc, f"`{candidates}` is a file, where a folder was expected")
        inside = [name for name in artifacts if name.startswith(f"{candidates}/")]
        if inside:
            source.report(loc, f"`{candidates}` holds the artifact `{inside[0]}`")


def _check_place(source: Source, loc: tuple[str, str], path: Path) -> None:
    if (link := link_in(path, source.folder)) is not None:
        hint = "name a place that no link leads to: nothing is written through links"
        source.report(loc, f"`{link.relative_to(source.folder)}` is a link", hint)
