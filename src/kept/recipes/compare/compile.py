"""Comparison plans: variants of texts, run side by side on all cases of a file.

Runner, scorer, objective and artifacts come from a task. Its proposers, gates, guards and steps
are not used.

A variant is a file, a folder or a git revision. A file replaces the only artifact, or the one of
its name; the others are as in the task. In a folder, the task's patterns are matched relative to
the task's own folder, or to the one that holds all artifacts. `REV` is that revision of the
task's folder, `REV:PATH` a file or folder of it, in git's syntax. Nothing is checked out.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log2
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.budget import rollouts_within
from kept.core.case import NAMED, Cases, bare, own_text
from kept.core.edit import changed_paths
from kept.core.guards import copy_guard
from kept.core.plan import COMPARE, Plan
from kept.core.schedules.round_robin import MEASURE, Turns
from kept.errors import SetupError
from kept.gates._statistics import fewest
from kept.gates.compare import Compare
from kept.proposers.variants import SEED_ALONE, Variant, Variants
from kept.recipes.base import Compiled, plan_facts
from kept.recipes.compare.request import Comparing, ComparisonFacts
from kept.recipes.task.compile import plan_of
from kept.recipes.task.inputs import ReadTask, read_task
from kept.recipes.task.make_coding_agent import hash_of
from kept.results.compare import Compared
from kept.spec.paths import MAX_CHARS, decoded, git, glob, is_excluded, matches
from kept.spec.source import Source, read_source

FEWEST = 8
"""Minimum number of cases: fewer say nothing about other cases."""

PASSES = 16

WIDEST = 32
"""Largest number of challengers run at once."""


class Version(NamedTuple):
    """One of the compared versions."""

    word: str
    """Name as it was typed."""
    texts: Mapping[str, str]
    """Texts by path of the artifact."""
    commit: str = ""
    """Commit of the revision when it was read; empty for files."""

    @property
    def label(self) -> str:
        """Name in results."""
        known = not self.commit or self.commit.startswith(self.word.partition(":")[0])
        return self.word if known else f"{self.word} ({self.commit[:7]})"


MORE = "--set budget.max_rollouts={}"
"""Command-line option that gives a comparison more rollouts."""


def as_comparison(
    plan: Plan, versions: Sequence[Version], asked: Comparing, more: str = MORE
) -> Plan:
    """Turn a plan of the first version into one that compares the others with it."""
    first, *others = versions
    plan = replace(
        plan,
        recipe=COMPARE,
        rules=Rules({name: Artifact(name) for name in first.texts}),
        proposers=(SEED_ALONE,) if asked.plan else (Variants(_variants(first, others)),),
        schedule=Turns(MEASURE, 1) if asked.plan else Turns("variants", len(others)),
        budget=replace(plan.budget, max_iterations=None, max_failures=None),
        width=max(1, min(WIDEST, len(others))),
        # guards are for proposals, not for given texts
        guards=(),
        probes=tuple(probe for probe in plan.probes if not probe.proposes),
    )
    gate, known = _gate(plan, asked, max(1, len(others)), more), plan_facts(plan)
    facts = ComparisonFacts(
        models=known.models,
        prompts=known.prompts,
        charges=known.charges,
        limited_by=known.limited_by,
        pass_at=known.pass_at,
        compared=Compared(
            labels=tuple([version.label for version in versions]),
            most=gate.most,
            least=asked.least,
            plans=asked.plan,
        ),
    )
    return replace(plan, gate=gate, request=asked, facts=facts)


def check_texts(versions: Sequence[Version]) -> None:
    """Refuse equal texts, and versions with different sets of files."""
    first = versions[0]
    for at, other in enumerate(versions[1:], 1):
        _check_files(first, other)
        for before in versions[:at]:
            if before.texts == other.texts:
                raise SetupError(
                    f"`{before.label}` and `{other.label}` are the same text: nothing to compare"
                )


def _check_files(first: Version, other: Version) -> None:
    only = [
        (v, sorted(v.texts.keys() - w.texts.keys())) for v, w in ((first, other), (other, first))
    ]
    told = [f"only `{v.label}` has {', '.join(names[:5])}" for v, names in only if names]
    if told:
        raise SetupError(
            f"`{first.label}` and `{other.label}` are not the same files: {'; '.join(told)}",
            hint="a comparison puts texts in the place of others: give both the same files",
        )


def _variants(first: Version, others: Sequence[Version]) -> tuple[Variant, ...]:
    seed = Candidate(first.texts)
    changed = ((other, changed_paths(seed, Candidate(other.texts))) for other in others)
    return tuple(
        Variant({path: other.texts[path] for path in paths}, other.label)
        for other, paths in changed
    )


def _gate(plan: Plan, asked: Comparing, challengers: int, more: str) -> Compare:
    """Build the gate, with as many passes as the budget allows."""
    if asked.least is not None and not 0 < asked.least < inf:
        message = f"the least gain worth knowing of is {asked.least}, which is no gain"
        raise SetupError(message, hint="give a number above 0, or leave it out")
    cases = len(plan.cases.holdout)
    gate = Compare(challengers, asked.least, asked.passes or PASSES)
    limit = rollouts_within(plan.budget, plan.worst_usd)
    each = cases * (1 if asked.plan else 1 + challengers)
    needed = each * (2 if asked.plan else 1)
    if limit is not None and limit < needed:
        what = "two runs of the seed" if asked.plan else "one pass of each side"
        message = f"the budget has room for {limit} rollouts, and {what} takes {needed}"
        raise SetupError(message, hint=f"give {more.format(needed)} or more")
    if limit is not None and limit < each * gate.most:
        # a power of two, as the gate evaluates after 1, 2, 4 … passes
        gate = replace(gate, most=2 ** int(log2(limit // each)))
    enough = max(FEWEST, fewest(gate.final(cases, gate.most)))
    if cases < enough:
        among = f" for {challengers} challengers" if challengers > 1 else ""
        raise SetupError(
            f"{cases} cases cannot show anything for others like them",
            hint=f"give {enough} or more{among}",
        )
    return gate


def doubts(plan: Plan, others: Sequence[Version]) -> tuple[str, ...]:
    """Warnings about cases that make the results less reliable."""
    return (*_copied(plan, others), *_doubled(plan.cases))


def _copied(plan: Plan, others: Sequence[Version]) -> tuple[str, ...]:
    """Warn about challengers that contain text of the cases: they may not fit new cases."""
    guard = copy_guard(plan.cases)
    found = ((v, guard.check(plan.seed, plan.seed, Candidate(v.texts))) for v in others)
    return tuple(
        f"`{version.label}`: {why}; what it scores there says nothing of new cases"
        for version, why in found
        if why is not None
    )


def _doubled(cases: Cases) -> tuple[str, ...]:
    """Warn about identical deciding cases, each of which counts as one of its own."""
    first: dict[str, str] = {}
    found: list[tuple[str, str]] = []
    for case in cases.holdout:
        before = first.setdefault(own_text(bare(case)), case.id)
        if before != case.id:
            found.append((before, case.id))
    if len(found) == 1:
        ((one, copy),) = found
        return (f"case `{one}` and case `{copy}` are the same, and count as two",)
    named = "; ".join(f"`{copy}` of `{one}`" for one, copy in found[:NAMED])
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    told = f"{len(found)} cases are copies of others, and count as cases of their own"
    return (f"{told}: {named}{more}",) if found else ()


PLAIN = ("100644", "100755")
"""Modes of git tree entries that are plain files, not links or submodules."""


class Tree(Protocol):
    """Files below a folder."""

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """Names of the files that match a pattern."""
        ...

    def read(self, name: str) -> bytes:
        """Content of a file."""
        ...


@dataclass(frozen=True, slots=True)
class DiskTree:
    """A folder on disk."""

    folder: Path

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """Match files in the way that a task finds its artifacts."""
        hits = glob(self.folder, pattern, exclude)
        return {hit.relative_to(self.folder).as_posix() for hit in hits if hit.is_file()}

    def read(self, name: str) -> bytes:
        """Read the file, at most one byte more than allowed."""
        return _bytes_of(self.folder / name)


@dataclass(frozen=True, slots=True)
class GitTree:
    """A folder in a commit."""

    folder: Path
    """Any folder of the repository."""
    tree: str
    """`COMMIT:PATH`."""

    def find(self, pattern: str, exclude: Sequence[str]) -> set[str]:
        """Names of plain files in the tree, without links and submodules."""
        return {name for name in self._names() if matches(name, pattern)}

    def _names(self) -> Iterator[str]:
        listed = git(self.folder, "ls-tree", "-r", "-z", "--full-tree", self.tree)
        for entry in listed.decode("utf-8", "surrogateescape").split("\0")[:-1]:
            about, _, name = entry.partition("\t")
            if about.split()[0] in PLAIN:
                yield name

    def read(self, name: str) -> bytes:
        """Content of the committed file."""
        start = self.tree if self.tree.endswith(":") else f"{self.tree}/"
        return git(self.folder, "cat-file", "blob", start + name)


def read_version(word: str, here: Path, task: ReadTask, commit: str = "") -> Version:
    """Read the version that a word names; `commit` pins a revision resolved before."""
    path = here / word
    if not commit and path.exists():
        if path.is_dir():
            return Version(word, _from_tree(word, DiskTree(path), task))
        name = _stands_for(word, path.name, path.resolve(), task)
        return Version(word, {**task.files.texts, name: _text(word, _bytes_of(path))})
    # not a file here: a revision of the task's folder, or `REV:PATH`
    revision, colon, inside = _parted(word)
    folder = here if colon else task.source.folder
    commit = commit or _commit(word, revision, folder)
    if not colon:
        prefix = git(folder, "rev-parse", "--show-prefix").decode().strip("\n/")
        tree = GitTree(folder, f"{commit}:{prefix}")
        return Version(word, _from_tree(word, tree, task), commit)
    place = f"{commit}:{_from_root(inside, folder)}"
    try:
        kind = git(folder, "cat-file", "-t", place).decode().strip()
    except SetupError:
        hint = "a path behind `:` begins at the top of the repository, unless it begins with `./`"
        raise SetupError(f"`{revision}` has no `{inside}`", hint=hint) from None
    if kind == "tree":
        return Version(word, _from_tree(word, GitTree(folder, place), task), commit)
    name = _stands_for(word, posixpath.basename(inside), None, task)
    text = _text(word, git(folder, "cat-file", "blob", place))
    return Version(word, {**task.files.texts, name: text}, commit)


def _parted(word: str) -> tuple[str, str, str]:
    """Split into revision, colon, path; a colon in braces is the revision's: `HEAD^{/fix: it}`."""
    depth = 0
    for at, sign in enumerate(word):
        depth += (sign == "{") - (sign == "}")
        if sign == ":" and not depth:
            return word[:at], sign, word[at + 1 :]
    return word, "", ""


def _commit(word: str, revision: str, folder: Path) -> str:
    ask = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    try:
        return git(folder, *ask).decode().split()[-1]
    except SetupError:
        message = f"`{word}` is no file or folder here, and `{revision}` no revision of git"
        raise SetupError(message) from None


def _from_root(inside: str, folder: Path) -> str:
    """Path after the colon, relative to the repository's root."""
    inside = inside.rstrip("/")
    if inside.split("/")[0] in (".", ".."):
        prefix = git(folder, "rev-parse", "--show-prefix").decode().strip("\n/")
        inside = posixpath.normpath(posixpath.join(prefix, inside))
    return "" if inside == "." else inside


def _from_tree(word: str, tree: Tree, task: ReadTask) -> dict[str, str]:
    """Artifacts in a tree, laid out as in the task's folder or in the one that holds them all."""
    spec = task.task.artifacts
    shared = posixpath.commonpath([posixpath.dirname(name) for name in task.files.texts])
    for base in dict.fromkeys(("", shared)):
        found: dict[str, str] = {}
        for pattern in spec.include:
            inside = pattern.removeprefix("./").removeprefix(f"{base}/" if base else "")
            for name in sorted(tree.find(inside, ())):
                whole = posixpath.join(base, name)
                if matches(whole, pattern) and not is_excluded(whole, spec.exclude):
                    found[whole] = _text(posixpath.join(word, name), tree.read(name))
        # in a layout without the common folder, only files known to the task count
        if found and (not base or found.keys() <= task.files.texts.keys()):
            return found
    patterns = ", ".join(f"`{pattern}`" for pattern in spec.include)
    hint = "lay the files out in it as they are in the task's folder"
    raise SetupError(f"`{word}` holds no artifact: nothing in it matches {patterns}", hint=hint)


def _stands_for(word: str, name: str, path: Path | None, task: ReadTask) -> str:
    """Artifact that a single file replaces."""
    artifacts = [*task.files.texts]
    if len(artifacts) == 1:
        return artifacts[0]
    itself = [one for one in artifacts if (task.source.folder / one).resolve() == path]
    named = itself or [one for one in artifacts if posixpath.basename(one) == name]
    if len(named) == 1:
        return named[0]
    listed = ", ".join(named or artifacts)
    what = f"may stand for any of {listed}" if named else f"stands for none of {listed}"
    raise SetupError(
        f"`{word}` {what}", hint="name the file as the artifact, or give a folder of all of them"
    )


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_CHARS + 1)
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error


def _text(name: str, data: bytes) -> str:
    try:
        return decoded(data)
    except ValueError as error:
        raise SetupError(f"`{name}` is {error}") from None


_OTHERS = ("proposers", "mutation", "gate", "race", "guards", "logging")
"""Keys of a task that a comparison ignores."""


def compile_comparison(path: Path, asked: Comparing, overrides: Sequence[str] = ()) -> Compiled:
    """Build the plan; raises the problems of the task, the cases or the texts."""
    task = _read(path, asked, overrides)
    versions = [
        read_version(word, Path(asked.here), task, asked.commits.get(word, ""))
        for word in asked.words
    ]
    check_texts(versions)
    first, *others = versions
    made = plan_of(task, Candidate(first.texts), overrides)
    asked = replace(asked, commits={v.word: v.commit for v in versions if v.commit})
    plan = as_comparison(made.plan, versions, asked)
    texts = {f"`{version.word}`": hash_of(version.texts) for version in others}
    plan = replace(plan, inputs={**plan.inputs, **texts})
    return Compiled(plan, (*made.warnings, *doubts(plan, others)))


def most_rollouts(plan: Plan) -> int:
    """Largest number of rollouts: the seed and every challenger, with all passes."""
    assert isinstance(plan.gate, Compare)
    passes = 2 if plan.proposers == (SEED_ALONE,) else plan.gate.most
    sides = 1 if plan.proposers == (SEED_ALONE,) else 1 + plan.gate.challengers
    return sides * passes * len(plan.cases.holdout)


def _read(path: Path, asked: Comparing, overrides: Sequence[str]) -> ReadTask:
    source = read_source(path, overrides)
    _lay_over(source, asked, overrides)
    task = read_task(source, proposes=False)
    if task.files.cases.implicit:
        raise SetupError(
            "a comparison needs cases", hint="give --cases FILE, one JSON value a line"
        )
    return task


def _lay_over(source: Source, asked: Comparing, overrides: Sequence[str]) -> None:
    """Adapt the task: all cases decide, and nothing is proposed."""
    data = cast("dict[str, Any]", source.data)
    for key in _OTHERS:
        data.pop(key, None)
    data.setdefault("budget", {"max_iterations": len(asked.words)})
    given = data.get("cases")
    cases = cast("dict[str, object] | None", given if isinstance(given, dict) else None)
    if asked.cases is not None:
        cases = data["cases"] = cases or {}
        # relative to where it was typed, not to the task's folder
        cases["file"] = str((Path(asked.here) / asked.cases).absolute())
        source.override(("cases", "file"), f"--cases {asked.cases}")
    said = any(one.partition("=")[0].strip() == "cases.split" for one in overrides)
    if cases is not None and not said:
        cases["split"] = "0:1:0"
