"""Numbers as a page shows them: with their unit, and with no more digits than the evidence has."""

import math
import time
from datetime import datetime

BLANK = "–"


def figure(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A measured value; with an interval, to the digits that the interval leaves it."""
    if value is None or not math.isfinite(value):
        return BLANK
    places = _places(value, low, high)
    return _plain(value, places)


def brief(value: float | None) -> str:
    """The mean of a few draws: two digits, for they say no more."""
    if value is None or not math.isfinite(value) or abs(value) >= 10:
        return figure(value)
    return f"{value + 0.0:.2g}".replace("-", "−")


def signed(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A difference, always with its sign."""
    if value is None or not math.isfinite(value):
        return BLANK
    shown = _plain(abs(value), _places(value, low, high))
    sign = "±" if float(shown.replace(",", "")) == 0 else "+" if value > 0 else "−"
    return f"{'' if sign == '±' else sign}{shown}"


def span(low: float | None, high: float | None) -> str:
    """Where the true difference lies: `+0.02 … +0.11`; empty without bounds, or width."""
    if (low is None and high is None) or low == high:
        return ""
    ends = (signed(low, low, high) if low is not None else "?",)
    ends += (signed(high, low, high) if high is not None else "?",)
    return " … ".join(ends)


def gained(mean: float, low: float | None, high: float | None) -> str:
    """A difference with where the true one lies: `+0.06 (+0.02 … +0.11)`."""
    where = span(low, high)
    return f"{signed(mean, low, high)} ({where})" if where else signed(mean, low, high)


def money(usd: float) -> str:
    """`$0.0042`, `$1.20`, `$1,240`; none known where nothing was paid, or at no price we know."""
    if usd <= 0:
        return "none known"
    if usd >= 100:
        return f"${usd:,.0f}"
    return f"${usd:.2f}" if usd >= 1 else f"${_significant(usd, 2)}"


def paid(usd: float) -> str:
    """The same among other figures, where nothing says what it is of."""
    return money(usd) if usd > 0 else "no known cost"


def share(part: float) -> str:
    """`62 %`."""
    return f"{100 * part:.0f} %"


def thousands(n: float) -> str:
    """`12,400`."""
    return f"{n:,.0f}"


def moment(t: float) -> str:
    """`17 Nov, 06:49`."""
    there = time.localtime(t)
    return f"{there.tm_mday} {time.strftime('%b, %H:%M', there)}" if t else BLANK


def stamp(text: str) -> str:
    """The same of a moment that a file tells; as it is where it is none."""
    try:
        return moment(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return text


def ago(t: float, now: float | None = None) -> str:
    """How long since, in one unit."""
    seconds = (time.time() if now is None else now) - t
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return "just now" if seconds >= 0 else moment(t)


def _places(value: float, low: float | None, high: float | None) -> int:
    """Decimals: two digits of the half interval, else three digits of the value itself."""
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


def _significant(value: float, digits: int) -> str:
    return f"{value:.{max(2, digits - 1 - math.floor(math.log10(value)))}f}"
