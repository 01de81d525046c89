"""What the figures of a run do not show, said in the report that shows them."""

from collections.abc import Iterator
from difflib import get_close_matches

from kept.core.objective import OWN
from kept.core.words import count
from kept.results.scoring import judges
from kept.results.summary import Summary
from kept.store.reader import Run
from kept.store.unmeasured import unmeasured_words
from kept.ui.report.compare import limits
from kept.ui.report.format import lost_words
from kept.ui.report.length_bias import moves_with_length

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
    """Every reservation that holds for this run; without it, those that its summary shows."""
    judged = run is not None and judges(run.fact("scorer"))
    shown = [SHOWN] if run is not None and run.fact("shared") else []
    return [*_caveats(summary), *shown, *(_of_judges(run) if run is not None and judged else ())]


def _caveats(summary: Summary) -> Iterator[str]:
    yield from _of_figures(summary) if summary.comparison is None else limits(summary.comparison)
    yield from _of_machine(summary)
    if summary.spend.moot:
        why = " or ".join(_made_moot(summary))
        yield f"Paid for and not used, because {why}: {count(summary.spend.moot, 'rollout')}."
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
        yield (
            f"Not enforced on the machine of this run: {'; '.join(summary.not_enforced)}. A "
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


def _made_moot(summary: Summary) -> Iterator[str]:
    """What makes rollouts useless: a keep under them, or too little money for what they began."""
    if summary.keeps:
        yield "an earlier step was kept meanwhile"
    if any(step.code == "unaffordable" for step in summary.steps):
        yield "the budget did not last to the verdict of their step"
