"""All that is wrong with a config and its command line is told at once, each with its place."""

import json
from pathlib import Path

import pytest

from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.registry import find_env
from kept.recipes.evaluate.request import Wanted
from kept.recipes.skill.config_keys import flags_of
from kept.recipes.skill.measure import compile_measure
from tests.ui.cli.tasks import Called, kept

BAD = """\
model:
  optimizer: scripted/replies.jsonl
train: {num_epochs: 0, batch_sze: 2, learning_rate: 3}
env:
  name: searchqa
  data_pth: data.jsonl
  split_ratio: "2:0:1"
  skill_init: nowhere.md
prompts: none
batch_sise: 3
"""
TOLD = """\
error: bad.yaml:1 model: the config names no student (hint: give `model.student`, or `model.target`)
error: bad.yaml:3 train.learning_rate: unknown key (hint: did you mean `optimizer.learning_rate`?)
error: bad.yaml:3 train.num_epochs: the number 0, where 1 or more was expected
error: bad.yaml:3 train.batch_sze: unknown key (hint: did you mean `batch_size`?)
error: bad.yaml:6 env.data_pth: {option} (hint: did you mean `data_path`?)
error: bad.yaml:7 env.split_ratio: `2:0:1` leaves no case to decide by
error: bad.yaml:8 env.skill_init: there is no {here}/nowhere.md (hint: give a file, or a folder \
with a SKILL.md)
error: bad.yaml:9 prompts: there is no folder `none`
error: bad.yaml:10 batch_sise: unknown key (hint: did you mean `batch_size`?)
error: --batchsize there is no such flag (hint: did you mean `--batch_size`?)
"""
OPTION = "the environment `searchqa` has no such option"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "replies.jsonl").write_text('"x"\n')
    rows = [{"id": f"q{n}", "question": f"{n}?", "answers": [f"number {n}"]} for n in range(20)]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    return tmp_path


def train(text: str, *flags: str) -> Called:
    Path("bad.yaml").write_text(text)
    return kept("train", "bad.yaml", "--dry-run", *flags)


def test_all_that_is_wrong_is_told_at_once(here: Path):
    """It was told one at a time, section by section, and a key like `data_pth` without a guess."""
    called = train(BAD, "--batchsize", "3")
    assert called.code == 2
    assert called.stderr == TOLD.format(here=here, option=OPTION)


def test_what_an_environment_that_nobody_knows_may_have_is_guessed_all_the_same(here: Path):
    called = train(BAD.replace("searchqa", "searchqua"))
    assert (
        "bad.yaml:5 env.name: there is no environment `searchqua` (hint: did you" in called.stderr
    )
    assert "bad.yaml:6 env.data_pth: unknown key (hint: did you mean `data_path`?)" in called.stderr
    assert "bad.yaml:8 env.skill_init: there is no" in called.stderr


SOUND = """\
model: {optimizer: scripted/replies.jsonl, target: scripted/replies.jsonl}
train: {num_epochs: 1}
env: {name: searchqa, data_path: data.json}
"""


def test_what_is_wrong_with_the_data_is_told_beside_the_config(here: Path):
    (here / "data.json").write_text('[{"question": "a"},\n {"answers": ["b"]}]')
    called = train(SOUND.replace("num_epochs: 1", "num_epochs: many"))
    places = [line.split(" ")[1].rpartition("/")[2] for line in called.stderr.splitlines()]
    assert places == ["bad.yaml:2", "data.json:1", "data.json:2"]


def test_what_follows_from_another_mistake_is_not_told(here: Path):
    """A student that is misspelt is not missing as well, nor is data that is."""
    called = train(SOUND.replace("target:", "targt:").replace("data_path", "data_pth"))
    assert len(called.stderr.splitlines()) == 2 and "missing" not in called.stderr


def test_a_way_to_the_data_that_is_not_taken_is_told_beside_the_one_that_fails(here: Path):
    called = kept("train", "configs/searchqa/default.yaml", "--data_path", "data.json")
    assert called.code == 2
    assert "env.split_dir: there is no folder" in called.stderr
    told = "--data_path data.json: is not read: `split_mode` is `split_dir` (hint: set "
    assert told in called.stderr and ".." not in called.stderr, "as short as a path can be"


def test_keys_of_both_models_that_are_not_set_are_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    called = train(SOUND.replace("scripted/replies.jsonl", "openai/m", 1))
    assert (
        called.stderr
        == "error: bad.yaml:1 model: cannot ask `openai/m`: OPENAI_API_KEY is not set\n"
    )
    both = SOUND.replace("scripted/replies.jsonl", "openai/m", 1)
    called = train(both.replace("scripted/replies.jsonl", "openai/n"))
    assert [line.split("`")[1] for line in called.stderr.splitlines()] == ["openai/n", "openai/m"]


def test_measuring_tells_all_at_once_too(here: Path):
    Path("bad.yaml").write_text(BAD)
    called = kept("eval", "bad.yaml", "--batchsize", "3")
    assert called.code == 2 and called.stderr == TOLD.format(here=here, option=OPTION)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--split_dir", "there"], "`env.split_dir` is not read: `split_mode` is `ratio`"),
        (["--split_mode", "ratio", "--split_dir", "there"], ""),
        ([], ""),
    ],
)
def test_a_way_to_the_data_that_is_not_taken_is_told(flags: list[str], told: str):
    called = train(SOUND, *flags)
    assert called.code == 0, called.stderr
    assert "4 rollouts each" in called.stdout, "as many as there are, and not as a batch may have"
    assert ("is not read" in called.stderr) == bool(told) and told in called.stderr
    plan = compile_measure(Path("bad.yaml"), Wanted(), flags_of(flags).found)
    assert [one for one in plan.warnings if "is not read" in one] == ([told] if told else [])


def test_prompts_that_cannot_be_read_are_told_beside_the_rest(here: Path):
    (here / "mine").mkdir()
    (here / "mine/ranking.md").write_bytes("größer".encode("utf-16"))
    called = train(SOUND.replace("num_epochs: 1", "num_epochs: many") + "prompts: mine\n")
    assert called.code == 2 and "train.num_epochs" in called.stderr
    assert "prompts: cannot read mine/ranking.md" in called.stderr.replace(f"{here}/", "")


JUDGED = """\
model: {optimizer: MODEL, target: scripted/replies.jsonl}
train: {num_epochs: 1}
env:
  name: jsonl
  data_path: data.json
  metrics: [{type: geval, name: kind, criteria: is it kind}]
budget: {max_usd: 1}
"""


def test_a_judge_without_a_price_is_told_once(here: Path):
    model = "{provider: openai_compatible, base_url: 'http://example.com/v1', model: m}"
    called = train(JUDGED.replace("MODEL", model))
    assert called.code == 2 and called.stderr.count("cannot be kept") == 1, called.stderr


@pytest.mark.parametrize("wrong", [("MODEL", "3"), ("  name: jsonl\n", "")])
def test_what_metrics_lack_because_of_another_mistake_is_not_told(wrong: tuple[str, str]):
    called = train(JUDGED.replace(*wrong).replace("MODEL", "scripted/replies.jsonl"))
    assert called.code == 2
    assert "judge" not in called.stderr and "measured by metrics" not in called.stderr


ROWS: dict[str, dict[str, object]] = {
    "bbh": {"input": "{n}?", "target": "number {n}"},
    "gsm8k": {"question": "{n}?", "answer": "#### {n}"},
    "ifeval": {
        "prompt": "{n}?",
        "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": [{}],
    },
    "jsonl": {"question": "{n}?", "answer": "number {n}"},
}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_config_that_comes_with_kept_needs_nothing_but_its_data(here: Path, name: str):
    (here / "data").mkdir()
    rows = [json.dumps(ROWS[name]).replace("{n}", str(n)) for n in range(100)]
    (here / "data" / f"{name}.jsonl").write_text("\n".join(rows))
    model = "scripted/replies.jsonl"
    set_to = ("--cfg-options", f"model.optimizer={model}", f"model.target={model}")
    called = kept("train", f"configs/{name}/default.yaml", "--dry-run", *set_to)
    assert called.code == 0, called.stderr
    assert f"environment  {name}\n" in called.stdout
    assert "20 train, 10 holdout, 70 test" in called.stdout and "race, by `hard`" in called.stdout


def test_a_config_that_comes_with_kept_may_be_measured_by_its_name_alone():
    """As it may be trained."""
    called = kept("eval", "configs/gsm8k/default.yaml")
    assert called.code == 2
    assert "there is no" in called.stderr and "data/gsm8k.jsonl" in called.stderr
    called = kept("eval", "configs/gsm/default.yaml")
    assert called.code == 2 and "Kept has configs of alfworld, babyvision, bbh" in called.stderr
    called = kept("eval", "--config", "gsm8k")
    assert called.code == 2 and "Kept's own is configs/gsm8k/default.yaml" in called.stderr


ELEVEN = (
    *("alfworld", "babyvision", "docvqa", "livemathematicianbench", "mathverse", "mmrb"),
    *("officeqa", "sealqa", "searchqa", "spreadsheetbench", "swebench"),
)
"""The environments of the method's source."""


@pytest.mark.parametrize("name", ELEVEN)
def test_a_shipped_config_without_data_says_what_to_get_and_where_it_goes(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(here))
    called = kept("train", "--config", f"configs/{name}/default.yaml")
    assert called.code == 2
    told = [line for line in called.stderr.splitlines() if "there is no" in line]
    (line,) = [one for one in told if "env.split_dir: " in one or "env.data_path: " in one]
    assert f"{here}/" in line
    data = find_env(EnvSettings(name=name)).data
    assert line.endswith(f" (hint: {data})") and name in data.lower().replace("-", "")
    assert "train" in data or "`env.data_path`" in data


def test_a_config_of_the_users_may_be_laid_over_one_of_kepts_own(here: Path):
    """With models of one's own there was no other way than to copy the config."""
    text = "_base_: configs/gsm8k/default.yaml\nmodel: {target: scripted/replies.jsonl}\n"
    called = train(text + "env: {data_path: none.jsonl}\n")
    assert called.code == 2 and f"there is no {here}/none.jsonl (hint: GSM8K" in called.stderr
    called = train(text.replace("gsm8k", "gsm"))
    assert "_base_: there is no configs/gsm/default.yaml (hint: or one of Kept's" in called.stderr
    (here / "configs/gsm8k").mkdir(parents=True)
    (here / "configs/gsm8k/default.yaml").write_text("env: {name: searchqa}\n")
    assert "hint: SearchQA" in train(text + "env: {data_path: none.jsonl}\n").stderr


def test_an_option_of_an_environment_is_a_flag_as_every_key_is(here: Path):
    """`--max_turns` was no flag, and `--max_usd` was proposed in its place."""
    called = train(SOUND, "--max_turns", "0")
    assert called.code == 2 and "`max_turns` is less than 1" in called.stderr
    called = train(SOUND, "--max_turns", "2")
    assert called.code == 0, called.stderr
    called = train(SOUND, "--data_root", "here")
    assert "the environment `searchqa` has no such option" in called.stderr
    called = train(SOUND, "--max_turn", "2")
    assert "--max_turn there is no such flag (hint: did you mean `--max_turns`?)" in called.stderr


def test_a_measurement_needs_no_cases_to_decide_by(here: Path):
    rows = [{"id": f"q{n}", "question": f"{n}?", "answers": [f"number {n}"]} for n in range(2)]
    (here / "data.json").write_text(json.dumps(rows))
    (here / "replies.jsonl").write_text('"x"\n"y"\n')
    assert "there are no holdout cases" in train(SOUND).stderr
    called = kept("eval", "bad.yaml", "--split", "all", "-q")
    assert called.code == 0 and "all: 0 of 2 cases pass" in called.stdout, called.stderr


def test_a_training_without_train_cases_is_refused(here: Path):
    """It ran its epochs on nothing, and ended with code 0."""
    for part, rows in (("train", []), ("val", [0, 1]), ("test", [2])):
        (here / "split" / part).mkdir(parents=True)
        given = [{"id": f"q{n}", "question": f"{n}?", "answers": ["x"]} for n in rows]
        (here / "split" / part / "items.json").write_text(json.dumps(given))
    called = train(SOUND, "--split_mode", "split_dir", "--split_dir", "split")
    assert called.code == 2 and "there are no train cases" in called.stderr
    flags = ("--split_mode", "split_dir", "--split_dir", "split", "--split", "val", "-q")
    (here / "replies.jsonl").write_text('"x"\n"y"\n')
    assert kept("eval", "bad.yaml", *flags).code == 0
