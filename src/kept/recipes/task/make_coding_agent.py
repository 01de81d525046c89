"""Runners and proposers that use agent CLIs, and hashes for resume."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from kept.core.case import Case, Cases, implicit_cases
from kept.evaluators.runners.coding_agent import (
    AgentProposerSpec,
    AgentRunner,
    AgentRunnerSpec,
    Outfit,
)
from kept.evaluators.runners.model import Form, fields_of
from kept.models.prices import rates_of
from kept.models.providers import missing
from kept.sandbox.bwrap import can_be_seen
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.definition import Program, program_of
from kept.sandbox.coding_agents.run import CLIS, Harness
from kept.sandbox.command import Command
from kept.sandbox.workspace import MAX_OUTPUT, Scratch
from kept.spec.paths import find
from kept.spec.source import Source
from kept.spec.validate import said
from kept.spec.yaml import Loc

MAX_BYTES = 64 * 1024 * 1024
"""A larger file is known by its size alone."""


def hash_of(value: object) -> str:
    """A short hash of any JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest(path: Path) -> str:
    """What tells whether a file is still the same."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            return f"{size} bytes"
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        return f"unreadable: {error.strerror}"


_FIELD = re.compile(r"\{\{\s*([\w-]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Sending:
    """What agents are sent out with."""

    folder: Path
    scratch: Scratch
    hold: Callable[[Command, Program | None], Command]
    """Puts walls round a command that starts a program."""


def harness_of(
    spec: AgentRunnerSpec | AgentProposerSpec, kit: Sending, most_output: int = MAX_OUTPUT
) -> Harness:
    """The harness that an agent of a task is run by."""
    cli = CLIS[spec.agent]
    command = Command(cli.program, kit.folder, spec.timeout_seconds)
    held = kit.hold(command, program_of(cli))
    worst = spec.usd_per_call if isinstance(spec, AgentProposerSpec) else None
    config = spec.model.config(kit.folder)
    return Harness(cli, config, held, kit.scratch, most_output, worst)


def make_agent(
    spec: AgentRunnerSpec, kit: Sending, files: Mapping[str, tuple[str, ...]], most_output: int
) -> AgentRunner:
    """The agent that runs the cases of a task."""
    form = Form(spec.prompt or (), spec.input or ())
    outfit = Outfit(spec.skill or (), spec.instructions or (), files, kit.folder)
    return AgentRunner(harness_of(spec, kit, most_output), form, outfit)


def check_agent(source: Source, loc: Loc, spec: AgentRunnerSpec | AgentProposerSpec) -> None:
    """Report what keeps an agent from being run here: program, walls, network."""
    cli = CLIS[spec.agent]
    walls = said(source, ("sandbox", "walls"), "auto") != "off"
    program = program_of(cli)
    if program is None:
        message = f"there is no program `{cli.program}` on the PATH"
        source.report((*loc, "agent"), message, f"`{cli.install}` installs it")
    elif (
        walls
        and abilities().walls
        # beside the place where scratch folders are made
        and not all(can_be_seen(one, Path(gettempdir()).resolve()) for one in program.folders)
    ):
        message = f"`{program.path}` lies beside what no agent may see between walls"
        source.report((*loc, "agent"), message, f"`{cli.install}` installs it elsewhere")
    if walls and not (able := abilities()).walls:
        message = f"an agent runs commands, and nothing holds them here: {able.why_not}"
        hint = "install bubblewrap, or accept it with `sandbox.walls: off`"
        source.report((*loc, "agent"), message, hint)
    network = said(source, ("sandbox", "network"))
    if network in ("none", "loopback"):
        message = f"`{network}` would keep `{spec.agent}` from its model"
        hint = "leave it out, and agents alone have the network; or write `on`"
        source.report(("sandbox", "network"), message, hint)


def check_artifacts(source: Source, spec: AgentRunnerSpec, texts: Collection[str]) -> None:
    """Report artifacts that an agent is to have and that are not there, or that it has none."""
    if not texts:
        return  # told already
    known = f"there are {', '.join(sorted(texts)[:5])}"
    for key, names in spec.artifacts.items():
        for name in names:
            if name not in texts:
                source.report(("runner", key), f"there is no artifact `{name}`", known)
    if not any(spec.artifacts.values()) and not spec.files:
        message = "the agent is given no artifact, so that no change could make a difference"
        source.report(("runner",), message, "name it in `skill`, `instructions` or `prompt`")


def given_files(
    source: Source, spec: AgentRunnerSpec, cases: Cases | None
) -> dict[str, tuple[str, ...]]:
    """The files of each case, by paths in the task's folder; what is wrong is reported."""
    if cases is None and said(source, ("cases",)) is not None:
        return {}  # told already
    rows = (cases or implicit_cases()).by_id.values()
    hits: dict[str, tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for case in rows if spec.files else ():
        names: list[str] = []
        for number, pattern in enumerate(spec.files or ()):
            loc = ("runner", "files", number)
            whole = _filled(source, loc, pattern, case)
            if whole is not None and whole not in hits:
                hits[whole] = tuple(_below(source, path) for path in _files(source, loc, whole))
            names += hits.get(whole or "", ())
        found[case.id] = tuple(dict.fromkeys(names))
    return found


def file_hashes(
    source: Source, files: Mapping[str, tuple[str, ...]], artifacts: Collection[str]
) -> dict[str, str]:
    """A hash of each file that agents are given, by its name; artifacts are known already."""
    names = sorted({name for row in files.values() for name in row} - {*artifacts})
    return {f"`{name}`": digest(source.folder / name) for name in names}


def agent_warnings(
    specs: Collection[AgentRunnerSpec | AgentProposerSpec], folder: Path
) -> tuple[str, ...]:
    """What should be known of agents before a run."""
    told: list[str] = []
    for spec in specs:
        config = spec.model.config(folder)
        if lack := missing(config):
            told.append(f"`{spec.agent}` cannot ask `{config.name}`: {lack}")
        if rates_of(config) is None:
            told.append(f"the price of `{config.name}` is not known: what it costs is not counted")
    return tuple(dict.fromkeys(told))


def _filled(source: Source, loc: Loc, pattern: str, case: Case) -> str | None:
    """A pattern with the fields of a case in it; None, and a report, where it has not got them."""
    data = fields_of(case)
    for name in _FIELD.findall(pattern):
        if not isinstance(data.get(name), str | int):
            source.report(loc, f"case `{case.id}` has no text or number in a field `{name}`")
            return None
    return _FIELD.sub(lambda hit: str(data[hit[1]]), pattern)


def _files(source: Source, loc: Loc, pattern: str) -> list[Path]:
    hits = find(source, loc, pattern)
    files = [path for path in hits if path.is_file()]
    if hits and not files:
        source.report(loc, f"`{pattern}` matches folders only", f"write `{pattern}/**`")
    outside = source.folder.resolve()
    for path in files:
        if not path.resolve().is_relative_to(outside):
            source.report(loc, f"`{_below(source, path)}` is a link that leaves the folder")
    return files


def _below(source: Source, path: Path) -> str:
    return path.relative_to(source.folder).as_posix()
