"""How numbers and texts read in a sentence. Pure."""

from decimal import ROUND_CEILING, Decimal
from math import floor, log10


def count(n: float, one: str, many: str | None = None) -> str:
    """`1 step`, `2 steps`, `0.5 minutes`."""
    shown = str(n) if isinstance(n, int) else f"{n:g}"
    return f"{shown} {one if n == 1 else many or one + 's'}"


def are(n: float) -> str:
    """`is` for one, `are` for any other number."""
    return "is" if n == 1 else "are"


MAX_EXACT_USD = 1e10
"""Dollars from which twelve digits have no cents to round up."""


def dollars_at_most(usd: float) -> str:
    """`$1,234.57`, `$0.0123`: a bound, and so rounded up."""
    if usd >= MAX_EXACT_USD:
        return f"${usd:,.2f}"
    places = 2 if usd >= 0.1 or usd <= 0 else 2 - floor(log10(usd))
    # twelve digits are without the noise of a sum of fractions
    exact = Decimal(f"{usd:.12g}").quantize(Decimal(1).scaleb(-places), ROUND_CEILING)
    whole, _, part = f"{exact:,f}".partition(".")
    return f"${whole}.{part.rstrip('0'):0<2}"


LEAST_CHANCE = 1e-15
"""Below this most chances are lost in rounding, and may come out as 0, which no chance is."""


def p_words(chance: float) -> str:
    """`p = 0.0031`; never a chance of 0."""
    return f"p < {LEAST_CHANCE:g}" if chance < LEAST_CHANCE else f"p = {chance:.2g}"


def no_better(status: str) -> str:
    """That the best of a run with this status is its seed: for good, or as far as it has come."""
    return "nothing beat the seed" if status == "finished" else "nothing has beaten the seed yet"


def one_line(text: str, width: int = 0) -> str:
    """A text as one line without control characters, cut to a width."""
    flat = " ".join(text.split())
    if not flat.isprintable():
        flat = "".join(c if c.isprintable() else "�" for c in flat)
    return flat if not width or len(flat) <= width else flat[: max(1, width - 1)] + "…"


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text, and how much is missing between."""
    if len(text) <= most:
        return text
    half = most // 2
    gone = count(len(text) - 2 * half, "character")
    return f"{text[:half]}\n… {gone} left out …\n{text[-half:]}"
