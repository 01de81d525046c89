"""The lines of the seed, with signed gains and whole names of axes."""

import operator
import re
from dataclasses import replace

import pytest

from kept.core.edit import SetValue
from kept.core.verdict import Verdict
from kept.recipes.agent_config.outputs.folder import PhaseBegun
from kept.recipes.agent_config.outputs.trials import Best, Swept, Trial, decision_of
from kept.ui.cli._tune_run import Lines, trial_line

HEADERS = {
    PhaseBegun(1, "numeric", 1, improved=False): (
        "── cycle 1 · numeric phase (fresh TPE study #1) ──────────────────────"
    ),
    PhaseBegun(1, "textual", 1, improved=False): (
        "── cycle 1 · textual phase ───────────────────────────────────────────"
    ),
    PhaseBegun(2, "numeric", 2, improved=True): (
        "── cycle 2 · numeric phase (fresh TPE study #2, vs improved prompt) ───"
    ),
}


def swept(loss: float, std: float = 0.0) -> Swept:
    return Swept(loss, std, (loss,), errored=0, failed=0, asked=12, usd=0.0, metrics={})


def trial(  # noqa: PLR0913 # a line has so many columns
    label: str,
    axis: str,
    train: tuple[float, float] | None,
    before: float,
    bar: float | None,
    hold: float | None,
    *,
    outcome: str = "discard",
    cost: tuple[float, float],
    why: str = "",
) -> Trial:
    """One row as the seed shows it, without what its line does not."""
    numbers = {} if train is None else {"gain": round(before - train[0], 6)}
    if bar is not None:
        numbers["noise_bar"] = bar
    cycle, nth = int(label[1]), int(label.split()[1])
    phase = {"n": "numeric", "t": "textual"}[label[3]]
    edits = () if train is None else (SetValue("agent.yaml", "x", 1),)
    return Trial(
        number=1,
        step=1,
        began=0.0,
        ended=cost[1],
        cycle=cycle,
        phase=phase,
        nth=nth,
        axis=axis,
        about={},
        why=why,
        edits=edits,
        candidate="a",
        incumbent="b",
        base=0,
        verdict=Verdict(outcome, "in words", numbers=numbers),  # pyright: ignore[reportArgumentType]
        train=swept(*train) if train else None,
        holdout=swept(hold) if hold is not None else None,
        before=Best(before, None),
        after=Best(before, None),
        usd=cost[0],
    )


SEED = [
    (
        trial(
            "c1/n 2", "top_k", (0.215, 0.009), 0.234, 0.013, 0.243, outcome="keep", cost=(1.05, 168)
        ),
        "[c1/n 2] top_k                 train 0.215 ±0.009 (gain +0.019 > bar 0.013)  hold 0.243  "
        "accept ✓  $1.05  168s",
    ),
    (
        trial("c1/n 3", "semantic_weight", (0.213, 0.012), 0.215, 0.017, None, cost=(0.59, 118)),
        "[c1/n 3] semantic_weight       train 0.213 ±0.012 (gain +0.002 < bar 0.017)  ——          "
        "noise ✗  $0.59  118s",
    ),
    (
        trial(
            "c1/t 1",
            "instructions.inline",
            (0.184, 0.011),
            0.215,
            0.014,
            0.196,
            outcome="keep",
            cost=(1.10, 172),
        ),
        "[c1/t 1] instructions.inline   train 0.184 ±0.011 (gain +0.031 > bar 0.014)  hold 0.196  "
        "accept ✓  $1.10  172s",
    ),
    (
        trial(
            "c1/t 2",
            "tools[name=subtract].description",
            None,
            0.184,
            None,
            None,
            outcome="skip",
            cost=(0.014, 3),
            why="low confidence",
        ),
        "[c1/t 2] tools[name=subtract].description train 0.184 (—)                               ——"
        "          "
        "crit  ✗  $0.014  3s  (low confidence)",
    ),
    (
        trial(
            "c2/n 1", "top_k", (0.171, 0.010), 0.184, 0.013, 0.190, outcome="keep", cost=(1.05, 168)
        ),
        "[c2/n 1] top_k                 train 0.171 ±0.010 (gain +0.013 ≥ bar 0.013)  hold 0.190  "
        "accept ✓  $1.05  168s",
    ),
]


@pytest.mark.parametrize(("row", "line"), SEED, ids=[line[1:7] for _, line in SEED])
def test_a_trial_is_the_line_that_the_seed_shows(row: Trial, line: str):
    assert trial_line(row) == line


def test_what_clears_the_bar_but_for_rounding_is_said_to_clear_it_everywhere():
    """Sums of thirds do not come out even: a row must not contradict its own verdict."""
    gain, bar = 0.1 + 0.2 - 0.3 + 0.1, 0.1 + 1e-16
    row = trial("c1/n 1", "top_k", (0.3, 0.1), 0.4, bar, 0.2, outcome="keep", cost=(0, 1))
    for gained in (gain, bar, bar - 1e-12):
        numbers = {"gain": gained, "noise_bar": bar}
        numbers |= {"holdout_regression": bar + 1e-12, "holdout_noise_bar": bar}
        told = replace(row, verdict=replace(row.verdict, numbers=numbers))
        decision = decision_of(told)
        assert decision["improvement_clears_noise"] and decision["holdout_within_noise"]
        assert "(gain +0.100 ≥ bar 0.100)" in trial_line(told)


def test_a_phase_begins_with_the_header_that_the_seed_shows():
    said: list[str] = []
    for begun in HEADERS:
        Lines(said.append).phase_started(begun)
    assert said == [*HEADERS.values()]


@pytest.mark.parametrize("bar", [None, 0.01])
def test_what_is_worse_is_not_said_to_be_noise(bar: float | None):
    """`noise` is for what looks like a gain, and is below what was measured of noise."""
    worse = trial("c1/n 4", "top_k", (0.25, 0.01), 0.2, bar, None, cost=(0, 1))
    assert "gain -0.050" in trial_line(worse) and "worse ✗" in trial_line(worse)
    gain = trial("c1/n 5", "top_k", (0.195, 0.01), 0.2, bar, None, cost=(0, 1))
    assert "noise ✗" in trial_line(gain)
    lost = trial("c1/n 6", "top_k", (0.1, 0.01), 0.2, 0.01, 0.5, cost=(0, 1))
    assert "hold  ✗" in trial_line(lost), "it was the holdout that lost"


COMPARED = r"\(gain ([+-]\d\.\d+)(?: ([<>≥=]) bar (\d\.\d+))?\)"
HOLDS = {"<": operator.lt, ">": operator.gt, "≥": operator.ge, "=": operator.eq}


@pytest.mark.parametrize("bar", [None, 0.0, 0.01, 0.013, 0.0125, 0.2])
@pytest.mark.parametrize(
    "gain", [-0.2, -0.0131, -1e-5, 0.0, 1e-10, 2e-4, 0.0124, 0.01249, 0.0125, 0.0131, 0.1]
)
def test_a_line_reads_as_true_arithmetic(gain: float, bar: float | None):
    row = trial("c1/n 1", "top_k", (0.3, 0.1), 0.3 + gain, bar, None, cost=(0, 1))
    numbers = {"gain": gain} if bar is None else {"gain": gain, "noise_bar": bar}
    line = trial_line(replace(row, verdict=replace(row.verdict, numbers=numbers)))
    found = re.search(COMPARED, line)
    assert found is not None, line
    shown = float(found[1])
    assert (shown > 0, shown < 0) == (gain > 1e-9, gain < -1e-9), line
    if bar is not None:
        assert HOLDS[found[2]](shown, float(found[3])), line


@pytest.mark.parametrize("bar", [None, 0.0, 0.01])
def test_no_gain_at_all_is_not_said_to_be_noise(bar: float | None):
    same = trial("c1/n 4", "top_k", (0.2, 0.01), 0.2, bar, None, cost=(0, 1))
    assert "same  ✗" in trial_line(same)
    assert "noise" not in trial_line(same)


def test_the_names_of_axes_are_whole():
    axes = "model.temperature + tools[name=convfinqa_archive].semantic_weight"
    why = "model.temperature 0.9 → 0.1, tools[name=convfinqa_archive].semantic_weight 0.5 → 0.3"
    row = trial("c1/n 4", axes, (0.2, 0.01), 0.25, 0.01, None, cost=(0, 1), why=why)
    line = trial_line(row)
    assert line.startswith(f"[c1/n 4] {axes} train ")
    assert line.endswith(f"({why})")
