"""Every recipe, killed with SIGKILL at random moments, resumes to the same end.

Moments are spread over the whole run: its start, its work, its closing, the writing of its report.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kept.sandbox.capabilities import abilities
from kept.testing.server import Seen
from tests.orchestrator.play import REPORT, Play, complete, delegate, done, plan, use, write
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.agent_config import world as agent
from tests.recipes.agent_config.tune import world as coordinate
from tests.recipes.killing import Killable, Kills
from tests.recipes.refine import world as refine
from tests.recipes.skill import world as skill
from tests.recipes.suite import world as suite
from tests.recipes.task import test_edit_task as edit
from tests.recipes.telling import write_cases
from tests.ui.cli.test_refine import MODEL, Stage

SAMPLE, NIGHTLY = 2, 40
"""Kills of a recipe, in CI and at night."""


def write_task(folder: Path, url: str) -> Sequence[str]:
    folder.mkdir()
    (folder / "guide.md").write_text("a seed\n")
    (folder / "task.yaml").write_text(edit.TASK.replace("URL", url))
    return ("optimize", "task.yaml", "-q", "--set", "budget.max_iterations=12")


def write_training(folder: Path, url: str) -> Sequence[str]:
    one_epoch = ("evaluation.gate=selection", "train.num_epochs=1")
    return skill.write_searchqa(folder, url, *one_epoch)


def write_tuning(folder: Path, url: str) -> Sequence[str]:
    sigma = "split: '1:1:0'\naccept_sigma: 1.0\nrepeats: 2"
    coordinate.write_agent(folder, url, cases=16, trials=2, more=sigma)
    return ("test", "optimize", "agent.yaml", "-q", "--workers", "8")


def write_agent_run(folder: Path, url: str) -> Sequence[str]:
    folder.mkdir()
    (folder / "data.csv").write_text("12,15")
    task = "Write a report on data.csv to report.md"
    return ("agent", "run", task, "-i", "data.csv", "--model", "openai_compatible/m", "-q")


def agent_run() -> Play:
    code = "import pathlib\npathlib.Path('output/key.txt').write_text('a key')\n"
    return Play(
        [plan("report.md", "key.txt"), delegate("a", "b", "c"), delegate("d"), complete()],
        {
            "a": [write("notes/a.txt", "12, 15"), use("file_read", path="notes/a.txt"), done("a")],
            "b": [use("code_execute", code=code), done("b")],
            "c": [use("arithmetic", expression="15 / 12"), done("c")],
            "d": [write(content="# Report\n\nTODO\n"), done("d")],
            "repair-1": [write(content=REPORT), done("repair-1")],
        },
    )


def write_refinement(folder: Path, url: str) -> Sequence[str]:
    synthetic_run(folder / "seed", task=refine.TASK, models={"manager": MODEL})
    return ("refine", "seed", "--iterations", "2", "-q")


def write_suite(folder: Path, url: str) -> Sequence[str]:
    path = suite.write_suite(folder, "gate: rollback\nepochs: 2\n", tasks=("may",))
    models = "walls: off, models: {manager: openai_compatible/m}"
    path.write_text(path.read_text().replace("walls: off", models))
    return ("agent", "optimize", "suite.yaml", "-q")


def write_eval(folder: Path, url: str) -> Sequence[str]:
    agent.write_agent(folder, url, 20)
    return ("eval", "agent.yaml", "-q", "--workers", "8")


COMPARISON = """\
artifacts: {include: [prompt.md]}
models:
  target: {provider: openai_compatible, model: m, base_url: URL, max_tokens: 20, cache: false}
runner: {model: openai_compatible/m, prompt: prompt.md, input: text}
scorer: {type: rules, rules: [{kind: matches, pattern: '^[A-Z0-9 ]+$'}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
workers: 8
"""


def write_comparison(folder: Path, url: str) -> Sequence[str]:
    folder.mkdir()
    (folder / "task.yaml").write_text(COMPARISON.replace("URL", f'"{url}"'))
    (folder / "prompt.md").write_text("Say it.\n")
    (folder / "louder.md").write_text("SHOUT it.\n")
    write_cases(folder, ({"id": f"c{n}", "text": f"word {n}"} for n in range(12)))
    return ("compare", "prompt.md", "louder.md", "--cases", "cases.jsonl", "-q")


def shout(seen: Seen) -> str:
    """Upper case where that is asked for, and else for some of the cases."""
    loud = "SHOUT" in seen.text or int(seen.body["seed"]) % 3 == 0
    return "WORD" if loud else "word"


COMMANDS = {
    "optimize": Killable(write_task, lambda: edit.draw),
    "train": Killable(write_training, lambda: skill.searchqa_answer),
    "test optimize": Killable(
        write_tuning,
        lambda: coordinate.answer,
        resume=("test", "optimize", "--resume", "last", "-q", "--workers", "8"),
    ),
    "agent run": Killable(write_agent_run, lambda: agent_run().of_server),
    "refine": Killable(write_refinement, lambda: Stage(refine.scores(0.7, 0.9))),
    "agent optimize": Killable(
        write_suite,
        lambda: suite.Cast(proposes=suite.in_order(suite.GOOD[0], suite.HARMFUL[0])).of_server,
    ),
    "eval": Killable(write_eval, lambda: agent.answer),
    "compare": Killable(write_comparison, lambda: shout),
}
WALLED = {"agent run", "refine"}


def commands() -> list[object]:
    needs = pytest.mark.skipif(not abilities().walls, reason="no walls here")
    marks = (pytest.mark.sandbox, needs)
    return [pytest.param(name, marks=marks if name in WALLED else ()) for name in COMMANDS]


def check(name: str, kills: int, low: float, folder: Path) -> None:
    made = Kills(COMMANDS[name], folder)
    with made.server:
        made.check(made.reference(), kills, random.Random(name), low)
    assert made.kills == kills


@pytest.mark.kill
@pytest.mark.parametrize("name", commands())
def test_a_run_that_is_killed_resumes_to_the_same_end(name: str, tmp_path: Path):
    # one kill in the middle of its work, and one near its end
    check(name, SAMPLE, 0.4, tmp_path)


@pytest.mark.kill
@pytest.mark.nightly
@pytest.mark.parametrize("name", commands())
def test_a_run_that_is_killed_at_any_moment_resumes_to_the_same_end(name: str, tmp_path: Path):
    check(name, NIGHTLY, 0.0, tmp_path)
