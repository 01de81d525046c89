"""Translation of `gepa.optimize` arguments and `GEPAConfig` to terms of Kept.

An argument or setting that would have no effect here is refused by name, never ignored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, cast

from kept.adapters.arguments import OwnTerms, check_own
from kept.core.budget import Budget
from kept.errors import SetupError


class Terms(OwnTerms, total=False):
    """Arguments of gepa that take effect here, and Kept's own."""

    reflection_lm_kwargs: Mapping[str, Any]
    reflection_prompt_template: str | Mapping[str, str]
    """Template with `<curr_param>` and `<side_info>`; replaces Kept's own prompt."""
    custom_candidate_proposer: Callable[..., Any]
    module_selector: Literal["round_robin", "all"]
    skip_perfect_score: bool
    perfect_score: float
    use_merge: bool
    """Accepted with either value: the race itself merges promising candidates."""


class TaskTerms(Terms, total=False):
    """Further arguments of `gepa.optimize`."""

    task_lm: str | Callable[..., Any]
    """Model for gepa's own adapter, which is used if no `adapter` is given."""
    evaluator: Callable[..., Any]


class AnythingTerms(Terms, total=False):
    """Further arguments of `optimize_anything`."""

    objective: str
    background: str


_ADAPTIVE = "the gate decides what is kept and which cases that takes; see `gate`"
_WATCH = "a run is its own record, see `kept show` and `kept report`; `sinks` are told of events"
_PARENTS = "proposals start from the incumbent, or from a near miss that is the best on some cases"
_LIMITS = "give `max_metric_calls`, or budget=kept.Budget(…) for time, money and steps"
_TRACKING = "Kept speaks to no tracking service; `sinks` are told of every event"

REFUSED: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "candidate_selection_strategy": (_PARENTS, ()),
    "frontier_type": (_PARENTS, ()),
    "sampling_strategy": ("steps are opened side by side, as many as keep workers busy", (None,)),
    "selection_strategy": (_ADAPTIVE, (None,)),
    "reflection_strategy": ("give `custom_candidate_proposer` instead", (None,)),
    "batch_evaluator": ("give an `evaluator`, or an adapter, whose batches are kept", (None,)),
    "batch_sampler": ("cases to look at are drawn by `seed` anew in every step", ()),
    "max_merge_invocations": ("the race puts near misses together when they are worth it", ()),
    "merge_val_overlap_floor": ("the race puts near misses together when they are worth it", ()),
    "max_reflection_cost": (_LIMITS, (None,)),
    "stop_callbacks": (_LIMITS, (None,)),
    "val_evaluation_policy": (_ADAPTIVE, (None,)),
    "acceptance_criterion": (_ADAPTIVE, ()),
    "cache_evaluation": ("what decided once is no evidence a second time", (False,)),
    "raise_on_exception": (
        "an exception is a failure with its culprit in the journal; a run that can measure "
        "nothing raises kept.RunError",
        (),
    ),
    "logger": (_WATCH, (None,)),
    "callbacks": (_WATCH, (None,)),
    "track_best_outputs": (_WATCH, (False,)),
    "display_progress_bar": (_WATCH, (False,)),
    "use_cloudpickle": ("nothing is pickled: a run is a journal of plain lines", (False,)),
    "use_wandb": (_TRACKING, (False,)),
    "wandb_api_key": (_TRACKING, (None,)),
    "wandb_init_kwargs": (_TRACKING, (None,)),
    "wandb_attach_existing": (_TRACKING, (False,)),
    "use_mlflow": (_TRACKING, (False,)),
    "mlflow_tracking_uri": (_TRACKING, (None,)),
    "mlflow_experiment_name": (_TRACKING, (None,)),
    "mlflow_attach_existing": (_TRACKING, (False,)),
    "tracking_key_prefix": (_TRACKING, ("",)),
}
"""Reason why an argument has no effect here, and the neutral values that are accepted."""


def check_terms(given: Mapping[str, object], known: Iterable[str]) -> None:
    """Refuse by name every argument without effect here, and every unknown one."""
    for name, value in given.items():
        if name in known:
            continue
        if name not in REFUSED:
            hint = f"there are {', '.join(known)}"
            raise SetupError(f"`{name}` is no argument of this call", hint=hint)
        why, idle = REFUSED[name]
        # compare types too: 0 == False, but only False is a neutral value of a flag
        if not any(value is one or (value == one and type(value) is type(one)) for one in idle):
            raise SetupError(f"`{name}` means nothing here: {why}", hint=f"leave `{name}` out")
    check_own(given)


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
"""Accepted with any settings: the race itself merges promising candidates."""


def terms_of(config: Any, given: Terms) -> Terms:  # noqa: ANN401 # theirs or a mapping
    """Arguments from a `config`, overridden by the arguments of the call."""
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
    """Settings in a config: all of a mapping; of a dataclass, those that differ from their default.

    `reflection_lm` is always included. So are fields without a plain default.
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
