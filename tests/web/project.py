"""A project with a run of every kind, made by the real commands."""

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kept.sandbox import abilities
from kept.testing.server import ModelServer
from tests.cli.comparing import RUN, SCORE, write_comparison
from tests.cli.tasks import Called, kept, write_task
from tests.recipes.agent import world as talking
from tests.recipes.coordinate.world import answer, write_agent
from tests.recipes.skill import world
from tests.web.registry import make_registry
from tests.web.team import HARM, MODEL, TASK

LEGACY = json.dumps(
    {
        "session_id": "refine_20260419T182438Z",
        "seed_run_id": "2026-04-19_16-05-53_cbf28fd0",
        "started_at": "2026-04-19T18:24:38Z",
        "completed_at": "2026-04-19T18:26:50Z",
        "stop_reason": "no_prior_deliverable",
        "best_iter": 1,
        "iterations": [
            {"k": 1, "run_id": "2026-04-19_18-24-38_1ba2c7ed", "loss": 0.35, "status": "partial"}
        ],
    }
)
"""A session as the source wrote it before there were tiers."""

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

RACE_RUN = f'cat "$KEPT_CANDIDATE/prompt.md"\n{RUN}\necho "luck $luck of $chance"\n'
RACE = """
artifacts: {include: [prompt.md]}
runner: {command: "sh run.sh"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
cases: {file: cases.jsonl}
proposers: [{kind: variants, files: ["alternatives/*.md"]}]
budget: {max_rollouts: 1200}
workers: 2
"""
TUNING = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"


def write_race(folder: Path) -> Path:
    """A task that passes by the case, by luck and by what the prompt says."""
    (folder / "alternatives").mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text("Answer the question.\nBe brief.\n")
    texts = {
        "1-worse": "Say something.\n",
        "2-better": "Answer the question in a good way.\nBe brief.\n",
        "3-hostile": f"Answer the question.\n{HOSTILE}\n",
        "4-best": "Answer the question in a good way.\nBe brief, and good.\n",
    }
    for name, text in texts.items():
        (folder / "alternatives" / f"{name}.md").write_text(text)
    (folder / "run.sh").write_text(RACE_RUN)
    (folder / "score.sh").write_text(SCORE)
    rows = ({"id": f"c{n:02}", "chance": 30 + 10 * (n % 9)} for n in range(40))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(RACE)
    return folder / "task.yaml"


@contextmanager
def inside(folder: Path, **variables: str) -> Generator[None]:
    """The working folder and the environment that a person has there."""
    before, here = {name: os.environ.get(name) for name in variables}, Path.cwd()  # noqa: TID251 # restored below
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ.update(variables)  # noqa: TID251 # as a shell would
    try:
        yield
    finally:
        os.chdir(here)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)  # noqa: TID251 # as it was
            else:
                os.environ[name] = value  # noqa: TID251 # as it was


def make_project(folder: Path) -> Path:
    """Runs of every kind in one home."""
    home = {"KEPT_HOME": str(folder / ".kept"), "KEY": "sk-very-secret-key"}
    with ModelServer(answer) as server:
        write_agent(folder / "agent", server.v1, cases=12, trials=14, more=TUNING)
        with inside(folder / "agent", **home):
            _done(kept("eval", "agent.yaml", "-q"), (0, 1))
            _done(kept("test", "optimize", "agent.yaml", "-q"), (0,))
            _done(kept("eval", "agent.yaml", "-q"), (0, 1))
    with ModelServer(talking.answer) as server, inside(folder / "talking", **home):
        talking.write_agent(folder / "talking", server.v1, 6)
        _done(kept("eval", "agent.yaml", "-q"), (0, 1))
    with inside(folder / "loop", **home):
        write_task(folder / "loop")
        _done(kept("optimize", "task.yaml", "-q"), (0,))
    with inside(folder / "compare", **home):
        write_comparison(folder / "compare")
        texts = ("prompt.md", "better.md", "worse.md")
        _done(kept("compare", *texts, "--cases", "cases.jsonl"), (0, 1))
    with inside(folder / "race", **home):
        write_race(folder / "race")
        _done(kept("optimize", "task.yaml", "-q"), (0,))
    with ModelServer(world.searchqa_answer) as server, inside(folder / "train", **home):
        words = world.write_searchqa(folder / "train", server.v1, "optimizer.use_meta_skill=true")
        _done(kept(*words), (0,))
    return folder


def make_agent_run(folder: Path, server: ModelServer) -> Path:
    """A run of a team on a server, which left something to refine; its folder."""
    home = {"KEPT_HOME": str(folder / ".kept"), "OPENAI_COMPATIBLE_BASE_URL": server.v1}
    walls = () if abilities().walls else ("--set", "walls=off")
    more = ("--model", MODEL, "--max-loops", "20", "--input", "sales.csv", *walls)
    with inside(folder / "team", **home):
        Path("sales.csv").write_text("May,12\nJune,15\n")
        _done(kept("agent", "run", TASK, *more, "-q"), (0,))
    seed = next(f for f in (folder / ".kept" / "runs").iterdir() if _is_agent(f))
    # a refinement ends after twice the time of its seed, which here is less than a start takes
    told = json.loads((seed / "run_completion.json").read_text())
    told["final_budget"]["wall_time"]["elapsed_s"] = 600.0
    (seed / "run_completion.json").write_text(json.dumps(told))
    return seed


def make_agents(folder: Path, server: ModelServer) -> None:
    """An agent run, two refinements of it, and an experiment."""
    seed = make_agent_run(folder, server)
    home = {"KEPT_HOME": str(folder / ".kept"), "OPENAI_COMPATIBLE_BASE_URL": server.v1}
    make_registry(folder / ".kept" / "artifacts.db")
    with inside(folder / "team", **home):
        tiers = ("--tier-low", f"{MODEL}:{MODEL}", "--tier-high", f"{MODEL}-large:")
        _done(kept("refine", str(seed), *tiers, "-q"), (0,))
        _done(kept("refine", str(seed), "--iterations", "1", "-q"), (0, 1))
        (seed / "refinement_sessions" / "refine_20260419T182438Z.json").write_text(LEGACY)
        made = kept("experiment", "create", f"Sales {HARM}", "--goal", "know the sales", "--json")
        task = kept("experiment", "task", "create", made.json["experiment_id"], TASK, "--json")
        shutil.copytree(seed, Path(task.json["folder"]) / "seed" / "runs" / "2026-04-19_first")
        target = f"{made.json['experiment_id']}:001"
        _done(kept("experiment", "task", "set-best", target, "--auto"), (0,))
        again = ("--continuation", "--from-task", "001")
        words = ("create", made.json["experiment_id"], "Shorter, please", *again)
        _done(kept("experiment", "task", *words), (0,))


def _is_agent(folder: Path) -> bool:
    return '"recipe":"agent run"' in (folder / "journal.jsonl").read_text().partition("\n")[0]


def _done(called: Called, allowed: tuple[int, ...]) -> None:
    assert called.code in allowed, called.stderr
