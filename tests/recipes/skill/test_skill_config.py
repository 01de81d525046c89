"""Skill configs: the seed's own loads, every spelling means the same, and what is wrong is told."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.recipes.skill.config_keys import FLAT, find_config, flags_of, own_configs
from kept.recipes.skill.read import SkillSpec
from tests.recipes.skill.skill_configs import sound_skill

# the default snapshot of the method's source, as it is printed there
SNAPSHOT = """\
model:
  backend: azure_openai
  teacher: gpt-5.4
  student: gpt-5.4
  teacher_backend: openai_chat
  student_backend: openai_chat
  reasoning_effort: medium
  rewrite_reasoning_effort: ""
  rewrite_max_completion_tokens: 64000
  codex_exec_path: codex
  codex_exec_sandbox: workspace-write
  codex_exec_profile: ""
  codex_exec_full_auto: false
  codex_exec_reasoning_effort: none
  claude_code_exec_path: claude
  claude_code_exec_profile: ""
  codex_trace_to_teacher: true

train:
  num_epochs: 4
  train_size: 0
  batch_size: 80
  accumulation: 1
  seed: 42

gradient:
  minibatch_size: 16
  merge_batch_size: 16
  analyst_workers: 16
  max_analyst_rounds: 3
  failure_only: false
  use_deep_reflect: false
  deep_reflect_failures: 4
  deep_reflect_successes: 2

optimizer:
  learning_rate: 8
  min_learning_rate: 2
  lr_scheduler: cosine
  skill_update_mode: patch
  use_meta_reflect: false
  meta_learning_rate: 8
  use_slow_update: true
  slow_update_samples: 20
  use_meta_skill: true

evaluation:
  use_gate: true
  sel_env_num: 0
  test_env_num: 0
  eval_test: true

env:
  split_mode: ratio
  split_ratio: "2:1:7"
  split_seed: 42
"""


def overrides_of(words: Sequence[str], own: Sequence[str] = ()) -> list[str]:
    flags = flags_of(words, own)
    if flags.problems:
        raise SpecError(flags.problems)
    return flags.found


def config(folder: Path, text: str, name: str = "skill.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def problems(path: Path, *overrides: str) -> list[str]:
    with pytest.raises(SpecError) as told:
        sound_skill(path, overrides)
    return [f"{p.where} {p.path}: {p.message}|{p.hint or ''}" for p in told.value.problems]


def test_the_snapshot_of_the_source_loads_as_it_is(tmp_path: Path):
    spec = sound_skill(config(tmp_path, SNAPSHOT))
    assert spec.teacher is not None and spec.teacher.name == "azure_openai/gpt-5.4"
    assert (spec.train.batch_size, spec.optimizer.lr_scheduler) == (80, "cosine")
    base = Path(str(own_configs()[0])).parent.parent / "_base_" / "default.yaml"
    assert sound_skill(base).told() == spec.told(), "ours is the same"


def test_a_config_is_laid_over_what_it_inherits_key_by_key(tmp_path: Path):
    config(tmp_path, SNAPSHOT, "_base_/default.yaml")
    text = "_base_: ../_base_/default.yaml\ntrain:\n  batch_size: 40\nenv: {name: x, deep: 1}\n"
    spec = sound_skill(config(tmp_path, text, "one/default.yaml"))
    assert (spec.train.batch_size, spec.train.num_epochs, spec.env.name) == (40, 4, "x")
    assert spec.env.split_seed == 42 and spec.options == {"deep": 1}


def test_what_is_wrong_is_told_with_the_line_of_the_file_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    config(tmp_path, "train:\n  batch_size: many\n", "base.yaml")
    text = "_base_: base.yaml\ngradiant: {}\noptimizer:\n  learning_rat: 3\n"
    told = problems(config(tmp_path, text), "evaluation.use_gate=false")
    assert told == [
        "skill.yaml:2 gradiant: unknown key|did you mean `gradient`?",
        "skill.yaml:4 optimizer.learning_rat: unknown key|did you mean `learning_rate`?",
        "evaluation.use_gate=false evaluation.use_gate: `use_gate: false` is not supported: "
        "every update of the skill goes through the gate, which is a part of the method|",
        "base.yaml:2 train.batch_size: the text `many`, where a whole number was expected|",
    ]


def test_files_that_inherit_in_a_circle_are_refused(tmp_path: Path):
    config(tmp_path, "_base_: a.yaml\n", "b.yaml")
    assert "in a circle" in problems(config(tmp_path, "_base_: b.yaml\n", "a.yaml"))[0]
    assert "there is no c.yaml" in problems(config(tmp_path, "_base_: c.yaml\n", "d.yaml"))[0]


@pytest.mark.parametrize(
    "name", ["my #1 skill.md", "[a] skill.md", "a: b.md", "2024", "@x.md", 'say "so".md', "~/x.md"]
)
def test_a_path_behind_a_flag_is_read_as_it_stands(tmp_path: Path, name: str):
    """As YAML, the first would be the file `my`, and the second no value at all."""
    for words in (["--skill_init", name], [f"--skill_init={name}"]):
        assert sound_skill(config(tmp_path, SNAPSHOT), overrides_of(words)).env.skill_init == name


def test_mergers_of_one_patch_are_refused(tmp_path: Path):
    """In the original they merged for ever."""
    (told,) = problems(config(tmp_path, SNAPSHOT), "gradient.merge_batch_size=1")
    assert "gradient.merge_batch_size" in told and "2" in told


def test_keys_that_stand_alone_mean_those_of_their_sections(tmp_path: Path):
    """In the original the flat key `env` swallowed the section `env`."""
    flat = "batch_size: 12\nteacher_model: gpt-5\nteacher_backend: openai_chat\nenv: searchqa\n"
    spec = sound_skill(config(tmp_path, flat))
    assert (spec.train.batch_size, spec.env.name) == (12, "searchqa")
    assert spec.teacher is not None and spec.teacher.model == "gpt-5"
    both = "batch_size: 12\ntrain: {batch_size: 13}\n"
    assert "which stands there too" in problems(config(tmp_path, both))[0]


def test_a_model_in_our_words_takes_the_place_of_an_inherited_one(tmp_path: Path):
    config(tmp_path, SNAPSHOT, "base.yaml")
    text = "_base_: base.yaml\nmodel: {optimizer: openai/gpt-5-mini}\n"
    spec = sound_skill(config(tmp_path, text))
    assert spec.teacher is not None and spec.teacher.name == "openai/gpt-5-mini"
    assert spec.student is not None and spec.student.name == "azure_openai/gpt-5.4"


@pytest.mark.parametrize(
    ("words", "teacher", "student", "agent"),
    [
        ("--backend codex", "openai/gpt-5.4", None, "codex_exec"),
        ("--backend claude", "anthropic/gpt-5.4", "anthropic/gpt-5.4", None),
        ("--backend azure_openai", "azure_openai/gpt-5.4", "azure_openai/gpt-5.4", None),
        (
            "--backend codex --student_backend claude_chat",
            *("openai/gpt-5.4", "anthropic/gpt-5.4", None),
        ),
    ],
)
def test_a_backend_that_is_laid_over_a_config_is_the_backend(
    words: str, teacher: str, student: str | None, agent: str | None
):
    """In the original, and here, the backends that the config inherits made it mean nothing."""
    spec = read_words(f"configs/searchqa/default.yaml {words}")
    assert spec.teacher is not None and spec.teacher.name == teacher
    assert (spec.student and spec.student.name, spec.agent) == (student, agent)


OURS = "model: {optimizer: openai/o, target: {provider: openai_compatible, model: t, tries: 2}}\n"


def test_flags_of_the_source_are_no_less_for_a_config_in_our_words(tmp_path: Path):
    """They were read, and passed over without a word."""
    path = config(tmp_path, OURS)
    (told,) = problems(path, *overrides_of(["--student_model", "x"]))
    assert "`target` is the same role" in told and "call it `target`" in told
    (told,) = problems(path, *overrides_of(["--backend", "claude"]))
    assert "no model is named that it could be of" in told
    spec = sound_skill(path, overrides_of(["--student_backend", "codex_exec"]))
    assert spec.agent == "codex_exec"
    spec = sound_skill(path, overrides_of(["--reasoning_effort", "high"]))
    assert [one and one.effort for one in (spec.teacher, spec.student)] == ["high", "high"]
    spec = sound_skill(path, ["model.target.model=u"])
    assert spec.student is not None and (spec.student.model, spec.student.tries) == ("u", 2)


def test_a_later_file_beats_an_earlier_one_in_whoevers_words(tmp_path: Path):
    config(tmp_path, f"{OURS}", "base.yaml")
    later = config(tmp_path, "_base_: base.yaml\nmodel: {teacher: gpt-5}\n")
    assert "`optimizer` is the same role" in problems(later)[0], "and not passed over"


def test_an_agent_cli_is_handed_back_by_name(tmp_path: Path):
    words = ["--student_backend", "codex_exec", "--student_model", "m"]
    spec = sound_skill(config(tmp_path, SNAPSHOT), overrides_of(words))
    assert (spec.agent, spec.student, spec.student_model) == ("codex_exec", None, "m")
    other = sound_skill(config(tmp_path, SNAPSHOT), overrides_of([*words[:3], "n"]))
    assert spec.told() != other.told(), "another model is another run"
    old = sound_skill(config(tmp_path, SNAPSHOT), ["model.student_backend=", "model.backend=codex"])
    assert old.agent == "codex_exec"


def test_a_key_of_a_provider_is_refused_and_never_written_down(tmp_path: Path):
    """The original wrote `azure_openai_api_key` into config.json."""
    secret = "sk-12345"
    told = problems(config(tmp_path, SNAPSHOT), f"model.azure_openai_api_key={secret}")
    assert len(told) == 1 and secret not in told[0] and "model.azure_openai_api_key=…" in told[0]
    spec = sound_skill(config(tmp_path, SNAPSHOT), ["model.azure_openai_api_key=${MY_KEY}"])
    assert spec.teacher is not None and spec.teacher.api_key == "${MY_KEY}"
    assert "MY_KEY" not in str(spec.told())


def read_words(words: str) -> SkillSpec:
    name, *rest = words.split()
    return sound_skill(find_config(name), overrides_of(rest))


def test_every_command_line_of_the_source_is_understood():
    searchqa = "configs/searchqa/default.yaml"
    assert read_words(searchqa).env.name == "searchqa"
    spec = read_words(
        f"{searchqa} --split_mode ratio --data_path /path/to/searchqa_train_2000.json"
    )
    assert (spec.env.split_mode, spec.env.data_path[:8]) == ("ratio", "/path/to")
    spec = read_words(f"{searchqa} --split_mode split_dir --split_dir /path/to/searchqa_split")
    assert spec.env.split_dir == "/path/to/searchqa_split"
    spec = read_words(
        f"{searchqa} --cfg-options model.teacher_backend=openai_chat "
        "model.student_backend=codex_exec train.batch_size=40 optimizer.learning_rate=4"
    )
    assert (spec.agent, spec.train.batch_size) == ("codex_exec", 40)
    spec = read_words(
        f"{searchqa} --backend azure_openai --teacher_model gpt-5.4 --student_model gpt-5.4 "
        "--reasoning_effort medium"
    )
    assert spec.teacher is not None and spec.teacher.effort == "medium"
    spec = read_words(
        f"{searchqa} --teacher_backend openai_chat --student_backend codex_exec "
        "--teacher_model gpt-5.4 --student_model gpt-5.4-codex --use_deep_reflect true "
        "--skill_update_mode rewrite_from_suggestions"
    )
    assert spec.gradient.use_deep_reflect and spec.student_model == "gpt-5.4-codex"
    assert spec.optimizer.skill_update_mode == "rewrite_from_suggestions"
    spec = read_words(f"{searchqa} --cfg-options env.split_ratio=2:1:7")
    assert spec.env.split_ratio == "2:1:7"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--batchsize", "3"], "did you mean `--batch_size`?"),
        (["--skil", "mine.md"], "did you mean `--skill`?"),
        (["--batch_size"], "what it is to be is missing"),
        (["batch_size=3"], "neither a flag nor what belongs to one"),
    ],
)
def test_a_flag_that_nobody_knows_is_refused(words: list[str], told: str):
    with pytest.raises(SpecError, match=told.replace("?", r"\?")) as refused:
        overrides_of(words, ("skill", "split"))
    assert len(refused.value.problems) == 1, "what stands behind it is no fault of its own"


def test_a_config_is_looked_for_here_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("configs/searchqa/default.yaml").is_absolute()
    own = config(tmp_path, "train: {}\n", "configs/searchqa/default.yaml")
    assert find_config("configs/searchqa/default.yaml").samefile(own)
    with pytest.raises(SetupError, match="there is no"):
        find_config("configs/nowhere/default.yaml")


def test_the_config_of_alfworld_has_its_own_splits():
    """It had no data at all: games come in splits, and are shared out by nobody."""
    env = read_words("configs/alfworld/default.yaml").env
    assert (env.split_mode, env.split_dir) == ("split_dir", "~/.cache/alfworld/json_2.1.1")


def test_no_flat_name_means_two_keys():
    targets = [target for name, target in FLAT.items() if name == target.partition(".")[2]]
    assert len(targets) == len(set(targets))


def test_no_address_of_a_judge_is_written_down(tmp_path: Path):
    """It may hold a login, and what is told of a config goes to config.json."""
    judge = "{provider: ollama, name: m, endpoint: 'https://me:hunter22@judge.example'}"
    metric = f"{{type: geval, name: kind, criteria: is it kind, model: {judge}}}"
    text = f"env: {{name: jsonl, metrics: [{metric}]}}\n"
    told = sound_skill(config(tmp_path, text)).told()["env"]["metrics"]
    assert told[0]["model"] == {"provider": "ollama", "name": "m"}
    assert told[0]["criteria"] == "is it kind"
