"""Bits that a model needs for a byte of unseen text: python hidden/score.py TEXT MODEL."""

import json
import sys
from math import log2
from pathlib import Path

SYMBOLS = 128
"""Characters that a table must leave room for."""


def main() -> None:
    """Print one JSON object; what is no model has no bits a byte, and that is the candidate's."""
    text = Path(sys.argv[1]).read_text(encoding="utf-8")
    model = json.loads(Path(sys.argv[2]).read_bytes())
    tables, weights, smoothing = model["tables"], model["weights"], model["smoothing"]
    fair = len(weights) == len(tables) and abs(sum(weights) - 1) < 1e-9 and min(weights) >= 0
    bits = 0.0
    for at in range(10, len(text)):
        likely = 0.0
        for table, weight in zip(tables, weights, strict=False):
            seen = table["counts"].get(text[at - table["order"] : at], {})
            total = sum(seen.values()) + smoothing * SYMBOLS
            likely += weight * (seen.get(text[at], 0) + smoothing) / total
        bits -= log2(likely)
    contexts = sum(len(table["counts"]) for table in tables)
    # NaN is no number to compare by: the candidate is told so, and none of it is silently kept
    print(
        json.dumps(
            {"val_bpb": bits / (len(text) - 10) if fair else float("nan"), "contexts": contexts}
        )
    )


main()
