"""What a skill config may say, section by section; docs/reference/skill-config.md tells what for.

The names are those of its source. Where Kept has a word of its own for a thing, the mapping is in
the recipe, and the word of the source stays here.
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
    """Of `model`: how agent CLIs are run, and what else is no name of a model."""

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
    """Of `model`: who is asked, as Kept names them."""

    optimizer: RoleSpec | None = None
    target: RoleSpec | None = None


class TrainSection(SpecModel):
    """How much is looked at."""

    num_epochs: Count = 4
    train_size: Whole = 0
    batch_size: Count = 80
    accumulation: Count = 1
    seed: int = 42
    steps_at_once: Count = 1
    """Of an epoch; a later one does not know what became of an earlier one that is open."""


class GradientSection(SpecModel):
    """How it is reflected on."""

    minibatch_size: Count = 16
    merge_batch_size: Annotated[int, Field(ge=2)] = 16
    analyst_workers: Count = 16
    max_analyst_rounds: Count = 3
    failure_only: bool = False
    use_deep_reflect: bool = False
    deep_reflect_failures: Whole = 4
    deep_reflect_successes: Whole = 2
    reference_to_teacher: bool = True
    """Whether the expected answers are shown to the optimizer."""
    pictures_to_teacher: bool = False
    """Whether analysts see the pictures of cases."""


class OptimizerSection(SpecModel):
    """How the skill is changed."""

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
        """A least number of edits above the greatest."""
        most, least = said.get("learning_rate"), said.get("min_learning_rate")
        curved = said.get("lr_scheduler") in ("linear", "cosine")
        if most is not None and least is not None and curved and least > most:
            yield f"`min_learning_rate` is {least}, and `learning_rate` {most}"


class EvaluationSection(SpecModel):
    """How it is decided what is kept."""

    use_gate: Annotated[bool, AfterValidator(_gated)] = True
    sel_env_num: Whole = 0
    test_env_num: Whole = 0
    eval_test: bool = True
    gate: Literal["race", "selection"] = "race"
    gate_metric: Literal["hard", "soft", "mixed"] = "hard"
    gate_mixed_weight: Annotated[Finite, Field(ge=0, le=1)] = 0.5


class EnvSection(SpecModel):
    """Where the cases come from; options of the environment itself are left to it."""

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
    """What a run may use at most."""

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
    """How long a model should think; None where nothing is said."""
    return None if text in ("", "none") else text
