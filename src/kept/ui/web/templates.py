"""Templates with automatic escaping, number formats, and links.

Everything that enters a template is escaped, whatever its origin. Numbers have their unit, and no
more digits than the evidence supports. Links are addresses on the pages, and anchors in an
exported file.
"""

import math
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path, PurePath
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from kept.core.text import count, one_line
from kept.ui.report.format import duration

BLANK = "–"


def figure(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Measured value; with an interval, rounded to the digits that the interval supports."""
    if value is None or not math.isfinite(value):
        return BLANK
    places = _places(value, low, high)
    return _plain(value, places)


def brief(value: float | None) -> str:
    """Mean of a few rollouts, with two digits."""
    if value is None or not math.isfinite(value) or abs(value) >= 10:
        return figure(value)
    return f"{value + 0.0:.2g}".replace("-", "−")


def signed(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Difference, always with its sign."""
    if value is None or not math.isfinite(value):
        return BLANK
    shown = _plain(abs(value), _places(value, low, high))
    # a difference that rounds to 0 has no sign
    sign = "±" if float(shown.replace(",", "")) == 0 else "+" if value > 0 else "−"
    return f"{'' if sign == '±' else sign}{shown}"


def span(low: float | None, high: float | None) -> str:
    """Interval of the true difference: `+0.02 … +0.11`; empty without bounds or width."""
    if (low is None and high is None) or low == high:
        return ""
    ends = (signed(low, low, high) if low is not None else "?",)
    ends += (signed(high, low, high) if high is not None else "?",)
    return " … ".join(ends)


def gained(mean: float, low: float | None, high: float | None) -> str:
    """Difference with its interval: `+0.06 (+0.02 … +0.11)`."""
    where = span(low, high)
    return f"{signed(mean, low, high)} ({where})" if where else signed(mean, low, high)


def money(usd: float) -> str:
    """USD as `$0.0042`, `$1.20` or `$1,240`; `none known` if zero, as unknown prices count zero."""
    if usd <= 0:
        return "none known"
    if usd >= 100:
        return f"${usd:,.0f}"
    if usd >= 1:
        return f"${usd:.2f}"
    # two significant digits
    return f"${usd:.{max(2, 1 - math.floor(math.log10(usd)))}f}"


def paid(usd: float) -> str:
    """Cost next to other figures: `no known cost` if zero."""
    return money(usd) if usd > 0 else "no known cost"


def share(part: float) -> str:
    """Percentage, as in `62 %`."""
    return f"{100 * part:.0f} %"


def thousands(n: float) -> str:
    """Whole number with separators, as in `12,400`."""
    return f"{n:,.0f}"


def moment(t: float) -> str:
    """Local date and time, as in `17 Nov, 06:49`."""
    there = time.localtime(t)
    return f"{there.tm_mday} {time.strftime('%b, %H:%M', there)}" if t else BLANK


def stamp(text: str) -> str:
    """Local date and time of an ISO text; other text stays as it is."""
    try:
        return moment(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return text


def ago(t: float, now: float | None = None) -> str:
    """Time since `t` in one unit."""
    seconds = (time.time() if now is None else now) - t
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now" if seconds >= 0 else moment(t)


def _places(value: float, low: float | None, high: float | None) -> int:
    """Decimal places: two digits of the half interval, else three digits of the value itself."""
    if low is not None and high is not None and math.isfinite(high - low) and high > low:
        return min(6, max(0, 1 - math.floor(math.log10((high - low) / 2))))
    if value == 0 or value == round(value):
        return 0
    return min(6, max(0, 2 - math.floor(math.log10(abs(value)))))


def _plain(value: float, places: int) -> str:
    shown = f"{value + 0.0:,.{places}f}"
    return (
        shown.removeprefix("-") if float(shown.replace(",", "")) == 0 else shown.replace("-", "−")
    )


def _segment(text: str) -> str:
    return quote(text, safe="")


class Links:
    """Addresses of the served pages."""

    live = True
    """True if links lead to other pages."""

    def run(self, run: str, **query: object) -> str:
        """Page of a run."""
        return f"/runs/{_segment(run)}{_query(query)}"

    def step(self, run: str, step: int) -> str:
        """Page of a step."""
        return f"{self.run(run)}/steps/{step}"

    def case(self, run: str, step: int, case: str) -> str:
        """Page of one case in one step."""
        return f"{self.step(run, step)}/cases/{_segment(case)}"

    def cases(self, run: str, **query: object) -> str:
        """Matrix of cases."""
        return f"{self.run(run)}/cases{_query(query)}"

    def numbers(self, run: str) -> str:
        """Page of tuned numbers."""
        return f"{self.run(run)}/numbers"

    def refine(self, run: str) -> str:
        """Refinements of a run."""
        return f"{self.run(run)}/refine"

    def compare(self, *runs: str) -> str:
        """Comparison of runs."""
        return f"/compare{_query({'run': runs})}"


class Places(Links):
    """Anchors within an exported file; links to absent parts lead to the top."""

    live = False

    def __init__(self, steps: set[int]) -> None:
        self._steps = steps

    def run(self, run: str, **query: object) -> str:
        """Anchor of the top."""
        return "#top"

    def step(self, run: str, step: int) -> str:
        """Anchor of a step's section, if the file has it."""
        return f"#step-{step}" if step in self._steps else "#main"

    def case(self, run: str, step: int, case: str) -> str:
        """Anchor of the section of its step."""
        return self.step(run, step)

    def cases(self, run: str, **query: object) -> str:
        """Anchor of the top."""
        return "#top"

    def numbers(self, run: str) -> str:
        """Anchor of the top."""
        return "#top"

    def refine(self, run: str) -> str:
        """Anchor of the top."""
        return "#top"


def _query(query: dict[str, object]) -> str:
    given = {name: value for name, value in query.items() if value not in (None, "", ())}
    return f"?{urlencode(given, doseq=True)}" if given else ""


HERE = Path(__file__).parent
LONG = 56
"""Maximum characters of a path in a line."""


def environment(root: Path | None = None) -> Environment:
    """Jinja environment of the pages; paths below `root` are shown relative to it."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        brief=brief,
        figure=figure,
        signed=signed,
        money=money,
        paid=paid,
        share=share,
        thousands=thousands,
        moment=moment,
        ago=ago,
        stamp=stamp,
        duration=duration,
        segment=lambda text: quote(str(text), safe=""),
        line=one_line,
        paragraphs=_paragraphs,
        place=partial(place, root=root),
    )
    made.globals.update({"span": span, "count": count})  # pyright: ignore[reportCallIssue, reportArgumentType] # jinja names the types of its own globals alone
    return made


def place(path: str, root: Path | None = None, most: int = LONG) -> str:
    """Path shortened for display: relative to the project, and without its middle if too long."""
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
    """Escaped text that keeps its line breaks."""
    return Markup("<br>").join(text.splitlines())


def render(env: Environment, name: str, links: Links, **values: object) -> str:
    """Page rendered from its template."""
    told: Mapping[str, object] = values
    return env.get_template(name).render(**told, links=links)
