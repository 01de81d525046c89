"""Coordinate descent on a terminal: a header a phase, a line a trial."""

from collections.abc import Callable
from typing import Any, cast

from kept.core.schedules.coordinate import BASELINE
from kept.core.words import one_line
from kept.gates.sigma import EVEN, clears
from kept.recipes.agent_config.outputs.telling import Listener, PhaseBegun
from kept.recipes.agent_config.outputs.trial import Trial

WIDTH = 70
AXIS = 21
"""Columns of what a trial is about."""
LEFT = AXIS + len("[c1/n 2] ")
TRAIN = len("train 0.215 ±0.009 (gain +0.019 > bar 0.013)")
HOLD = len("hold 0.243")
WHY = 60
RATIONALE = 400
DIGITS = range(3, 10)
"""Decimals of a gain: as few as show how it compares with its bar."""


class Lines(Listener):
    """Says a line for each thing, to whoever shows lines."""

    def __init__(self, say: Callable[[str], None], *, verbose: bool = False) -> None:
        self._say = say
        self._verbose = verbose

    def phase_started(self, begun: PhaseBegun) -> None:
        """A rule across the screen."""
        study = ""
        if begun.phase == "numeric":
            improved = ", vs improved prompt" if begun.improved else ""
            study = f" (fresh TPE study #{begun.nth}{improved})"
        head = f"── cycle {begun.cycle} · {begun.phase} phase{study} "
        self._say(head + "─" * max(3, WIDTH - len(head)))

    def trial_done(self, trial: Trial) -> None:
        """Its line, and what critic and applier said if that is wanted."""
        self._say(trial_line(trial))
        if self._verbose:
            for line in rationale_lines(trial):
                self._say(line)


def trial_line(trial: Trial) -> str:
    """`[c1/n 2] top_k  train 0.215 ±0.009 (gain +0.019 > bar 0.013)  hold 0.243  accept ✓  $1  9s`.

    Behind that, in parentheses, stands why nothing was measured, or which numbers were.
    """
    held = trial.holdout.loss if trial.holdout else None
    hold = "——" if held is None else f"hold {held:.3f}"
    money = f"${trial.usd:.2f}" if trial.usd >= 0.1 or not trial.usd else f"${trial.usd:.3f}"
    left = BASELINE if trial.phase == BASELINE else f"[{trial.label}] {trial.axis}"
    measured = f"{_train(trial):<{TRAIN}}  {hold:<{HOLD}}"
    cost = f"{money}  {trial.seconds:.0f}s"
    note = f"  ({why})" if (why := _note(trial)) else ""
    return f"{left:<{LEFT}} {measured}  {_outcome(trial)}  {cost}{note}".rstrip()


def _note(trial: Trial) -> str:
    """Why nothing was measured, or the numbers that were; of texts, nothing that fits a line."""
    if trial.phase == "numeric" and trial.train is not None:
        return trial.why
    if trial.phase == BASELINE or trial.train is not None:
        return ""
    return one_line(trial.verdict.reason if trial.edits else trial.why, WHY)


def _train(trial: Trial) -> str:
    swept = trial.train
    if swept is None or swept.loss is None:
        before = trial.before.train
        return "train —" if before is None else f"train {before:.3f} (—)"
    told = f"train {swept.loss:.3f} ±{swept.std:.3f}"
    if trial.before.train is None:
        return told
    return f"{told} ({_compared(_gain(trial), trial.verdict.numbers.get('noise_bar'))})"


def _compared(gain: float, bar: float | None) -> str:
    """`gain +0.019 > bar 0.013`, with as many decimals as make that true as it reads."""
    gain = 0.0 if abs(gain) <= EVEN else gain
    if bar is not None and abs(gain - bar) <= EVEN:
        return f"gain {bar:+.3f} {'≥' if gain else '='} bar {bar:.3f}"
    shown, limit, digits = gain, bar, DIGITS[-1]
    for digits in DIGITS:
        shown, limit = round(gain, digits), None if bar is None else round(bar, digits)
        alike = bar is None or limit is None or (shown != limit and (shown > limit) == (gain > bar))
        if alike and bool(shown) == bool(gain):
            break
    told = f"gain {shown:+.{digits}f}"
    if bar is None or limit is None:
        return told
    return f"{told} {'>' if gain > bar else '<'} bar {limit:.{digits}f}"


def _gain(trial: Trial) -> float:
    """What the train cases show: by the rule itself, where it goes by them."""
    numbers, before = trial.verdict.numbers, trial.before.train
    if "noise_bar" in numbers:
        return numbers["gain"]
    if trial.train is None or trial.train.loss is None or before is None:
        return 0.0
    return before - trial.train.loss


def _outcome(trial: Trial) -> str:
    if trial.phase == BASELINE:
        return ""
    if trial.accepted:
        return "accept ✓"
    if not trial.edits:
        return "crit  ✗" if trial.phase == "textual" else "skip  ✗"
    if trial.verdict.outcome == "crash":
        return "crash ✗"
    if trial.verdict.outcome == "skip":
        return "skip  ✗"
    if (gain := _gain(trial)) < -EVEN:
        return "worse ✗"
    if gain <= EVEN:
        return "same  ✗"
    bar = trial.verdict.numbers.get("noise_bar")
    return "hold  ✗" if bar is not None and clears(gain, bar) else "noise ✗"


def rationale_lines(trial: Trial) -> list[str]:
    """What the critic diagnosed and what the applier did about it; why the verdict."""
    lines: list[str] = []
    critic, applier = (_said(trial, name) for name in ("critic", "applier"))
    if critic:
        lines.append(f"    critic  ({critic.get('confidence')}): {critic.get('failing_pattern')}")
        lines.append(f"            → {critic.get('suggested_change_direction')}")
    if applier:
        lines.append(f"    applier ({applier.get('edit_type')}): {applier.get('rationale')}")
    if trial.phase == "numeric" and trial.edits:
        lines.append(f"    tried: {trial.why}")
    lines.append(f"    verdict: {trial.verdict.reason}")
    return [line[:RATIONALE].replace("\n", " ") for line in lines]


def _said(trial: Trial, name: str) -> dict[str, Any]:
    said = trial.about.get(name)
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}
