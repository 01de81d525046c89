"""Markdown report of a run, its caveats, and `report.md` in the run folder.

Caveats state what the figures cannot show.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches

from kept.core.event import StepClosed
from kept.core.objective import OWN
from kept.core.plan import AGENT_RUN, EVALUATE
from kept.core.text import count, encoded, one_line
from kept.recipes.registry import facts_of, start_command
from kept.recipes.suite.request import SuiteFacts
from kept.results.cases import sweep_of
from kept.results.compare import Comparison, comparison_of
from kept.results.diffs import best_diff, step_diff
from kept.results.failures import failures, may_pass, measure_is_broken
from kept.results.length_bias import moves_with_length
from kept.results.race import leads
from kept.results.summary import (
    StepLine,
    Summary,
    judges,
    objective_of,
    scorer_words,
    scoring_in,
    summary,
)
from kept.sandbox.capabilities import SANDBOX
from kept.store.candidate_files import write_file
from kept.store.reader import Run, unmeasured_words
from kept.ui.report.compare import found_alike, interval, limits, sentences, short
from kept.ui.report.eval_report import written
from kept.ui.report.format import (
    budget_words,
    cases_words,
    clock,
    duration,
    headline_words,
    lost_words,
    merges_words,
    number,
    recipe_word,
    spend_words,
    verdict_counts,
)
from kept.ui.report.race import cannot_tell, conclusion, deciding_cases, go_on, questions

GATES = {
    "strict": "The gate `strict` compares one evaluation a side: a lucky draw of a noisy evaluator "
    "passes for a gain. Where a repeat of the same evaluation differs, the gain may be chance.",
    "selection": "The gate `selection` compares one pass a side over the selection split: a lucky "
    "draw of a noisy evaluator passes for a gain.",
    "sigma": "The gate `sigma` asks for a gain beyond the spread of a few sweeps: a rule of thumb, "
    "not a test with a known error rate.",
    "rollback": "The gate `rollback` compares one run of each task a side: a lucky run passes for "
    "a gain.",
    "follow": "The gate `follow` compares the loss of one run a side: a lucky run passes for "
    "a gain.",
}


SHOWN = (
    "The tasks that decide were shown to who proposes, by runs of their own: what was kept is "
    "better on these tasks, and nothing here says that it is on others."
)


def caveats(summary: Summary, run: Run | None = None) -> list[str]:
    """Every reservation that applies to this run; without `run`, those visible in its summary."""
    judged = run is not None and judges(scoring_in(run.settings.spec.scorer))
    suite = facts_of(run, SuiteFacts) if run is not None else None
    shown = [SHOWN] if suite is not None and suite.shared else []
    return [*_caveats(summary), *shown, *(_of_judges(run) if run is not None and judged else ())]


def _caveats(summary: Summary) -> Iterator[str]:
    yield from _of_figures(summary) if summary.comparison is None else limits(summary.comparison)
    yield from _of_machine(summary)
    if summary.spend.moot:
        # rollouts are wasted if an earlier step was kept meanwhile, or if the budget ran out
        whys = ["an earlier step was kept meanwhile"] if summary.keeps else []
        if any(step.code == "unaffordable" for step in summary.steps):
            whys.append("the budget did not last to the verdict of their step")
        moot = count(summary.spend.moot, "rollout")
        yield f"Paid for and not used, because {' or '.join(whys)}: {moot}."
    if summary.lost:
        yield f"{lost_words(summary.lost)}."
    if summary.open:
        yield (
            f"Without a verdict when this was written: {count(len(summary.open), 'step')}. What "
            "they used is in the spend, not in the figures."
        )


def _of_figures(summary: Summary) -> Iterator[str]:
    gate = GATES.get(summary.gate)
    if gate is not None:
        yield gate
    judged = sum(step.value is not None for step in summary.steps)
    if summary.improved and not summary.claim:
        yield (
            f"The figure of the best was measured on the cases that chose it among "
            f"{count(judged, 'candidate')}, so it is optimistic: expect less on new cases."
        )
    test = summary.cases.get("test", 0)
    for tie in summary.ties:
        if tie.was is None:
            near = get_close_matches(tie.metric, OWN, n=1)
            meant = f" Is `{near[0]}` meant?" if near else ""
            yield f"No rollout emitted `{tie.metric}`, so it has broken no tie.{meant}"
    # the whole interval of the test result is below 0
    if summary.claim_high is not None and summary.claim_high < 0:
        yield (
            "The claim speaks against the best: on cases that nothing was tuned on it is worse "
            "than the seed. Either the proof or these cases had bad luck: compare the two anew, "
            "with more cases, before it is adopted."
        )
    if summary.claim:
        cases = count(test, "case")
        yield f"The claim is from {cases}, read once; its interval is as wide as that."
    elif test:
        split = f"The test split ({count(test, 'case')})"
        yield f"{split} was not read: no figure is from unseen cases."
    elif summary.cases:
        yield "There is no test split: no figure is from unseen cases."
    else:
        yield "There are no cases: nothing here says that the gain carries over to other inputs."
    for words in unmeasured_words(summary.unmeasured):
        yield f"{words[0].upper()}{words[1:]}. Nothing was measured there."


def _of_machine(summary: Summary) -> Iterator[str]:
    if summary.not_enforced:
        first = "Commands were not sandboxed. " if SANDBOX in summary.not_enforced else ""
        listed = "; ".join(what for what in summary.not_enforced if what != SANDBOX)
        yield (
            f"{first}Not enforced on the machine of this run: {listed}. A "
            "candidate that cheats there would not have been stopped."
        )
    if summary.functions:
        names = ", ".join(f"`{name}`" for name in summary.functions)
        yield (
            f"No walls are round the Python function that scores, {names}: where it executes what "
            "a candidate left, a candidate that cheats would not have been stopped."
        )


def _of_judges(run: Run) -> Iterator[str]:
    for judge, found, rollouts in moves_with_length(run):
        way = "longer" if found > 0 else "shorter"
        yield (
            f"The judges' `{judge}` moves with length: {way} outputs to the same case scored "
            f"higher (rank correlation {found:+.2f} over {count(rollouts, 'rollout')}). Some of "
            "what looks like a gain may be length."
        )


MAX_REFUSED = 100
"""Maximum rows of refused steps in the report; `kept show` lists all of them."""
MAX_FAILURES = 20
MAX_TRAJECTORY = 100
MAX_DIFF_LINES = 400
"""Maximum lines of one change in the report; `kept diff` shows all of them."""


def markdown(run: Run, told: Summary | None = None) -> str:
    """Complete report; `told` is the run's summary, if it is available already."""
    page = PAGES.get(run.recipe or "")
    return page(run) if page else _steps_page(run, told)


def _agent_run_page(run: Run) -> str:
    # imported at use: few runs need it, and its import is slow
    from kept.recipes.agent_run.journal_view import agent_run_report

    return agent_run_report(run)


def _sweep_page(run: Run) -> str:
    sweep = sweep_of(run)
    assert sweep is not None, "a run that measures"
    return written(sweep, "markdown")


def _steps_page(run: Run, told: Summary | None) -> str:
    told = told or summary(run)
    closed = {event.step: event for event in run.events if isinstance(event, StepClosed)}
    kept = [(row, closed[row.step]) for row in told.steps if row.kept]
    # a single kept change is the whole change, and is shown above already
    several = told.improved and told.keeps > 1
    parts = [
        f"# {headline_words(told)}",
        _opening(told),
        _section("How sure this is", _sure(told)),
        _section("What was asked", _asked(told, run)),
        *(
            [_section("What came of it", _compared(told.comparison, told))]
            if told.comparison
            else [
                _section("What came of it", _outcome(told)),
                _section("Trajectory", _trajectory(told)),
                _section("Who proposed", _turns(told)),
                _section("What was kept", _kept(told, run, kept)),
                _section("What was refused", _refused(told)),
                _section(
                    "The change from seed to best", _fenced(best_diff(run)) if several else ()
                ),
            ]
        ),
        _section("Failures seen", _failures(run)),
        _section("Spend", _spend(told)),
        _section("What these figures do not show", [f"* {line}" for line in caveats(told, run)]),
        _section("How to go on", _how_to_go_on(told, run)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


PAGES: Mapping[str, Callable[[Run], str]] = {AGENT_RUN: _agent_run_page, EVALUATE: _sweep_page}
"""Page builders of recipes whose report is not about steps and verdicts."""


def _section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    return f"## {title}\n\n{body}" if body else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"|{'---|' * len(header)}"
    for row in rows:
        cells = (one_line(cell).replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def _opening(told: Summary) -> str:
    why = f": {told.stopped.message}" if told.stopped else ""
    verdicts = f": {verdict_counts(told)}" if told.steps or told.open else ""
    proposals = f"{count(told.proposals, 'proposal')}{merges_words(told)}"
    tried = f" {proposals}{verdicts}." if told.comparison is None else ""
    opening = f"Run `{told.run}`, {told.status}{why}.{tried}"
    claim = f"**Claim**, {told.claim}.\n\n" if told.claim else ""
    leading = "" if told.leading is None else f" Leading, not yet proven: step {told.leading}."
    told_plainly = conclusion(told)
    return f"{claim}{opening}{leading}" + (f"\n\n{told_plainly}" if told_plainly else "")


def _sure(told: Summary) -> Iterator[str]:
    rows = list(questions(told))
    if rows:
        yield from _table(("question", "asked of", "answer"), rows)
        yield ""
        told_odds = any("odds" in answer for _, _, answer in rows)
        odds = (
            "Odds are what a stake of 1 on a gain has become. Were there no gain, they would reach "
            "what was needed no more often than the error that was risked. "
        )
        yield f"{odds if told_odds else ''}An interval holds the true gain with a chance of 95 %."


def _asked(told: Summary, run: Run) -> Iterator[str]:
    artifacts = ", ".join(f"`{path}`" for path in sorted(run.seed.texts))
    rows = [
        ("spec", f"`{told.spec}`" if told.spec else "none: started from Python"),
        ("recipe", recipe_word(told.recipe)),
        ("artifacts", artifacts),
        ("metric", f"`{told.metric}`, {told.direction}"),
        ("cases", cases_words(told)),
        ("gate", told.gate),
        ("proposers", ", ".join(told.proposers)),
        ("budget", budget_words(told)),
        ("started", f"{clock(told.started)}, by kept {told.version}"),
    ]
    return _table(("", ""), [*rows[:2], *_said(run), *rows[2:]])


def _said(run: Run) -> Iterator[tuple[str, str]]:
    """Rows for the settings that a spec adds."""
    compared = comparison_of(run.state, folder=run.folder)
    if compared is not None and not compared.plans:
        others = ", ".join(f"`{line.label}`" for line in compared.lines)
        yield "compared", f"{others} with `{compared.seed}`"
    spec = run.settings.spec
    if spec.description:
        yield "about", spec.description
    for name, document in (("runner", spec.runner), ("scorer", spec.scorer)):
        words = scorer_words(scoring_in(document))
        if words:
            yield name, words
    constraints = ", ".join(f"`{c}`" for c in objective_of(run.state).constraints)
    if constraints:
        yield "constraints", constraints
    if ties := run.settings.tie_breakers:
        yield "ties", f"broken by {', then '.join(ties)}"


def _deciding(told: Summary) -> str:
    """Column title for deciding values; the headline may be from other cases."""
    return f"`{told.metric}` on the {deciding_cases(told)}" if told.cases else f"`{told.metric}`"


def _trajectory(told: Summary) -> Iterator[str]:
    """Table of each judged step's value beside the best so far."""
    races = told.gate == "race"
    best = told.decided_seed
    leading = leads(told.steps, best)
    rows: list[tuple[str, str, str, str]] = []
    for row in told.steps:
        if row.value is None:
            continue
        best = row.value if row.best else best
        so_far = leading[row.step] if races else best
        rows.append((str(row.step), number(row.value), row.outcome, number(so_far)))
    if not rows:
        yield "No candidate was measured."
        return
    cut = rows[-MAX_TRAJECTORY:]
    last = "leading so far" if races else "best so far"
    yield from _table(("step", _deciding(told), "verdict", last), cut)
    if len(rows) > len(cut):
        yield ""
        earlier = count(len(rows) - len(cut), "earlier step")
        yield f"{earlier}: `kept show {told.run}` lists all."


def _turns(told: Summary) -> Iterator[str]:
    """Gain and cost per proposer."""
    if not told.turns:
        return
    # columns for share and spend appear only if some proposer has a value there
    drawn, paid = (any(getattr(row, of) for row in told.turns) for of in ("share", "usd"))
    header = [
        "proposer",
        "turns",
        "near misses",
        "in what was kept",
        f"gain in `{told.metric}`",
        "rollouts",
    ]
    rows = [
        [row.proposer, *map(str, (row.turns, row.near, row.keeps)), number(row.gain)]
        + [f"{row.rollouts:,}", *([f"${row.usd:.2f}"] if paid else [])]
        + ([row.share_words] if drawn else [])
        for row in told.turns
    ]
    yield from _table((*header, *(["spend"] if paid else []), *(["share"] if drawn else [])), rows)
    yield ""
    yield (
        "What was kept together is credited to all that it came from; a near miss that waits "
        "counts half of what it promises. Rollouts and spend are those of its own candidates."
    )


def _compared(comparison: Comparison, told: Summary) -> Iterator[str]:
    """Answers of a comparison, and the figures behind them."""
    for sentence in sentences(comparison, told.spend):
        yield f"* {sentence}"
    yield ""
    if comparison.planned is not None:
        header = ("passes", "rollouts", "found if the same on every case", "found at worst")
        rows = [
            (
                str(row.passes),
                f"{row.rollouts:,}",
                found_alike(row, comparison.planned),
                short(row.worst),
            )
            for row in comparison.planned.forecasts
        ]
        yield from _table(header, rows)
        return
    header = ("", f"`{told.metric}`", f"`{comparison.seed}`", "difference", "rollouts", "answer")
    yield from _table(
        header,
        [
            (
                f"`{line.label}`",
                number(line.value),
                number(line.seed_value),
                interval(line),
                str(line.rollouts),
                line.answer,
            )
            for line in comparison.lines
        ],
    )


def _outcome(told: Summary) -> Iterator[str]:
    races = told.gate == "race"
    first = told.decided_seed
    rows = [("seed", "", number(first), f"`{told.seed}`")]
    rows += [
        (
            f"step {row.step}" + (", best" if row.step == told.best_step else ""),
            row.proposer,
            number(row.value),
            f"`{row.candidate}`",
        )
        for row in told.steps
        if row.kept
    ]
    yield from _table(("", "proposer", _deciding(told), "candidate"), rows)
    decided = {row.value for row in told.steps if row.kept}
    # the headline value of a race may come from a separate proof, and not from these figures
    apart = "" if told.best_value in decided else f"they are from {told.measured}, drawn anew"
    if races and told.keeps:
        yield ""
        words = "These figures decided which candidates were kept, so they are optimistic."
        yield words + (f" Those of the title chose nothing: {apart}." if apart else "")
    if told.improved:
        yield ""
        yield "The files of the best candidate are in `best/` beside this report."


def _kept(told: Summary, run: Run, kept: Sequence[tuple[StepLine, StepClosed]]) -> Iterator[str]:
    if not kept:
        yield "Nothing."
    for row, closed in kept:
        yield f"### Step {row.step}, {row.proposer}"
        yield ""
        if row.why:
            yield f"Proposed: {one_line(row.why, 1000)}"
            yield ""
        yield f"Kept: {one_line(row.reason)}."
        lost = [report for report in closed.reports if report.fate != "applied"]
        if lost:
            fates = ", ".join(sorted({report.fate for report in lost}))
            yield ""
            yield f"{count(len(lost), 'edit')} of {len(closed.reports)} did not apply ({fates})."
        yield ""
        yield from _fenced(step_diff(run, closed))
        if row is not kept[-1][0]:
            yield ""


def _fenced(text: str) -> Iterator[str]:
    # a fence must be longer than any fence in the diff itself
    lines = text.splitlines()
    fence = "```"
    while any(line.lstrip(" +-").startswith(fence) for line in lines):
        fence += "`"
    yield f"{fence}diff"
    yield from lines[:MAX_DIFF_LINES]
    yield fence
    if len(lines) > MAX_DIFF_LINES:
        yield ""
        more = count(len(lines) - MAX_DIFF_LINES, "more line")
        yield f"{more}: `kept diff --step N` shows all."


def _refused(told: Summary) -> Iterator[str]:
    refused = [row for row in told.steps if row.refused]
    if not refused:
        yield "Nothing."
    grouped = Counter((row.outcome, _kind(row)) for row in refused)
    for (outcome, kind), times in grouped.most_common():
        yield f"* {times} × {outcome}: {kind}"
    if told.empty_turns:
        yield f"* {count(told.empty_turns, 'further turn')} proposed nothing"
    if refused:
        yield ""
        yield from _refused_table(told, refused)


def _refused_table(told: Summary, refused: Sequence[StepLine]) -> Iterator[str]:
    rows = [
        (
            str(row.step),
            row.proposer,
            row.outcome,
            "" if row.value is None else number(row.value),
            row.reason,
            one_line(row.why, 80),
        )
        for row in refused[:MAX_REFUSED]
    ]
    yield from _table(
        ("step", "proposer", "verdict", f"`{told.metric}`", "reason", "proposed"), rows
    )
    if len(refused) > MAX_REFUSED:
        yield ""
        yield f"{len(refused) - MAX_REFUSED} more: `kept show {told.run}` lists all."


def _kind(row: StepLine) -> str:
    """Common ground of refusals: their code; if judged, the reason's text before any figures."""
    if row.code != "judged":
        return row.code
    head = row.reason.partition(":")[0]
    return head if len(head) < 60 and not any(c.isdigit() for c in head) else "judged no better"


def _failures(run: Run) -> Iterator[str]:
    groups = failures(run)
    if not groups:
        return
    rows = [
        (str(group.times), group.kind, group.blame, group.message, ", ".join(group.cases))
        for group in groups[:MAX_FAILURES]
    ]
    yield from _table(("times", "kind", "whose", "message", "cases"), rows)
    if len(groups) > MAX_FAILURES:
        yield ""
        yield (
            count(len(groups) - MAX_FAILURES, "more kind of failure", "more kinds of failure") + "."
        )


def _spend(told: Summary) -> Iterator[str]:
    spend = told.spend
    yield f"{spend_words(spend)}."
    yield ""
    busy = f", {duration(spend.seconds)} inside rollouts" if spend.seconds else ""
    yield f"{duration(told.elapsed)} at work{busy}."


def _how_to_go_on(told: Summary, run: Run) -> Iterator[str]:
    if told.improved:
        yield f"* `kept diff {told.run}` shows the change from seed to best."
    if told.improved and told.spec:
        yield (
            f"* `kept adopt {told.run}` makes that change to the source files, all or none; "
            "`--commit` commits it with this evidence."
        )
    yield f"* `kept show {told.run} --step N` shows all there is of one step."
    anew = start_command(run.state.started, run.folder) if run.state.started else ""
    broken = measure_is_broken(told, run)
    if anew and broken:
        yield f"* `{anew}` starts again, when what failed is mended."
    for words in cannot_tell(told):
        yield f"* {words[0].upper()}{words[1:]}."
    more = go_on(told)
    # a failure by the candidate's fault is not retried, so resuming would bring nothing
    if more and (may_pass(run) or not broken):
        yield f"* {more}"


def is_report_of(run: Run) -> bool:
    """True if `report.md` matches the journal, or if there is none."""
    path = run.folder / "report.md"
    return not path.exists() or path.read_bytes() == encoded(markdown(run))


def write_report(run: Run, told: Summary | None = None) -> str:
    """Write the report beside the journal atomically, and return its text.

    A process killed here leaves the old page, and the next report writes a new one.
    """
    text = markdown(run, told)
    path = run.folder / "report.md"
    fresh = path.with_name(f".report.md.{os.getpid()}")
    try:
        # diffs hold artifact content: bytes that are not UTF-8, and any line ending
        write_file(fresh, encoded(text))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
    return text
