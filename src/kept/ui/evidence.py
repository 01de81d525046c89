"""What a run shows, as the message of a commit that takes its best over."""

from kept.core.words import one_line
from kept.results.summary import summary
from kept.store.reader import Run
from kept.ui.report.caveats import caveats
from kept.ui.report.format import cases_words, change, verdict_counts

SUBJECT_WIDTH = 72


def commit_message(run: Run) -> str:
    """The gain as the subject; how it was found, measured and decided below."""
    told = summary(run)
    name = run.state.fact("id")
    about = f" of {name}" if name else ""
    kept = [f"* step {row.step}, {row.proposer}: {row.reason}" for row in told.steps if row.kept]
    lines = [
        one_line(f"Improve {told.metric}{about}: {change(told)}", SUBJECT_WIDTH),
        "",
        *kept,
        "",
        f"Run {told.run} of kept {told.version}, gate {told.gate}: {verdict_counts(told)}.",
        f"Cases: {cases_words(told)}.",
        f"Candidate {told.seed} → {told.best}.",
        "",
        *(f"Note: {line}" for line in caveats(told, run)),
    ]
    return "\n".join(lines) + "\n"
