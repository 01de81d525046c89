"""A project with a run of every kind, made by the real commands."""

import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from tests.recipes.agent_config import world as talking
from tests.recipes.agent_config.tune.world import answer, write_agent
from tests.recipes.skill import world
from tests.ui.cli.tasks import Called, kept, write_task
from tests.ui.web.desk import Desk, write_desk
from tests.ui.web.registry import make_registry
from tests.ui.web.team import HARM, MODEL, TASK

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

SUITE = Path(__file__).parents[3] / "examples" / "improve-prompts"
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

TUNING = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"


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


def make_project(folder: Path, harm: str = HOSTILE) -> Path:
    """Runs of every kind in one home; a prompt says what would do harm as markup."""
    home = {"KEPT_HOME": str(folder / ".kept"), "KEY": "sk-very-secret-key"}
    with ModelServer(answer) as server:
        write_agent(folder / "agent", server.v1, cases=12, trials=14, more=TUNING)
        with inside(folder / "agent", **home):
            _done(kept("eval", "agent.yaml", "-q"), (0, 1))
            _done(kept("test", "optimize", "agent.yaml", "-q"), (0,))
            cooler = ("--set", "model.temperature=0.1")
            _done(kept("test", "run", "agent.yaml", *cooler, "-q"), (0, 1))
    with ModelServer(talking.answer) as server, inside(folder / "talking", **home):
        talking.write_agent(folder / "talking", server.v1, 6)
        _done(kept("eval", "agent.yaml", "-q"), (0, 1))
    with inside(folder / "loop", **home):
        write_task(folder / "loop")
        _done(kept("optimize", "task.yaml", "-q"), (0,))
    with ModelServer(Desk()) as server:
        with inside(folder / "compare", **home):
            write_desk(folder / "compare", server.v1, cases=12)
            texts = ("prompt.md", "alternatives/4-both.md", "alternatives/1-at-length.md")
            _done(kept("compare", *texts, "--cases", "cases.jsonl"), (0, 1))
        with inside(folder / "race", **home):
            write_desk(folder / "race", server.v1, more=f"{harm}\n")
            _done(kept("optimize", "task.yaml", "-q"), (0,))
    with inside(folder / "suite", **home):
        shutil.copytree(SUITE, folder / "suite", dirs_exist_ok=True)
        _done(kept("agent", "optimize", "suite.yaml", "-q"), (0,))
    with ModelServer(world.searchqa_answer) as server, inside(folder / "train", **home):
        # one that keeps something in the first epoch, and in the second
        more = ("optimizer.use_meta_skill=true", "train.seed=5")
        words = world.write_searchqa(folder / "train", server.v1, *more)
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
    return next(f for f in (folder / ".kept" / "runs").iterdir() if _is_agent(f))


def make_agents(folder: Path, server: ModelServer, harm: str = HARM) -> None:
    """An agent run, two refinements of it, and an experiment."""
    seed = make_agent_run(folder, server)
    home = {"KEPT_HOME": str(folder / ".kept"), "OPENAI_COMPATIBLE_BASE_URL": server.v1}
    make_registry(folder / ".kept" / "awp.db", harm)
    with inside(folder / "team", **home):
        tiers = ("--tier-low", f"{MODEL}:{MODEL}", "--tier-high", f"{MODEL}-large:")
        _done(kept("refine", str(seed), *tiers, "-q"), (0,))
        raced = ("--gate", "race", "--iterations", "1")
        _done(kept("refine", str(seed), *raced, "-q"), (0, 1))
        (seed / "refinement_sessions" / "refine_20260419T182438Z.json").write_text(LEGACY)
        made = kept(
            "experiment", "create", f"Sales {harm}".strip(), "--goal", "know the sales", "--json"
        )
        task = kept("experiment", "task", "create", made.json["experiment_id"], TASK, "--json")
        shutil.copytree(seed, Path(task.json["folder"]) / "seed" / "runs" / "2026-04-19_first")
        target = f"{made.json['experiment_id']}:001"
        _done(kept("experiment", "task", "set-best", target, "--auto"), (0,))
        again = ("--continuation", "--from-task", "001")
        words = ("create", made.json["experiment_id"], "Shorter, please", *again)
        _done(kept("experiment", "task", *words), (0,))


def _is_agent(folder: Path) -> bool:
    return '"recipe":"agent_run"' in (folder / "journal.jsonl").read_text().partition("\n")[0]


def _done(called: Called, allowed: tuple[int, ...]) -> None:
    assert called.code in allowed, called.stderr
