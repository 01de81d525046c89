"""Recipes as objects: what the registry knows, and the tables of `kept.ui` by their names."""

from collections.abc import Collection

import pytest

from kept.core.event import RunStarted, SpecSettings
from kept.core.plan import AGENT_CONFIG, COMPARE, FUNCTION, SKILL, SUITE, TASK
from kept.recipes.agent_config.request import Tuning
from kept.recipes.base import Request, command_line
from kept.recipes.compare.request import Comparing
from kept.recipes.evaluate.request import Evaluation, Wanted
from kept.recipes.registry import RECIPES, recipe_named, request_in, start_command
from kept.recipes.skill.request import Training
from kept.recipes.suite.request import Optimization
from kept.store.codec import document_of
from kept.ui import adopt as adopting
from kept.ui.cli import _run, adopt, check, diff, optimize, resume, runs, show
from kept.ui.cli._progress import OPENINGS
from kept.ui.report import eval_report, format, json, markdown, race
from kept.ui.web.kinds import KINDS

SPECS = {TASK, AGENT_CONFIG, SKILL, SUITE}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_found_by_its_name(name: str):
    recipe = recipe_named(name)
    assert recipe.name == name
    assert issubclass(recipe.request, Request)


def test_nine_recipes_are_registered():
    assert set(RECIPES) == {
        *("task", "function", "agent_config", "skill", "agent_run", "refine", "suite"),
        *("evaluate", "compare"),
    }


@pytest.mark.parametrize(
    ("table", "names"),
    [
        (format.RECIPES, set(RECIPES)),
        (KINDS, set(RECIPES)),
        (check.OUTLINES, SPECS),
        (optimize.SPECS, SPECS),
    ],
)
def test_a_table_for_every_recipe_has_them_all(table: Collection[str], names: set[str]):
    assert set(table) == names


@pytest.mark.parametrize(
    "table",
    [
        *(_run.SESSIONS,),
        *(adopt.KEEPS_NOTHING, adopting.NO_SOURCE, diff.KEEPS_NOTHING, resume.RESUMES),
        *(runs.CELLS, show.CASES, OPENINGS, eval_report.FAILED_IS_BAD, json.DOCUMENTS),
        *(markdown.PAGES, race.CONCLUDES),
    ],
)
def test_a_table_for_some_recipes_has_no_other_names(table: Collection[str]):
    assert set(table) <= set(RECIPES)


@pytest.mark.parametrize(
    ("name", "request_", "words"),
    [
        (TASK, Request(), "kept optimize /a/s.yaml --set x=1 --set 'k=…'"),
        (AGENT_CONFIG, Tuning(output="o"), "kept test optimize /a/s.yaml --output-dir o"),
        (SKILL, Training(), "kept train --config /a/s.yaml --cfg-options x=1"),
        (SUITE, Optimization(epochs=3), "kept agent optimize /a/s.yaml --epochs 3"),
        ("evaluate", Evaluation(of=TASK, wanted=Wanted(limit=2)), "kept eval /a/s.yaml --limit 2"),
        (
            COMPARE,
            Comparing(words=("a", "b"), plan=True),
            "kept compare a b --task /a/s.yaml --plan",
        ),
    ],
)
def test_the_command_that_starts_again_has_what_was_asked(name: str, request_: Request, words: str):
    spec = SpecSettings(path="/a/s.yaml", overrides=("x=1",), hidden=("k",))
    assert command_line(recipe_named(name), spec, request_).startswith(words)


def test_a_run_from_python_has_no_command():
    started = RunStarted(
        run_id="r", recipe=FUNCTION, seed="s", inputs={}, version="0", t=0.0, request={}
    )
    assert start_command(started) == ""


def test_a_request_is_that_of_its_own_recipe_alone():
    asked = Evaluation(of=SKILL, wanted=Wanted(split="test"))
    started = RunStarted(
        run_id="r",
        recipe="evaluate",
        seed="s",
        inputs={},
        request=document_of(asked),
        version="0",
        t=0.0,
    )
    assert request_in(started, Evaluation) == asked
    assert request_in(started, Training) is None
