"""Schemas of journalled dicts that the core leaves open: turn settings and accounts.

Settings go from a schedule to a proposer; accounts are a proposer's facts about its step. Only keys
that a reader depends on are listed; others are allowed. A value that does not match was changed by
another program; it is reported by name.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import msgspec

from kept.core.event import Event, Proposed, StepClosed, StepOpened
from kept.core.plan import AGENT_CONFIG, REFINE, SKILL, SUITE
from kept.core.proposal import Proposal, Skip

Words = str | None

LATEST = 253402300799.0
"""Last second of the year 9999 (UTC), the end of Python's calendar."""


class RerunAccount(TypedDict, total=False):
    """Account of an iteration of a refinement."""

    run_id: str
    status: str
    seconds: float
    loss: dict[str, float]
    tier: Words
    manager: Words
    worker: Words
    parent_run_id: str


class DiagnosisAccount(TypedDict):
    """Diagnosis by a critic."""

    failing_pattern: str
    root_cause_hypothesis: str
    suggested_change_direction: str
    citations: list[str]
    avoid: NotRequired[list[str]]


class TrialAccount(TypedDict, total=False):
    """Account of a trial of numbers, words or examples."""

    axis: str
    critic: DiagnosisAccount
    applier: dict[str, object]
    params: dict[str, object]
    axis_marginals: dict[str, dict[str, object]] | None
    demos: list[str]


class PatchAccount(TypedDict):
    """Proposal of one analyst."""

    source_type: str
    patch: NotRequired[dict[str, object]]


class PatternAccount(TypedDict):
    """A repeated failure pattern."""

    count: object
    pattern: object


class DigestAccount(TypedDict, total=False):
    """Findings of a batch."""

    failure_patterns: list[PatternAccount]


class TrainingAccount(TypedDict, total=False):
    """Account of a step that trains a skill."""

    rollout: dict[str, object] | None
    merged: dict[str, object] | None
    patches: list[PatchAccount]
    items: list[dict[str, object]]
    digest: DigestAccount


class UpdateAccount(TypedDict, total=False):
    """Account of an epoch that updates prompts."""

    artifact: str
    considered: list[dict[str, object]]


ACCOUNTS: Mapping[str, Any] = {
    REFINE: RerunAccount,
    AGENT_CONFIG: TrialAccount,
    SKILL: TrainingAccount,
    SUITE: UpdateAccount,
}
"""Account types by recipe, for recipes whose proposers are all Kept's own."""

WHOLE: Mapping[str, tuple[str, ...]] = {
    REFINE: ("run_id", "status", "seconds", "loss", "tier", "manager", "worker")
}
"""Keys by recipe of which an account has all or none."""


NEEDED_SETTINGS: Mapping[str, tuple[str, ...]] = {
    REFINE: ("k",),
    AGENT_CONFIG: (),
    SKILL: (),
    SUITE: (),
}
"""Required turn settings by recipe, for recipes with a schedule of Kept's own."""


class TurnSettings(TypedDict, total=False):
    """Turn settings from Kept's own schedules to a proposer."""

    k: int
    tier: Words
    axis: str
    epoch: int
    step: int
    max_edits: int | None


def check_told(event: Event, recipe: str) -> None:
    """Raise a `ValueError` for bad values that readers of this recipe's runs depend on."""
    if isinstance(event, StepOpened):
        if event.rollouts_at < 0:
            raise ValueError("`rollouts_at` is below 0")
        settings = event.turn.settings
        needed = NEEDED_SETTINGS.get(recipe)
        if settings and needed is not None:
            if missing := [name for name in needed if name not in settings]:
                raise ValueError(f"`turn.settings.{missing[0]}` is missing")
            check_shape(settings, TurnSettings, "turn.settings")
    elif isinstance(event, StepClosed):
        if not 0 <= event.rollouts[0] <= event.rollouts[1]:
            raise ValueError("`rollouts` is no range of bytes")
    elif isinstance(event, Proposed) and isinstance(event.reply, Proposal | Skip):
        _check_account(event.reply.about, recipe)


def _check_account(about: Mapping[str, object], recipe: str) -> None:
    """Check a proposer's account of its step, if the recipe's proposers are Kept's own."""
    kind = ACCOUNTS.get(recipe)
    if kind is None or not about:
        return
    whole = WHOLE.get(recipe, ())
    if (missing := [name for name in whole if name not in about]) and len(missing) < len(whole):
        raise ValueError(f"`reply.about.{missing[0]}` is missing")
    check_shape(about, kind, "reply.about")


def check_time(t: float) -> None:
    """Raise a `ValueError` for an impossible time."""
    if not 0.0 <= t <= LATEST:
        raise ValueError(f"`t` is {t:g}, which is no time")


def check_shape(value: object, kind: Any, place: str) -> None:  # noqa: ANN401 # anything that describes a type
    """Raise a `ValueError` that names the place of a value of the wrong type."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        raise ValueError(f"`{place}{where.removesuffix('`')}`: {what}") from error
