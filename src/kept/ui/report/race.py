"""Race report: questions, cases, answers and error risk.

For undecided candidates it gives what would settle them, and the command to continue.
"""

from collections.abc import Iterator
from math import ceil

from kept.core.near_misses import ENTERED
from kept.core.plan import COMPARE, FUNCTION, TASK
from kept.core.text import count
from kept.results.race import Outcome, doubt_of, no_step_left, raced, rounded_up
from kept.results.summary import Summary

LIMITS = {
    "iterations": "max_iterations",
    "minutes": "max_minutes",
    "usd": "max_usd",
    "rollouts": "max_rollouts",
}
"""Budget setting behind each reason to stop."""


POWER = 2.04
"""Ratio of case counts: interval above 0 in four runs of five, against one run in two.

It is ((1.96 + 0.84) / 1.96)², by the quantiles of the normal distribution.
"""


def cannot_tell(told: Summary) -> Iterator[str]:
    """Best undecided candidate in words, with the cases and cost that would settle it."""
    doubt = doubt_of(told)
    if doubt is None:
        return
    shown = f"{doubt.gain:+.3f} ({doubt.low:+.3f} … {doubt.high:+.3f})"
    words = f"step {doubt.step} may be better, {shown}, and that is not proven"
    cases = doubt.cases
    if doubt.wanted is None or doubt.wanted <= cases:
        yield f"{words}; there is another proof when something new is kept"
        return
    price = told.spend.usd_a_rollout
    cost = f"{doubt.rollouts:,} rollouts" + (f", ${price * doubt.rollouts:.2f}" if price else "")
    more = f"about {doubt.wanted:,} deciding cases would tell, where there are {cases}"
    yield f"{words}: if that is its gain, {more} ({cost} for the proof)"


CONCLUDES = {TASK: True, FUNCTION: True}
"""Recipes whose answer has a conclusion; others have sentences of their own."""


def conclusion(told: Summary | Outcome) -> str:
    """Conclusion from a run in one sentence; empty if the answer already states it."""
    # a conclusion needs a value of the seed and at least one measured candidate
    screened = any("screen_gain" in row.numbers for row in told.steps)
    measured = screened or any(row.value is not None for row in told.steps)
    judged = told.seed_value is not None and measured
    if told.comparison is not None or not CONCLUDES.get(told.recipe) or not judged:
        return ""
    holdout, test = (told.cases.get(split, 0) for split in ("holdout", "test"))
    if not told.improved:
        return _nothing_better(told, holdout)
    if not told.cases:
        return "Better in the runs made here; without cases nothing says how it does on others."
    # a race measures repeatedly; other gates decide by one evaluation
    once = "" if told.gate == "race" else " in one evaluation"
    better = f"Better{once} on the {deciding_cases(told)}"
    tests = count(test, "test case")
    gain, low, high = told.claim_gain, told.claim_low, told.claim_high
    if not test:
        return f"{better}, which also chose it: add test cases to say by how much."
    if gain is None:
        return f"{better}; the {tests} were not read, so nothing says by how much."
    if high is not None and high < 0:
        return f"{better}, but worse on {tests}: compare both on more cases before you adopt it."
    if low is not None and high is not None and low > 0:
        return f"{better}, and by {low:.3f} to {high:.3f} on {tests} that nothing was tuned on."
    if gain <= 0:
        return f"{better}; {tests} show no gain: add more before you rely on it."
    few = f"{better}; {tests} are too few to say by how much"
    return f"{few}: add about {_more_cases(test, gain, low, high)}."


def deciding_cases(told: Summary | Outcome) -> str:
    """`30 holdout cases`, or `48 train and holdout cases` if there was a final of alternatives."""
    splits = ("train", "holdout") if any(ENTERED in s.numbers for s in told.steps) else ("holdout",)
    cases = sum(told.cases.get(split, 0) for split in splits)
    return count(cases, f"{' and '.join(splits)} case")


def _nothing_better(told: Summary | Outcome, holdout: int) -> str:
    if told.status != "finished":
        return ""
    doubt = doubt_of(told)
    if doubt is not None and doubt.wanted is not None and doubt.wanted > doubt.cases:
        more = f"{doubt.wanted - doubt.cases:,}"
        few = f"{count(doubt.cases, 'deciding case')} are too few to tell: add about {more}"
        return f"Step {doubt.step} may be better; {few}."
    if holdout and all(row.value is None for row in told.steps):
        train = count(told.cases.get("train", 0), "train case")
        tried = f"to be tried on the {count(holdout, 'holdout case')}"
        return f"No proposal did well enough on the {train} {tried}."
    where = f" on the {deciding_cases(told)}" if holdout else ""
    return f"No proposal was shown to be better than the seed{where}."


def _more_cases(cases: int, gain: float, low: float | None, high: float | None) -> int:
    """Cases to add so that the interval of such a gain ends above 0 in four runs of five."""
    if low is None or high is None:
        return max(8, cases)
    # the half-width of an interval shrinks with the square root of the number of cases
    half = max(gain - low, (high - low) / 2)
    return rounded_up(max(1, ceil(POWER * cases * (half / gain) ** 2) - cases))


def go_on(told: Summary) -> str:
    """Command to continue a run that was cut short or used up its budget; otherwise empty."""
    kind = told.stopped.kind if told.stopped is not None else ""
    limit = LIMITS["iterations"] if no_step_left(told) else LIMITS.get(kind, "")
    more = None
    if limit in told.budget:
        twice = 2 * told.budget[limit]
        # no decimal point in a whole number: a spec may require an integer
        more = int(twice) if twice == int(twice) else twice
    if not told.resumable and more is None:
        return ""
    called = {FUNCTION: "optimize", COMPARE: "" if told.spec else "compare"}.get(told.recipe)
    if called:
        budget = "" if more is None else f"budget=kept.Budget({limit}={more}), "
        return f'`kept.{called}(..., {budget}resume="{told.run}")` goes on with it.'
    command = f"kept resume {told.run}"
    if more is None:
        return f"`{command}` goes on where it stopped."
    return f"`{command} --set budget.{limit}={more}` goes on with twice the limit."


def questions(told: Summary) -> Iterator[tuple[str, str, str]]:
    """Rows of question, cases and answer; none for gates other than the race."""
    found = raced(told)
    if found is None:
        return
    cases = told.cases
    if found.screened:
        dropped = found.screened - found.near
        near = count(found.near, "near miss", "near misses")
        heard = f"{found.screened} measured: {dropped} dropped, {near}"
        yield "worth paying for?", f"{cases.get('train', 0)} train", heard
    proof_cases = f"{cases.get('holdout', 0)} holdout, new draws"
    if found.entered:
        proof_cases = f"{cases.get('train', 0)} train and {cases.get('holdout', 0)} holdout"
        heard = f"{count(found.entered, 'alternative')}: {found.finalists} in the final"
        yield "which is the best of them?", proof_cases, heard
    heard = "not asked apart"
    if found.raced:
        risked = f"{found.risked:.2g} of error risked in all"
        heard = f"{count(found.raced, 'race')}: {found.won} kept, {risked}"
    yield "better on these cases, beyond noise?", f"{cases.get('holdout', 0)} holdout", heard
    if found.ties:
        heard = f"{count(found.ties, 'text')}: {found.ties_kept} kept"
        yield (
            "as good, and better by what breaks ties?",
            f"{cases.get('holdout', 0)} holdout",
            heard,
        )
    if found.simpler:
        heard = f"{count(found.simpler, 'simpler text')}: {found.simpler_kept} kept"
        yield "simpler, and no worse?", f"{cases.get('holdout', 0)} holdout", heard
    waits = told.leading is not None or not told.stopped
    proofs = "; ".join(found.proofs) or ("not asked yet" if waits else "nothing to prove")
    yield "better for cases like these?", proof_cases, proofs
    if cases.get("test"):
        yield "by how much?", f"{cases['test']} test, sealed till then", told.claim or "not asked"
