"""Counts which character follows which: python train.py TEXT MODEL."""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

ORDERS = [0, 1, 2]  # how many characters before the next one each table looks at
WEIGHTS = [0.15, 0.35, 0.5]  # what each table has to say
SMOOTHING = 0.05  # added to every count

text = Path(sys.argv[1]).read_text(encoding="utf-8")
tables = []
for order in ORDERS:
    counts = defaultdict(Counter)
    for at in range(order, len(text)):
        counts[text[at - order : at]][text[at]] += 1
    tables.append({"order": order, "counts": counts})
model = {"tables": tables, "weights": WEIGHTS, "smoothing": SMOOTHING}
Path(sys.argv[2]).write_text(json.dumps(model), encoding="utf-8")
