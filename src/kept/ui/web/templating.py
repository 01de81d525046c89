"""Templates: everything that enters one is escaped, whoever wrote it."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePath
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kept.core.words import count, one_line
from kept.ui.report.format import duration
from kept.ui.web import figures
from kept.ui.web.links import Links

HERE = Path(__file__).parent
LONG = 56
"""Characters of a path that a line has room for."""


def environment(root: Path | None = None) -> Environment:
    """Jinja as the pages use it; paths below the root of a project are shown from there."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        brief=figures.brief,
        figure=figures.figure,
        signed=figures.signed,
        money=figures.money,
        paid=figures.paid,
        share=figures.share,
        thousands=figures.thousands,
        moment=figures.moment,
        ago=figures.ago,
        stamp=figures.stamp,
        duration=duration,
        segment=lambda text: quote(str(text), safe=""),
        line=one_line,
        paragraphs=_paragraphs,
        place=partial(place, root=root),
    )
    made.globals.update({"span": figures.span, "count": count})  # pyright: ignore[reportCallIssue, reportArgumentType] # jinja names the types of its own globals alone
    return made


def place(path: str, root: Path | None = None, most: int = LONG) -> str:
    """A path in the space that there is: from the root of the project, and without its middle."""
    shown = path
    if path.startswith(f"{HERE.parent}/"):
        return f"{path.removeprefix(f'{HERE.parent}/')} of Kept"
    if root is not None and path.startswith(f"{root}/"):
        shown = path.removeprefix(f"{root}/")
        run = PurePath(shown)
        if run.parts[:2] == (".kept", "runs") and len(run.parts) == 3:
            return f"run {run.name}"
    if len(shown) <= most:
        return shown
    kept = ""
    for part in reversed(PurePath(shown).parts):
        if len(part) + len(kept) + 3 > most:
            break
        kept = f"/{part}{kept}"
    return f"…{kept or shown[-most:]}"


def _paragraphs(text: str) -> Markup:
    """Text with its line breaks."""
    return Markup("<br>").join(text.splitlines())


def render(env: Environment, name: str, links: Links, **values: object) -> str:
    """A page."""
    told: Mapping[str, object] = values
    return env.get_template(name).render(**told, links=links)
