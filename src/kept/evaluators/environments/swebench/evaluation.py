"""Test execution on a SWE-bench patch, and the verdict.

The verdict follows the published harness. A test of `FAIL_TO_PASS` must pass, and one of
`PASS_TO_PASS` must pass or be skipped. A test that did not run has failed.

Tests run in the sandbox, on a fresh copy of the repository. First the patch is applied. Then the
files of the test patch are restored and that patch is applied, so that changing tests does not
help. A parser of Kept's own reads the output of the test command.
"""

import asyncio
import hashlib
import json
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from shlex import quote
from typing import Literal

from kept.core.rollout import Failure
from kept.core.text import count
from kept.evaluators.environments.swebench.instances import Instance, PatchRefused, touched_files
from kept.evaluators.environments.swebench.logs import (
    PARSERS,
    Status,
    Statuses,
    parser_name,
    unittest_name,
)
from kept.evaluators.environments.swebench.testbed import REPO, Testbed
from kept.sandbox.bwrap import INSIDE, Site
from kept.sandbox.command import Exit
from kept.sandbox.temp_dirs import scratch_folder

Resolution = Literal["RESOLVED_FULL", "RESOLVED_PARTIAL", "RESOLVED_NO"]

_PASSING = ("PASSED", "XFAIL")


@dataclass(frozen=True, slots=True)
class Report:
    """Results of the tests of an instance."""

    fixed: tuple[str, ...] = ()
    not_fixed: tuple[str, ...] = ()
    maintained: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def resolution(self) -> Resolution:
        """Full if all tests are right; partial if some are fixed and none is broken."""
        if self.broken or (self.not_fixed and not self.fixed):
            return "RESOLVED_NO"
        return "RESOLVED_PARTIAL" if self.not_fixed else "RESOLVED_FULL"

    def __str__(self) -> str:
        """Counts in one line."""
        fix, keep = len(self.fixed) + len(self.not_fixed), len(self.maintained) + len(self.broken)
        return (
            f"FAIL_TO_PASS {len(self.fixed)} of {fix}, "
            f"PASS_TO_PASS {len(self.maintained)} of {keep}"
        )


def report_of(
    statuses: Mapping[str, Status], fail_to_pass: Sequence[str], pass_to_pass: Sequence[str]
) -> Report:
    """Compare the results of the tests with the expected ones."""
    fixed = {name: _status_of(name, statuses) in _PASSING for name in fail_to_pass}
    kept = {name: _status_of(name, statuses) in (*_PASSING, "SKIPPED") for name in pass_to_pass}
    return Report(
        fixed=tuple(name for name, good in fixed.items() if good),
        not_fixed=tuple(name for name, good in fixed.items() if not good),
        maintained=tuple(name for name, good in kept.items() if good),
        broken=tuple(name for name, good in kept.items() if not good),
    )


def _status_of(name: str, statuses: Mapping[str, Status]) -> Status | None:
    """Status of a test; None if it did not run.

    Published lists hold ids that were cut inside their parameters. Such a name stands for all ids
    that begin with it, if they all passed or all did not.
    """
    status = statuses.get(name) or statuses.get(unittest_name(name))
    if status is not None:
        return status
    if name.count("[") > name.count("]"):
        found: list[Status] = [
            status for known, status in statuses.items() if known.startswith(name)
        ]
        if found and len({status in _PASSING for status in found}) == 1:
            return found[0]
    return None


_APPLY_SECONDS = 120.0
_MOST_SHOWN = 6000
_ADDED = INSIDE / "candidate"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Verdict on a patch."""

    report: Report
    why: str = ""
    """Reason why the tests did not run or did not end; empty if they ran."""
    log: str = ""
    """Last part of the output of the tests."""
    timed_out: bool = False
    """True if the tests exceeded their time limit."""

    @property
    def resolved(self) -> bool:
        """True if the bug is fixed and nothing is broken."""
        return not self.why and self.report.resolution == "RESOLVED_FULL"

    def __str__(self) -> str:
        """Resolution, counts and trouble in one line."""
        parts = (self.report.resolution, str(self.report), self.why)
        return "; ".join(part for part in parts if part)


async def evaluate(
    instance: Instance, testbed: Testbed, patch: str, seconds: float
) -> Evaluation | Failure:
    """Run the tests of an instance on a patch, which may be empty."""
    try:
        touched_files(patch)
    except PatchRefused as refused:
        return _unresolved(instance, str(refused))
    with scratch_folder("swebench") as scratch:
        folder = scratch / "one" / "w"
        site = Site(folder)
        try:
            folder.mkdir(parents=True)
            copied = folder / "output"
            await asyncio.to_thread(shutil.copytree, testbed.repo, copied, symlinks=True)
            (folder / "candidate").mkdir()
            for name, text in (("model", patch), ("test", instance.test_patch)):
                data = text.encode("utf-8", "surrogateescape")
                (folder / "candidate" / f"{name}.patch").write_bytes(data)
        except OSError as error:
            message = f"cannot copy the repository of {instance.id}: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        for name, line in _preparing(instance, patch):
            ended = await testbed.run(site, line, _APPLY_SECONDS)
            if isinstance(ended, Failure):
                return ended
            if not ended.ok:
                lines = ended.stderr.strip().splitlines() or [str(ended)]
                why = lines[-1][:300].replace(f"{REPO}/", "")
                return _unresolved(instance, f"the {name} does not apply: {why}")
        command = f"{{ {instance.setup.test_cmd}\n}} 2>&1"
        ended = await testbed.run(site, command, seconds)
    if isinstance(ended, Failure):
        # for example, the tests filled the disk: that counts as failed tests
        return ended if ended.blame != "candidate" else _unresolved(instance, ended.message)
    # a log of millions of lines takes a while to read
    return await asyncio.to_thread(_evaluation, instance, ended, seconds)


async def why_useless(instance: Instance, testbed: Testbed, seconds: float) -> str | Failure:
    """Reason why an instance cannot tell a right patch from a wrong one; empty if it can.

    Its gold patch must resolve it, and the empty one must not. The result is cached beside the
    testbed, for it takes two runs of the tests. A timeout is not cached: it depends on the
    machine and the limit.
    """
    setup = instance.setup
    told = [instance.gold, instance.test_patch, setup.test_cmd, setup.log_parser]
    told += [list(instance.fail_to_pass), list(instance.pass_to_pass)]
    key = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    place = testbed.folder / f"checked-{key}.json"
    with suppress(OSError, ValueError, KeyError):
        return str(json.loads(place.read_text(encoding="utf-8"))["why"])
    gold = await evaluate(instance, testbed, instance.gold, seconds)
    if isinstance(gold, Failure):
        return gold
    empty = await evaluate(instance, testbed, "", seconds) if gold.resolved else gold
    if isinstance(empty, Failure):
        return empty
    why = ""
    if not gold.resolved:
        why = f"its gold patch does not resolve it here ({gold})"
    elif empty.resolved:
        why = "its tests pass without any patch"
    if gold.timed_out or empty.timed_out:
        return why
    part = place.with_suffix(f".{uuid.uuid4().hex}")
    part.write_text(json.dumps({"why": why, "log": gold.log if why else ""}), encoding="utf-8")
    part.replace(place)
    return why


def statuses_of(instance: Instance, ended: Exit) -> Statuses:
    """Results of a test run; none if its exit code and its output disagree.

    A patch can print `PASSED` lines itself. If a command failed without a failed test, its output
    is not believed.
    """
    setup = instance.setup
    statuses = PARSERS[parser_name(setup.log_parser, setup.test_cmd)](ended.stdout)
    if ended.code and not {"FAILED", "ERROR"} & {*statuses.values()}:
        return {}
    return statuses


def _evaluation(instance: Instance, ended: Exit, seconds: float) -> Evaluation:
    log = ended.stdout[-_MOST_SHOWN:]
    if ended.timed_out:
        message = f"the tests did not end within {count(seconds, 'second')}"
        return replace(_unresolved(instance, message, log), timed_out=True)
    statuses = statuses_of(instance, ended)
    report = report_of(statuses, instance.fail_to_pass, instance.pass_to_pass)
    return Evaluation(report, "" if statuses else f"no test reported a result: {ended}", log)


def _preparing(instance: Instance, patch: str) -> list[tuple[str, str]]:
    """Lines of the shell that apply both patches, each with its name."""
    apply = "git apply --whitespace=nowarn"
    lines = [("patch", f"{apply} {_ADDED}/model.patch")] if patch.strip() else []
    files = touched_files(instance.test_patch)
    # restore the files of the test patch first: the model's patch may have changed them
    back = [
        f"if git cat-file -e HEAD:{quote(one)} 2>/dev/null; "
        f"then git checkout -q HEAD -- {quote(one)}; else rm -rf -- {quote(one)}; fi"
        for one in files
    ]
    restored = " && ".join([*back, f"{apply} {_ADDED}/test.patch"])
    return [*lines, ("test patch", restored)]


def _unresolved(instance: Instance, why: str, log: str = "") -> Evaluation:
    return Evaluation(report_of({}, instance.fail_to_pass, instance.pass_to_pass), why, log)
