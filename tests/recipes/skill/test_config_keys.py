"""Every key of a skill config does something that can be seen: none is read and ignored."""

import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.llm import Image
from kept.core.plan import Plan
from kept.errors import SetupError
from kept.evaluators.environments.qa import SearchQa
from kept.models.providers import ModelConfig
from kept.recipes.skill.compile import Asked, plan_of
from kept.recipes.skill.config_keys import KEYS as MODEL_KEYS
from kept.recipes.skill.environment import settings_of, student_config, student_of
from kept.recipes.skill.outputs import Trained
from kept.recipes.skill.read import SkillSpec
from kept.recipes.skill.spec import SECTIONS
from kept.testing import ScriptedModel
from tests.recipes.skill import world
from tests.recipes.skill.skill_configs import sound_skill
from tests.recipes.skill.test_skill_config import SNAPSHOT

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "skill-config.md"
SIZES = (48, 40, 40)
MODEL = ScriptedModel(())
TEACHER = Asked(MODEL, ModelConfig(provider="scripted", model="none"))

CHANGED: dict[str, str] = {
    "model.backend": "openai",
    "model.teacher": "other",
    "model.student": "other",
    "model.teacher_backend": "claude_chat",
    "model.student_backend": "claude_chat",
    "model.reasoning_effort": "high",
    "model.azure_openai_endpoint": "http://127.0.0.1:1",
    "model.azure_openai_api_version": "2025-04-01-preview",
    "model.azure_openai_api_key": "${SOME_KEY}",
    "model.azure_openai_auth_mode": "managed_identity",
    "model.azure_openai_ad_scope": "https://cognitiveservices.azure.us/.default",
    "model.azure_openai_managed_identity_client_id": "someone",
    "model.optimizer": "openai/other",
    "model.target": "openai/other",
    "model.rewrite_reasoning_effort": "high",
    "model.rewrite_max_completion_tokens": "1000",
    "model.codex_exec_path": "other",
    "model.codex_exec_sandbox": "danger-full-access",
    "model.codex_exec_profile": "other",
    "model.codex_exec_full_auto": "true",
    "model.codex_exec_reasoning_effort": "high",
    "model.claude_code_exec_path": "other",
    "model.claude_code_exec_profile": "other",
    "model.codex_trace_to_teacher": "false",
    "train.num_epochs": "2",
    "train.train_size": "3",
    "train.batch_size": "7",
    "train.accumulation": "3",
    "train.seed": "1",
    "train.steps_at_once": "2",
    "gradient.minibatch_size": "3",
    "gradient.merge_batch_size": "3",
    "gradient.analyst_workers": "3",
    "gradient.max_analyst_rounds": "1",
    "gradient.failure_only": "true",
    "gradient.use_deep_reflect": "true",
    "gradient.deep_reflect_failures": "1",
    "gradient.deep_reflect_successes": "1",
    "gradient.reference_to_teacher": "false",
    "gradient.pictures_to_teacher": "true",
    "optimizer.learning_rate": "3",
    "optimizer.min_learning_rate": "1",
    "optimizer.lr_scheduler": "linear",
    "optimizer.skill_update_mode": "rewrite_from_suggestions",
    "optimizer.use_meta_reflect": "true",
    "optimizer.meta_learning_rate": "2",
    "optimizer.use_slow_update": "false",
    "optimizer.slow_update_samples": "3",
    "optimizer.use_meta_skill": "false",
    "optimizer.use_skill_aware_reflection": "true",
    "optimizer.skill_aware_appendix_source": "failure_only",
    "optimizer.skill_aware_consolidate_threshold": "5",
    "optimizer.appendix_gate": "flush",
    "evaluation.use_gate": "false",
    "evaluation.sel_env_num": "3",
    "evaluation.test_env_num": "3",
    "evaluation.eval_test": "false",
    "evaluation.gate": "selection",
    "evaluation.gate_metric": "mixed",
    "evaluation.gate_mixed_weight": "0.2",
    "env.name": "gsm8k",
    "env.skill_init": "mine.md",
    "env.out_root": "there",
    "env.exports": "full",
    "env.split_mode": "split_dir",
    "env.split_ratio": "1:1:1",
    "env.split_seed": "1",
    "env.split_dir": "there",
    "env.split_output_dir": "there",
    "env.data_path": "there",
    "env.limit": "5",
    "env.workers": "3",
    "budget.max_usd": "3",
    "budget.max_rollouts": "3000",
    "budget.max_minutes": "3",
}
"""Another value for each."""

CODEX = ("model.student_backend=codex_exec", "model.codex_exec_path=sh")
CLAUDE = ("model.student_backend=claude_code_exec", "model.claude_code_exec_path=sh")
WITH: dict[str, tuple[str, ...]] = {
    "gradient.deep_reflect_failures": ("gradient.use_deep_reflect=true",),
    "gradient.deep_reflect_successes": ("gradient.use_deep_reflect=true",),
    "optimizer.meta_learning_rate": ("optimizer.use_meta_reflect=true",),
    "optimizer.skill_aware_appendix_source": ("optimizer.use_skill_aware_reflection=true",),
    "optimizer.skill_aware_consolidate_threshold": ("optimizer.use_skill_aware_reflection=true",),
    "optimizer.appendix_gate": ("optimizer.use_skill_aware_reflection=true",),
    "evaluation.gate_mixed_weight": ("evaluation.gate_metric=mixed",),
    **{f"model.codex_exec_{key}": CODEX for key in ("path", "profile", "reasoning_effort")},
    **{f"model.claude_code_exec_{key}": CLAUDE for key in ("path", "profile")},
    "model.codex_exec_sandbox": CODEX,
    "model.codex_exec_full_auto": (*CODEX, "model.codex_exec_sandbox=danger-full-access"),
}
"""What must be set besides for a key to matter."""

REFUSED = ("evaluation.use_gate",)
"""Keys whose other value is an error."""


def all_keys() -> set[str]:
    found = {
        f"{s}.{key}" for s, models in SECTIONS.items() for m in models for key in m.model_fields
    }
    return found | {f"model.{key}" for key in MODEL_KEYS}


def test_the_page_has_a_row_for_every_key_and_no_other():
    table = PAGE.read_text().partition("## Keys")[2].partition("## Files")[0]
    rows = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == len({key for key, _ in rows})
    assert {key for key, _ in rows} == all_keys() == CHANGED.keys()


def no_pictures(_: Case) -> tuple[Image, ...]:
    return ()


def seen(folder: Path, *overrides: str) -> Any:
    """All that a run does by a config: what is asked of whom, in which order, decided how."""
    path = folder / "skill.yaml"
    path.write_text(SNAPSHOT + "  name: searchqa\n  data_path: x\n")
    spec = sound_skill(path, overrides)
    opened = world.opened(MODEL, SIZES, pictures=no_pictures)
    plan = plan_of(spec, opened, (), "", TEACHER).plan
    what = (plan.schedule, plan.gate, plan.objective, plan.budget, plan.workers, plan.width)
    more = (
        plan.random_seed,
        plan.scorer,
        plan.spec.results,
        plan.spec.source or None,
        written_in_full(plan),
        len(plan.cases.test),
    )
    proposers = re.sub(r" at 0x\w+", "", repr(plan.proposers))
    env = re.sub(r" at 0x\w+|where=.*", "", repr(settings_of(spec)))
    return repr((what, more, proposers, env, student(spec)))


def written_in_full(plan: Plan) -> bool:
    """True where there is a file for each minibatch and each rollout."""
    (view,) = plan.views
    assert isinstance(view, partial)
    (trained,) = view.args
    assert isinstance(trained, Trained)
    return trained.full


def student(spec: SkillSpec) -> Any:
    """The models that are asked, and how an agent CLI is run; or why it cannot be."""
    asked = (spec.teacher, student_config(spec), spec.agent)
    if spec.agent is None:
        return asked
    try:
        runner = student_of(spec, SearchQa())
    except SetupError as error:
        return asked, error.message
    harness: Any = vars(runner)["_harness"]
    return asked, harness.cli.program, harness.config, harness.command.view


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Any]:
    """What is seen without the change, looked at once."""
    folder = tmp_path_factory.mktemp("before")

    @cache
    def found(with_it: tuple[str, ...]) -> Any:
        return seen(folder, *with_it)

    return found


@pytest.mark.parametrize("key", sorted(CHANGED))
def test_every_key_does_something(
    key: str, before: Callable[[tuple[str, ...]], Any], tmp_path: Path
):
    with_it = WITH.get(key, ())
    change = f"{key}={CHANGED[key]}"
    if key in REFUSED:
        with pytest.raises(Exception, match=key.partition(".")[2]):
            seen(tmp_path, *with_it, change)
        return
    assert seen(tmp_path, *with_it, change) != before(with_it)


def test_where_no_key_changes_nothing_is_seen_to(
    before: Callable[[tuple[str, ...]], Any], tmp_path: Path
):
    assert seen(tmp_path) == before(())
