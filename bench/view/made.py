"""A very long run, written by the real journal: steps, verdicts, rollouts and traces."""

import random
from pathlib import Path

from kept.core.artifact import Candidate
from kept.core.budget import Budget, Spend, StopReason
from kept.core.edit import EditReport, Write
from kept.core.event import (
    Proposed,
    RunSettings,
    RunStarted,
    RunStopped,
    SpecSettings,
    StepClosed,
    StepOpened,
)
from kept.core.objective import Objective
from kept.core.proposal import Proposal, Turn
from kept.core.rollout import Job, Pair, Purpose, TraceItem, Usage
from kept.core.score import Outcome, summarize
from kept.core.verdict import Verdict
from kept.store.journal import RunJournal

CASES = 40
BOUND = Objective("score", "maximize")
STARTED = 1_790_000_000.0


def make_run(folder: Path, steps: int, each: int) -> None:
    """A run of so many steps with so many rollouts each, one step in a hundred kept."""
    chance = random.Random(0)
    journal = RunJournal(folder)
    seed = Candidate({"prompt.md": "Answer the question.\n" * 20})
    journal.save(seed)
    journal.append(
        RunStarted(
            run_id=folder.name, recipe="task", seed=seed.id, inputs={}, version="bench",
            settings=RunSettings(
                gate="race", cases={"train": 20, "holdout": CASES, "test": 0},
                budget=Budget(max_rollouts=steps * each), spec=SpecSettings(path="task.yaml"),
            ),
            t=STARTED,
        )
    )  # fmt: skip
    incumbent = seed
    for step in range(steps):
        made = _step(journal, chance, step, incumbent, each)
        incumbent = made or incumbent
    reason = StopReason("rollouts", "the budget is used up")
    journal.append(RunStopped(reason=reason, t=STARTED + steps))
    journal.close()


def _step(
    journal: RunJournal, chance: random.Random, step: int, incumbent: Candidate, each: int
) -> Candidate | None:
    start, t = journal.rollouts_size, STARTED + step
    turn = Turn("edit", phase=f"part {step // 2500}", number=step)
    journal.append(StepOpened(step=step, turn=turn, incumbent=incumbent.id, rollouts_at=start, t=t))
    text = f"Answer the question, in way {step}.\n" + "Be brief and right.\n" * 19
    candidate = Candidate({"prompt.md": text})
    journal.save(candidate)
    edits = (Write("prompt.md", text),)
    reply = Proposal(edits, why=f"way {step}, because of what failed before")
    journal.append(Proposed(step=step, reply=reply, t=t + 0.2))
    kept = step % 100 == 99
    sides = [(candidate, each - each // 2), (incumbent, each // 2)]
    evaluations = tuple(_side(journal, chance, step, side, n, kept) for side, n in sides)
    verdict = Verdict(
        "keep" if kept else "discard",
        f"{'better' if kept else 'not better'}: gain +0.05 (−0.02 … +0.12) on {each} draws",
        best=kept,
        numbers={"gain": 0.05, "low": -0.02, "high": 0.12, "alpha_left": 0.05 / (step + 1)},
    )
    journal.append(
        StepClosed(
            step=step,
            candidate=candidate.id,
            incumbent=incumbent.id,
            reports=tuple(EditReport(edit, "applied") for edit in edits),
            verdict=verdict,
            evaluations=evaluations,
            spend=Spend(rollouts=each, calls=each, usd=0.0001 * each, seconds=0.1 * each),
            rollouts=(start, journal.rollouts_size),
            t=t + 0.9,
        )
    )
    return candidate if kept else None


def _side(
    journal: RunJournal, chance: random.Random, step: int, side: Candidate, n: int, kept: bool
):
    purpose: Purpose = "decide"
    rows: list[tuple[int, Job, Outcome]] = []
    for number in range(n):
        case, repeat = f"case-{number % CASES}", step * 10 + number // CASES
        trace = (
            TraceItem("user", f"question {number} of step {step}"),
            TraceItem("assistant", f"answer {chance.random()}", {"final": True}),
        )
        good = float(chance.random() < 0.5 + 0.3 * step / 10_000 + 0.05 * kept)
        outcome = Outcome(
            {"score": good}, usage=Usage(calls=1, usd=0.0001), seconds=0.1, trace=journal.put(trace)
        )
        rows.append((step, Job(side.id, case, repeat, purpose), outcome))
    journal.record(rows)
    outcomes = [(Pair(job.case_id, job.repeat), outcome) for _, job, outcome in rows]
    return summarize(side.id, purpose, outcomes, BOUND)
