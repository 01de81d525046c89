"""The page of a run as one file: styles inside, no script, and a policy that allows no more."""

import base64
import hashlib
from pathlib import Path

from markupsafe import Markup

from kept.store.glance import Glance
from kept.store.home import Home
from kept.store.reader import Run
from kept.ui.web.app import run_view
from kept.ui.web.kind import Asked
from kept.ui.web.kinds import kind_of
from kept.ui.web.links import Places
from kept.ui.web.step_page import step_view
from kept.ui.web.templating import HERE, environment, render

MOST = 40
"""Kept steps that are shown in full."""


def export(folder: Path) -> str:
    """The whole file."""
    told = Glance(folder.resolve()).refresh()
    kind = kind_of(told.begun.recipe)
    shown = [row.step for row in told.rows if row.kept or row.best][-MOST:]
    links = Places(set(shown))
    css = (HERE / "static" / "app.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    with Run(told.folder, told) as run:
        view = run_view(run, told, kind, links, Asked())
        steps = [step_view(run, told, step, links) for step in shown] if kind.steps else []
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:"
    # the file is ours, and a style element ends at `</`, which it does not hold
    inside = {"css": Markup(css), "policy": policy, "exported": steps}
    root = Home.around(told.folder).path.parent
    return render(environment(root), kind.template, links, **view, **inside)
