"""The demo, replayed: its own task, with the bank in the place of the model.

The demo asks at temperature 0, where a model always says what it otherwise says most often. The
bank knows its prompts alone, so examples and temperature are proposals that change nothing: what a
run finds here, it finds in spite of them.
"""

import shutil
from dataclasses import replace

from bench.harness import scratch
from bench.real.bank import CASES, Bank, prompts
from bench.real.replay import BankRunner, Replayed, World, come_to
from kept.evaluators.runners.function import RecordedScorer
from kept.recipes.task.compile import compile_task
from kept.ui.demo import REVIEWS


def demo_world(bank: Bank) -> World:
    """The prompts by what they say, without chance; the first is the demo's seed."""
    always = {pair: (usual(row),) for pair, row in bank.right.items()}
    return World(replace(bank, right=always), {text: name for name, text in prompts().items()})


def usual(row: tuple[int, ...]) -> int:
    """What most of the draws were; of halves, the first."""
    return row[0] if 2 * sum(row) == len(row) else int(2 * sum(row) > len(row))


def replay_demo(world: World, number: int) -> Replayed:
    """One run of the demo, with cases that are split by this number."""
    with scratch() as folder:
        shutil.copytree(REVIEWS, folder, dirs_exist_ok=True)
        lines = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()[:CASES]
        (folder / "cases.jsonl").write_text("\n".join(lines), encoding="utf-8")
        # nobody is asked: only the plan of the task is wanted
        turns = "budget.max_iterations=16"  # for all eight prompts; the demo itself has ten
        settings = ("runner.model=handoff/desk", f"cases.seed={number}", turns)
        plan = compile_task(folder / "task.yaml", settings).plan
        plan = replace(
            plan,
            runner=BankRunner(world, number, "prompt.md"),
            scorer=RecordedScorer(),
            objective=replace(plan.objective, metric="score"),
            random_seed=number,
        )
        return come_to(plan, "prompt.md")
