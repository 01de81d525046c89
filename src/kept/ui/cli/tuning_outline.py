"""What a run that tunes an agent would do, and come to, for `--dry-run`."""

from collections.abc import Iterator
from typing import Any, cast

from kept.core.case import SPLITS
from kept.core.plan import GATE_WHY, Plan
from kept.core.words import dollars_at_most
from kept.models.pricing import REPLY
from kept.models.roles import is_free
from kept.recipes.agent_config.axes import Axes
from kept.recipes.agent_config.cost import Expected, coordinate_of, expected
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.ui.cli.check import about


def outline_text(plan: Plan, read: ReadAgent, axes: Axes) -> str:
    """What a run would do, for `--dry-run`."""
    told = cast("dict[str, Any]", plan.facts["optimizer"])
    schedule = coordinate_of(plan)
    splits = ((name, len(plan.cases.of(name))) for name in SPLITS)
    rows = [
        ("agent", str(plan.facts["id"])),
        ("loss", ", ".join(f"{w:g} × {name}" for name, w in told["loss_weights"].items())),
        ("cases", ", ".join(f"{size} {name}" for name, size in splits)),
        ("gate", f"{plan.gate.name}: {plan.facts[GATE_WHY]}"),
    ]
    for axis in told["axes"].get("numeric", ()):
        values = axis.get("range") or axis.get("choices")
        rows.append(("axis", f"{axis['path']} {list(values)}"))
    for axis in told["axes"].get("textual", ()):
        rows.append(("axis", f"{axis['path']}, {axis['max_chars']} characters at most"))
    for phase in schedule.phases:
        limits = f"{phase.max_trials} trials at most, {phase.patience} without a keep end it"
        limits += f" after the first {phase.least}" if phase.least > phase.patience else ""
        rows.append((f"{phase.name} phase", limits))
    rows.append(("cycles", f"{schedule.max_cycles} at most"))
    limits = {k: v for k, v in told["budget"]["global"].items() if v is not None}
    unkept = plan.budget.max_usd is None
    shown = (
        f"{k} {v:g}" + (" (not enforced)" if k == "max_usd" and unkept else "")
        for k, v in limits.items()
    )
    rows.append(("budget", ", ".join(shown)))
    rows += _cost(expected(plan, schedule, read, axes), read)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _cost(cost: Expected, read: ReadAgent) -> Iterator[tuple[str, str]]:
    """The usual and the worst, with what is taken for granted."""
    config = read.agent.model_config(read.place.folder)

    def shown(rollouts: int) -> str:
        usd = None if cost.usd_a_rollout is None else cost.usd(rollouts)
        return about(rollouts, cost.at_most) + ("" if not usd else f" (${usd:,.2f})")

    useless, kept = shown(cost.useless), shown(cost.kept)
    yield "likely", f"{useless} if nothing is better, {kept} if something is kept and proven"
    assumed = ["what is no better is dropped as early as the gate can tell"]
    if cost.usd_a_rollout:
        assumed.append(f"a call a turn, with a reply of {REPLY} tokens at most")
        assumed.append("the dearest model that an axis allows")
        assumed.append("tools, judges, critic and applier are not counted")
    elif not is_free(config):
        assumed.append(f"the price of `{config.name}` is not known")
    yield "", f"taken for granted: {'; '.join(assumed)}"
    most = "rollouts without limit" if cost.at_most is None else f"{cost.at_most:,} rollouts"
    if cost.most_usd is None:
        yield "at most", f"{most}, money without limit"
        if cost.usd_a_rollout is not None or is_free(config):
            yield "", "`budget.global.max_usd` limits it"
        elif cost.at_most is None:
            yield "", "`budget.global.max_rollouts` limits it: without a price `max_usd` cannot"
    else:
        yield "at most", f"{most}, {dollars_at_most(cost.most_usd)}"
