"""Schema of a skill config by section; docs/reference/skill-config.md explains the keys.

The names are those of the method's source. If Kept has its own word for a thing, the recipe maps
it, and this schema keeps the word of the source.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from kept.core.llm import Effort
from kept.spec.shared_sections import RoleSpec, Usd
from kept.spec.validate import Count, Finite, Ratio, SpecModel, Text

Whole = Annotated[int, Field(ge=0)]
EffortOrNone = Literal["", "none", "minimal", "low", "medium", "high"]

NO_GATE = (
    "`use_gate: false` is not supported: every update of the skill goes through the gate, which is "
    "a part of the method"
)


def _gated(value: bool) -> bool:
    if not value:
        raise ValueError(NO_GATE)
    return value


class ExecSection(SpecModel):
    """Keys of `model` for agent CLIs, and all others that do not name a model."""

    rewrite_reasoning_effort: EffortOrNone = ""
    rewrite_max_completion_tokens: Count = 64_000
    codex_exec_path: Text = "codex"
    codex_exec_sandbox: Literal["read-only", "workspace-write", "danger-full-access"] = (
        "workspace-write"
    )
    codex_exec_profile: str = ""
    codex_exec_full_auto: bool = False
    codex_exec_reasoning_effort: EffortOrNone = "none"
    claude_code_exec_path: Text = "claude"
    claude_code_exec_profile: str = ""
    codex_trace_to_teacher: bool = True


class RolesSection(SpecModel):
    """Keys of `model` that name the models, in Kept's words."""

    optimizer: RoleSpec | None = None
    target: RoleSpec | None = None


class TrainSection(SpecModel):
    """Number of epochs, and size of batches."""

    num_epochs: Count = 4
    train_size: Whole = 0
    batch_size: Count = 80
    accumulation: Count = 1
    seed: int = 42
    steps_at_once: Count = 1
    """Steps of an epoch open at once; a step does not know the results of others still open."""


class GradientSection(SpecModel):
    """Options of the analysts that reflect on rollouts."""

    minibatch_size: Count = 16
    merge_batch_size: Annotated[int, Field(ge=2)] = 16
    analyst_workers: Count = 16
    max_analyst_rounds: Count = 3
    failure_only: bool = False
    use_deep_reflect: bool = False
    deep_reflect_failures: Whole = 4
    deep_reflect_successes: Whole = 2
    reference_to_teacher: bool = True
    """True if the expected answers are shown to the optimizer."""
    pictures_to_teacher: bool = False
    """True if analysts see the pictures of cases."""


class OptimizerSection(SpecModel):
    """Options of updates of the skill."""

    learning_rate: Count = 8
    min_learning_rate: Count = 2
    lr_scheduler: Literal["constant", "linear", "cosine", "autonomous"] = "cosine"
    skill_update_mode: Literal["patch", "rewrite_from_suggestions", "full_rewrite_minibatch"] = (
        "patch"
    )
    use_meta_reflect: bool = False
    meta_learning_rate: Count = 8
    use_slow_update: bool = True
    slow_update_samples: Count = 20
    use_meta_skill: bool = True
    use_skill_aware_reflection: bool = False
    skill_aware_appendix_source: Literal["both", "failure_only"] = "both"
    skill_aware_consolidate_threshold: Whole = 0
    appendix_gate: Literal["batch", "flush"] = "batch"

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a minimum number of edits above the maximum."""
        most, least = said.get("learning_rate"), said.get("min_learning_rate")
        curved = said.get("lr_scheduler") in ("linear", "cosine")
        if most is not None and least is not None and curved and least > most:
            yield f"`min_learning_rate` is {least}, and `learning_rate` {most}"


class EvaluationSection(SpecModel):
    """Options of the gate, and sizes of its splits."""

    use_gate: Annotated[bool, AfterValidator(_gated)] = True
    sel_env_num: Whole = 0
    test_env_num: Whole = 0
    eval_test: bool = True
    gate: Literal["race", "selection"] = "race"
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    gate_mixed_weight: Annotated[Finite, Field(ge=0, le=1)] = 0.5


class EnvSection(SpecModel):
    """Source of the cases; the environment itself checks its own options."""

    name: Text | None = None
    skill_init: str = ""
    out_root: str = ""
    exports: Literal["brief", "full"] = "brief"
    """Files below `out_root`: `full` adds one for each minibatch and a folder for each rollout."""
    split_mode: Literal["ratio", "split_dir"] = "ratio"
    split_ratio: Ratio = "2:1:7"
    split_seed: int = 42
    split_dir: str = ""
    split_output_dir: str = ""
    data_path: str = ""
    limit: Whole = 0
    workers: Count = 16


class BudgetSection(SpecModel):
    """Limits of a run."""

    max_usd: Usd | None = None
    max_rollouts: Count | None = None
    max_minutes: Annotated[Finite, Field(gt=0)] | None = None


SECTIONS: Mapping[str, tuple[type[SpecModel], ...]] = {
    "model": (ExecSection, RolesSection),
    "train": (TrainSection,),
    "gradient": (GradientSection,),
    "optimizer": (OptimizerSection,),
    "evaluation": (EvaluationSection,),
    "env": (EnvSection,),
    "budget": (BudgetSection,),
}


def effort_of(text: EffortOrNone) -> Effort | None:
    """Return the reasoning effort of a text; None if it names none."""
    return None if text in ("", "none") else text
