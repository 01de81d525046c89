"""The verdict on a patch: which tests it had to fix, which it had to keep, and whether it did.

The rule is that of the published harness: a test of `FAIL_TO_PASS` must pass, one of `PASS_TO_PASS`
must pass or be skipped, and a test that did not run has failed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kept.evaluators.environments.swebench.logs import Status, unittest_name

Resolution = Literal["RESOLVED_FULL", "RESOLVED_PARTIAL", "RESOLVED_NO"]

_PASSING = ("PASSED", "XFAIL")


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the tests of an instance."""

    fixed: tuple[str, ...] = ()
    not_fixed: tuple[str, ...] = ()
    maintained: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    @property
    def resolution(self) -> Resolution:
        """Full where all is well; partial where a part is fixed and nothing is broken."""
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
    """Hold what the tests came to against what was expected of them."""
    fixed = {name: _status_of(name, statuses) in _PASSING for name in fail_to_pass}
    kept = {name: _status_of(name, statuses) in (*_PASSING, "SKIPPED") for name in pass_to_pass}
    return Report(
        fixed=tuple(name for name, good in fixed.items() if good),
        not_fixed=tuple(name for name, good in fixed.items() if not good),
        maintained=tuple(name for name, good in kept.items() if good),
        broken=tuple(name for name, good in kept.items() if not good),
    )


def _status_of(name: str, statuses: Mapping[str, Status]) -> Status | None:
    """Status of a test; None where it did not run.

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
