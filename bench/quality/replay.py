"""The same replies of a reflecting model, given to Kept and to gepa on the same noisy tasks.

Run it as `.venv/bin/python -m bench.quality.replay [--quick] [--runs N] [--out FOLDER]`. The whole
writes its results to `bench/results`; a part of it only where it is told to.
"""

import argparse
from collections import Counter
from pathlib import Path

from bench.quality.cells import Arm, run_all, tables
from bench.quality.replaying import replies
from bench.report import RESULTS, Report, Table, show

TASKS = ("noisy", "concentrated", "null")
BUDGETS = (250, 500, 1_000, 2_000)
RUNS, QUICK_RUNS = 40, 4
ARMS = (
    Arm("kept", "kept_replayed", ""),
    Arm("gepa", "gepa_replayed", ""),
    Arm("gepa, minibatch 8", "gepa_replayed", "8"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.quality.replay", description="The same replies.")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs, one budget")
    parser.add_argument("--runs", type=int, help=f"runs a cell (default: {RUNS})")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args()
    budgets = BUDGETS[1:2] if given.quick else BUDGETS
    runs = given.runs or (QUICK_RUNS if given.quick else RUNS)
    cells = run_all(ARMS, TASKS, budgets, runs)
    report = Report(
        "replayed",
        "Kept and gepa with the same replies of a model",
        [*tables(cells, TASKS, budgets), what_was_replayed()],
        {"runs": runs, "cells": [cell.figures for cell in cells]},
    )
    part = given.quick or given.runs
    show(report, given.out or (None if part else RESULTS))


def what_was_replayed() -> Table:
    counts = Counter(reply.kind for reply in replies())
    rows = [(kind, str(number)) for kind, number in sorted(counts.items())]
    note = (
        "In the null task the good ones do nothing. All arms read them in the same order, each as "
        "the answer to its own prompt: the text that it shows is taken over, and a rule added."
    )
    return Table("Replies", ("kind", "replies"), rows, note)


if __name__ == "__main__":
    main()
