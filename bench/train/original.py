"""SkillOpt from PyPI on the same cases: the original of the method, in an environment of its own.

Its wheel lacks the files of its prompts, without which it makes no call. The bench puts files of
its own in their place, which hold a name and nothing else: the server answers by that name.
"""

import subprocess
from pathlib import Path

from bench.train.server import NAMED
from bench.train.shape import AT_ONCE, BATCH

PROMPTS = (
    *("analyst_error", "analyst_success", "merge_failure", "merge_success", "merge_final"),
    *("ranking", "slow_update", "meta_skill"),
)
SKILL = "# Skill\n\nAnswer the question.\n"


def words(python: str, folder: Path, url: str, train: int) -> list[str]:
    """The command, once all that it reads is there."""
    _lend_prompts(python)
    (folder / "initial.md").write_text(SKILL)
    (folder / "original.yaml").write_text(_config(url, train))
    return [str(Path(python).with_name("skillopt-train")), "--config", "original.yaml"]


def _lend_prompts(python: str) -> None:
    code = "import skillopt; print(skillopt.__path__[0])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    package = Path(done.stdout.strip())
    for name in PROMPTS:
        (package / "prompts" / f"{name}.md").write_text(f"{NAMED}{name}\n")
    own = package / "envs" / "searchqa" / "prompts"
    own.mkdir(exist_ok=True)
    (own / "rollout_system.md").write_text(f"{NAMED}rollout\n\n{{skill_section}}Answer.\n")


def _config(url: str, train: int) -> str:
    """The settings that Kept is given, in the words of the version that PyPI has."""
    return f"""\
model:
  optimizer: teacher
  target: student
  optimizer_backend: openai_chat
  target_backend: openai_chat
  azure_openai_endpoint: {url}
  azure_openai_auth_mode: openai_compatible
  azure_openai_api_key: none
  reasoning_effort: ""
train: {{num_epochs: 1, train_size: {train}, batch_size: {BATCH}, accumulation: 1, seed: 42}}
gradient: {{minibatch_size: 8, merge_batch_size: 8, analyst_workers: 16, failure_only: false}}
optimizer: {{learning_rate: 4, min_learning_rate: 2, lr_scheduler: cosine,
  skill_update_mode: patch, use_slow_update: true, slow_update_samples: 20, use_meta_skill: true}}
evaluation: {{use_gate: true, sel_env_num: 0, test_env_num: 0, eval_test: true, gate_metric: hard}}
env: {{name: searchqa, skill_init: initial.md, out_root: out, split_mode: split_dir,
  split_dir: data, workers: {AT_ONCE}, max_turns: 1, limit: 0}}
"""
