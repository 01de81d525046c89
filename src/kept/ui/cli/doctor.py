"""`kept doctor`."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from kept._version import __version__
from kept.errors import KeptError
from kept.settings import install_command, kept_home
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option

if TYPE_CHECKING:
    from kept.store.reader import Run
    from kept.store.verify import Damage

State = Literal["ok", "warning", "problem"]
ENOUGH = 1024**3
"""Free bytes that a disk should have; a run of a thousand rollouts takes a hundredth of it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    name: str
    state: State
    text: str


@click.command(cls=Command, examples=("kept doctor", "kept doctor last", "kept doctor --json"))
@click.argument("run", required=False)
@click.option("--repair", is_flag=True, help="Cut damage out of RUN, so that it can be resumed.")
@json_option
def doctor(run: str | None, repair: bool, as_json: bool) -> int:
    """Check Python, sandbox and models; or verify the files of one run.

    Without RUN, reports what would block a run on this machine. With RUN, an id, a folder or
    `last`, verifies every file of the run: what is damaged, and how to recover it. --repair moves
    damaged parts to NAME.torn; `kept resume` then does only what was lost again. Exits with 2 when
    there is a problem.
    """
    if run is not None:
        return _verify(run, repair, as_json)
    if repair:
        raise click.UsageError("--repair needs a RUN")
    found = [*_python(), *_sandbox(), *_git(), *_local_models(), *_agents(), *_home()]
    if as_json:
        rows = [{"name": one.name, "state": one.state, "text": one.text} for one in found]
        _output.document({"findings": rows, "enforced": dict(_enforced())})
    else:
        signs = {"ok": "", "warning": "warning: ", "problem": "problem: "}
        width = max(len(one.name) for one in found)
        lines = (f"{one.name:<{width}}  {signs[one.state]}{one.text}".rstrip() for one in found)
        _output.answer("\n".join(lines))
    return 2 if any(one.state == "problem" for one in found) else 0


def _verify(name: str, repair: bool, as_json: bool) -> int:
    from kept.store.home import Home
    from kept.store.verify import repair_run, verify_run

    folder = Home.find(Path.cwd()).find_run(name)
    done = repair_run(folder) if repair else []
    found = verify_run(folder)
    # read the content of the run only if its files are undamaged
    if all(one.severity != "problem" for one in found):
        found += _start(folder)
    if all(one.severity != "problem" for one in found):
        done += _write_again(folder) if repair else []
        found += [*_views(folder), *_registries(folder)]
    if as_json:
        files = [
            {"file": one.place, "state": one.severity, "text": one.what, "recover": one.remedy}
            for one in found
        ]
        _output.document({"run": folder.name, "repaired": done, "files": files})
    else:
        signs = {"ok": "", "warning": "warning: ", "problem": "problem: "}
        lines = [f"repaired: {one}" for one in done]
        for one in found:
            lines.append(f"{one.place}: {signs[one.severity]}{one.what}")
            lines += [f"  recover: {one.remedy}"] if one.remedy else []
        _output.answer("\n".join(lines).replace("RUN", folder.name))
    return 2 if any(one.severity == "problem" for one in found) else 0


def _start(folder: Path) -> Iterator["Damage"]:
    """Damage in the start of a run that its recipe cannot read."""
    from kept.errors import JournalError
    from kept.recipes.registry import check_start
    from kept.store.reader import Run
    from kept.store.verify import Damage

    with suppress(JournalError), Run(folder) as run:
        started = run.state.started
        try:
            check_start(started, folder)
        except JournalError as error:
            yield Damage("journal.jsonl", "problem", error.message, error.hint or "")


def _views(folder: Path) -> Iterator["Damage"]:
    """Damage in files that Kept writes from the journal for people."""
    from kept.recipes.agent_run.journal_view import changed_files
    from kept.recipes.refine import request as refine_request
    from kept.store.reader import Run
    from kept.store.verify import Damage
    from kept.ui.report.markdown import is_report_of

    what = (
        "is not what the journal says: it was changed, or an earlier session or another version "
        "of Kept wrote it"
    )
    with Run(folder) as run, suppress(KeptError):
        if run.status == "running":
            return  # its files are those of an earlier session until this one ends
        if not is_report_of(run):
            yield Damage("report.md", "warning", what, "`kept report RUN` writes it again")
        for path in changed_files(run):
            remedy = "`kept refine RUN` and a later session write it again from the journal"
            yield Damage(path, "warning", what, remedy)
        for path in refine_request.changed_files(run):
            yield Damage(str(path), "warning", what, "`kept doctor RUN --repair` writes it again")
        for path, remedy in _changed_outputs(run):
            yield Damage(str(path), "warning", what, remedy)
        yield from _helpers(run)


def _changed_outputs(run: "Run") -> Iterator[tuple[Path, str]]:
    """Changed pages of a tuned agent, and changed deliverables in the requested output folder."""
    from kept.recipes.agent_config.request import Tuning
    from kept.recipes.agent_run.journal_view import delivered_by
    from kept.recipes.agent_run.request import Asked
    from kept.recipes.registry import request_of
    from kept.ui.cli._tune_run import pages_of

    files: dict[Path, bytes] = {}
    remedy = "`kept resume RUN` writes it again"
    asked = request_of(run, Asked)
    if request_of(run, Tuning) is not None:
        files = pages_of(run)
    elif asked is not None and asked.output is not None:
        remedy = f"copy it from {run.folder / 'output' / run.id}"
        place = run.moved(Path(asked.folder)) / asked.output
        files = {place / path: data for path, data in delivered_by(run).items()}
    for path, data in files.items():
        if path.is_file() and path.read_bytes() != data:
            yield path, remedy


def _helpers(run: "Run") -> Iterator["Damage"]:
    """Changed files of critic and applier, in `.kept/optimizer` and beside it."""
    from kept.recipes.agent_config.request import TuningFacts
    from kept.recipes.registry import facts_of
    from kept.recipes.task.make_coding_agent import digest
    from kept.store.verify import Damage

    facts = facts_of(run, TuningFacts)
    if facts is None:
        return
    for path, then in facts.helper_files.items():
        now = run.moved(Path(path))
        if now.is_file() and digest(now) != then:
            what = "changed since the run started: by a person, or it is damaged"
            yield Damage(str(now), "warning", what, "restore it from a copy, or start a new run")


def _registries(folder: Path) -> Iterator["Damage"]:
    """Damage in prompt registries: the project's, and the one that this run improved."""
    from kept.orchestrator.prompt_registry import PromptRegistry
    from kept.recipes.agent_run.make_toolkit import registry_of
    from kept.recipes.registry import facts_of
    from kept.recipes.suite.request import SuiteFacts
    from kept.store.home import Home
    from kept.store.reader import Run
    from kept.store.verify import Damage

    with Run(folder) as run:
        facts = facts_of(run, SuiteFacts)
        own = run.moved(Path(facts.registry)) if facts else None
    registries = [registry_of(Home.around(folder))]
    if own is not None and own != registries[0].path:
        registries.append(PromptRegistry(own, {}))
    for registry in registries:
        try:
            registry.check()
        except KeptError as error:
            yield Damage(str(registry.path), "problem", error.message, error.hint or "")


def _write_again(folder: Path) -> list[str]:
    """Restore the files of a refinement from its journal; return a line for each."""
    from kept.recipes.refine.request import changed_files
    from kept.store.candidate_files import write_whole
    from kept.store.reader import Run

    with Run(folder) as run:
        changed = changed_files(run)
    for path, data in changed.items():
        write_whole(path, data)
    return [f"wrote {path} again" for path in changed]


def _python() -> Iterator[Finding]:
    import platform

    yield Finding("kept", "ok", f"{__version__}, in {Path(__file__).parents[2]}")
    where = "a virtual environment" if sys.prefix != sys.base_prefix else "no virtual environment"
    yield Finding("python", "ok", f"{platform.python_version()}, {sys.executable} ({where})")
    linux = sys.platform == "linux"
    text = platform.platform() + ("" if linux else ": there are no walls round commands here")
    yield Finding("platform", "ok" if linux else "warning", text)


def _enforced() -> Iterator[tuple[str, bool]]:
    from kept.sandbox.capabilities import abilities

    yield from abilities().enforced().items()


def _sandbox() -> Iterator[Finding]:
    from kept.sandbox.capabilities import abilities

    able = abilities()
    if not able.walls:
        text = f"does not work ({able.why_not}); on Debian: apt-get install bubblewrap"
        yield Finding("bwrap", "warning", text)
    elif not able.overlay:
        text = f"works, and each worker needs a copy of the task's folder ({able.why_not})"
        yield Finding("bwrap", "ok", text)
    else:
        yield Finding("bwrap", "ok", "works, and no copy of the task's folder is needed")
    for what, holds in _enforced():
        yield Finding("enforced" if holds else "NOT enforced", "ok" if holds else "warning", what)


def _git() -> Iterator[Finding]:
    import subprocess

    path = shutil.which("git")
    if path is None:
        yield Finding("git", "warning", "not there: `kept adopt --commit` will not work")
        return
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    yield Finding("git", "ok", done.stdout.strip() or path)


def _local_models() -> Iterator[Finding]:
    """Local models; they are optional, so a missing one is no warning."""
    from importlib.util import find_spec

    from kept.models.weights import KNOWN

    engine = find_spec("xllamacpp") is not None
    for weights in KNOWN.values():
        lacks = [] if engine else [install_command("local")]
        lacks += [] if weights.present else [f"kept models pull {weights.name}"]
        text = f"not here: {' and '.join(f'`{line}`' for line in lacks)}" if lacks else "works"
        yield Finding(f"local/{weights.name}", "ok", text)


def _agents() -> Iterator[Finding]:
    """Agent programs; they are optional, so a missing one is no warning."""
    from kept.sandbox.coding_agents.definition import program_of
    from kept.sandbox.coding_agents.run import CLIS

    for cli in CLIS.values():
        program = program_of(cli)
        yield Finding(
            cli.name, "ok", str(program.path) if program else f"not here: `{cli.install}`"
        )


def _home() -> Iterator[Finding]:
    from kept.store.home import Home

    home = Home.find(Path.cwd())
    path = home.path.absolute()
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    named = "KEPT_HOME is " if kept_home() else ""
    if obstacle := home.obstacle():
        yield Finding("runs", "problem", f"{named}{path}, {obstacle}")
        return
    yield Finding("runs", "ok", f"{named}{path}" + ("" if path.exists() else ", not yet made"))
    free = shutil.disk_usage(there).free
    state: State = "ok" if free >= ENOUGH else "warning" if free else "problem"
    yield Finding("disk", state, f"{free / 1024**3:.1f} GiB free")
