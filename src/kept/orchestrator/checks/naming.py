"""Which files a run owes: what its plan names, else what the words of plan and task name.

Pure. A path is below the output folder; what leads out of it is no deliverable.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from kept.core.artifact import is_safe_path
from kept.orchestrator.record import Subtask

_PLACE = re.compile(r"(?:\b_?(?:output|workspace)(?:_dir)?/)+")
_NAME = r"[\w][\w.\-/]*\.[A-Za-z][A-Za-z0-9]{0,4}"
_PATH = re.compile(rf"(?<![\w/.:@-])(?:`|'|\")?((?:_?(?:output|workspace)(?:_dir)?/)?{_NAME})\b")
_MAKES = re.compile(
    r"\b(create|generate|produce|write|render|build|compile|save|export|erzeuge|kompiliere)\w*\b",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_ENDING = re.compile(r"(?<![\w.])\.([a-z][a-z0-9]{1,4})\b|\b[\w-]+\.([a-z][a-z0-9]{1,4})\b")
KINDS = {
    "csv": (".csv",),
    "docx": (".docx",),
    "html": (".html", ".htm"),
    "json": (".json",),
    "latex": (".tex",),
    "markdown": (".md", ".markdown"),
    "md": (".md", ".markdown"),
    "pdf": (".pdf",),
    "png": (".png",),
    "pptx": (".pptx",),
    "svg": (".svg",),
    "xlsx": (".xlsx",),
    "yaml": (".yaml", ".yml"),
}
"""Words of a task that mean a kind of file, and how the names of such files end."""

_KNOWN = """
md markdown txt rst tex html htm css js mjs ts py ipynb sh json jsonl yaml yml toml ini cfg csv tsv
xml svg png jpg jpeg gif webp pdf docx xlsx pptx zip sql c h cpp java go rs rb php r jl bib log
"""
ENDINGS = frozenset(_KNOWN.split())
"""Ends of names that files have; `e.g` and `3.5` are none of them."""


def required_outputs(plan: Sequence[Subtask], task: str, inputs: Iterable[str]) -> tuple[str, ...]:
    """The paths that must be there: named by the plan, else by its words, else by the task's."""
    declared = [path for part in plan for path in part.required_outputs]
    if declared:
        # what a plan names is owed, also where the run was given an earlier version of it
        inputs = ()
    else:
        words = [text for part in plan for text in (*part.success_criteria, part.description)]
        declared = list(_named(words))
    if not declared:
        declared = list(_named([task]))
    given = set(inputs) | {path.rpartition("/")[2] for path in inputs}
    paths = dict.fromkeys(below_output(path) for path in declared)
    return tuple(path for path in paths if path not in given and is_safe_path(path))


def below_output(path: str) -> str:
    """A path as it stands in the output folder, however the plan spells that folder."""
    return _PLACE.sub("", path.strip().removeprefix("./"))


def _named(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for found in _PATH.finditer(_to_be_made(text)):
            if found[1].rpartition(".")[2].lower() in ENDINGS:
                yield found[1]


def _to_be_made(text: str) -> str:
    """Of each sentence, what follows a word for making something."""
    made: list[str] = []
    for sentence in _SENTENCE.split(text):
        verb = _MAKES.search(sentence)
        if verb is not None:
            made.append(sentence[verb.end() :])
    return "\n".join(made)


def wanted_endings(task: str, inputs: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """Kinds of files that a task asks for, each with the ends of names that would do."""
    made = _to_be_made(task)
    for path in inputs:
        made = made.replace(path, "").replace(path.rpartition("/")[2], "")
    kinds: dict[tuple[str, ...], None] = {}
    for word in re.findall(r"[A-Za-z]+", made):
        # `a JSON file`, and not the `json` of a sentence about something else
        if word.lower() in KINDS and (word.isupper() or word.lower() in ("markdown", "latex")):
            kinds[KINDS[word.lower()]] = None
    for found in _ENDING.finditer(made):
        end = (found[1] or found[2]).lower()
        if end in ENDINGS:
            kinds[KINDS.get(end, (f".{end}",))] = None
    return tuple(kinds)
