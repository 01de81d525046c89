"""The page of a run names the steps whose change its best is, and what only proved it apart."""

import re
from pathlib import Path

import pytest

from kept.core.schedules.round_robin import PROVE
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.web.app import run_view
from kept.ui.web.kinds import kind_of
from kept.ui.web.run_page import Asked
from kept.ui.web.step_page import step_view
from kept.ui.web.templates import Links, environment, render
from tests.engine.test_racing import run


@pytest.mark.slow
def test_the_best_is_made_by_steps_with_a_change_and_proven_by_another(tmp_path: Path):
    result = run(tmp_path, good=0.3)
    told = Glance(result.folder).refresh()
    with Run(result.folder) as past:
        kind, links = kind_of(told.begun.recipe), Links()
        view = run_view(past, told, kind, links, Asked())
        page = render(environment(), kind.template, links, **view)
        (words,) = re.findall(r'<p class="note">(Made by .*?);', page)
        made, _, proven = words.partition(", proven by ")
        makers, provers = (
            [int(step) for step in re.findall(r"step (\d+)", part)] for part in (made, proven)
        )
        assert makers == [row.step for row in told.rows if row.kept], "each was kept on the last"
        assert provers == [told.best_step]
        assert told.rows[provers[0]].proposer == PROVE
        assert all(step_view(past, told, step, links)["changes"] for step in makers)
