"""The tables of `bench.real`, and the goals that they are read for."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from bench.gates.measure import Rate
from bench.real.bank import DRAWS, Bank
from bench.real.bound import Leaders
from bench.real.replay import SEED_LABEL, Replayed, World
from bench.report import Goal, Table

LABELS = 8
"""Other names of the one prompt of a null run."""
NEAR = 0.03
"""A prompt that is worse than the best by less is as good."""
FALSE, FOUND = 0.05, 0.95
"""Most runs with a false keep, and fewest that end with the best."""
JUDGED = "race"

Runs = Mapping[str, Sequence[Replayed]]
"""By gate."""


def false_keeps(rows: Sequence[Replayed]) -> Rate:
    return Rate(sum(row.keeps > 0 for row in rows), len(rows))


def found_best(world: World, rows: Sequence[Replayed]) -> Rate:
    top = max(map(world.truth, world.prompt_of))
    return Rate(sum(world.truth(row.best) >= top - NEAR for row in rows), len(rows))


def gain(world: World, row: Replayed) -> float:
    """What is truly gained over the seed."""
    return world.truth(row.best) - world.truth(SEED_LABEL)


def goals(world: World, nulls: Runs, reals: Runs) -> list[Goal]:
    wrong, right = false_keeps(nulls[JUDGED]), found_best(world, reals[JUDGED])
    return [
        Goal(
            f"null, {JUDGED}: a false keep in {FALSE:.0%} of runs at most",
            str(wrong),
            wrong.hits <= FALSE * wrong.of,
        ),
        Goal(
            f"bad seed, {JUDGED}: the best prompt, or one within {NEAR}, in {FOUND:.0%} or more",
            str(right),
            right.hits >= FOUND * right.of,
        ),
    ]


def bank_table(bank: Bank) -> Table:
    rows = sorted(((bank.mean(name), name) for name in bank.prompts), reverse=True)
    return Table(
        "The bank",
        ("prompt", "share right"),
        [(name, f"{mean:.3f}") for mean, name in rows],
        f"{len(bank.prompts)} prompts × {len(bank.cases)} cases × {DRAWS} draws of local/smollm2.",
    )


def null_table(nulls: Runs) -> Table:
    return Table(
        f"Null: one prompt under {LABELS} other names",
        ("gate", "runs with a false keep", "best is another than the seed", "rollouts a run"),
        [
            (
                name,
                str(false_keeps(rows)),
                str(Rate(sum(row.best != SEED_LABEL for row in rows), len(rows))),
                _rollouts(rows),
            )
            for name, rows in nulls.items()
        ],
        f"{_of_each(nulls)}, the prompts of the bank in turn.",
    )


def real_table(world: World, reals: Runs, budget: int) -> Table:
    return Table(
        f"From the worst prompt, `{world.prompt_of[SEED_LABEL]}`, with {budget:,} rollouts at most",
        (
            "gate",
            "ends with the best",
            "ends with a better one",
            "true gain",
            "claimed minus true",
            "rollouts a run",
        ),
        [
            (
                name,
                str(found_best(world, rows)),
                str(Rate(sum(gain(world, row) > 0 for row in rows), len(rows))),
                f"{fmean(gain(world, row) for row in rows):+.3f}",
                _optimism(world, rows),
                _rollouts(rows),
            )
            for name, rows in reals.items()
        ],
        f"{_of_each(reals)}. The best, or one within {NEAR} of it. Each prompt is proposed once, "
        "in an order of the run's own. `race` alone claims, by what sealed cases show.",
    )


def best_table(world: World, reals: Runs) -> Table:
    """Where runs end that do not end with the best."""
    ends = {name: Counter(row.best for row in rows) for name, rows in reals.items()}
    labels = sorted(world.prompt_of, key=lambda label: (-world.truth(label), label))
    return Table(
        "Where these runs end",
        ("prompt", "share right", *reals),
        [
            (
                world.prompt_of[label],
                f"{world.truth(label):.3f}",
                *(f"{ends[name][label] / len(reals[name]):.1%}" for name in reals),
            )
            for label in labels
        ],
    )


def why_table(world: World, rows: Sequence[Replayed]) -> Table:
    """What became of the best prompt where a run of the judged gate ended with another."""
    best = max(world.prompt_of, key=world.truth)
    missed = [row for row in rows if world.truth(row.best) < world.truth(best) - NEAR]
    ends = Counter(row.fates.get(best, "never judged") for row in missed)
    return Table(
        f"What became of `{best}` where `{JUDGED}` ended with another",
        ("its fate", "runs"),
        [(fate, str(Rate(count, len(rows)))) for fate, count in ends.most_common()],
        "Dropped at once: its first look was bad. Near miss: it was in the final, and another was "
        "promoted, or none. Not proven: it was taken up again, and fell short.",
    )


def bound_table(bank: Bank, led: Leaders) -> Table:
    """What choosing alone could come to, were each case's mean known without noise."""
    best = max(bank.prompts, key=bank.mean)
    return Table(
        f"How often `{best}` leads on the cases of a split, whole bank known",
        ("cases", "of them", "it leads"),
        [(name, str(cases), str(Rate(hits, led.splits))) for name, cases, hits in led.rows],
        f"{led.splits} splits of {len(bank.cases)} cases. No rule that looks at these cases alone "
        "can choose it more often than so, but for luck; what is chosen has yet to be proven.",
    )


def demo_table(world: World, rows: Sequence[Replayed]) -> Table:
    """What `kept demo` comes to, where only its prompts make a difference."""
    ends = Counter(row.best for row in rows)
    labels = sorted(world.prompt_of, key=lambda label: (-world.truth(label), label))
    return Table(
        "`kept demo`, replayed",
        ("ends with", "share right", "runs"),
        [
            (world.prompt_of[label], f"{world.truth(label):.3f}", str(Rate(ends[label], len(rows))))
            for label in labels
        ],
        f"{len(rows)} runs of the demo's own task, each with another split of the cases; "
        f"{_rollouts(rows)} rollouts a run. Examples and temperature are proposed too, and change "
        "nothing here.",
    )


def live_table(lived: Sequence[Mapping[str, str]]) -> Table:
    return Table(
        "Live: the model itself, through `kept`",
        tuple(lived[0]),
        [tuple(row.values()) for row in lived],
        "Made by `.venv/bin/python -m bench.real.live`, one run of each kind.",
    )


def raw(rows: Sequence[Replayed]) -> dict[str, object]:
    """The figures of a cell."""
    return {
        "keeps": dict(sorted(Counter(row.keeps for row in rows).items())),
        "best": dict(Counter(row.best for row in rows).most_common()),
        "rollouts": fmean(row.rollouts for row in rows),
    }


def _of_each(runs: Runs) -> str:
    return f"{len(next(iter(runs.values())))} runs of each gate"


def _rollouts(rows: Sequence[Replayed]) -> str:
    return f"{fmean(row.rollouts for row in rows):.0f}"


def _optimism(world: World, rows: Sequence[Replayed]) -> str:
    found = [row.claimed - gain(world, row) for row in rows if row.claimed is not None]
    return f"{fmean(found):+.3f}" if found else "–"
