"""What a race asked, of which cases, what it heard, and what error it risked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kept.core.final import ENTERED
from kept.core.pool import MERGE
from kept.core.words import count
from kept.gates.ties import TIE
from kept.results.summary import StepLine, Summary


@dataclass(frozen=True, slots=True)
class Raced:
    """The counts of a race's four questions."""

    screened: int
    """Proposals that met train cases."""
    near: int
    """Of them, those worth a race together with others."""
    raced: int
    won: int
    """Races that ended in a keep."""
    kept: int
    """Keeps, those among them that were proven at once, without a race before."""
    risked: float
    """Chance of error that the races were allowed, in sum."""
    proofs: tuple[str, ...]
    """What each promotion that was asked for said."""
    simpler: int = 0
    """Simplifications that were tested for being no worse than by the margin."""
    simpler_kept: int = 0
    entered: int = 0
    """Alternatives that were compared all together."""
    finalists: int = 0
    """Of them, those that went on after their first look."""
    ties: int = 0
    """Raced for their tie-breakers."""
    ties_kept: int = 0


def raced(told: Summary) -> Raced | None:
    """The counts of a run whose gate is the race; None of any other."""
    if told.gate != "race":
        return None
    screened = [row for row in told.steps if "screen_gain" in row.numbers and row.proposer != MERGE]
    races = [row for row in told.steps if "alpha" in row.numbers]
    no_worse = [row for row in told.steps if "alpha_simplify" in row.numbers]
    ties = [row for row in no_worse if TIE in row.numbers]
    simpler = [row for row in no_worse if TIE not in row.numbers]
    return Raced(
        len(screened),
        sum(row.code == "near miss" for row in screened),
        len(races),
        sum(row.kept for row in races),
        sum(row.kept for row in told.steps),
        sum(row.numbers["alpha"] for row in races),
        tuple(row.reason for row in told.steps if "alpha_promote" in row.numbers),
        len(simpler),
        sum(row.kept for row in simpler),
        len(entered := [row for row in told.steps if ENTERED in row.numbers]),
        sum(row.code == "near miss" for row in entered),
        len(ties),
        sum(row.kept for row in ties),
    )


def questions(told: Summary) -> Iterator[tuple[str, str, str]]:
    """Each question, the cases it was asked of, and the answer; nothing of other gates."""
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
    proofs = "; ".join(found.proofs) or _no_proof(told)
    yield "better for cases like these?", proof_cases, proofs
    if cases.get("test"):
        yield "by how much?", f"{cases['test']} test, sealed till then", told.claim or "not asked"


def _no_proof(told: Summary) -> str:
    return "not asked yet" if told.leading is not None or not told.stopped else "nothing to prove"


def leads(steps: Sequence[StepLine], seed: float | None) -> dict[int, float | None]:
    """What led when each step closed: the value of the last keep."""
    found: dict[int, float | None] = {}
    for row in steps:
        seed = row.value if row.kept else seed
        found[row.step] = seed
    return found
