"""The table, also as long as nobody has run it."""

from collections.abc import Sequence

from bench.gates.measure import Rate
from bench.live.compare import Measured, Row
from bench.live.sets import Sample
from bench.report import Report, Table

TITLE = "Kept, gepa and best of N with a real model"
HEAD = ("set", "arm", "true score", "true gain", "claimed minus true", "calls", "USD", "minutes")
NAMES = {"kept": "kept", "gepa": "gepa", "best": "best of N"}

EMPTY = """Nobody has run this yet: it takes a key and some dollars, and no figure is made up \
until somebody does. What stands here then is what `bench.live` writes."""

NOTE = """True score: right answers on fresh questions that no arm saw, each asked once, with \
Wilson's interval of 95 %. Gains are against the seed prompt, and what an arm claims is what its \
own report says. Calls, USD and minutes are of the search; measuring is not in them."""


def empty_page() -> str:
    """What is in the results until somebody runs it."""
    return f"# {TITLE}\n\n{Table('Results', HEAD, [], EMPTY)}\n"


def report(rows: Sequence[Row], samples: Sequence[Sample], usd: float, cap: float) -> Report:
    table = Table("Results", HEAD, [_cells(row) for row in rows], " ".join([NOTE, *_caveats(rows)]))
    data = [
        (one.set, str(len(one.cases)), str(len(one.fresh)), str(one.left_out)) for one in samples
    ]
    head = ("set", "questions to search with", "fresh ones", "rows left out")
    left_out = "Rows of IFEval are left out where an instruction cannot be checked here."
    raw = {"rows": [_plain(row) for row in rows], "usd": usd, "cap": cap}
    paid = f"${usd:.2f} of ${cap:.2f} were spent."
    return Report("live", TITLE, [table, Table("Data", head, data, f"{left_out} {paid}")], raw)


def _cells(row: Row) -> tuple[str, ...]:
    gain = _gain(row)
    return (
        row.set,
        NAMES[row.arm] + (" *" if row.short else ""),
        str(Rate(row.best.right, row.best.of)),
        "–" if gain is None else f"{gain:+.3f}",
        "–" if gain is None else f"{row.claimed - gain:+.3f}",
        f"{row.calls:,}",
        f"{row.usd:.2f}",
        f"{row.minutes:.1f}",
    )


def _gain(row: Row) -> float | None:
    if row.best.score is None or row.seed.score is None:
        return None
    return row.best.score - row.seed.score


def _caveats(rows: Sequence[Row]) -> list[str]:
    told: list[str] = []
    if any(row.short for row in rows):
        told.append("* The money of this arm ended before its rollouts did.")
    missing = sum(row.best.missing for row in rows)
    if missing:
        told.append(f"{missing} measuring questions have no answer: outages, or no money left.")
    return told


def _plain(row: Row) -> dict[str, object]:
    def told(one: Measured) -> dict[str, int]:
        return {"right": one.right, "of": one.of, "missing": one.missing}

    return {
        "set": row.set,
        "arm": row.arm,
        "seed": told(row.seed),
        "best": told(row.best),
        "claimed_gain": row.claimed,
        "changed": row.changed,
        "out_of_money": row.short,
        "calls": row.calls,
        "usd": row.usd,
        "minutes": row.minutes,
    }
