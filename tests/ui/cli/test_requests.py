"""Requests to models hold nothing of the clock, the process or the place that they come from.

Each recipe runs twice, as another process, in another folder and in another second.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from kept.core.llm import Message, ModelRequest
from kept.core.rollout import Failure
from kept.models.scripted import read_script
from kept.sandbox.capabilities import abilities
from kept.testing.server import Fault, ModelServer, Seen
from tests.orchestrator.play import Play, Say, complete, delegate, done, plan, use, write
from tests.orchestrator.run_folder.made import synthetic_run
from tests.recipes.agent_config import world as agent_world
from tests.recipes.agent_config.tune import world as tuning_world
from tests.recipes.killing import kept
from tests.recipes.refine.world import TASK, scores
from tests.recipes.skill import world as skill_world
from tests.ui.cli.test_refine import Stage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.skipif(not abilities().walls, reason="no walls here"),
]

MODEL = "openai_compatible/m"
EXAMPLE = Path(__file__).parents[3] / "examples" / "improve-prompts"

Answer = Callable[[Seen], Say]


@dataclass(frozen=True)
class Recipe:
    """A command of a recipe in a folder, and the server that answers it."""

    write: Callable[[Path, str], Sequence[str]]
    """Write its files for a server at a URL; the words of the command."""
    answer: Callable[[], Answer]
    codes: tuple[int, ...] = (0,)


# On stderr the command names the folders that it works in, as a traceback does.
RUN = """\
import os, sys
print(open(os.environ["KEPT_CANDIDATE"] + "/guide.md").read())
print(__file__, os.environ["KEPT_CANDIDATE"], os.environ["HOME"], file=sys.stderr)
"""
TASK_YAML = """\
artifacts: {{include: [guide.md]}}
runner: {{command: "python3 run.py"}}
scorer: {{type: rules, rules: [{{kind: matches, pattern: "^be brief$"}}]}}
objective: {{primary_metric: score, direction: maximize, bounds: [0, 1]}}
models: {{optimizer: {{provider: openai_compatible, model: m, base_url: "{url}", cache: false}}}}
proposers: [{{kind: edit, traces: 1}}]
sandbox: {{walls: {walls}}}
budget: {{max_iterations: 2}}
width: 1
"""


def write_task(folder: Path, url: str, walls: str) -> Sequence[str]:
    (folder / "guide.md").write_text("a seed\n")
    (folder / "run.py").write_text(RUN)
    (folder / "task.yaml").write_text(TASK_YAML.format(url=url, walls=walls))
    return ["optimize", "task.yaml"]


def edit(seen: Seen) -> str:
    line = {"op": "append", "path": "guide.md", "target": "", "text": f"{seen.body['seed']}\n"}
    return json.dumps({"why": "why not", "cases": [], "edits": [line]})


# A function fails in the middle of its file, and in a folder of its own.
FUNCTION = """\
import os, kept
def evaluate(candidate, case):
    if len(case["q"]) % 2:
        raise ValueError("odd")
    return {"score": float("v" in candidate.text)}
model = {"provider": "openai_compatible", "model": "m", "base_url": os.environ["URL"]}
editor = kept.edit({**model, "cache": False}, cases=4, traces=2)
cases = [{"q": "x" * n} for n in range(12)]
how = {"width": 1, "gate": "strict", "bounds": (0, 1), "budget": kept.Budget(max_iterations=3)}
kept.optimize("Say it.\\n", evaluate, cases, proposers=[editor], **how)
"""


def write_function(folder: Path, url: str) -> Sequence[str]:
    (folder / "improve.py").write_text(FUNCTION)
    return [sys.executable, "improve.py"]


def edit_text(seen: Seen) -> str:
    line = {"op": "append", "path": "text", "target": "", "text": f"v{seen.body['seed']}\n"}
    return json.dumps({"why": "why not", "cases": [], "edits": [line]})


JUDGED = """\
artifacts: {{include: [prompt.md]}}
runner: {{model: {{provider: openai_compatible, model: target, base_url: "{url}", cache: false}},
  prompt: prompt.md, input: question}}
scorer:
  type: judge
  judges: [{{provider: openai_compatible, model: judge, base_url: "{url}", cache: false}}]
  criteria: [{{name: loud, means: it is said aloud}}]
  input: [question]
objective: {{primary_metric: score, direction: maximize, bounds: [0, 1]}}
cases: {{file: cases.jsonl}}
"""


def write_compared(folder: Path, url: str) -> Sequence[str]:
    (folder / "prompt.md").write_text("Say it.\n")
    (folder / "other.md").write_text("Shout it.\n")
    rows = ({"id": f"c{n}", "question": f"word {n}"} for n in range(8))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(JUDGED.format(url=url))
    return ["compare", "prompt.md", "other.md", "--task", "task.yaml"]


def judged(seen: Seen) -> str:
    return json.dumps({"loud": {"reason": "so so", "level": 3}})


def write_tuned(folder: Path, url: str) -> Sequence[str]:
    more = "accept_sigma: 1.0\nrepeats: 1\nsplit: '1:1:0'"
    tuning_world.write_agent(folder, url, cases=10, trials=2, more=more)
    return ["test", "optimize", "agent.yaml"]


def write_eval(folder: Path, url: str) -> Sequence[str]:
    agent_world.write_agent(folder, url, 2)
    return ["eval", "agent.yaml"]


def write_agent_run(folder: Path, url: str) -> Sequence[str]:
    (folder / "data.csv").write_text("12,15")
    return ["agent", "run", "Write a report on data.csv", "--input", "data.csv", "--model", MODEL]


# What a tool says of the place that it runs in goes back to the model.
CODE = "import os\nprint(os.getcwd(), os.environ['HOME'], sorted(os.listdir('.')))\nraise OSError\n"


def play() -> Answer:
    workers = {"w1": [use("code_execute", code=CODE), write(), done("w1")]}
    return Play([plan("report.md"), delegate("w1"), complete()], workers).of_server


def write_refined(folder: Path, url: str) -> Sequence[str]:
    synthetic_run(folder / "seed", task=TASK, models={"manager": MODEL})
    return ["refine", "seed"]


def write_suite(folder: Path, url: str) -> Sequence[str]:
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    spec = folder / "suite.yaml"
    text = spec.read_text().replace("scripted/", "openai_compatible/")
    spec.write_text(text.replace("epochs: 3", "epochs: 1"))
    return ["agent", "optimize", "suite.yaml"]


def scripted() -> Answer:
    """Say what the files of the example say, each by the name of a model."""
    scripts = {path.name: read_script(path) for path in EXAMPLE.glob("*.jsonl")}

    def answer(seen: Seen) -> Say:
        request = ModelRequest(tuple(Message("user", line.text) for line in seen.lines))
        said = scripts[seen.model](request)
        return Fault("status", 400) if isinstance(said, Failure) else said

    return answer


RECIPES = {
    "task": Recipe(partial(write_task, walls="required"), lambda: edit),
    "task-unwalled": Recipe(partial(write_task, walls="'off'"), lambda: edit),
    "function": Recipe(write_function, lambda: edit_text),
    "compare": Recipe(write_compared, lambda: judged),
    "test-optimize": Recipe(write_tuned, lambda: tuning_world.answer),
    "eval": Recipe(write_eval, lambda: agent_world.answer, (1,)),
    "train": Recipe(skill_world.write_searchqa, lambda: skill_world.searchqa_answer),
    "agent-run": Recipe(write_agent_run, play),
    "refine": Recipe(write_refined, lambda: Stage(scores(0.7, 0.8))),
    "agent-optimize": Recipe(write_suite, scripted),
}


def started(folder: Path, words: Sequence[str], url: str) -> subprocess.Popen[str]:
    """The command of `kept`, or a program of Python."""
    if words[0] != sys.executable:
        return kept(folder, *words, OPENAI_COMPATIBLE_BASE_URL=url)
    pipe, keys = subprocess.PIPE, {"URL": url, "OPENAI_COMPATIBLE_API_KEY": "sk-none"}
    env = {**os.environ, **keys}  # noqa: TID251 # of a program
    return subprocess.Popen(words, cwd=folder, env=env, stdout=pipe, stderr=pipe, text=True)


def requests(recipe: Recipe, folder: Path) -> Counter[str]:
    """What the server was asked, and how often."""
    folder.mkdir(parents=True)
    with ModelServer(recipe.answer()) as server:
        words = recipe.write(folder, server.v1)
        process = started(folder, words, server.v1)
        _, said = process.communicate(timeout=120)
        assert process.returncode in recipe.codes, said
        return Counter(json.dumps([seen.path, seen.body], sort_keys=True) for seen in server.log)


IN_CI = ("task", "refine")
"""The others take 15 seconds of CPU, and run at night."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in IN_CI else pytest.mark.nightly) for name in RECIPES],
)
def test_two_runs_elsewhere_and_later_ask_the_same(name: str, tmp_path: Path):
    first = requests(RECIPES[name], tmp_path / "one")
    # run ids and sessions are named by the second
    time.sleep(1.1)
    second = requests(RECIPES[name], tmp_path / "far away" / "another one")
    assert first
    assert sorted((first - second).elements()) == sorted((second - first).elements())
