"""What is said of a seed that was measured before anything is held against it."""

from kept.core.rollout import Purpose
from kept.core.verdict import Verdict, View

_NAMES: tuple[tuple[Purpose, str], ...] = (("screen", "train"), ("decide", "holdout"))


def measured(view: View) -> Verdict:
    """Its losses on train and on holdout, where they were asked for."""
    numbers: dict[str, float] = {}
    told: list[str] = []
    failure = ""
    for purpose, name in _NAMES:
        known = view.challenger.known.get(purpose)
        if known is None:
            continue
        failure = failure or known.first_failure
        if known.loss is None:
            told.append(f"no score on {name}")
        else:
            numbers[name] = known.loss
            told.append(f"{name} {view.objective.value(known.loss):.6g}")
    return Verdict("skip", ", ".join(told), "measured", numbers=numbers, private=failure)
