"""Shared body of running commands: run, answer and exit, with hooks for differences.

`Session` holds the hooks. `SESSIONS` names the one for each recipe that a spec is compiled to;
agent runs, refinements and `kept test optimize` bring sessions of their own.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kept.core.objective import unusable
from kept.core.plan import AGENT_CONFIG, COMPARE, EVALUATE, SKILL, SUITE, Plan
from kept.engine.stop import OF_NO_USE, no_bounds
from kept.errors import KeptError
from kept.recipes.base import Compiled
from kept.recipes.registry import compile_spec, start_command
from kept.results.failures import may_pass, measure_is_broken
from kept.results.race import no_step_left
from kept.results.summary import Summary, summary
from kept.run import Ended, Watch, run_to_end
from kept.settings import is_set
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._command import (
    CUT_SHORT,
    INTERRUPTED,
    NO_GAIN,
    CutShortError,
    command_for,
    path_from_here,
    show_log,
)
from kept.ui.cli._progress import Progress, standard_progress
from kept.ui.cli._render import facts, title
from kept.ui.cli.compare import compared_text
from kept.ui.cli.eval import tell_evaluated
from kept.ui.cli.main import settled
from kept.ui.report.eval_report import Format
from kept.ui.report.json import headline
from kept.ui.report.markdown import write_report
from kept.ui.report.race import conclusion

LIMITS = {
    "iterations": "max_iterations",
    "failures": "max_failures",
    "minutes": "max_minutes",
    "usd": "max_usd",
    "rollouts": "max_rollouts",
}
"""Budget setting behind each kind of stop, as spelled in a spec."""


def compiled(spec: Path, settings: Sequence[str] = ()) -> Plan:
    """Plan of a spec; its warnings go to stderr."""
    return told_warnings(compile_spec(spec, settings))


def told_warnings(made: Compiled) -> Plan:
    """Plan of a compiled spec; its warnings go to stderr."""
    for warning in made.warnings:
        _output.warn(warning)
    return made.plan


class Session:
    """Hooks of `run_session`: output, answer and exit code of one command."""

    exits: ClassVar[Mapping[str, int]] = {"interrupted": INTERRUPTED, "error": CUT_SHORT}
    """Exit codes by kind of stop; for other kinds `finish` returns the code."""

    def __init__(
        self,
        progress: Progress,
        *,
        stop: Callable[[], None] | None = None,
        lock: AbstractContextManager[object] | None = None,
        step_lines: bool = True,
    ) -> None:
        """Create a session; call `stop` at each signal, hold `lock` until the answer is out."""
        self.progress = progress
        self.stop = stop
        self.lock = lock or nullcontext()
        progress.step_lines = step_lines

    def on_signal(self) -> None:
        """Ask a slow runner to end its rollouts sooner, and show that the run is stopping."""
        if self.stop is not None:
            self.stop()
        self.progress.on_signal()

    def resume_command(self, folder: Path) -> str:
        """Command that resumes the run."""
        return command_for("resume", folder)

    def write_pages(self, folder: Path) -> None:
        """Write the report of a run that an exception ended."""

    def answer(self, ended: Ended) -> None:
        """Print the result of the run."""
        raise NotImplementedError

    def error_words(self, message: str) -> str:
        """Text of the error that stopped the run."""
        return message

    def error_hints(self, go_on: str) -> Sequence[str]:
        """Hints after an error."""
        return (f"`{go_on}` goes on where it stopped",)

    def finish(self) -> int:
        """Print final hints, if neither error nor signal stopped the run; return the exit code."""
        return 0


def run_session(plan: Plan, place: Home | Path, session: Session) -> int:
    """Run a plan in a new folder of a home, or resume in the run's folder; return the exit code."""
    show_log()
    progress = session.progress
    watch = Watch((progress,), signals=True, on_signal=session.on_signal)
    with session.lock:
        try:
            with progress, settled():
                ended = run_to_end(plan, place, watch)
        except Exception as error:
            started = progress.state.started
            if started is None:
                raise
            folder = place.runs / started.run_id if isinstance(place, Home) else place
            with suppress(OSError, KeptError):  # the first error is reported
                session.write_pages(folder)
            raise CutShortError(error, session.resume_command(folder)) from error
        session.answer(ended)
    stopped, go_on = ended.state.stopped, session.resume_command(ended.folder)
    if stopped is None or stopped.kind not in session.exits:
        return session.finish()
    if stopped.kind == "interrupted":
        _output.note(f"interrupted: `{go_on}` goes on where it stopped")
    else:
        _output.note(f"error: {session.error_words(stopped.message)}\n")
        _output.note("\n".join(f"hint: {hint}" for hint in session.error_hints(go_on)))
    return session.exits[stopped.kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Options of a command for running and answering."""

    json: bool = False
    quiet: bool = False
    fail_if_no_gain: bool = False
    verbose: bool = False
    """True to list passed cases too."""
    write: Path | None = None
    """File for the report of a measurement."""
    form: Format | None = None


class SpecSession(Session):
    """Session of a spec, with its summary as answer."""

    early: ClassVar[frozenset[str]] = frozenset()
    """Kinds of stop that cut short a run with a natural end."""

    def __init__(self, plan: Plan, how: How) -> None:
        stop = getattr(plan.runner, "stop", None)
        super().__init__(standard_progress(quiet=how.quiet), stop=stop)
        self.how = how

    def write_pages(self, folder: Path) -> None:
        """Write `report.md`."""
        with closing(Run(folder)) as run:
            self.report(run)

    def report(self, run: Run) -> Summary:
        """Write `report.md`; an error there does not prevent the answer."""
        told = summary(run)
        try:
            write_report(run, told)
        except (OSError, KeptError) as error:
            _output.warn(f"cannot write {path_from_here(run.folder / 'report.md')}: {error}")
        return told

    def answer(self, ended: Ended) -> None:
        """Print the outcome as text or as a document."""
        with closing(Run(ended.folder)) as run:
            self.told = told = self.report(run)
            if not self.how.quiet:
                _output.note("")
            self.tell(told, run)

    def tell(self, told: Summary, run: Run) -> None:
        """Print the answer."""
        if self.how.json:
            failed = told.stopped is not None and told.stopped.kind == "error"
            _output.document({"ok": not failed, **headline(told), **self.document(run)})
        else:
            _output.answer(self.text(told, run))

    def document(self, run: Run) -> Mapping[str, Any]:
        """Keys of the JSON document besides the headline."""
        return {}

    def rows(self, run: Run) -> list[tuple[str, str]]:
        """Rows of the text besides the facts of the summary."""
        return []

    def text(self, told: Summary, run: Run) -> str:
        """Outcome, facts and the commands to look further."""
        rows = [*_rows(told), *self.rows(run)]
        if told.improved:
            rows.append(("best", path_from_here(told.folder / "best")))
        rows.append(("look", command_for("report", told.folder)))
        if told.improved:
            rows.append(("", command_for("diff", told.folder)))
        return "\n\n".join(filter(None, (title(told), _output.pairs(rows), conclusion(told))))

    def error_hints(self, go_on: str) -> Sequence[str]:
        """Hints after an error; a corrected spec needs a new run."""
        with closing(Run(self.told.folder)) as run:
            return _ways_on(self.told, run, go_on)

    def finish(self) -> int:
        """Print a hint on how to continue a run that reached a limit."""
        told, stopped = self.told, self.told.stopped
        kind = stopped.kind if stopped else ""
        # resumed with nothing to do, or a comparison that stopped before its answer
        unanswered = told.comparison is not None and bool(told.open)
        if (self.progress.resumed_in_vain or unanswered) and stopped:
            done = "not done" if unanswered else "nothing more to do"
            _output.note(f"{done}: {stopped.message}")
            if kind in LIMITS:
                _output.note(f"hint: {self.more(told, kind)}")
        elif kind in self.early:
            _output.note(f"hint: {self.more(told, kind)}")
        return NO_GAIN if self.how.fail_if_no_gain and not told.gained else 0

    def more(self, told: Summary, kind: str) -> str:
        """Hint on how to continue a run that reached this limit."""
        return _raised(told, f"budget.{LIMITS[kind]}")


class TunedSession(SpecSession):
    """Session of an agent config, with the pages of `kept test optimize`."""

    def report(self, run: Run) -> Summary:
        """Write the tuning pages as well."""
        from kept.ui.cli._tune_run import write_pages

        told = super().report(run)
        try:
            write_pages(run, told)
        except OSError as error:
            _output.warn(f"cannot write {error.filename}: {error.strerror}")
        return told


class SkillSession(SpecSession):
    """Session of a training, whose number of steps its config sets."""

    early = frozenset(("rollouts", "usd", "minutes"))

    def rows(self, run: Run) -> list[tuple[str, str]]:
        """Folder of the outputs."""
        return [("outputs", path_from_here(run.outputs))]

    def more(self, told: Summary, kind: str) -> str:
        """Hint for a limit; more epochs need a new run, as their number sets the edit limits."""
        if kind != "iterations":
            return super().more(told, kind)
        best = path_from_here(told.folder / "best")
        start = f", which `--skill_init {best}` starts from its best" if told.improved else ""
        return f"more epochs are another training{start}"


class SuiteSession(SpecSession):
    """Session of a run that optimizes the prompts of agent runs."""

    def document(self, run: Run) -> Mapping[str, Any]:
        """Versions of its prompts."""
        from kept.ui.cli.agent import suite_told

        return {"artifacts": suite_told(run)}

    def rows(self, run: Run) -> list[tuple[str, str]]:
        """Versions of its prompts as rows."""
        from kept.ui.cli.agent import suite_rows

        return suite_rows(run)

    def more(self, told: Summary, kind: str) -> str:
        """Hint for a limit; iterations are called epochs here."""
        return _raised(told, "epochs") if kind == "iterations" else super().more(told, kind)


class ComparisonSession(SpecSession):
    """Session of a comparison, with its answers as result."""

    def text(self, told: Summary, run: Run) -> str:
        """Answers of the comparison, and the command to look further."""
        if told.comparison is None:
            return super().text(told, run)
        rows = [*_rows(told), ("look", command_for("report", told.folder))]
        return f"{compared_text(told.comparison, told)}\n\n{_output.pairs(rows)}"


class EvalSession(SpecSession):
    """Session of a measurement, shown case by case; failed cases set the exit code."""

    exits: ClassVar[Mapping[str, int]] = {"interrupted": INTERRUPTED}

    def tell(self, told: Summary, run: Run) -> None:
        """Print cases and totals, and write the requested report."""
        how = self.how
        self._code = tell_evaluated(
            told.folder, as_json=how.json, every=how.verbose, write=how.write, form=how.form
        )

    def finish(self) -> int:
        """Print the reason if the measurement is incomplete."""
        told = self.told
        if told.open and told.stopped is not None:
            _output.note(f"not done: {told.stopped.message}")
            go_on = self.resume_command(told.folder)
            _output.note(f"hint: `{go_on}` goes on where it stopped")
        return self._code


SESSIONS: Mapping[str, type[SpecSession]] = {
    AGENT_CONFIG: TunedSession,
    SKILL: SkillSession,
    SUITE: SuiteSession,
    COMPARE: ComparisonSession,
    EVALUATE: EvalSession,
}
"""Sessions by recipe; other recipes use `SpecSession`."""


def session_of(plan: Plan, how: How) -> SpecSession:
    """Session for a compiled spec."""
    return SESSIONS.get(plan.recipe, SpecSession)(plan, how)


def _rows(told: Summary) -> list[tuple[str, str]]:
    # an error goes to stderr, with its hints
    rows = facts(told, reason=told.stopped is None or told.stopped.kind != "error")
    return [*rows, ("folder", path_from_here(told.folder))]


def _raised(told: Summary, limit: str) -> str:
    return f"`{command_for('resume', told.folder, [f'{limit}=N'])}` raises the limit"


def _ways_on(told: Summary, run: Run, go_on: str) -> tuple[str, ...]:
    """Hints after an error; a corrected task needs a new run, because its measure changed."""
    broken, passing = measure_is_broken(told, run), may_pass(run)
    started = run.state.started
    anew = start_command(started, run.folder) if started else ""
    sandbox = run.settings.spec.sandbox
    bounds = no_bounds(run.state) is not None
    if no_step_left(told):
        go_on = command_for("resume", told.folder, [f"budget.{LIMITS['iterations']}=N"])
    if told.stopped and told.stopped.message.startswith(OF_NO_USE) and anew:
        return (f"give it another model, or mend its replies, then `{anew}` starts again",)
    # the measure works, or the start command is unknown: suggest resuming
    if not (broken and anew):
        return (f"`{go_on}` goes on where it stopped",)
    worst = "give `objective.bounds`, of which a failure counts as the worst, or " if bounds else ""
    wrong = unusable(told.stopped.message) if told.stopped else None
    ways = [*held_back(told.stopped.message if told.stopped else "", sandbox)]
    ways.append(f"{_MENDS.get(wrong, worst)}mend what failed, then `{anew}` starts again")
    if passing:
        ways.append(f"if it was the network or the like and has passed, `{go_on}` goes on")
    return tuple(ways)


_MENDS: Mapping[str | None, str] = {
    "metric": "name a measure that the scorer prints in `objective.primary_metric`, or ",
    "bounds": "give `objective.bounds` that every score is within, or ",
}
"""Hints for a metric that cannot be used."""

_NO_NETWORK = re.compile(
    r"network is unreachable|name or service not known|temporary failure in name resolution"
    r"|could not resolve host|getaddrinfo|nodename nor servname",
    re.IGNORECASE,
)
_BY_KEPT = re.compile(r"`[\w-]+/[^`]+` (?:answered \d{3}|failed|did not answer)")
"""Pattern of failures of models that Kept calls itself, outside the sandbox."""

_NAME = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b")


def held_back(message: str, sandbox: Mapping[str, Any]) -> Iterator[str]:
    """Sandbox settings that the failed command may have needed."""
    if _BY_KEPT.search(message):
        return
    if sandbox.get("network") != "on" and _NO_NETWORK.search(message):
        yield "commands have no network here: `sandbox: {network: on}` in the task opens it"
    passed = sandbox.get("env") or ()
    for name in dict.fromkeys(_NAME.findall(message)):
        if is_set(name) and name not in passed and not name.startswith("KEPT_"):
            yield f"`{name}` is set here, and commands do not get it: `sandbox: {{env: [{name}]}}`"
