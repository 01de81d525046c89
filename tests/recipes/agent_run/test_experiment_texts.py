"""Which prompt artifacts a run is told: those of its experiment, if that has its own."""

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from kept.core.plan import Plan
from kept.orchestrator.experiments import Task, add_task, create_experiment
from kept.orchestrator.prompt_registry import Epoch, PromptRegistry, Suite
from kept.orchestrator.refine.proposer import Rerun
from kept.orchestrator.toolkit import own_artifacts
from kept.recipes.agent_run.compile import Before, compile_agent_run
from kept.recipes.agent_run.experiment_run import tag_of
from kept.recipes.agent_run.make_toolkit import registry_of
from kept.recipes.agent_run.request import Asked
from kept.recipes.refine.compile import compile_refine
from kept.recipes.refine.request import Refinement
from kept.run import start
from kept.sandbox.capabilities import abilities
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.cli._refine_run import resume_refine
from tests.orchestrator.run_folder.made import perfect_run, synthetic_run

NAME = "worker_pitfalls"
SETTINGS = ("models.manager=scripted/m.jsonl", "models.worker=scripted/m.jsonl", "walls=off")
OURS, THEIRS = "* What the project learned.\n", "* What the experiment learned.\n"


def learn(path: Path, text: str) -> None:
    """Have a registry use a text, as an optimization does that kept it."""
    own = own_artifacts()
    epoch = Epoch(
        id=f"run/{text}",
        suite="s",
        number=1,
        started=0.0,
        ended=1.0,
        loss=0.5,
        before=own,
        after={**own, NAME: text},
        kept=True,
        uses=(NAME,),
    )
    assert PromptRegistry(path, own).record(epoch)


@dataclass
class Project:
    """A project that learned something, with a task of an experiment."""

    folder: Path
    task: Task
    registry: Path
    """Where that of the experiment would be."""

    def run(self, *, target: bool, before: Before | None = None) -> Plan:
        tags = (tag_of(self.task),) if target else ()
        asked = Asked(task="Write it", folder=str(self.folder), settings=SETTINGS, tags=tags)
        return compile_agent_run(asked, before=before).plan

    def asked(self, seed: Path, *, target: bool) -> Refinement:
        return Refinement(
            run=str(seed),
            folder=str(self.folder),
            session="refine_1",
            target=self.task.target if target else "",
            settings=SETTINGS,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    home = tmp_path / ".kept"
    experiment = create_experiment(home / "experiments", "Sales", "", "2026-01-01T00:00:00Z")
    task = add_task(experiment, "Write it", (), "seed", "2026-01-01T00:00:00Z")
    (tmp_path / "m.jsonl").write_text("")
    learn(home / "artifacts.db", OURS)
    return Project(tmp_path, task, experiment.folder / "outer_loop.db")


def test_a_run_of_a_task_is_told_what_its_experiment_learned_and_no_other_run_is(project: Project):
    before = project.run(target=True)
    assert before.seed.texts[NAME] == OURS, "an experiment that learned nothing has no registry"
    learn(project.registry, THEIRS)
    assert project.run(target=True).seed.texts[NAME] == THEIRS
    assert project.run(target=False).seed.texts[NAME] == OURS
    # one that goes on is told what it began with
    again = project.run(target=True, before=Before(before.seed.texts))
    assert again.seed == before.seed


def told(made: Plan) -> str:
    """What the iterations of a refinement are told."""
    (rerun,) = made.proposers
    assert isinstance(rerun, Rerun)
    return rerun.texts[NAME]


def test_to_begin_a_registry_of_an_experiment_changes_nothing_that_runs_use(project: Project):
    """As by an optimization that keeps nothing, which had begun with Kept's own texts."""
    home = Home(project.folder / ".kept")
    before = project.run(target=True).seed
    registry = registry_of(home, project.task.target)
    told = registry.active()[NAME]
    assert (told.number, told.content) == (1, OURS) and not project.registry.exists()
    registry.register(Suite(id="s", name="s", tasks=[]))
    assert project.registry.exists()
    assert project.run(target=True).seed == before
    assert registry.active()[NAME] == replace(told, created=registry.active()[NAME].created)
    # what the project learns later is its own
    learn(home.path / "artifacts.db", "* Something else.\n")
    assert project.run(target=True).seed == before
    registry.activate(NAME, 0)
    assert project.run(target=True).seed.texts == own_artifacts()


@pytest.mark.skipif(not abilities().walls, reason="no walls here")
def test_a_refinement_of_a_task_is_told_what_its_experiment_learned(project: Project):
    seed = synthetic_run(project.folder / "seed", task="Write it")
    of_task, plain = (project.asked(seed, target=target) for target in (True, False))
    assert told(compile_refine(of_task).plan) == OURS
    learn(project.registry, THEIRS)
    assert told(compile_refine(of_task).plan) == THEIRS
    assert told(compile_refine(plain).plan) == OURS


def test_a_refinement_that_goes_on_is_told_what_it_began_with(project: Project):
    asked = project.asked(perfect_run(project.folder / "seed"), target=True)
    ended = asyncio.run(start(compile_refine(asked).plan, Home(project.folder / ".kept")))
    learn(project.registry, THEIRS)
    # with other prompts it would be refused
    assert resume_refine(Run(ended.folder), (), as_json=True, quiet=True) == 0
