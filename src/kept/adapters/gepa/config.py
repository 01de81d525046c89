"""gepa's `GEPAConfig` as terms: what is set in it and means nothing here is refused by its name."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, cast

from kept.adapters.gepa.terms import Terms
from kept.core.budget import Budget
from kept.errors import SetupError

ENGINE = (
    "max_metric_calls",
    "seed",
    "run_dir",
    "max_workers",
    "parallel",
    "max_candidate_proposals",
)
REFLECTION = (
    *("reflection_lm", "reflection_lm_kwargs", "reflection_minibatch_size", "module_selector"),
    *("skip_perfect_score", "perfect_score", "custom_candidate_proposer"),
    "reflection_prompt_template",
)
PARTS = {"engine": ENGINE, "reflection": REFLECTION, "tracking": ()}
BY_ITSELF = ("merge",)
"""Either: near misses are put together by the race itself."""


def terms_of(config: Any, given: Terms) -> Terms:  # noqa: ANN401 # theirs or a mapping
    """What a config says, under what a call says itself."""
    if config is None:
        return given
    found: dict[str, Any] = {}
    for part, value in _set(config):
        if part in PARTS:
            found |= _part(part, value)
        elif part not in BY_ITSELF and value is not None:
            raise _meaningless(f"config.{part}")
    steps = found.pop("max_candidate_proposals", None)
    workers = found.pop("max_workers", None)
    if found.pop("parallel", True) is False:
        workers = 1
    if workers is not None:
        found["workers"] = workers
    if steps is not None:
        found["budget"] = Budget(max_iterations=steps)
    return cast("Terms", {**found, **given})


def _part(part: str, value: Any) -> dict[str, Any]:  # noqa: ANN401 # theirs
    found: dict[str, Any] = {}
    for name, said in _set(value):
        if name not in PARTS[part]:
            raise _meaningless(f"config.{part}.{name}")
        if said is not None:
            found[name] = said
    return found


def _set(value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 # theirs, or a mapping
    """What was set: all of a mapping, and of theirs what is not as it always is.

    Of a model and a number of workers also the default, for it says which and how many.
    """
    if isinstance(value, Mapping):
        yield from cast("Mapping[str, Any]", value).items()
        return
    if not is_dataclass(value) or isinstance(value, type):
        hint = "give a GEPAConfig of gepa 0.1.4, or a mapping"
        raise SetupError(f"`config` has {value!r:.60}", hint=hint)
    for field in fields(value):
        said = getattr(value, field.name)
        usual = field.default
        if usual is MISSING or said != usual or field.name == "reflection_lm":
            yield field.name, said


def _meaningless(name: str) -> SetupError:
    hint = "leave it out; docs/guide/from-gepa.md says what there is instead"
    return SetupError(f"`{name}` means nothing here", hint=hint)
