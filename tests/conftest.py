"""What every session prints at its end: the time per mark, and what was skipped for want of a tool.

`scripts/test` passes what it alone knows: `--missing MARK:PACKAGE` for a tool that is not on this
machine, `--stage NAME:MILLISECONDS:VERDICT` for what ran before pytest.
"""

import gc
import os
import sys
import tomllib
import warnings
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings

from kept.models.weights import KNOWN
from kept.settings import cache_home

# a loaded machine is no finding, and every run looks at the same examples, unless fresh are wanted
FRESH = bool(os.environ.get("KEPT_FRESH"))  # noqa: TID251 # of the tests, not of Kept
settings.register_profile(
    "kept",
    deadline=None,
    max_examples=100 if FRESH else 60,
    derandomize=not FRESH,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kept")

LONG = ({"wheel", "model"}, {"slow", "kill", "agents", "browser", "docs"})
"""Marks of tests that take minutes, and of those that take seconds."""

LONGEST, WORTH = 25, 20.0
"""Files whose time is told at the end, and the seconds from which on that is worth a line."""


def longest_first(items: list[pytest.Item]) -> None:
    """Files of long tests before others, so that no worker begins one when all others are done.

    `scripts/test` gives each worker whole files, for what a file sets up once may take minutes.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        rank = next((n for n, long in enumerate(LONG) if marks & long), len(LONG))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


class MarkReport:
    """Adds up durations by mark, and skips the marks whose tool is missing."""

    def __init__(self, config: pytest.Config) -> None:
        with (config.rootpath / "pyproject.toml").open("rb") as file:
            lines: list[str] = tomllib.load(file)["tool"]["pytest"]["ini_options"]["markers"]
        self.marks = {line.partition(":")[0] for line in lines}
        missing: list[str] = config.getoption("--missing") or []
        self.missing = dict(pair.split(":", 1) for pair in missing)
        self.stages: list[str] = config.getoption("--stage") or []
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.ran: defaultdict[str, set[str]] = defaultdict(set)
        self.files: defaultdict[str, float] = defaultdict(float)
        self.cpu: defaultdict[str, float] = defaultdict(float)
        self.skipped: Counter[str] = Counter()
        self.used = sum(os.times()[:4])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        longest_first(items)
        for item in items:
            marks = sorted({mark.name for mark in item.iter_markers()} & self.marks)
            # with the report: where several workers run the tests, who sums up has collected none
            item.user_properties.append(("marks", " + ".join(marks) or "fast"))
            for mark in marks:
                if mark in self.missing:
                    item.add_marker(pytest.mark.skip(reason=f"needs {self.missing[mark]}"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None]:
        try:
            return (yield)
        finally:
            # of this process and of all that it waited for, since the last test ended
            before, self.used = self.used, sum(os.times()[:4])
            item.user_properties.append(("cpu", self.used - before))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties)
        label = str(told["marks"])
        self.cpu[report.nodeid.partition("::")[0]] += cast("float", told.get("cpu", 0.0))
        self.seconds[label] += report.duration
        self.ran[label].add(report.nodeid)
        self.files[report.nodeid.partition("::")[0]] += report.duration
        if report.skipped:
            for mark in label.split(" + "):
                self.skipped[mark] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.ensure_newline()
        terminalreporter.section("time per mark")
        for stage in self.stages:
            name, milliseconds, verdict = stage.rsplit(":", 2)
            line = f"{name:<16} {int(milliseconds) / 1000:8.2f} s   {verdict}"
            terminalreporter.write_line(line, red=verdict != "ok")
        for label, seconds in sorted(self.seconds.items(), key=lambda entry: -entry[1]):
            count = len(self.ran[label])
            terminalreporter.write_line(f"{label:<16} {seconds:8.2f} s   {count} tests")
        for path, seconds in sorted(self.files.items(), key=lambda entry: -entry[1])[:LONGEST]:
            if seconds >= WORTH:
                line = f"{path:<48} {seconds:8.2f} s {self.cpu[path]:8.2f} s of CPU"
                terminalreporter.write_line(line)
        for mark, package in self.missing.items():
            line = f"skipped marks: {mark} (needs {package}), {self.skipped[mark]} tests"
            terminalreporter.write_line(line, yellow=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kept")
    group.addoption("--missing", action="append", default=[], metavar="MARK:PACKAGE")
    group.addoption("--stage", action="append", default=[], metavar="NAME:MILLISECONDS:VERDICT")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are cores: tests wait for processes and disks half their time."""
    # macOS cannot say which of them are ours
    ours = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, (ours or 1) * 3 // 2)


def pytest_collection_finish() -> None:
    """No test is garbage; to look through all of them, again and again, took 5 % of a run."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def nothing_aside() -> Iterator[None]:
    """For what puts aside what is no garbage: as in a process where nobody has."""
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MarkReport(config), "kept-marks")


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The weights that the tests of the mark `model` need; `scripts/test` fetches them."""
    weights = KNOWN["smollm2"]
    if not weights.present:
        pytest.skip("the weights are not here: `kept models pull smollm2` fetches them")
    pytest.importorskip("xllamacpp")
    return weights.path


@pytest.fixture
def agent_clis(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The CLIs that tests of the mark `agents` run, on the PATH; `scripts/test` fetches them."""
    folder = cache_home() / "agents"
    if not (folder / "versions").is_file():
        pytest.skip("the agent CLIs are not here: `./scripts/test` fetches them")
    programs = folder / "node_modules" / ".bin"
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")  # noqa: TID251 # a test of commands
    return programs


def peer_folder(name: str) -> Path | None:
    """Where a peer is, with all that it needs; None where it is not, or is for another Python."""
    folder = cache_home() / "peers" / name
    versions = folder / "versions"
    here = versions.is_file() and versions.read_text().split()[-1:] == [
        sys.implementation.cache_tag
    ]
    return folder if here else None


def needed_peer(name: str) -> Path:
    """The folder of a peer that a test cannot do without."""
    folder = peer_folder(name)
    if folder is None:
        pytest.skip(f"{name} is not here: `./scripts/test` fetches it")
    return folder


def peer(name: str, module: str) -> Any:
    """A module that `scripts/test` fetches, from the folder of its peer."""
    folder = needed_peer(name)
    if name == "inspect" and "dspy" in sys.modules:
        pytest.skip("dspy is loaded, which needs another version of a library: run them apart")
    # behind all others: what both have is taken from the environment of the tests
    sys.path.append(str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return import_module(module)


@pytest.fixture(scope="session")
def dspy() -> Any:
    """The module that tests of the mark `dspy` use."""
    return peer("dspy", "dspy")


@pytest.fixture(scope="session")
def inspect_ai() -> Any:
    """The module that tests of the mark `inspect` use."""
    return peer("inspect", "inspect_ai")
