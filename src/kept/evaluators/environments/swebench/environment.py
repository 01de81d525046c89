"""SWE-bench: a bug report and a repository, graded by the repository's own tests.

A student works with a shell in a copy of the repository at its base commit. The resulting changes
are the patch that is graded. Neither Docker nor the network is needed: see `testbed.py`.
"""

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kept.core.case import Case, Cases
from kept.core.llm import ToolAnswer, ToolOffer
from kept.core.ports import Scope, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Rollout
from kept.core.text import count, words_of
from kept.errors import Problem, SetupError
from kept.evaluators.environments.base import (
    About,
    Defect,
    Environment,
    Episode,
    Graded,
    Item,
    Posed,
    Turn,
    initial,
)
from kept.evaluators.environments.datasets import Fields, as_items, refuse
from kept.evaluators.environments.swebench.docker import ImageTestbeds, why_no_docker
from kept.evaluators.environments.swebench.evaluation import Evaluation, evaluate, why_useless
from kept.evaluators.environments.swebench.instances import (
    MOST_BYTES,
    Instance,
    Wanted,
    instance_of,
    read_instances,
)
from kept.evaluators.environments.swebench.testbed import (
    LIMITS,
    Sources,
    Testbed,
    Testbeds,
    split_by_repo,
)
from kept.evaluators.tools.journalled_call import journalled
from kept.evaluators.tools.python_code import data_bench
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellSettings, ShellTool
from kept.sandbox.capabilities import abilities
from kept.sandbox.workspace import Scratch

EVALUATION = "evaluation.json"
"""File of a rollout with the verdict on its patch."""

COMMAND_SECONDS = 180.0
"""Time limit for one command of a student."""

_DIFF_SECONDS = 120.0
_MOST_DIFF = 2 * MOST_BYTES
"""Limit of a patch in base64, which makes 4 bytes of 3: a patch within `MOST_BYTES` fits."""

_VARYING = re.compile(r"\b\d+\.\d+ ?s(?:econds)?\b|\b0x[0-9a-f]+\b")
"""Durations and addresses, removed from logs so that a repeated rollout is identical."""
_ABOUT = (
    "Run a bash command in the repository. Every call starts in its root folder, in a new shell: "
    "files stay, variables and folders that were changed into do not. `python` is the one that the "
    "repository is installed in. There is no network."
)


@dataclass(slots=True, kw_only=True)
class RepositoryEpisode(Episode):
    """Episode of an instance, from its report to the verdict of the tests."""

    instance: Instance
    posed: Posed
    scope: Scope
    scratch: Scratch
    testbed: Callable[[Instance], Awaitable[Testbed | Failure]]
    turns: asyncio.Semaphore
    """Limits test runs at once."""
    seconds: float
    """Time limit for all commands of the student together."""
    test_seconds: float
    _bed: Testbed | None = field(default=None, init=False)
    _workspace: EpisodeWorkspace | None = field(default=None, init=False)

    async def pose(self) -> Posed | Failure:
        """Copy the repository and ask for the fix."""
        bed = await self.testbed(self.instance)
        if isinstance(bed, Failure):
            return bed
        settings = ShellSettings(
            hidden=bed.hidden,
            seen=bed.seen(),
            env=bed.variables,
            limits=LIMITS,
            seconds=min(self.seconds, COMMAND_SECONDS),
        )
        workspace = bed.workspace(self.scratch, settings)
        try:
            await workspace.open(bed.repo)
        except (SetupError, OSError) as error:
            return Failure("harness", "infrastructure", str(error), tried=True)
        self._bed, self._workspace = bed, workspace
        return self.posed

    def tools(self) -> Sequence[Tool]:
        """The shell."""
        assert self._workspace is not None, "it is posed"
        return (RepositoryShell(ShellTool(self._workspace, _ABOUT), self.seconds),)

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Take what was changed as the patch, and run the tests on it; journalled, so run once."""
        assert self._bed is not None and self._workspace is not None, "it is posed"
        ended = await self._workspace.run(self._bed.diff_line(), _DIFF_SECONDS, _MOST_DIFF)
        if isinstance(ended, Failure):
            return ended
        if not ended.ok:
            return Failure("harness", "candidate", f"git cannot compare the repository: {ended}")
        if ended.cut:
            size = f"more than {MOST_BYTES:,} bytes"
            return Failure("limit", "candidate", f"the changes of the repository have {size}")
        diff = base64.b64decode(ended.stdout)
        bed, patch = self._bed, diff.decode("utf-8", "surrogateescape")
        known_by = hashlib.sha256(diff).hexdigest()
        request = {"evaluate": self.instance.id, "patch": known_by}

        async def run() -> ToolAnswer | Failure:
            async with self.turns:
                found = await evaluate(self.instance, bed, patch, self.test_seconds)
            return found if isinstance(found, Failure) else ToolAnswer(_told(found))

        answer = await journalled(self.scope, request, run)
        if isinstance(answer, Failure):
            return answer
        told = json.loads(answer.text)
        return Turn(output=patch, metrics=told["metrics"], files={EVALUATION: answer.text.encode()})

    async def close(self) -> None:
        """Remove the copy."""
        if self._workspace is not None:
            self._workspace.close()


@dataclass(slots=True)
class RepositoryShell:
    """Shell of an instance: one command at a time, with one time limit for all."""

    shell: ShellTool
    seconds: float
    keeps_state: bool = True
    _spent: float = field(default=0.0, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    @property
    def offer(self) -> ToolOffer:
        """The offer of the shell."""
        return self.shell.offer

    async def use(self, arguments: Mapping[str, object], scope: Scope) -> ToolAnswer | Failure:
        """Run a command, unless those before it took all the time."""
        # in the order that they are asked for: each may build on the one before
        async with self._turn:
            if self._spent >= self.seconds:
                words = f"the commands took more than {count(self.seconds, 'second')}"
                return Failure("timeout", "candidate", words)
            answer = await self.shell.use(arguments, scope)
            if isinstance(answer, ToolAnswer):
                # as the journal has it, so that a resume counts the same
                self._spent += answer.seconds
            return answer


def _told(found: Evaluation) -> str:
    report = found.report
    fix = len(report.fixed) + len(report.not_fixed)
    keep = len(report.maintained) + len(report.broken)
    metrics = {
        "resolved": float(found.resolved),
        "fail_to_pass": len(report.fixed) / fix,
        "pass_to_pass": len(report.maintained) / keep if keep else 1.0,
    }
    told = {
        "resolution": report.resolution,
        "counts": str(report),
        "why": found.why,
        "metrics": metrics,
        "log": _VARYING.sub("", found.log),
    }
    return json.dumps(told, sort_keys=True)


SYSTEM = """\
You fix bugs in Python repositories. You have a shell in the repository, where every command starts
in its root folder. Find the cause, change the source so that the report is answered, and run tests
that show it. Do not change existing tests, and leave no files behind that are no part of the fix.
When the fix is complete, say in a few words what you changed, without using the shell: the
repository is then taken as you left it."""

MIN_GOLD_WORDS = 4
"""Minimum number of words of a gold patch line that may not be in a skill."""


@dataclass(frozen=True, kw_only=True)
class SweBench(Environment):
    """SWE-bench environment: one case is one bug."""

    dataset_name: Literal["", "lite", "verified", "full"] = "lite"
    """Dataset whose task folders are used; empty for all."""
    hf_split: str = "test"
    """Split of the dataset whose task folders are used."""
    repos_dir: Path = Path("data/swebench_repos")
    """Git repositories, as `owner__name`."""
    tasks_dir: Path | None = None
    """Task folders that say how to set up the rows of a dataset."""
    wheels_dir: Path | None = None
    """Wheels that packages are installed from."""
    pythons: tuple[Path, ...] = ()
    """Interpreters besides those on the PATH, of pyenv and of uv."""
    network: bool = False
    """Allow cloning missing repositories and installing packages from an index."""
    clone_url: str = "https://github.com/{repo}.git"
    runtime: Literal["local", "docker"] = "local"
    """`docker` takes the published image of an instance."""
    verify: bool = True
    """Leave out instances whose gold and empty patch get the same verdict here."""
    use_hints: bool = False
    """Show the comments on the report."""
    step_limit: int = 50
    """Maximum number of replies with shell calls."""
    cost_limit: float = 3.0
    """Cost limit in USD of a student's replies on an instance; 0 for no limit."""
    timeout_per_instance: float = 600.0
    """Time limit in seconds for all commands of a student on an instance."""
    test_timeout: float = 900.0
    """Seconds for one run of the tests."""
    eval_workers: int = 8
    """Maximum number of test runs at once."""
    _scratch: Scratch = field(default_factory=Scratch, init=False, repr=False, compare=False)
    _data: set[Path] = field(default_factory=set[Path], init=False, repr=False, compare=False)
    _turns: asyncio.Semaphore = field(init=False, repr=False, compare=False)

    name = "swebench"
    simulates = True
    played = "has its student work command by command in a shell that Kept keeps"
    strata = "repo"
    data = (
        "SWE-bench: a checkout of github.com/SWE-bench/swe-bench-tasks as `env.data_path`, or rows "
        "of the dataset (huggingface.co/datasets/SWE-bench/SWE-bench_Lite: instance_id, repo, "
        "base_commit, patch, test_patch, FAIL_TO_PASS, PASS_TO_PASS …) as JSON or JSON lines with "
        "that checkout's tasks/ as `env.tasks_dir`; and in `env.repos_dir` a git clone of each "
        "repository as owner__name"
    )

    def __post_init__(self) -> None:
        for key in ("step_limit", "eval_workers"):
            if getattr(self, key) < 1:
                raise ValueError(f"`{key}` is less than 1")
        for key in ("timeout_per_instance", "test_timeout"):
            if getattr(self, key) <= 0:
                raise ValueError(f"`{key}` is not above 0")
        if self.cost_limit < 0:
            raise ValueError("`cost_limit` is below 0")
        object.__setattr__(self, "_turns", asyncio.Semaphore(self.eval_workers))

    def needs(self) -> str:
        """Name what is missing: the sandbox, or Docker if the config asks for it."""
        if self.runtime == "docker":
            return why_no_docker()
        able = abilities()
        return "" if able.walls else f"there is no sandbox, install bubblewrap ({able.why_not})"

    def replies(self) -> int:
        """Return `step_limit`, and one more for the final reply."""
        return self.step_limit + 1

    def most_usd(self) -> float | None:
        """Return `cost_limit`; None for no limit."""
        return self.cost_limit or None

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("swebench")

    def read(self, path: Path) -> Iterable[Item]:
        """Instances of task folders, JSON, JSON lines or CSV."""
        self._data.add(path)
        fields = Fields()
        wanted = Wanted(self.dataset_name, self.hf_split, self.tasks_dir)
        return as_items(fields, read_instances(path, fields, wanted))

    def split(self, cases: Sequence[Case], ratio: Sequence[int], seed: int) -> Cases:
        """Split each repository by itself, so that every part has some of its cases."""
        return split_by_repo(cases, ratio, seed)

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Instances whose gold and empty patch get the same verdict, or that cannot be set up."""
        if not self.verify or self.needs() or not items:
            return ()
        # in a separate thread: an event loop may be running here
        with ThreadPoolExecutor(1) as pool:
            found = pool.submit(asyncio.run, self._verified(items)).result()
        words = [why.message if isinstance(why, Failure) else why for why in found]
        if all(words):
            told = zip((item.where for item in items), words, strict=True)
            refuse([Problem(where, "", why) for where, why in told])
        told = zip((item.case.id for item in items), words, strict=True)
        return [Defect(one, why, left_out=True) for one, why in told if why]

    def pose(self, case: Case) -> Posed:
        """The report; the repository is the shell's."""
        instance = instance_of(case)
        parts = [f"# Repository\n{instance.repo}", f"# Report\n{instance.problem.strip()}"]
        if self.use_hints and instance.hints.strip():
            parts.append(f"# Comments\n{instance.hints.strip()}")
        return Posed("\n\n".join(parts), SYSTEM)

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """The repository at its base commit, with a shell in it."""
        return RepositoryEpisode(
            instance=instance_of(case),
            posed=self.pose(case),
            scope=scope,
            scratch=self._scratch,
            testbed=self._testbed,
            turns=self._turns,
            seconds=self.timeout_per_instance,
            test_seconds=self.test_timeout,
        )

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Grade as resolved or not, by the tests that ran after the last reply."""
        told = json.loads(rollout.files[EVALUATION])
        resolved = float(rollout.metrics["resolved"])
        why = "" if resolved else f"not resolved: {told['why'] or told['counts']}"
        return Graded(resolved, resolved, why, f"{told['resolution']}, {told['counts']}")

    def about(self, case: Case) -> About:
        """The report; what is expected is the gold patch."""
        instance = instance_of(case)
        return About(instance.problem, instance.repo, instance.gold, golds=_gold_lines(instance))

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._scratch.close()

    def _hidden(self) -> tuple[Path, ...]:
        """Data, repositories with later commits, and the folder of the run."""
        places = (*self._data, self.repos_dir, *((self.tasks_dir,) if self.tasks_dir else ()))
        return data_bench(self._scratch, places).hidden

    async def _testbed(self, instance: Instance) -> Testbed | Failure:
        if self.runtime == "docker":
            return await ImageTestbeds().of(instance)
        more = (self.wheels_dir, self.pythons, self.network, self.clone_url)
        found = await Testbeds(Sources(self.repos_dir, *more)).of(instance)
        return found if isinstance(found, Failure) else found.hiding(self._hidden())

    async def _verified(self, items: Sequence[Item]) -> list[str | Failure]:
        turns = asyncio.Semaphore(self.eval_workers)

        async def one(instance: Instance) -> str | Failure:
            async with turns:
                testbed = await self._testbed(instance)
                if isinstance(testbed, Failure):
                    return testbed
                return await why_useless(instance, testbed, self.test_timeout)

        return list(await asyncio.gather(*(one(instance_of(item.case)) for item in items)))


def _gold_lines(instance: Instance) -> tuple[str, ...]:
    """Added lines of the gold patch with enough words; else all added lines as one."""
    lines = [line[1:].strip() for line in instance.gold.splitlines()]
    added = [line[:1] == "+" and not line.startswith("+++") for line in instance.gold.splitlines()]
    found = [line for line, new in zip(lines, added, strict=True) if new]
    telling = tuple(line for line in found if len(words_of(line)) >= MIN_GOLD_WORDS)
    return telling or (" ".join(found),)
