"""Runs and steps as text for a terminal."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, cast

from kept.core.rollout import TraceItem
from kept.core.text import count, one_line
from kept.results.race import doubt_of
from kept.results.steps import StepDetail, StepRollout
from kept.results.summary import StepLine, Summary, share_words, turns_words
from kept.store.reader import unmeasured_words
from kept.ui.cli import _output
from kept.ui.cli._command import path_from_here
from kept.ui.cli.compare import compared_text
from kept.ui.report.format import (
    budget_words,
    cases_words,
    clock,
    duration,
    headline_words,
    lost_words,
    merges_words,
    number,
    spend_words,
    verdict_counts,
)
from kept.ui.report.race import cannot_tell, go_on

if TYPE_CHECKING:
    from kept.recipes.agent_run.journal_view import Spoken
    from kept.ui.cli._refine_run import Refined

MAX_ROLLOUTS = 40
"""Maximum rollouts of a step listed without their traces."""
COLOURS = {"keep": "green", "crash": "red", "skip": "yellow"}


def title(told: Summary) -> str:
    """Outcome of a run in bold, green after a gain."""
    return _output.style(headline_words(told), bold=True, fg="green" if told.gained else None)


def facts(told: Summary, *, reason: bool = True) -> list[tuple[str, str]]:
    """Status and spend of a run; `reason` adds why it stopped."""
    why = f": {told.stopped.message}" if told.stopped and reason else ""
    counts = verdict_counts(told)
    tried = [("proposals", f"{told.proposals}{merges_words(told)}: {counts}" if counts else "none")]
    return [
        ("run", f"{told.run}, {told.status}{why}"),
        *standing(told),
        *(tried if told.comparison is None else ()),
        *([("turns", turns_words(told.turns))] if told.turns else ()),
        ("spend", f"{spend_words(told.spend)}, {duration(told.elapsed)}"),
        *(("warning", words) for words in unmeasured_words(told.unmeasured)),
        *([("warning", lost_words(told.lost))] if told.lost else ()),
    ]


def standing(told: Summary) -> Iterator[tuple[str, str]]:
    """Claim of the sealed test, and candidates that lead without proof."""
    if told.claim:
        yield ("claim", told.claim)
    if told.claim_high is not None and told.claim_high < 0:
        yield ("warning", "the claim speaks against the best; the report says what to do")
    for tie in told.ties if told.improved else ():
        if tie.was is not None and tie.now is not None:
            yield (tie.metric, f"{number(tie.was)} → {number(tie.now)}")
    if told.leading is not None:
        yield ("leading", f"step {told.leading}, kept and not yet proven: it is not in best/")
    for words in cannot_tell(told):
        yield ("unproven", words)
    if told.stopped is not None and doubt_of(told) and (more := go_on(told)):
        yield ("", more)


def run_text(told: Summary) -> str:
    """Complete text of a run: outcome, settings and steps."""
    spec = path_from_here(told.spec) if told.spec else "started from Python"
    asked = [
        ("spec", spec),
        ("metric", f"{told.metric}, {told.direction}; gate {told.gate}"),
        ("cases", cases_words(told)),
        ("budget", budget_words(told)),
        ("started", clock(told.started)),
    ]
    parts = [title(told), _output.pairs([*facts(told), *asked])]
    if told.comparison is not None:
        parts.insert(1, compared_text(told.comparison, told))
    if told.steps:
        header = ("step", "proposer", "verdict", told.metric, "reason", "proposed")
        rows = [_step_cells(group, told) for group in _runs_of_idle(told.steps)]
        right = ("step", told.metric)
        whole, middle = ("step",), ("proposed",)
        parts.append(_output.table(header, rows, right=right, whole=whole, middle=middle))
    return "\n\n".join(parts)


def refinement_text(told: Summary, refined: "Refined") -> str:
    """Complete text of a refinement: its result and spend."""
    about = [
        ("run", f"{told.run}, {told.status}"),
        ("seed run", path_from_here(told.spec)),
        ("spend", f"{spend_words(told.spend)}, {duration(told.elapsed)}"),
        ("measure", refined.measure),
        ("budget", budget_words(told)),
        ("started", clock(told.started)),
    ]
    look = [f"`kept show {one.run_id}` tells what attempt {one.k} did" for one in refined.attempts]
    return "\n\n".join((refined.text(), _output.pairs(about), *look[-1:]))


def _runs_of_idle(steps: Iterable[StepLine]) -> Iterator[list[StepLine]]:
    """Steps one by one, but steps without a proposal grouped if proposer and reason are equal."""
    for (refused_or_kept, *_), group in groupby(steps, _idle_key):
        rows = list(group)
        yield from ([row] for row in rows) if refused_or_kept else [rows]


def _idle_key(row: StepLine) -> tuple[bool, str, str]:
    return (row.kept or row.refused, row.proposer, row.reason if not row.kept else "")


def _step_cells(rows: list[StepLine], told: Summary) -> tuple[str, ...]:
    row = rows[0]
    number_of = str(row.step) if len(rows) == 1 else f"{row.step}–{rows[-1].step}"
    value = "" if row.value is None else number(row.value)
    verdict = row.word + (", best" if row.step == told.best_step else "")
    reason, why = one_line(row.reason, 100), one_line(row.why, 60)
    if value and _output.is_narrow():
        # the figures after the colon are in the column beside it
        reason = reason.partition(":")[0]
    return (number_of, row.proposer, verdict, value, reason, why)


def step_text(detail: StepDetail, *, traces: bool) -> str:
    """Complete text of a step; `traces` adds the trace of each rollout."""
    return "\n\n".join(part for part in _step_parts(detail, traces) if part)


def _step_parts(detail: StepDetail, traces: bool) -> Iterator[str]:
    row, turn = detail.row, detail.turn
    outcome = row.word if row else "open"
    name = _output.style(f"step {detail.step}: {outcome}", bold=True, fg=COLOURS.get(outcome))
    yield name
    about = [("proposer", f"{turn.proposer}, turn {turn.number} (phase {turn.phase})")]
    if detail.prompt:
        about.append(("told by", f"your {detail.prompt}"))
    if turn.parent is not None:
        about.append(("builds on", f"step {turn.parent}, a near miss"))
    if turn.shares:
        about.append(("drawn by", share_words(turn.shares)))
    if row is not None:
        code = "" if row.code in ("judged", row.word) else f" ({row.code})"
        about.append(("verdict", one_line(row.reason) + code))
        about += [("", f"{key} = {number(value)}") for key, value in row.numbers.items()]
        about.append(("candidate", row.candidate or "none"))
    about.append(("against", detail.incumbent))
    yield _output.pairs(about)
    yield _output.visible(detail.reply)
    if detail.proposing:
        head = _output.style(f"how {turn.proposer} came to it", bold=True)
        yield "\n".join([head, *_items((i.role, i.text) for i in detail.proposing)])
    if detail.stages:
        times = ("" if stage.t is None else clock(stage.t) for stage in detail.stages)
        # `clock` returns date and time; the table shows the time only
        rows = [
            (stage.name, at.rpartition(" ")[2], one_line(stage.what, 100))
            for stage, at in zip(detail.stages, times, strict=True)
        ]
        yield _output.table(("stage", "at", "what"), rows)
    yield "\n".join(
        f"{edit.fate or 'proposed':<15}{one_line(edit.words, 100)}"
        + (f": {one_line(edit.detail)}" if edit.detail else "")
        for edit in detail.edits
    )
    yield _output.coloured_diff(detail.diff).rstrip("\n")
    yield from _rollouts(detail.rollouts, traces)


def rollouts_text(rollouts: tuple[StepRollout, ...]) -> str:
    """Rollouts of one case: a line each, then the traces that are loaded."""
    table = _output.table(
        ("of", "for", "case", "repeat", "seconds", "outcome"),
        [_rollout_cells(rollout) for rollout in rollouts],
        right=("repeat", "seconds"),
    )
    traced = tuple(rollout for rollout in rollouts if rollout.trace)
    left_out = sum(bool(one.outcome.trace) for one in rollouts) - len(traced)
    more = [f"{count(left_out, 'earlier trace')} left out: -v shows all"] if left_out else []
    return "\n\n".join([table, *_rollouts(traced, traces=True), *more])


def spoken_text(rows: "Iterable[Spoken]") -> str:
    """Messages of an agent run, grouped by turn and speaker."""
    parts: list[str] = []
    for (turn, who), group in groupby(rows, key=lambda row: (row.turn, row.who)):
        said = [pair for row in group for pair in _spoken(row.item)]
        parts.append("\n".join([_output.style(f"turn {turn}, {who}", bold=True), *_items(said)]))
    return "\n\n".join(parts)


def _spoken(item: TraceItem) -> Iterator[tuple[str, str]]:
    calls = cast("list[dict[str, str]]", item.data.get("tool_calls", []))
    if item.text or not calls:
        yield item.role, item.text
    for call in calls:
        yield "wants", f"{call['name']} {call['arguments']}"
    if changed := cast("list[str]", item.data.get("changed")):
        yield "changed", ", ".join(changed)


def _rollouts(rollouts: tuple[StepRollout, ...], traces: bool) -> Iterator[str]:
    if rollouts and not traces:
        yield _output.table(
            ("of", "for", "case", "repeat", "seconds", "outcome"),
            [_rollout_cells(rollout) for rollout in rollouts[:MAX_ROLLOUTS]],
            right=("repeat", "seconds"),
        )
        if len(rollouts) > MAX_ROLLOUTS:
            yield f"{count(len(rollouts) - MAX_ROLLOUTS, 'more rollout')}: --json lists all"
        yield "\n".join(_findings(rollouts))
        return
    for rollout in rollouts:
        side, purpose, case, repeat, seconds, words = _rollout_cells(rollout)
        head = f"{side}, {purpose}, case {case}, repeat {repeat}, {seconds} s: {words}"
        failure = rollout.outcome.failure
        said = [row for item in rollout.trace for row in _said(item)]
        said += [("finding", finding.text) for finding in rollout.outcome.findings]
        said += [("failure", failure.detail)] if failure and failure.detail else []
        lines = [*_items(said)] or ["  no trace"]
        yield "\n".join([_output.style(head, bold=True), *lines])


def _findings(rollouts: Iterable[StepRollout]) -> Iterator[str]:
    """Scorer findings on the challenger, each text once, with its cases."""
    cases: dict[str, list[str]] = {}
    for rollout in rollouts:
        for finding in rollout.outcome.findings if rollout.side == "challenger" else ():
            cases.setdefault(one_line(finding.text, 200), []).append(rollout.job.case_id)
    for text, said_of in list(cases.items())[:MAX_ROLLOUTS]:
        yield f"finding    {text} ({one_line(', '.join(dict.fromkeys(said_of)), 60)})"


def _rollout_cells(rollout: StepRollout) -> tuple[str, ...]:
    job, outcome = rollout.job, rollout.outcome
    if outcome.failure is not None:
        failure = outcome.failure
        words = f"{failure.kind}, {failure.blame}'s: {one_line(failure.message, 200)}"
    else:
        words = "  ".join(f"{name} {number(value)}" for name, value in outcome.metrics.items())
    if outcome.tries > 1:
        words += f" (try {outcome.tries})"
    seconds = f"{outcome.seconds:.2f}"
    return (rollout.side, job.purpose, job.case_id, str(job.repeat), seconds, words)


def _said(item: TraceItem) -> Iterator[tuple[str, str]]:
    """Lines of one trace item; an action of a simulator or agent comes first."""
    if item.role == "session":
        return  # packed state, needed only to continue in a probe
    done = item.data.get("action") or item.data.get("command")
    if reasoning := item.data.get("reasoning"):
        yield "thought", str(reasoning)
    yield item.role, f"> {done}\n{item.text}" if done else item.text


def _items(said: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Trace items as lines; the first line of each begins with its role."""
    rows = list(said)
    # wide enough for the longest role, so that all texts start in the same column
    width = max([10, *(len(role) + 1 for role, _ in rows)])
    for role, text in rows:
        for n, line in enumerate(_output.visible(text).splitlines()):
            yield f"  {'' if n else role:<{width}}{line}".rstrip()
