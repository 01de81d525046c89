"""What came of measuring, for a person at a terminal: who failed and why, then the sums."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from kept.core.words import count, one_line
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._output import pairs
from kept.ui.cli.evaluate import BY_SUFFIX
from kept.ui.cli.names import command_for, path_from_here
from kept.ui.report.eval_results import Status, Sweep, Tested, sweep_of
from kept.ui.report.format import duration, number
from kept.ui.report.test_report import (
    WORST,
    Format,
    document,
    exit_code,
    min_score_words,
    totals,
    written,
)

MAX_CASES = 40
"""Cases that are listed; `kept show RUN` has all of them."""

COLOURS: dict[Status, str] = {
    "passed": "green",
    "scored": "green",
    "failed": "red",
    "errored": "yellow",
}
MAX_TEXT_WIDTH = 60
"""Characters of an input or output in a table."""

MAX_COLUMNS = 4
"""Metrics that have a column of their own."""


def read_sweep(folder: Path, *, traces: bool = True) -> Sweep | None:
    """What a run measured; None where it does something else."""
    with Run(folder) as run:
        return sweep_of(run, traces=traces)


def evaluated_text(sweep: Sweep, folder: Path, *, every: bool = False) -> str:
    """Those that did not pass, the metrics, and where to look further."""
    bad = [one for one in sweep.cases if one.status in ("failed", "errored")]
    rows = list(sweep.cases) if every else bad
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
    return "\n\n".join([title(sweep), *filter(None, parts), pairs(facts)])


def title(sweep: Sweep) -> str:
    """How many pass."""
    bad = sweep.count("failed") + sweep.count("errored")
    return _output.style(f"{sweep.name}: {totals(sweep)}", bold=True, fg="red" if bad else "green")


def _cases_table(sweep: Sweep, rows: list[Tested]) -> str:
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
            one_line(one.why, 160),
        )
        for one in rows[:MAX_CASES]
    ]
    text = _output.table(header, cells, right=(*names, "seconds"), middle=("case",))
    if len(rows) > MAX_CASES:
        text += f"\n{len(rows) - MAX_CASES} more are not shown: --json lists all"
    return text


def _worst_table(sweep: Sweep, every: bool) -> str:
    """The worst cases with input, expected and got output and score."""
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


def _metrics_table(sweep: Sweep) -> str:
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


def case_text(one: Tested) -> str:
    """All that happened in a case."""
    head = _output.style(f"{_called(one)}: {one.status}", bold=True, fg=COLOURS[one.status])
    return "\n".join([head, *_story(one)])


def _story(one: Tested) -> Iterator[str]:
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
                yield from _said("metric", _metric_words(each.metric, each.score, each.error))
                yield from _said("", each.reasoning if each.reasoning != each.error else "")
        for tools in one.expected:
            if tools.exchange == n:
                yield from _said("tools", "as expected" if tools.matched else "not as expected")
    for finding in one.findings:
        yield from _said("finding", finding)
    if one.failure is not None:
        failure = one.failure
        yield from _said("failure", f"{failure.kind}, {failure.blame}'s: {failure.message}")
        yield from _said("", failure.detail)


def _metric_words(name: str, score: float | None, error: str) -> str:
    return f"{name} {_score(score)}" + (f": {error}" if error else "")


def _said(role: str, text: str) -> Iterator[str]:
    for n, line in enumerate(_output.visible(text).splitlines()):
        yield f"  {'' if n else role:<10}{line}".rstrip()


def _score(value: float | None) -> str:
    return "" if value is None else number(round(value, 4))


def _called(one: Tested) -> str:
    return one.case if not one.repeat else f"{one.case} #{one.repeat + 1}"


def tell_evaluated(
    folder: Path, *, as_json: bool, every: bool, write: Path | None, form: Format | None
) -> int:
    """Answer, write what is to be written; the exit code."""
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
