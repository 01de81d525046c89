"""Adapter for users who have a test suite: every test is a case, and chosen files may change.

Tests run in a process of their own inside the sandbox, as the commands of a task do. They see a
copy of the folder with the candidate's files in it, and no network. What they write is discarded.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Unpack
from xml.etree import ElementTree

from kept.adapters.arguments import Data, OwnTerms, check_own, start
from kept.adapters.reflection import Reflecting, author_of, component_prompt, findings_in, trace_of
from kept.api import Result
from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE, Case, split_cases
from kept.core.ports import Proposer, Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Score
from kept.core.text import count
from kept.errors import SetupError
from kept.recipes.function.compile import ProposerLike, make_proposers, parse_ratio
from kept.recipes.task.make_coding_agent import digest
from kept.sandbox.command import Command, Exit, Network, View
from kept.sandbox.workspace import Scratch
from kept.store.home import Home

RESULT = "result.xml"
SETTINGS = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("pyproject.toml", "tox.ini", "setup.cfg"),
)
"""Files that configure which tests pytest collects and when they pass."""
RAN = (0, 1)
"""Exit codes of pytest after tests have run."""

MOST_REPORT = 8 * 1024 * 1024
"""Maximum bytes of pytest's report; in memory its elements take up to thirty times as much."""


class Terms(OwnTerms, total=False):
    """Arguments of `optimize` besides folder, files and tests."""

    proposers: Sequence[ProposerLike]
    """As in `kept.optimize`; with `reflection_lm`, a model that rewrites files is added."""
    python: str
    """Interpreter that has pytest; by default the current one."""
    options: Sequence[str]
    """Further command-line arguments for pytest."""
    timeout: float
    """Seconds for one test; default 60."""
    network: Network


@dataclass(frozen=True, slots=True)
class Suite:
    """Settings for running tests."""

    folder: Path
    python: str
    options: tuple[str, ...]
    timeout: float
    view: View

    def command(self, *words: str) -> Command:
        """Sandboxed command that calls pytest with these arguments."""
        line = shlex.join([self.python, "-m", "pytest", "-p", "no:cacheprovider", *self.options])
        env = {"PYTHONDONTWRITEBYTECODE": "1"}
        return Command(f"{line} {' '.join(words)}", self.folder, self.timeout, env, view=self.view)


class SuiteRunner:
    """Implements `Runner` and `Scorer`: one test at a time, 1 where it passes."""

    def __init__(self, suite: Suite, scratch: Scratch, tests: Mapping[str, str]) -> None:
        self._suite = suite
        self._scratch = scratch
        self.source = repr((suite.python, suite.options, suite.timeout, sorted(tests.items())))
        """Fingerprint of tests and settings, so that resume detects changes."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run a test once; a resumed run takes the recorded result instead of running it again."""
        request = {"pytest": case.id, "job": list(job)}
        return await scope.call(request, Rollout, lambda: self._execute(candidate, case))

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Score of the test: 1 if it passed, else 0 with pytest's message."""
        return Score(rollout.metrics, findings_in(rollout.trace))

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._scratch.close()

    async def _execute(self, candidate: Candidate, case: Case) -> Rollout | Failure:
        words = ("-q", f'--junitxml="$KEPT_OUTPUT/{RESULT}"', shlex.quote(case.id))
        try:
            with self._scratch.workspace(candidate, case) as workspace:
                ended = await workspace.run(self._suite.command(*words))
                output = workspace.read_output()
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if isinstance(ended, Failure):
            return ended
        if isinstance(output, Failure):
            return output
        if ended.timed_out:
            message = f"no end after {count(self._suite.timeout, 'second')}"
            return Failure("timeout", "candidate", message, ended.stdout[-4000:])
        told = _read(output.files.get(RESULT))
        if ended.code not in RAN or told is None:
            last = (ended.stdout.strip().splitlines() or [str(ended)])[-1]
            message = f"the test did not run (exit {ended.code}): {last[:300]}"
            return Failure("crash", "candidate", message, ended.stdout[-4000:])
        passed = ended.code == 0 and not told
        record = {"test": case.id, "outcome": "passed"}
        if not passed:
            # the first line summarizes the rest in findings
            record |= {"outcome": "not passed", "Feedback": told[:1000], "output": ended.stdout}
        trace = tuple(trace_of({path: [record] for path in candidate.texts}))
        return Rollout(metrics={"score": float(passed)}, trace=trace)


def optimize(
    folder: str | Path, files: Sequence[str], tests: Sequence[str] = (), **terms: Unpack[Terms]
) -> Result:
    """Improve files of a folder by the tests in it, and keep only changes that pass more of them.

    The folder itself is never written to; `result.best` has the files.

    Args:
        folder: where pytest is to be run.
        files: patterns of the files that may change, below the folder.
        tests: tests to use, as pytest arguments; by default all that pytest finds.
        **terms: see `Terms`. The gate is that of `kept.optimize`: tests are few and have little
            noise, so that one pass over them may have to do.
    """
    unknown = [name for name in terms if name not in Terms.__annotations__]
    if unknown:
        hint = f"there are {', '.join(Terms.__annotations__)}"
        raise SetupError(f"`{unknown[0]}` is no argument of this call", hint=hint)
    if "testset" in terms:
        hint = "the third share of `split` is measured at the end"
        raise SetupError("`testset` means nothing here: all tests are collected", hint=hint)
    check_own(terms)
    for name, given in (("files", files), ("tests", tests)):
        if isinstance(given, str):
            raise SetupError(f"`{name}` is a text, and not a list", hint=f'write ["{given}"]')
    tree = Path(folder).resolve()
    if not tree.is_dir():
        raise SetupError(f"there is no folder {folder}", hint="give the one that pytest is run in")
    texts = {path.relative_to(tree).as_posix(): _text(path) for path in _found(tree, files)}
    # a file that configures pytest could make failing tests pass
    if telling := [name for name in texts if Path(name).name in SETTINGS]:
        hint = "leave it out of `files`: what tests are and when they pass is not up for change"
        raise SetupError(f"the candidate could change {telling[0]}, which tells pytest", hint=hint)
    scratch = Scratch({name: (tree / name).stat().st_mode & 0o777 for name in texts})
    suite = _suite(tree, terms)
    try:
        ids = _collect(suite, scratch, Candidate(texts), tests)
        if changeable := [id_ for id_ in ids if id_.partition("::")[0] in texts]:
            hint = "leave test files out of `files`"
            raise SetupError(f"the candidate could change the test {changeable[0]}", hint=hint)
        ratio = parse_ratio(terms.get("split", "3:5:2"))
        cases = split_cases([Case(id_, {"test": id_}) for id_ in ids], ratio, terms.get("seed", 0))
        proposers = (
            [*make_proposers(texts, terms.get("proposers", ()))] if "proposers" in terms else []
        )
        proposers += _reflecting(texts, terms)
        defaults: Terms = {"bounds": (0.0, 1.0), **terms}
        runner = SuiteRunner(suite, scratch, _test_files(tree, ids, texts))
        return start(texts, runner, Data(cases, {}), proposers, defaults, None)
    finally:
        scratch.close()


def _suite(tree: Path, terms: Terms) -> Suite:
    home = Home(Path(terms["home"])) if "home" in terms else Home.find(Path.cwd())
    python = terms.get("python", sys.executable)
    seen = tuple(dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix), Path(python).parent)))
    hidden = tuple(p for p in (home.path.resolve(), tree / ".git") if p.exists())
    view = View(tree, hidden, seen=seen, network=terms.get("network", "none"))
    return Suite(tree, python, tuple(terms.get("options", ())), terms.get("timeout", 60.0), view)


def _collect(suite: Suite, scratch: Scratch, seed: Candidate, tests: Sequence[str]) -> list[str]:
    """Ids of all tests, collected with the seed in place."""
    words = ("--collect-only", "-q", *map(shlex.quote, tests))

    async def do() -> Exit | Failure:
        with scratch.workspace(seed, IMPLICIT_CASE) as workspace:
            return await workspace.run(suite.command(*words))

    # in a thread of its own: the caller may already run an event loop
    with ThreadPoolExecutor(1) as apart:
        ended = apart.submit(asyncio.run, do()).result()
    if isinstance(ended, Failure):
        raise SetupError(f"pytest cannot be run: {ended.message}")
    found = [
        line
        for line in ended.stdout.splitlines()
        if "::" in line and " " not in line.partition("::")[0]
    ]
    if not ended.ok or not found:
        said = (ended.stdout.strip() or ended.stderr.strip()).splitlines() or ["nothing"]
        hint = f"`{suite.command(*words).line}` says so; try it in {suite.folder}"
        if said[-1].endswith("No module named pytest"):
            hint = "`pip install pytest`, or give `python`, an interpreter that has it"
        raise SetupError(f"pytest collects no tests: {said[-1]}", hint=hint)
    return found


def _test_files(tree: Path, ids: Sequence[str], texts: Mapping[str, str]) -> dict[str, str]:
    """Digests of the test files and of each `conftest.py` in the folders above them."""
    tests = {tree / id_.partition("::")[0] for id_ in ids}
    above = {parent / "conftest.py" for test in tests for parent in test.parents}
    found = {path for path in (*tests, *above) if path.is_relative_to(tree) and path.is_file()}
    names = {path.relative_to(tree).as_posix(): path for path in found}
    # files that a candidate may change are not part of the fingerprint
    return {name: digest(path) for name, path in names.items() if name not in texts}


def _reflecting(texts: dict[str, str], terms: Terms) -> Iterator[Proposer]:
    lm = terms.get("reflection_lm")
    told = component_prompt(terms, asked=lm is not None)
    if lm is None:
        return
    size = terms.get("reflection_minibatch_size", 3)
    author = replace(author_of(lm, terms), told=told)
    yield Reflecting(author, tuple(texts), size, perfect=1.0)


def _found(tree: Path, patterns: Sequence[str]) -> list[Path]:
    for pattern in patterns:
        path = Path(pattern)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            hint = f"give patterns of files below {tree}, as seen from there"
            raise SetupError(f"`{pattern}` is no pattern of files below the folder", hint=hint)
    found = dict.fromkeys(
        p for pattern in patterns for p in sorted(tree.glob(pattern)) if p.is_file()
    )
    if not found:
        hint = f"give patterns of files below {tree}"
        raise SetupError(f"there is no file `{', '.join(patterns)}`", hint=hint)
    return list(found)


def _text(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise SetupError(f"cannot read {path}: {error}", hint="files are UTF-8 text") from error


def _read(result: bytes | None) -> str | None:
    """Problems in pytest's report; empty if all tests passed, None without a usable report."""
    if result is None or len(result) > MOST_REPORT:
        return None
    try:
        cases = list(ElementTree.fromstring(result).iter("testcase"))
    except ElementTree.ParseError:
        return None
    told = [
        f"{child.tag}: {child.get('message') or ''}"
        for case in cases
        for child in case
        if child.tag in ("failure", "error", "skipped") and child.get("type") != "pytest.xfail"
    ]
    return "\n".join(told) if cases else None
