"""The demo, replayed: its own task, with the bank in the place of the model.

The bank knows its prompts alone, so examples and temperature are proposals that change nothing:
what a run finds here, it finds in spite of them.
"""

import shutil
from dataclasses import replace

from bench.harness import scratch
from bench.real.bank import CASES, Bank, prompts
from bench.real.replay import BankRunner, Replayed, World, come_to
from kept.demo import REVIEWS
from kept.recipes.artifact import compile_task
from kept.scorers.recorded import RecordedScorer


def demo_world(bank: Bank) -> World:
    """The prompts by what they say; the first is the demo's seed."""
    return World(bank, {text: name for name, text in prompts().items() if name in bank.prompts})


def replay_demo(world: World, number: int) -> Replayed:
    """One run of the demo, with cases that are split by this number."""
    with scratch() as folder:
        shutil.copytree(REVIEWS, folder, dirs_exist_ok=True)
        lines = (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines()[:CASES]
        (folder / "cases.jsonl").write_text("\n".join(lines), encoding="utf-8")
        for path in folder.glob("variants/*"):
            if path.name.partition("-")[2] not in world.bank.prompts:
                shutil.rmtree(path)
        # nobody is asked: only the plan of the task is wanted
        settings = ("runner.model=handoff/desk", f"cases.seed={number}")
        plan = compile_task(folder / "task.yaml", settings).plan
        plan = replace(
            plan,
            runner=BankRunner(world, number, "prompt.md"),
            scorer=RecordedScorer(),
            objective=replace(plan.objective, metric="score"),
            random_seed=number,
        )
        return come_to(plan, "prompt.md")
