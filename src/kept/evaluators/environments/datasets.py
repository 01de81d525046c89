"""Dataset rows (JSON, JSON lines, CSV) with line numbers, their fields, and splits.

Reading knows nothing about the meaning of a row. A field is looked up under several names and
checked for its type; a problem names the line.

Splits are made by ratio, or read from existing folders. A split by ratio is deterministic for the
same data. It can be written as files and read back as a `split_dir`.
"""

import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kept.core.case import SPLITS, Case, Cases, Split, case_text, split_cases
from kept.core.parsing import ParseLimit, parse_json, parse_json_at
from kept.core.text import are, count
from kept.errors import KeptError, Problem, SetupError, SpecError
from kept.evaluators.environments.base import Environment, EnvSettings, Item
from kept.store.candidate_files import write_whole

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv")
MANIFEST = "split_manifest.json"
"""File beside the parts of a generated split; it holds no cases."""

LISTS = ("data", "items", "examples", "cases", "questions")
"""Keys under which a JSON object may hold its rows."""

MOST = 20
"""Maximum number of problems in one error."""

FIELD_CHARS = 2**31 - 1
"""Maximum size of a CSV field; the default of `csv`, 131,072, is too small for passages."""

_PARQUET = ".parquet"
_TO_JSONL = "pandas.read_parquet(FILE).to_json(NEW, orient='records', lines=True)"
_BLANK = " \t\r\n"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file."""

    data: dict[str, Any]
    path: Path
    number: int
    """Number of the row, from 1."""
    line: int
    """Line of the file, from 1."""
    alone: bool = True
    """True if no other row begins in that line; else messages add the row number."""

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.path}:{self.line}"


def rows_in(path: Path, suffixes: Sequence[str] = SUFFIXES) -> Iterator[Row]:
    """The rows of a file, or of all files of a folder in the order of their names."""
    for file in files_in(path, suffixes):
        yield from rows_of(file)


def files_in(path: Path, suffixes: Sequence[str] = SUFFIXES) -> list[Path]:
    """A file, or those of a folder."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise SetupError(f"there is no {path}")
    found = sorted(one for one in path.iterdir() if one.suffix.lower() in suffixes)
    found = [one for one in found if one.is_file() and one.name != MANIFEST]
    if not found:
        for one in path.iterdir():
            _refuse_parquet(one)
        raise SetupError(f"there is no data in {path}", hint=f"files end in {', '.join(suffixes)}")
    return found


def rows_of(path: Path) -> Iterator[Row]:
    """The rows of one file."""
    _refuse_parquet(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        return _csv(path)
    return _json(path) if suffix == ".json" else _json_lines(path)


def refuse(problems: Sequence[Problem]) -> None:
    """Raise problems, if there are any."""
    if problems:
        more = len(problems) - MOST
        last = (
            [Problem(problems[MOST].where, "", f"and {more} more like these")] if more > 0 else []
        )
        raise SpecError([*problems[:MOST], *last])


def _refuse_parquet(path: Path) -> None:
    """Raise an error that says how to convert a Parquet file, a common published form."""
    if path.suffix.lower() == _PARQUET:
        hint = f"convert it: {_TO_JSONL}; pictures go into files, named in the rows"
        message = f"{path} is a Parquet file, and rows are read from JSON, JSON lines and CSV"
        raise SetupError(message, hint=hint)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise SpecError([Problem(f"{path}:{line}", "", "not UTF-8 text")]) from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def _json_lines(path: Path) -> Iterator[Row]:
    problems: list[Problem] = []
    number = 0
    # not `splitlines`, which also parts at signs that may stand inside a JSON text
    for line, text in enumerate(_text(path).split("\n"), 1):
        if not text.strip():
            continue
        number += 1
        try:
            data = parse_json(text)
        except ValueError as error:
            problems.append(Problem(f"{path}:{line}", "", f"not JSON: {error}"))
            continue
        if isinstance(data, dict):
            yield Row(cast("dict[str, object]", data), path, number, line)
        else:
            problems.append(Problem(f"{path}:{line}", "", "no JSON object, where one was expected"))
    refuse(problems)


def _json(path: Path) -> Iterator[Row]:
    text = _text(path)
    problems: list[Problem] = []
    try:
        for number, (line, alone, row) in enumerate(_rows(text), 1):
            if isinstance(row, dict):
                yield Row(cast("dict[str, object]", row), path, number, line, alone)
            else:
                what = "" if alone else f"row {number}: "
                what += "no JSON object, where one was expected"
                problems.append(Problem(f"{path}:{line}", "", what))
    except json.JSONDecodeError as error:
        what = error.msg if error.msg == _NO_ROWS else f"not JSON: {error.msg}"
        fault = Problem(f"{path}:{error.lineno}", "", what)
        raise SpecError([*problems, fault]) from error
    except ParseLimit as error:
        raise SpecError([Problem(f"{path}:1", "", f"not JSON: {error}")]) from error
    refuse(problems)


_KNOWN = ", ".join(f"`{one}`" for one in LISTS)
_NO_ROWS = f"no list of rows, nor an object with one in {_KNOWN}"


def _rows(text: str) -> Iterator[tuple[int, bool, object]]:
    """Rows of a list, each with its line and True if no other row begins there."""
    at = _after(text, 0)
    if text[at : at + 1] == "{":
        at = _held_list(text, at)
    if text[at : at + 1] != "[":
        raise json.JSONDecodeError(_NO_ROWS, text, at)
    # `counted` is the offset up to which line ends are counted, `before` the line of the last row
    line, counted, before = 1, 0, 0
    at = _after(text, at + 1)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        row, end = parse_json_at(text, at)
        begin, at = at, _after(text, end)
        # a row is alone in its line if none begins there before it or after it
        following = _after(text, at + 1) if text[at : at + 1] == "," else len(text)
        last = text[following : following + 1] in ("", "]")
        yield line, line != before and (last or "\n" in text[begin:following]), row
        before = line
        if text[at : at + 1] == ",":
            at = _after(text, at + 1)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("a comma or the end of the list was expected", text, at)


def _held_list(text: str, at: int) -> int:
    """Offset of the list of rows in an object; the object's own offset if it has none."""
    # walk over the keys at the top level; nested values are skipped as a whole
    start, at = at, _after(text, at + 1)
    while text[at : at + 1] == '"':
        key, end = parse_json_at(text, at)
        at = _after(text, _after(text, end) + 1)
        if key in LISTS and text[at : at + 1] == "[":
            return at
        _, end = parse_json_at(text, at)
        at = _after(text, _after(text, end) + 1)
    return start


def _after(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(FIELD_CHARS)
    # not `splitlines`, which also parts at signs that may stand inside a field
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    problems: list[Problem] = []
    head: list[str] = []
    begins, number = 1, 0
    try:
        for cells in reader:
            line, begins = begins, reader.line_num + 1
            if not cells:
                continue  # an empty line
            if not head:
                head = cells
                continue
            number += 1
            if len(cells) == len(head):
                yield Row(dict(zip(head, cells, strict=True)), path, number, line)
            else:
                message = "more or fewer columns than the head has"
                problems.append(Problem(f"{path}:{line}", "", message))
    except csv.Error as error:
        fault = Problem(f"{path}:{reader.line_num}", "", f"not CSV: {error}")
        raise SpecError([*problems, fault]) from error
    refuse(problems)


FOLDERS: Mapping[Split, tuple[str, ...]] = {
    "train": ("train", "valid_train"),
    "holdout": ("val", "valid_seen", "selection", "valid", "validation", "dev", "eval"),
    "test": ("test", "valid_unseen"),
}
"""Accepted names of the parts of a split; the first is the one that Kept writes."""

ITEMS = "items.json"
GENERATED = "_generated_splits"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Parted:
    """Cases by split, with the origin of the split."""

    cases: Cases
    """Cases within the limits of the config."""
    manifest: Mapping[str, object] | None = None
    """Manifest of a split that was made here; None for one that was read."""
    folder: str = ""
    """Folder that it is written to, below the outputs of a run."""
    fixed: Path | None = None
    """Folder that the config names for it."""
    whole: Cases | None = None
    """All cases, for writing: limits do not change a split."""
    notes: tuple[str, ...] = ()
    """Known defects of cases, each with the places of all that have it."""

    def write(self, out_root: Path) -> Path | None:
        """Write a generated split once and return its folder; None if the split was read.

        An existing folder with this split is left alone; one with another split is refused.
        """
        if self.manifest is None:
            return None
        folder = self.fixed or out_root / GENERATED / self.folder
        if _is_split(_written(folder), self.manifest):
            return folder
        _refuse_other(folder, self.manifest)
        cases = self.whole or self.cases
        below = self.fixed or out_root
        for split in SPLITS:
            rows: list[dict[str, object]] = []
            for case in cases.of(split):
                data = case.data
                row = cast("dict[str, object]", data) if isinstance(data, dict) else {"data": data}
                rows.append({"id": case.id, **row})
            _put(folder / FOLDERS[split][0] / ITEMS, rows, below)
        # last: with it, all of it is there
        _put(folder / MANIFEST, self.manifest, below)
        return folder


def part(env: Environment, settings: EnvSettings) -> Parted:
    """Read and split the cases of a config; a `SpecError` lists all problems."""
    by_folder = settings.split_mode == "split_dir"
    parted = _by_folder(env, settings) if by_folder else _by_ratio(env, settings)
    cases = parted.cases
    size = settings.train_size
    if size and size != len(cases.train):
        there = count(len(cases.train), "train case")
        hint = "0 takes whatever there is"
        message = f"{size} was expected, and there {are(len(cases.train))} {there}"
        told = settings.problem("train_size", message, hint)
        raise SpecError([Problem(told.where, "train.train_size", told.message, hint)])
    limited = Cases(
        cases.train,
        cases.holdout[: settings.sel_env_num or None],
        cases.test[: settings.test_env_num or None],
    )
    return replace(parted, cases=limited, whole=cases)


def _by_ratio(env: Environment, settings: EnvSettings) -> Parted:
    if not settings.data_path:
        hint = "or set `split_mode: split_dir` and a `split_dir`"
        raise SpecError([settings.problem("data_path", "`split_mode: ratio` needs it", hint)])
    path = settings.path(settings.data_path)
    found = _read(env, settings, "data_path", path)
    refuse(list(_twice(found)))
    # finding a defect may take minutes, so only the wanted cases are checked
    notes, items = _without_defects(env, found[: settings.limit or None])
    if not items:
        message = f"there is no case in {path}"
        raise SpecError([settings.problem("data_path", message, env.data or None)])
    cases = _shared_out([item.case for item in items], settings, env)
    ratio = "-".join(map(str, settings.split_ratio))
    manifest: dict[str, object] = {
        "version": VERSION,
        "env": env.name,
        "data_path": str(settings.data_path),
        "split_ratio": ":".join(map(str, settings.split_ratio)),
        "split_seed": settings.split_seed,
        "counts": {FOLDERS[split][0]: len(cases.of(split)) for split in SPLITS},
        "fingerprint": cases.fingerprint(),
    }
    manifest |= {"strata": env.strata} if env.strata else {}
    fixed = settings.path(settings.split_output_dir) if settings.split_output_dir else None
    if fixed is not None:
        _refuse_other(fixed, manifest)
    name = env.name.replace(":", "_").replace("/", "_")
    folder = f"{name}_{ratio}_seed{settings.split_seed}"
    return Parted(cases, manifest, folder, fixed, notes=notes)


def _shared_out(cases: Sequence[Case], settings: EnvSettings, env: Environment) -> Cases:
    """Split by ratio; copies and twins go to the split of the first of them."""
    of = _first_alike(cases, env)
    ratio, seed = settings.split_ratio, settings.split_seed
    different = tuple(case for case in cases if of[case.id] == case.id)
    split = env.split(different, ratio, seed)
    if split is not None:
        order = {case.id: n for n, case in enumerate(c for s in SPLITS for c in split.of(s))}
        cases = sorted(cases, key=lambda case: order[of[case.id]])
    else:
        split = split_cases(different, ratio, seed, env.strata or None)
    place = {case.id: name for name in SPLITS for case in split.of(name)}
    return Cases(*(tuple(c for c in cases if place[of[c.id]] == name) for name in SPLITS))


def _first_alike(cases: Sequence[Case], env: Environment) -> Mapping[str, str]:
    """First case that each must share a split with, by id; its own id if there is none."""
    heads = list(range(len(cases)))
    seen: dict[tuple[str, str], int] = {}

    def head(n: int) -> int:
        while heads[n] != n:
            n = heads[n]
        return n

    for n, case in enumerate(cases):
        for tie in _ties(case, env):
            # union-find: a copy of one case may be the twin of another, then all go together
            one, other = head(seen.setdefault(tie, n)), head(n)
            heads[max(one, other)] = min(one, other)
    return {case.id: cases[head(n)].id for n, case in enumerate(cases)}


def _ties(case: Case, env: Environment) -> Iterator[tuple[str, str]]:
    """Keys that a case shares with others that must be in the same split."""
    yield "copy", case_text(case)
    if twin := env.twin(case):
        yield "twin", twin


def _by_folder(env: Environment, settings: EnvSettings) -> Parted:
    if not settings.split_dir:
        hint = env.data or None
        raise SpecError([settings.problem("split_dir", "`split_mode: split_dir` needs it", hint)])
    folder = settings.path(settings.split_dir)
    if not folder.is_dir():
        message = f"there is no folder {folder}"
        raise SpecError([settings.problem("split_dir", message, env.data or None)])
    found: dict[Split, list[Item]] = {}
    for split in SPLITS:
        place = _part(folder, split)
        if place is None and split != "test":
            names = ", ".join(f"`{name}`" for name in FOLDERS[split])
            message = f"there is no {FOLDERS[split][0]} part in {folder}"
            raise SpecError([settings.problem("split_dir", message, f"one of {names}")])
        rows = _read(env, settings, "split_dir", place) if place else []
        found[split] = rows[: settings.limit or None]
    everything = [item for split in SPLITS for item in found[split]]
    refuse([*_twice(everything), *_parted(found, env)])
    notes, left = _without_defects(env, everything)
    used = {item.case.id for item in left}
    parts = ([item.case for item in found[split] if item.case.id in used] for split in SPLITS)
    cases = Cases(*(tuple(mine) for mine in parts))
    return Parted(cases, notes=notes)


def _without_defects(
    env: Environment, items: Sequence[Item]
) -> tuple[tuple[str, ...], Sequence[Item]]:
    """Warnings, one per known defect with the cases that have it; and the cases to use."""
    places = {item.case.id: item.where for item in items}
    alike: dict[tuple[str, bool], list[str]] = {}
    for defect in env.defects(items):
        alike.setdefault((defect.why, defect.left_out), []).append(defect.case_id)
    notes: list[str] = []
    for (why, left_out), ids in alike.items():
        verb = f" {are(len(ids))} left out" if left_out else ""
        # of those that are used all the same, some show the pattern
        told = ids if left_out else ids[:MOST]
        named = ", ".join(f"`{one}` ({places[one]})" for one in told)
        named += f" and {len(ids) - len(told)} more" if len(ids) > len(told) else ""
        notes.append(f"{count(len(ids), 'case')}{verb}: {why}: {named}")
    gone = {one for (_, left_out), ids in alike.items() if left_out for one in ids}
    return tuple(notes), [item for item in items if item.case.id not in gone]


def _part(folder: Path, split: Split) -> Path | None:
    """The folder or file of a part."""
    for name in FOLDERS[split]:
        if (folder / name).is_dir():
            return folder / name
        for suffix in SUFFIXES:
            if (folder / f"{name}{suffix}").is_file():
                return folder / f"{name}{suffix}"
    return None


def _read(env: Environment, settings: EnvSettings, key: str, path: Path) -> list[Item]:
    try:
        return list(env.read(path))
    except SpecError:
        raise
    except KeptError as error:
        hint = error.hint or env.data or None
        raise SpecError([settings.problem(key, error.message, hint)]) from error


def _twice(items: Sequence[Item]) -> Iterator[Problem]:
    """Problems of cases that share an id."""
    seen: dict[str, str] = {}
    for case, where in items:
        if case.id in seen:
            yield Problem(where, "", f"the id `{case.id}` stands in {seen[case.id]} already")
        seen.setdefault(case.id, where)


def _parted(found: Mapping[Split, Sequence[Item]], env: Environment) -> Iterator[Problem]:
    """Problems of copies and twins in two splits: they would leak from train to holdout."""
    seen: dict[tuple[str, str], tuple[Split, str]] = {}
    for split, items in found.items():
        for case, where in items:
            for kind, shared in _ties(case, env):
                key = hashlib.sha256(shared.encode("utf-8", "surrogatepass")).hexdigest()
                other, there = seen.setdefault((kind, key), (split, where))
                if other != split:
                    name, before = FOLDERS[split][0], FOLDERS[other][0]
                    what = f"`{case.id}` of {name} is a {kind} of what {before} has in {there}"
                    yield Problem(where, "", what)
                    break


def _put(path: Path, value: object, below: Path) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    try:
        write_whole(path, text.encode("utf-8"), below)
    except OSError as error:
        raise SetupError(f"cannot write {error.filename}: {error.strerror}") from error


def _written(folder: Path) -> object:
    try:
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _refuse_other(folder: Path, manifest: Mapping[str, object]) -> None:
    there = _written(folder)
    if there is not None and not _is_split(there, manifest):
        hint = "name another folder, or remove that one"
        raise SetupError(f"{folder} holds a split of other data, or by another ratio", hint=hint)


def _is_split(there: object, manifest: Mapping[str, object]) -> bool:
    """True if a manifest is of this split, whatever its `data_path`."""
    if not isinstance(there, dict):
        return False
    known = cast("dict[str, object]", there)
    return {**known, "data_path": ""} == {**manifest, "data_path": ""}


IDS = ("id", "key", "question_id", "uid", "qid")
"""Names of id fields in data."""

IDS_ALONE = (
    "a published split of ids names its rows and does not hold them: put the rows of the data "
    "with these ids in their places"
)

_PARTS = {name for names in FOLDERS.values() for name in names}


@dataclass(slots=True)
class Fields:
    """Reader of row fields that collects the problems."""

    problems: list[Problem] = field(default_factory=list[Problem])

    def text(self, row: Row, names: Sequence[str]) -> str | None:
        """Text under the first existing name; None, and a problem, if there is none."""
        name = next((one for one in names if row.data.get(one) is not None), None)
        if name is None:
            words = " or ".join(f"`{one}`" for one in names)
            # published lists of ids have a manifest
            listed = (row.path.parent.parent / MANIFEST).is_file()
            self.wrong(row, f"there is no {words}", IDS_ALONE if listed else None)
            return None
        value = row.data[name]
        if not isinstance(value, str) or not value.strip():
            self.wrong(row, f"`{name}` is {_kind(value)}, where a text was expected")
            return None
        return value

    def texts(self, row: Row, names: Sequence[str]) -> list[str] | None:
        """Read a text, a number or a list of them as a list of texts."""
        name = next((one for one in names if row.data.get(one) is not None), None)
        if name is None:
            words = " or ".join(f"`{one}`" for one in names)
            self.wrong(row, f"there is no {words}")
            return None
        value: object = row.data[name]
        given = cast("list[object]", value) if isinstance(value, list) else [value]
        plain = [
            str(one).strip()
            for one in given
            if isinstance(one, str | int | float) and not isinstance(one, bool)
        ]
        if not given or len(plain) != len(given) or not all(plain):
            self.wrong(
                row, f"`{name}` is {_kind(row.data[name])}, where a text or a list was expected"
            )
            return None
        return plain

    def wrong(self, row: Row, message: str, hint: str | None = None) -> None:
        """Add a problem of a row; of several problems with one hint only the first shows it."""
        hint = None if any(one.hint == hint for one in self.problems) else hint
        place = "" if row.alone else f"row {row.number}: "
        self.problems.append(Problem(row.where, "", place + message, hint))

    def check(self) -> None:
        """Raise the problems, if there are any."""
        refuse(self.problems)


def id_of(row: Row, prefix: str = "", names: Sequence[str] = IDS) -> str:
    """Id of a row: its own, else made of its part, its file and its number."""
    for name in names:
        value = row.data.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    name = f"{prefix or row.path.stem}-{row.number}"
    folder = row.path.parent.name
    # the parts of a split are files of one name in folders of their own
    return f"{folder}-{name}" if folder in _PARTS else name


def item(
    row: Row, data: Mapping[str, object], prefix: str = "", names: Sequence[str] = IDS
) -> Item:
    """A case made of a row."""
    return Item(Case(id_of(row, prefix, names), data), row.where)


def values(case: Case) -> Any:  # noqa: ANN401 # each environment has a type for its own
    """The fields of a case of an environment."""
    return case.data


def _kind(value: object) -> str:
    match value:
        case str():
            return "empty"
        case list():
            return "a list that holds something else"
        case dict():
            return "an object"
        case _:
            return f"`{value}`"


def as_items(fields: Fields, found: Iterator[Item]) -> list[Item]:
    """Return all items, or raise all problems if there are any."""
    items: list[Item] = []
    try:
        items.extend(found)
    except SpecError as error:
        fields.problems.extend(error.problems)
    fields.problems.sort(key=_line)
    fields.check()
    return items


def _line(problem: Problem) -> tuple[str, int]:
    file, line = problem.place or (problem.where, 0)
    return file, line
