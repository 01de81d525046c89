"""The page of a refinement tells of each iteration once, also of one that was judged again."""

import re
from pathlib import Path

from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.web.agent_pages import step
from kept.ui.web.app import run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.templates import Links, environment, render
from tests.recipes.refine.test_race import GOOD, LUCKY, Away, raced
from tests.recipes.refine.test_refine import session
from tests.recipes.refine.world import Attempted


def page_of(folder: Path) -> str:
    told = Glance(folder).refresh()
    with Run(folder) as past:
        kind, links = kind_of(told.begun.recipe), Links()
        view = run_view(past, told, kind, links, Asked())
        return render(environment(), kind.template, links, **view)


def test_an_iteration_that_was_judged_again_has_one_row_and_the_star(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD), Attempted(0.8, LUCKY))
    it.look = Away("Good", until="Lucky")
    folder, state = it.start()
    assert [step.turn.settings["k"] for step in state.history] == [1, 2, 1]
    page = page_of(folder)
    rows = re.findall(r'<tr data-row.*?steps/(\d+)" data-open>(\d+)</a>(.*?)</td>', page)
    told = [(at, k, "★" in rest) for at, k, rest in rows]
    assert told == [("2", "1", True), ("1", "2", False)]
    assert re.findall(r'steps/(\d+)">iteration (\d+)', page) == [("2", "1")]
    assert "no answer" not in page
    assert [row["step"] for row in session(it)["iterations"]] == [2, 1]
    with Run(folder) as past:
        again, first = (step(past, n, {"changes": []})["story"] for n in (2, 0))
    assert again == first is not None, "the step that judged it again tells how it came about"


def test_an_iteration_that_nobody_could_read_is_marked(tmp_path: Path):
    it = raced(tmp_path, Attempted(0.8, GOOD), Attempted(0.8, LUCKY))
    it.look = Away("Good")
    folder, _ = it.start()
    page = page_of(folder)
    rows = re.findall(r"<tr data-row.*?data-open>(\d+)</a>(.*?)</tr>", page, re.DOTALL)
    assert [(k, "no answer" in rest) for k, rest in rows] == [("1", True), ("2", False)]
    assert "The seed is the best there is." in page
