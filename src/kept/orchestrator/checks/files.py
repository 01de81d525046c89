"""Checks of files and replies: required deliverables, formats, confidence, repairs.

Required files come from the plan, else from the words of plan and task. Paths are relative to the
output folder; one that leads out of it is no deliverable. `deliverable_presence` checks the named
paths, `deliverable` the kinds of files that the task asks for. A run without files is never
complete.

Formats: empty or truncated files, and files of another type than their name, are refused if
useless. Oddities are only noted.

Rule R17: a worker's answer is an object, plain or under the worker's name. It has a confidence
and the requested fields.

Similarity is a 64-bit fingerprint. Unrelated texts share about half of the bits, near-copies
almost all. It is the same on every machine, because Python's own hash is not used.

Rule R35: a repair that is almost the same as the attempt before it ends the repairs. The subtask
has then failed, because another repair would be paid for without effect.
"""

import csv
import hashlib
import io
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from kept.core.artifact import is_safe_path
from kept.core.text import grams, words_of
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.text import flaw, suffix_of, text_of, told
from kept.orchestrator.record import Finding, Subtask

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
"""Words of a task that mean a kind of file, with the suffixes of such files."""

_KNOWN = """
md markdown txt rst tex html htm css js mjs ts py ipynb sh json jsonl yaml yml toml ini cfg csv tsv
xml svg png jpg jpeg gif webp pdf docx xlsx pptx zip sql c h cpp java go rs rb php r jl bib log
"""
ENDINGS = frozenset(_KNOWN.split())
"""Known file suffixes, so that `e.g` and `3.5` do not count as file names."""


def required_outputs(plan: Sequence[Subtask], task: str, inputs: Iterable[str]) -> tuple[str, ...]:
    """Return the required paths: declared by the plan, else named in its text, else in the task."""
    declared = [path for part in plan for path in part.required_outputs]
    if declared:
        # a path that the plan declares is required even if an earlier version was an input
        inputs = ()
    else:
        words = [text for part in plan for text in (*part.success_criteria, part.description)]
        declared = list(_named(words))
    if not declared:
        declared = list(_named([task]))
    # texts may mention an input by its bare name; that is no deliverable
    given = set(inputs) | {path.rpartition("/")[2] for path in inputs}
    paths = dict.fromkeys(below_output(path) for path in declared)
    return tuple(path for path in paths if path not in given and is_safe_path(path))


def below_output(path: str) -> str:
    """Return a path relative to the output folder, however the plan spells that folder."""
    return _PLACE.sub("", path.strip().removeprefix("./"))


def _named(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for found in _PATH.finditer(_to_be_made(text)):
            if found[1].rpartition(".")[2].lower() in ENDINGS:
                yield found[1]


def _to_be_made(text: str) -> str:
    """Return the part of each sentence after a verb of making, such as `create` or `write`."""
    made: list[str] = []
    for sentence in _SENTENCE.split(text):
        verb = _MAKES.search(sentence)
        if verb is not None:
            made.append(sentence[verb.end() :])
    return "\n".join(made)


def wanted_endings(task: str, inputs: Iterable[str] = ()) -> tuple[tuple[str, ...], ...]:
    """Return the kinds of files that a task asks for, each as its accepted suffixes."""
    made = _to_be_made(task)
    for path in inputs:
        made = made.replace(path, "").replace(path.rpartition("/")[2], "")
    kinds: dict[tuple[str, ...], None] = {}
    for word in re.findall(r"[A-Za-z]+", made):
        # `a JSON file` counts; a lower-case `json` may be about something else
        if word.lower() in KINDS and (word.isupper() or word.lower() in ("markdown", "latex")):
            kinds[KINDS[word.lower()]] = None
    for found in _ENDING.finditer(made):
        end = (found[1] or found[2]).lower()
        if end in ENDINGS:
            kinds[KINDS.get(end, (f".{end}",))] = None
    return tuple(kinds)


def owed(submission: Submission) -> tuple[str, ...]:
    """Return the paths that a submission must have."""
    return required_outputs(submission.plan, submission.task, submission.inputs)


def deliverable_presence(submission: Submission) -> CheckResult:
    """Require every named file, not empty, and at least one file in all."""
    paths, files = owed(submission), submission.files
    missing = [
        flaw(path, "is empty" if path in files else "is not in the output folder", "missing")
        for path in paths
        if not files.get(path)
    ]
    if missing:
        words = "; ".join(map(told, missing))
        return Rejected(reason=f"deliverables are missing: {words}", findings=tuple(missing))
    if any(files.values()):
        return Passed()
    if not paths and wanted_endings(submission.task, submission.inputs):
        reason = (
            "the task asks for a file and the plan names none: list it in `required_outputs` of"
            " a subtask, and have a worker write it to the output folder"
        )
        return Rejected(reason=reason)
    reason = "there is no deliverable: have a worker write the result to the output folder"
    return Rejected(reason=reason)


def deliverable(submission: Submission) -> CheckResult:
    """Require a non-empty file of every kind that the task asks for."""
    held = {suffix_of(path) for path, data in submission.files.items() if data}
    lacking = [
        ends
        for ends in wanted_endings(submission.task, submission.inputs)
        if not held.intersection(ends)
    ]
    if not lacking:
        return Passed()
    names = ", ".join(f"`{ends[0]}`" for ends in lacking)
    return Rejected(reason=f"the task asks for a file of this kind and there is none: {names}")


LEAST_PICTURE = 500
"""Minimum bytes of a picture that shows anything."""

LEAST_SIDE = 10
"""Minimum width and height in pixels of a picture that shows anything."""

_PNG = b"\x89PNG\r\n\x1a\n"
BEGINNINGS = {
    ".png": (_PNG,),
    ".jpg": (b"\xff\xd8\xff",),
    ".jpeg": (b"\xff\xd8\xff",),
    ".gif": (b"GIF87a", b"GIF89a"),
    ".pdf": (b"%PDF-",),
    ".docx": (b"PK\x03\x04",),
    ".xlsx": (b"PK\x03\x04",),
    ".pptx": (b"PK\x03\x04",),
    ".zip": (b"PK\x03\x04", b"PK\x05\x06"),
}
"""Magic bytes at the start of a file, by suffix."""

_EMPTY_IS_FINE = ("__init__.py", ".gitkeep", ".nojekyll", "py.typed")


def file(submission: Submission) -> CheckResult:
    """Refuse broken files."""
    declared = set(owed(submission))
    broken: list[Finding] = []
    notes: list[Finding] = []
    for path in sorted(submission.files):
        for found in _faults(path, submission.files[path]):
            # an empty file that was not required is only noted
            idle = found.rule == "empty" and path not in declared and len(declared) > 0
            (notes if idle else broken).append(found)
    if not broken:
        return Passed(notes=tuple(notes))
    words = "; ".join(map(told, broken))
    return Rejected(reason=f"files are broken: {words}", findings=tuple(broken))


def _faults(path: str, data: bytes) -> Iterator[Finding]:
    if not data:
        if path.rpartition("/")[2] not in _EMPTY_IS_FINE:
            yield flaw(path, "is empty", "empty")
        return
    kind = suffix_of(path)
    beginnings = BEGINNINGS.get(kind)
    if beginnings and not data.startswith(beginnings):
        yield flaw(path, f"is no {kind.removeprefix('.').upper()} file", "kind")
    elif kind == ".png":
        yield from _picture(path, data)
    elif kind in (".csv", ".tsv"):
        yield from _table(path, data)


def _picture(path: str, data: bytes) -> Iterator[Finding]:
    if len(data) < 24 or b"IEND" not in data[-16:]:
        yield flaw(path, "is cut off", "cut")
        return
    # IHDR is always the first chunk: big-endian width and height at byte 16
    width, height = struct.unpack(">II", data[16:24])
    if width < LEAST_SIDE or height < LEAST_SIDE:
        yield flaw(path, f"is {width} by {height} pixels", "small")
    elif len(data) < LEAST_PICTURE:
        yield flaw(path, f"has {len(data)} bytes: there is nothing to see on it", "small")


def _table(path: str, data: bytes) -> Iterator[Finding]:
    text = text_of(path, data)
    if text is None:
        yield flaw(path, "is called a table and is no text", "kind")
        return
    try:
        rows = sum(any(row) for row in csv.reader(io.StringIO(text, newline="")))
    except csv.Error as error:
        yield flaw(path, f"cannot be read as a table: {error}", "rows")
        return
    if rows < 2:
        yield flaw(path, "has no rows below its heading", "rows")


def contract_problems(
    name: str, answer: Mapping[str, Any], required: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return all violations of the output contract (R17); empty if there are none."""
    return tuple(_problems(name, answer, required))


def _problems(name: str, answer: Mapping[str, Any], required: Sequence[str]) -> Iterator[str]:
    # the fields may be nested under the worker's name, or plain
    inner: object = answer.get(name, answer)
    if not isinstance(inner, Mapping):
        yield f"`{name}` holds {_kind(inner)}, not an object"
        return
    fields = cast("Mapping[str, Any]", inner)
    confidence: object = fields.get("confidence")
    if confidence is None:
        yield "there is no `confidence`"
    elif isinstance(confidence, bool) or not isinstance(confidence, int | float):
        yield f"`confidence` is {_kind(confidence)}, not a number"
    elif not 0 <= confidence <= 1:
        yield f"`confidence` is {confidence:g}, outside 0 to 1"
    for field in required:
        if fields.get(field) in (None, "", [], {}):
            yield f"`{field}` is {'empty' if field in fields else 'missing'}"


def _kind(value: object) -> str:
    names = {"str": "a text", "list": "a list", "bool": "true or false", "NoneType": "nothing"}
    return names.get(type(value).__name__, "a number")


BITS = 64

_LANE_BITS = 32
"""Bits of one counter; eight counters share one integer."""

_LANES = tuple(sum((byte >> n & 1) << n * _LANE_BITS for n in range(8)) for byte in range(256))
"""Bits of each byte value spread over counters, so that one addition counts all eight."""


def fingerprint(text: str) -> int:
    """Return the simhash of a text, made of word pairs so that the order of words counts."""
    words = words_of(text)
    features = Counter(words if len(words) < 2 else ())
    features.update(map(" ".join, grams(words, 2)))
    ones = [0] * (BITS // 8)
    for feature, times in features.items():
        digest = hashlib.blake2b(feature.encode(), digest_size=BITS // 8).digest()
        for place, byte in enumerate(digest):
            ones[place] += _LANES[byte] * times
    # a bit of the result is set if most features have it set
    half, lane = features.total() // 2, (1 << _LANE_BITS) - 1
    return sum(1 << n for n in range(BITS) if ones[-1 - n // 8] >> n % 8 * _LANE_BITS & lane > half)


def likeness(one: int, two: int) -> float:
    """Return the share of equal bits of two fingerprints."""
    return 1 - (one ^ two).bit_count() / BITS


def alike(one: str, two: str) -> float:
    """Return the similarity of two texts; 1 for equal texts, even without words."""
    return 1.0 if one == two else likeness(fingerprint(one), fingerprint(two))


SAME = 0.95
"""Minimum similarity of two successive attempts that ends the repairs."""

FIXPOINT = "repair_fixpoint_detected"
"""Reason of a run that ends because a repair changed almost nothing."""


class Fixpoint(NamedTuple):
    """A repair that is almost the same as the attempt before it."""

    likeness: float
    attempt: int
    """Number of the attempt that repeats the one before; the first is 1."""


def fixpoint(attempts: Sequence[str]) -> Fixpoint | None:
    """Return the fixpoint if the latest two attempts are almost the same; else None."""
    if len(attempts) < 2:
        return None
    found = alike(attempts[-2], attempts[-1])
    return Fixpoint(found, len(attempts)) if found >= SAME else None
