"""Cases by split: shared out by ratio, or read from folders that somebody has made.

A split by ratio is the same whenever it is made of the same data. It can be written as files, and
read back as a `split_dir`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from kept.core.case import SPLITS, Case, Cases, Split, case_text, split_cases
from kept.core.words import are, count
from kept.errors import KeptError, Problem, SetupError, SpecError
from kept.evaluators.environments.contract import Environment, Item
from kept.evaluators.environments.reading import MANIFEST, MOST, SUFFIXES, refuse
from kept.evaluators.environments.settings import EnvSettings
from kept.store.files import write_whole

FOLDERS: Mapping[Split, tuple[str, ...]] = {
    "train": ("train", "valid_train"),
    "holdout": ("val", "valid_seen", "selection", "valid", "validation", "dev", "eval"),
    "test": ("test", "valid_unseen"),
}
"""What a part of a split may be called; the first is what we call it."""

ITEMS = "items.json"
GENERATED = "_generated_splits"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Parted:
    """Cases by split, and how they came to be there."""

    cases: Cases
    """Those that a config wants of them."""
    manifest: Mapping[str, Any] | None = None
    """Of a split that was made here; None for one that was read."""
    folder: str = ""
    """The folder that it is written to, below the outputs of a run."""
    fixed: Path | None = None
    """The folder that the config names for it."""
    whole: Cases | None = None
    """What is written where that is more: a split is the same however much of it is looked at."""
    notes: tuple[str, ...] = ()
    """Known defects of cases, each with the places of all that have it."""

    def write(self, out_root: Path) -> Path | None:
        """Write a generated split, once; the folder that it is in, None where there is none.

        What is there already is left alone where it is this split, and refused where it is not.
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
            rows = [{"id": case.id, **_row(case)} for case in cases.of(split)]
            _put(folder / FOLDERS[split][0] / ITEMS, rows, below)
        # last: with it, all of it is there
        _put(folder / MANIFEST, self.manifest, below)
        return folder


def part(env: Environment, settings: EnvSettings) -> Parted:
    """The cases of a config, limited as it says; a `SpecError` with all that is wrong."""
    parted = _by_folder(env, settings) if _is_folder(settings) else _by_ratio(env, settings)
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


def _is_folder(settings: EnvSettings) -> bool:
    return settings.split_mode == "split_dir"


def _by_ratio(env: Environment, settings: EnvSettings) -> Parted:
    if not settings.data_path:
        hint = "or set `split_mode: split_dir` and a `split_dir`"
        raise SpecError([settings.problem("data_path", "`split_mode: ratio` needs it", hint)])
    path = settings.path(settings.data_path)
    found = _read(env, settings, "data_path", path)
    refuse(list(_twice(found)))
    # a defect may take minutes to find, so that only those are looked at that are wanted
    notes, items = _without_defects(env, found[: settings.limit or None])
    if not items:
        message = f"there is no case in {path}"
        raise SpecError([settings.problem("data_path", message, env.data or None)])
    cases = _shared_out([item.case for item in items], settings, env)
    ratio = "-".join(map(str, settings.split_ratio))
    manifest: dict[str, Any] = {
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
    """Shared out by ratio; copies and twins go where the first of them goes."""
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
    """The first case that each may not be parted from, by id; its own id where there is none."""
    heads = list(range(len(cases)))
    seen: dict[tuple[str, str], int] = {}

    def head(n: int) -> int:
        while heads[n] != n:
            n = heads[n]
        return n

    for n, case in enumerate(cases):
        for tie in _ties(case, env):
            # a case may be the copy of one and the twin of another: then all go together
            one, other = head(seen.setdefault(tie, n)), head(n)
            heads[max(one, other)] = min(one, other)
    return {case.id: cases[head(n)].id for n, case in enumerate(cases)}


def _ties(case: Case, env: Environment) -> Iterator[tuple[str, str]]:
    """What a case shares with those that it may not be parted from."""
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
    """A warning for each known defect that names the cases with it; and the cases to use."""
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
    """Cases of one id."""
    seen: dict[str, str] = {}
    for case, where in items:
        if case.id in seen:
            yield Problem(where, "", f"the id `{case.id}` stands in {seen[case.id]} already")
        seen.setdefault(case.id, where)


def _parted(found: Mapping[Split, Sequence[Item]], env: Environment) -> Iterator[Problem]:
    """Copies and twins in two splits: one would be learnt from, and decided by."""
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


def _row(case: Case) -> Mapping[str, Any]:
    data = case.data
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {"data": data}


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


def _refuse_other(folder: Path, manifest: Mapping[str, Any]) -> None:
    there = _written(folder)
    if there is not None and not _is_split(there, manifest):
        hint = "name another folder, or remove that one"
        raise SetupError(f"{folder} holds a split of other data, or by another ratio", hint=hint)


def _is_split(there: object, manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is of this split, wherever its data lay then."""
    if not isinstance(there, dict):
        return False
    known = cast("dict[str, object]", there)
    return {**known, "data_path": ""} == {**manifest, "data_path": ""}
