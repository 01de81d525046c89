"""Templates: everything that enters one is escaped, whoever wrote it."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kept.core.words import count, one_line
from kept.report.words import duration
from kept.web import figures
from kept.web.links import Links

HERE = Path(__file__).parent


def environment() -> Environment:
    """Jinja as the pages use it."""
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
        share=figures.share,
        thousands=figures.thousands,
        moment=figures.moment,
        ago=figures.ago,
        duration=duration,
        segment=lambda text: quote(str(text), safe=""),
        line=one_line,
        paragraphs=_paragraphs,
    )
    made.globals.update({"span": figures.span, "count": count})  # pyright: ignore[reportCallIssue, reportArgumentType] # jinja names the types of its own globals alone
    return made


def _paragraphs(text: str) -> Markup:
    """Text with its line breaks."""
    return Markup("<br>").join(text.splitlines())


def render(env: Environment, name: str, links: Links, **values: object) -> str:
    """A page."""
    told: Mapping[str, object] = values
    return env.get_template(name).render(**told, links=links)
