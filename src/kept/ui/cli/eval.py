"""`kept eval SPEC`, its options (shared with `kept test run`), and its output.

The output lists failed cases with reasons, then totals.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kept.core.text import count, one_line
from kept.errors import SetupError
from kept.ui.cli import _output
from kept.ui.cli._command import (
    Command,
    command_for,
    json_option,
    no_cache_option,
    path_from_here,
    quiet_option,
    set_option,
    workers_option,
)

if TYPE_CHECKING:
    from kept.recipes.evaluate.request import Wanted
    from kept.results.cases import Status, Sweep, Tested
    from kept.ui.cli._run import How
    from kept.ui.report.eval_report import (
        Format,
    )


F = TypeVar("F", bound=Callable[..., Any])

FORMS = click.Choice(("json", "markdown", "junit"))

BY_SUFFIX: "Mapping[str, Format]" = {
    "": "json",
    ".json": "json",
    ".md": "markdown",
    ".xml": "junit",
}
"""Kind of report by file suffix."""


def sweep_options(function: F) -> F:
    """Add the options for cases, repeats and report."""
    options = (
        click.option(
            "-n",
            "--limit",
            type=click.IntRange(min=1),
            metavar="N",
            help="Only the first N of the cases that are meant.",
        ),
        click.option(
            "--filter",
            "filter_",
            default="",
            metavar="TEXT",
            help="Only cases whose name has TEXT in it, or fits it, as in 'refund-*'.",
        ),
        click.option(
            "--repeats",
            type=click.IntRange(min=1),
            default=1,
            metavar="N",
            help="How often each case is run.",
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="For one case of an agent; longer is the agent's failure.",
        ),
        click.option(
            "-f", "--force-ingest", is_flag=True, help="Read the sources of indexes again."
        ),
        click.option(
            "-o",
            "--output",
            "write",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write the report to FILE; .json, .md and .xml say which kind.",
        ),
        click.option("--format", "form", type=FORMS, help="Which kind of report."),
        click.option(
            "--min-score",
            type=float,
            metavar="X",
            help="Exit with 1, and fail in JUnit, if the mean of the primary metric is worse.",
        ),
        click.option("-v", "--verbose", is_flag=True, help="List cases that pass as well."),
        set_option,
        no_cache_option,
        workers_option,
        json_option,
        quiet_option,
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(
    "eval",
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    examples=(
        "kept eval agent.yaml",
        "kept eval agent.yaml --filter 'refund-*' --repeats 3 -v",
        "kept eval agent.yaml -o report.xml",
        "kept eval task.yaml --min-score 0.8 -o report.xml",
        "kept eval --config skill.yaml --skill SKILL.md --split val",
    ),
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="SPEC [--KEY VALUE]...")
@click.option("--config", metavar="FILE", help="A skill config, in place of SPEC.")
@click.option("--skill", metavar="PATH", help="The skill to measure: a file, or its folder.")
@click.option(
    "--split", default="", metavar="NAME", help="Cases of a skill: test, val, train, all."
)
@click.option(
    "--resume",
    "past",
    is_flag=False,
    flag_value="last",
    metavar="[RUN]",
    help="Go on with a measurement of a skill that stopped; without RUN, the last run.",
)
@click.option(
    "--output_json",
    "document",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what the standalone script of a skill's environment does.",
)
@sweep_options
def evaluate(
    words: tuple[str, ...],
    config: str | None,
    skill: str | None,
    split: str,
    past: str | None,
    document: Path | None,
    **options: Any,  # noqa: ANN401 # those of `sweep_options`
) -> int:
    """Measure what SPEC names on all its cases, and change nothing.

    SPEC is an agent.yaml, a task.yaml or a skill config. The result is a run: `kept show` has every
    case of it, and `kept diff RUN RUN` says what changed between two. Exits with 0 where all cases
    pass, 1 where some fail, 2 where SPEC is wrong, 3 where some could not be run and 4 where some
    could not be measured. Cases of a task pass by its `objective.pass_at`; without it they are
    scored. With --min-score the mean decides, and not each case. Of a skill, cases that fail are
    no failure. Every key of a skill config is a flag, as in --split_mode ratio, and so is
    --cfg-options.
    """
    given = EvalOptions(**options)
    asked = _skill_asked(words, config)
    named = Named(skill, split, past, document)
    if asked is not None:
        return measure_skill(*asked, named=named, given=given)
    _refuse_words(words[1:], named)
    if not words:
        raise click.UsageError("Missing argument 'SPEC'.")
    return sweep(Path(words[0]), given)


def _skill_asked(words: tuple[str, ...], config: str | None) -> tuple[Path, tuple[str, ...]] | None:
    """Skill config on the command line and the words for it; None for other specs."""
    from kept.recipes.registry import means
    from kept.recipes.skill.config_keys import find_config
    from kept.recipes.skill.request import Training

    if config is not None:
        return find_config(config), words
    if not words or words[0].startswith("-"):
        return None
    path = Path(words[0])
    if path.parts[:1] == ("configs",) and not path.exists():
        return find_config(path), words[1:]
    if path.is_file() and path.suffix in (".yaml", ".yml") and means(path, Training):
        return path, words[1:]
    return None


class Named(NamedTuple):
    """Options for skill configs only."""

    skill: str | None
    split: str
    past: str | None
    """Run to resume."""
    document: Path | None = None
    """File in the format of the environment's standalone script."""


def _refuse_words(words: tuple[str, ...], named: Named) -> None:
    """Refuse words and options that only a skill config takes."""
    for word in words:
        if word.startswith("-"):
            raise click.NoSuchOption(word.partition("=")[0])
        raise click.UsageError(f"Got unexpected extra argument ({word})")
    flags = (("--skill", named.skill), ("--split", named.split), ("--resume", named.past))
    flags += (("--output_json", named.document),)
    for name, value in flags:
        if value:
            raise click.UsageError(f"{name} is for a skill config")


def measure_skill(path: Path, words: tuple[str, ...], *, named: Named, given: "EvalOptions") -> int:
    """Measure the skill of a config and print the result."""
    from kept.evaluators.environments.registry import option_names
    from kept.recipes.skill.config_keys import flags_of
    from kept.recipes.skill.measure import compile_measure
    from kept.store.home import Home
    from kept.ui.cli._open_run import open_run
    from kept.ui.cli._run import run_session, session_of, told_warnings

    flags = flags_of(words, ("skill", "split", "resume", "output_json"), option_names)
    if named.skill:
        flags.add("--skill", "env.skill_init", named.skill)
    overrides = [*flags.found, *given.settings]
    wanted, problems = given.wanted(named.split, named.document), flags.problems
    with flags.as_typed():
        made = compile_measure(path, wanted, overrides, workers=given.workers, problems=problems)
    plan = told_warnings(made)
    place: Home | Path = Home.find(Path.cwd())
    if named.past is not None:
        with open_run(named.past, resuming=True) as run:
            place = run.folder
    code = run_session(plan, place, session_of(plan, given.how()))
    if named.document is not None:
        _output.note(f"{path_from_here(named.document)} holds the results")
    return code


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Values of `sweep_options`."""

    limit: int | None
    filter_: str
    repeats: int
    timeout: float | None
    force_ingest: bool
    write: Path | None
    form: "Format | None"
    min_score: float | None
    verbose: bool
    settings: tuple[str, ...]
    workers: int | None
    as_json: bool
    quiet: bool

    def __post_init__(self) -> None:
        """Refuse a link and an unknown file suffix before anything is run."""
        path = self.write
        # /dev/stdout is a link too, and allowed
        if path and path.is_symlink() and not path.is_relative_to("/dev"):
            raise SetupError(f"cannot write {path}: it is a link", hint="name the file itself")
        if self.write is None or self.form or self.write.suffix.lower() in BY_SUFFIX:
            return
        known = ", ".join(filter(None, BY_SUFFIX))
        message = f"cannot write a report of the kind `{self.write.suffix}` to {self.write}"
        hint = f"a report ends in one of {known}; --format says which kind, whatever its name"
        raise SetupError(message, hint=hint)

    def wanted(self, split: str = "", document: Path | None = None) -> "Wanted":
        """Selection of cases and number of repeats."""
        from kept.recipes.evaluate.request import Wanted

        return Wanted(
            repeats=self.repeats,
            limit=self.limit,
            filter=self.filter_,
            min_score=self.min_score,
            timeout=self.timeout,
            split=split,
            output_json=str(document.absolute()) if document else "",
        )

    def how(self) -> "How":
        """Output options for the session."""
        from kept.ui.cli._run import How

        return How(
            json=self.as_json,
            quiet=self.quiet,
            verbose=self.verbose,
            write=self.write,
            form=self.form,
        )


def sweep(spec: Path, given: EvalOptions) -> int:
    """Measure an agent or task and print the result."""
    from kept.recipes.base import Context
    from kept.recipes.registry import compile_sweep, find_spec
    from kept.store.home import Home
    from kept.ui.cli._run import run_session, session_of, told_warnings

    context = Context(overrides=given.settings, workers=given.workers, force=given.force_ingest)
    plan = told_warnings(compile_sweep(spec, given.wanted(), context))
    home = Home.find(find_spec(spec).parent)
    return run_session(plan, home, session_of(plan, given.how()))


MAX_CASES = 40
"""Maximum number of cases listed; `kept show RUN` has all of them."""

COLOURS: dict["Status", str] = {
    "passed": "green",
    "scored": "green",
    "failed": "red",
    "errored": "yellow",
}
MAX_TEXT_WIDTH = 60
"""Maximum characters of an input or output in a table."""

MAX_COLUMNS = 4
"""Maximum number of metrics with a column of their own."""


def read_sweep(folder: Path, *, traces: bool = True) -> "Sweep | None":
    """Measurement of a run; None for runs of other kinds."""
    from kept.results.cases import sweep_of
    from kept.store.reader import Run

    with Run(folder) as run:
        return sweep_of(run, traces=traces)


def evaluated_text(sweep: "Sweep", folder: Path, *, every: bool = False) -> str:
    """Failed cases, the metrics, and commands to look further."""
    from kept.ui.report.eval_report import min_score_words, totals
    from kept.ui.report.format import duration

    bad = [one for one in sweep.cases if one.status in ("failed", "errored")]
    # cases without input and output are described by their findings
    told = bad or [one for one in sweep.cases if one.findings]
    rows = list(sweep.cases) if every else told
    cases = _worst_table(sweep, every) if sweep.described else _cases_table(sweep, rows)
    parts = [min_score_words(sweep), cases, _metrics_table(sweep)]
    usage = sweep.usage
    spent = f"{count(usage.calls, 'call')}, {usage.tokens_in + usage.tokens_out:,} tokens"
    money = f", ${usage.usd:,.4f}" if usage.usd else ""
    facts = [
        ("run", sweep.run),
        ("spend", f"{spent}{money}, {duration(sweep.elapsed)}"),
        ("look", command_for("show", folder)),
    ]
    failing = bad[0] if bad else sweep.worst_first()[0] if sweep.described else None
    if failing is not None:
        facts.append(("", f"{command_for('show', folder)} {shlex.quote(failing.case)}"))
    colour = "red" if bad else "green"
    title = _output.style(f"{sweep.name}: {totals(sweep)}", bold=True, fg=colour)
    return "\n\n".join([title, *filter(None, parts), _output.pairs(facts)])


def _cases_table(sweep: "Sweep", rows: list["Tested"]) -> str:
    if not rows:
        return ""
    names = list(sweep.means)[:MAX_COLUMNS]
    header = ("case", "", *names, "seconds", "why")
    cells = [
        (
            _called(one),
            one.status,
            *(_score(one.metrics.get(name)) for name in names),
            f"{one.seconds:.1f}",
            one_line(one.why or "; ".join(one.findings), 160),
        )
        for one in rows[:MAX_CASES]
    ]
    text = _output.table(header, cells, right=(*names, "seconds"), middle=("case",))
    if len(rows) > MAX_CASES:
        text += f"\n{len(rows) - MAX_CASES} more are not shown: --json lists all"
    return text


def _worst_table(sweep: "Sweep", every: bool) -> str:
    """Table of the worst cases with input, expected and actual output and score."""
    from kept.ui.report.eval_report import WORST

    rows = sweep.worst_first()
    shown = rows if every else rows[:WORST]
    labelled = any(one.truth for one in shown)
    header = ["case", "", "input", *(["expected"] if labelled else []), "got", sweep.metric]
    cells = [
        (
            _called(one),
            one.status,
            one_line(one.input, MAX_TEXT_WIDTH),
            *([one_line(one.truth, MAX_TEXT_WIDTH)] if labelled else []),
            one_line(one.got, MAX_TEXT_WIDTH),
            _score(one.metrics.get(sweep.metric)),
        )
        for one in shown
    ]
    text = _output.table(header, cells, right=(sweep.metric,), middle=("case",))
    if len(shown) < len(rows):
        text += f"\nthe worst {len(shown)} of {len(rows)}: -v lists all"
    return text


def _metrics_table(sweep: "Sweep") -> str:
    rows = [
        (
            name,
            _score(mean.score),
            str(mean.cases),
            f"{mean.errored} of {mean.asked}" if mean.errored else "",
        )
        for name, mean in sweep.means.items()
    ]
    if not rows:
        return ""
    header = ("metric", "mean", "cases", "not measured")
    return _output.table(header, rows, right=("mean", "cases"), whole=("mean",))


def case_text(one: "Tested") -> str:
    """Everything that happened in a case."""
    head = _output.style(f"{_called(one)}: {one.status}", bold=True, fg=COLOURS[one.status])
    return "\n".join([head, *_story(one)])


def _story(one: "Tested") -> Iterator[str]:
    for n, exchange in enumerate(one.exchanges):
        yield ""
        yield from _said("user", exchange.input)
        for use in exchange.uses:
            given = ", ".join(f"{name}={value!r}" for name, value in use.arguments.items())
            wrong = " (wrong)" if use.wrong else ""
            yield from _said("used", f"{use.name}({given}){wrong}")
            yield from _said("", use.result)
        yield from _said("agent", exchange.response if exchange.answered else "(no answer)")
        if n in one.truths:
            yield from _said("expected", one.truths[n])
        for each in one.measured:
            if each.exchange == n:
                error = f": {each.error}" if each.error else ""
                yield from _said("metric", f"{each.metric} {_score(each.score)}{error}")
                yield from _said("", each.reasoning if each.reasoning != each.error else "")
        for tools in one.expected:
            if tools.exchange == n:
                yield from _said("tools", "as expected" if tools.matched else "not as expected")
    if one.described:
        for name, value in one.metrics.items():
            yield from _said("metric", f"{name} {_score(value)}")
    for finding in one.findings:
        yield from _said("finding", finding)
    if one.failure is not None:
        failure = one.failure
        yield from _said("failure", f"{failure.kind}, {failure.blame}'s: {failure.message}")
        yield from _said("", failure.detail)


def _said(role: str, text: str) -> Iterator[str]:
    for n, line in enumerate(_output.visible(text).splitlines()):
        yield f"  {'' if n else role:<10}{line}".rstrip()


def _score(value: float | None) -> str:
    from kept.ui.report.format import number

    return "" if value is None else number(round(value, 4))


def _called(one: "Tested") -> str:
    return one.case if not one.repeat else f"{one.case} #{one.repeat + 1}"


def tell_evaluated(
    folder: Path, *, as_json: bool, every: bool, write: Path | None, form: "Format | None"
) -> int:
    """Print the answer and write the requested report; return the exit code."""
    from kept.ui.report.eval_report import document, exit_code, written

    sweep = read_sweep(folder)
    assert sweep is not None, "a run that measured was started"
    if write is not None:
        write.parent.mkdir(parents=True, exist_ok=True)
        write.write_text(written(sweep, form or BY_SUFFIX[write.suffix.lower()]), encoding="utf-8")
        _output.note(f"{path_from_here(write)} holds the report")
    if as_json or (form == "json" and write is None):
        _output.document({"ok": exit_code(sweep) == 0, "folder": str(folder), **document(sweep)})
    elif form is not None and write is None:
        _output.answer(written(sweep, form).removesuffix("\n"))
    else:
        _output.answer(evaluated_text(sweep, folder, every=every))
    return exit_code(sweep)
