"""Every way to get the block `optimizer:` wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.agent_config.request import Tuning
from kept.recipes.agent_config.spec.read import read_agent
from kept.recipes.agent_config.tune import read_tuning
from tests.recipes.agent_config.spec.optimizers import rows, write_optimized

BLOCK = """\
loss: {equality: 0.7, near: 0.3}
train_cases_file: data/train.yaml
holdout_cases_file: data/holdout.yaml
min_holdout_cases: 5
axes:
  numeric:
  - {path: model.temperature, range: [0.0, 1.0]}
  - {path: "tools[name=books].top_k", range: [3, 20], type: int}
  textual:
  - {path: instructions.inline, max_chars: 4000}
  - {path: "tools[name=add].description", max_chars: 200}
  demos: {path: instructions, max_demos: 4}
budget:
  global: {max_cycles: 4, max_minutes: 60, max_usd: 15.0}
  numeric_phase: {max_trials: 15, patience: 10}
"""
TEMPERATURE = "path: model.temperature, range: [0.0, 1.0]"
TOP_K = 'path: "tools[name=books].top_k", range: [3, 20], type: int'
DESCRIPTION = 'path: "tools[name=add].description", max_chars: 200'
TRAIN = "train_cases_file: data/train.yaml\n"
HOLDOUT = "holdout_cases_file: data/holdout.yaml\n"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-nobody")
    monkeypatch.chdir(tmp_path)


def problems(folder: Path, block: str | None, **files: str) -> list[str]:
    path = write_optimized(folder, block, **files)
    with pytest.raises(SpecError) as caught:
        read_tuning(path, (), Tuning())
    return [str(found) for found in caught.value.problems]


def test_the_block_that_is_broken_below_is_in_order(tmp_path: Path):
    found = read_tuning(write_optimized(tmp_path, BLOCK), (), Tuning())
    assert found.axes.numeric is not None
    assert (len(found.axes.numeric.axes), len(found.axes.textual)) == (2, 2)
    assert (len(found.cases.train), len(found.cases.holdout)) == (8, 8)


# fmt: off
BROKEN = [
    ("loss: {equality: 0.7, near: 0.3}\n", "", 10, "loss: missing"),
    ("equality: 0.7", "equalty: 0.7", 11, "loss.equalty: no case is measured by a metric `equalty` (hint: did you mean `equality`?)"),
    ("equality: 0.7", "fluency: 0.7", 11, "loss.fluency: no case is measured by a metric `fluency` (hint: there are `equality`, `near`)"),
    ("equality: 0.7", "equality: -1", 11, "loss.equality: the number -1, where 0 or more was expected"),
    ("{equality: 0.7, near: 0.3}", "{}", 10, ": `loss` weighs nothing: name a metric, and a weight above 0"),
    ("{equality: 0.7, near: 0.3}", "[equality]", 11, "loss: a list, where a mapping was expected"),
    (HOLDOUT, "", 12, "train_cases_file: there is no `holdout_cases_file`: nothing would tell a gain from overfitting (hint: give one, or `split` instead of files; or set `holdout_eval_policy: skip`, and trust train alone)"),
    (TRAIN, "", 12, "holdout_cases_file: there is no `train_cases_file`: nothing would be left to learn from (hint: give one, or `split` instead of files)"),
    (TRAIN + HOLDOUT, "split: 3:5\n", 12, "split: `3:5` is not a split; write train:holdout:test, as in 3:5:2"),
    (TRAIN, 'train_cases_file: data/train.yaml\nsplit: "3:5:2"\n', 13, "split: cases come from `train_cases_file` and `holdout_cases_file`, and there is nothing to split"),
    (TRAIN + HOLDOUT, 'split: "0:5:5"\n', 12, "split: `0:5:5` leaves no train case to learn from"),
    (TRAIN + HOLDOUT, 'split: "5:0:5"\n', 12, "split: `5:0:5` leaves no holdout case to decide by"),
    (TRAIN + HOLDOUT, 'split: "3:5:2"\ntest_cases_file: data/test.yaml\n', 12, "split: `3:5:2` has test cases, and `test_cases_file` has others (hint: write 3:5:0, or leave the file out)"),
    ("data/holdout.yaml", "data/holdot.yaml", 13, "holdout_cases_file: cannot read `data/holdot.yaml`: No such file or directory (hint: did you mean `holdout.yaml`?)"),
    ("data/holdout.yaml", "data/train.yaml", 13, "holdout_cases_file: `t0`, `t1`, `t2` and 5 more stand in train too: no case may decide on itself (hint: give each case to one of them)"),
    ("data/holdout.yaml", "docs/a.md", 13, "holdout_cases_file: `docs/a.md` is the text `Text.`, not a list of cases"),
    ("data/holdout.yaml", "data/test.yaml", 13, "holdout_cases_file: there are 4 holdout cases, and 5 are needed to tell a gain from noise (hint: add cases, or lower `min_holdout_cases` if you must)"),
    ("min_holdout_cases: 5", "min_holdout_cases: 0", 14, "min_holdout_cases: the number 0, where 1 or more was expected"),
    ("min_holdout_cases: 5", "min_holdout_cases: 9", 13, "holdout_cases_file: there are 8 holdout cases, and 9 are needed to tell a gain from noise (hint: add cases, or lower `min_holdout_cases` if you must)"),
    ("min_holdout_cases: 5", "holdout_eval_policy: never", 14, "holdout_eval_policy: the text `never`, where `on_train_improve`, `every_trial` or `skip` was expected"),
    ("min_holdout_cases: 5", "holdout_eval_policy: skip\ngate: race", 10, ": `holdout_eval_policy` is of `gate: sigma`, and the gate is `race`"),
    ("min_holdout_cases: 5", "repeats: 3\ngate: race", 10, ": `repeats` is of `gate: sigma`, and the gate is `race`"),
    ("min_holdout_cases: 5", "max_errored_fraction: 0.25\ngate: race", 10, ": `max_errored_fraction` is of `gate: sigma`, and the gate is `race`"),
    ("min_holdout_cases: 5", "repeats: 0", 14, "repeats: the number 0, where 1 or more was expected"),
    ("min_holdout_cases: 5", "accept_sigma: 1\nrace: careful", 10, ": `race` says how to race, and the gate is `sigma`, by `accept_sigma`: leave one of them out"),
    ("min_holdout_cases: 5", "repeats: 2\nrace: careful", 10, ": `race` says how to race, and the gate is `sigma`, by `repeats`: leave one of them out"),
    ("min_holdout_cases: 5", "gate: sigma\nrace: careful", 10, ": `race` says how to race, and the gate is `sigma`: leave one of them out"),
    ("min_holdout_cases: 5", "accept_sigma: 1\ngate: race", 10, ": `accept_sigma` is of `gate: sigma`, and the gate is `race`"),
    ("min_holdout_cases: 5", "gate: strict", 14, "gate: the text `strict`, where `race` or `sigma` was expected"),
    ("min_holdout_cases: 5", "race: {preset: quick}", 14, "race.preset: the text `quick`, where `fast`, `balanced` or `careful` was expected"),
    ("min_holdout_cases: 5", "max_errored_fraction: 25", 14, "max_errored_fraction: the number 25, where 1 or less was expected"),
    ("min_holdout_cases: 5", "min_confidense: 0.4", 14, "min_confidense: unknown key (hint: did you mean `min_confidence`?)"),
    ("min_holdout_cases: 5", "max_cycles: 3", 14, "max_cycles: `max_cycles` and `budget.global.max_cycles` say the same thing: give one of them"),
    ("min_holdout_cases: 5", "numeric_phase: {max_trials: 12}", 14, "numeric_phase: `numeric_phase` and `budget.numeric_phase` say the same thing: give one of them"),
    ("min_holdout_cases: 5", "penalties: {cost: 1}", 14, "penalties.cost: unknown key (hint: did you mean `cost_per_usd`?)"),
    ("max_cycles: 4", "max_cycle: 4", 24, "budget.global.max_cycle: unknown key (hint: did you mean `max_cycles`?)"),
    ("max_cycles: 4", "max_cycles: 0", 24, "budget.global.max_cycles: the number 0, where 1 or more was expected"),
    ("max_trials: 15", "max_trials: 0", 25, "budget.numeric_phase.max_trials: the number 0, where 1 or more was expected"),
    ("max_usd: 15.0", "max_usd: '15'", 24, "budget.global.max_usd: the text `15`, where a number was expected"),
    ("  global:", "  gobal:", 24, "budget.gobal: unknown key (hint: did you mean `global`?)"),
    (TEMPERATURE, "range: [0.0, 1.0]", 17, "axes.numeric[0].path: missing"),
    (TEMPERATURE, "path: model.temprature, range: [0.0, 1.0]", 17, "axes.numeric[0].path: `model` has no `temprature`; did you mean `temperature`?"),
    (TEMPERATURE, "path: model..temperature, range: [0.0, 1.0]", 17, "axes.numeric[0].path: `model..temperature` is no path (at `..temperature`); write it as in `tools[name=x].top_k`"),
    (TEMPERATURE, "path: model.temperature", 17, "axes.numeric[0]: an axis has either a `range` or `choices`"),
    (TEMPERATURE, "path: model.temperature, range: [1.0, 0.0]", 17, "axes.numeric[0]: `range` is empty: write the least value, then a greater one"),
    (TEMPERATURE, "path: model.temperature, range: [0.0, 0.5, 1.0]", 17, "axes.numeric[0]: a `range` has two ends, the least and the greatest; several values are `choices`"),
    (TEMPERATURE, "path: model.temperature, range: [0.0, 1.0], choices: [0, 1]", 17, "axes.numeric[0]: an axis has either a `range` or `choices`"),
    (TEMPERATURE, "path: model.temperature, range: [0.0, 3.0]", 17, "axes.numeric[0].range: the number 3.0 cannot be: model.temperature: the number 3.0, where 2 or less was expected"),
    (TEMPERATURE, "path: model.temperature, range: [0.5, 1.0]", 17, "axes.numeric[0]: it is the number 0.3 now, which is no number from 0.5 to 1 (hint: a search begins where the agent is: let the axis hold that)"),
    (TEMPERATURE, "path: model.temperature, range: [0.0, 1.0], type: decimal", 17, "axes.numeric[0].type: the text `decimal`, where `float`, `int` or `categorical` was expected"),
    (TEMPERATURE, "path: model.temperature, range: [0.0, 1.0], log: true", 17, "axes.numeric[0]: `log` needs a `range` above 0"),
    (TEMPERATURE, "path: model.name, choices: [gpt-5-mini]", 17, "axes.numeric[0]: `choices` leave nothing to choose: give two or more"),
    (TEMPERATURE, "path: model.name, choices: [a, b]", 17, "axes.numeric[0]: it is the text `gpt-5-mini` now, which is none of the choices (hint: a search begins where the agent is: let the axis hold that)"),
    (TEMPERATURE, "path: model.endpoint, choices: [a, b]", 17, "axes.numeric[0].path: `model.endpoint` cannot be tuned: it leads elsewhere: another place is another agent"),
    (TEMPERATURE, "path: model.api_key, choices: [a, b]", 17, "axes.numeric[0].path: `model.api_key` cannot be tuned: it may be a secret"),
    (TEMPERATURE, "path: model.provider, choices: [openai, anthropic]", 17, "axes.numeric[0].path: `model.provider` cannot be tuned: it leads elsewhere: another place is another agent"),
    (TEMPERATURE, "path: execution.llm_timeout, range: [1, 60]", 17, "axes.numeric[0].path: `execution.llm_timeout` cannot be tuned: it says how the agent is measured, and not what the agent is"),
    (TEMPERATURE, "path: evaluations.model.temperature, range: [0, 1]", 17, "axes.numeric[0].path: `evaluations.model.temperature` cannot be tuned: it says how the agent is measured, and not what the agent is"),
    (TEMPERATURE, "path: instructions.inline, choices: [a, b]", 17, "axes.numeric[0].path: `instructions.inline` cannot be tuned: it is a text: make it a textual axis"),
    (TEMPERATURE, "path: openai.effort, choices: [low, high]", 17, "axes.numeric[0].path: `openai.effort` has no value to begin from (hint: write one into the agent.yaml)"),
    (TEMPERATURE, "path: description, choices: [low, high]", 17, "axes.numeric[0].path: `description` cannot be tuned: nothing that the agent does depends on it"),
    (TOP_K, 'path: "tools[name=boks].top_k", range: [3, 20]', 18, "axes.numeric[1].path: `tools` has none with `name` = `boks`, but `add`, `books`, `files`, `sum_up`"),
    (TOP_K, 'path: "tools[name=books].chunking_strategy", choices: [structure, token]', 18, "axes.numeric[1].path: `tools[name=books].chunking_strategy` cannot be tuned: an index is taken in once for all candidates, and this would have it taken in again"),
    (TOP_K, 'path: "tools[name=books].max_chunk_tokens", range: [200, 1600]', 18, "axes.numeric[1].path: `tools[name=books].max_chunk_tokens` cannot be tuned: an index is taken in once for all candidates, and this would have it taken in again"),
    (TOP_K, 'path: "tools[name=books].embedding_model", choices: [a, b]', 18, "axes.numeric[1].path: `tools[name=books].embedding_model` cannot be tuned: an index is taken in once for all candidates, and this would have it taken in again"),
    (TOP_K, 'path: "tools[name=books].enable_reranking", choices: [true, false]', 18, "axes.numeric[1].path: `tools[name=books].enable_reranking` cannot be tuned: nothing that the agent does depends on it"),
    (TOP_K, 'path: "tools[name=books].top_k", range: [3, 200]', 18, "axes.numeric[1].range: the number 200 cannot be: tools[1].top_k: the number 200, where 100 or less was expected"),
    (TOP_K, 'path: "tools[name=books].top_k", range: [3, 20], type: float', 18, "axes.numeric[1]: `tools[name=books].top_k` takes whole numbers: leave `type` out, or write int"),
    (TOP_K, 'path: "tools[name=files].request_timeout", range: [1, 60]', 18, "axes.numeric[1].path: `tools[name=files].request_timeout` cannot be tuned: a server is opened once for all candidates"),
    (TOP_K, 'path: "tools[name=files].env.TOKEN", choices: [a, b]', 18, "axes.numeric[1].path: `tools[name=files].env` has no `TOKEN`"),
    (TOP_K, "path: model.temperature, range: [0.1, 0.9]", 18, "axes.numeric[1].path: `model.temperature` has two axes"),
    (TOP_K, 'path: "tools[name=books].top_k", range: [3, 20], type: int}\n  - {path: "tools[1].top_k", range: [3, 20]', 19, "axes.numeric[2].path: `tools[1].top_k` has two axes"),
    (TOP_K, 'path: "tools[name=books].semantic_weight", range: [0.2, 0.8]}\n  - {path: "tools[name=books].keyword_weight", range: [0.2, 0.8]', 18, "axes.numeric[1].path: `tools[name=books].semantic_weight` cannot be tuned: the greatest `semantic_weight` and `keyword_weight` sum to 1.6, and leave nothing for `exact_weight`"),
    (TOP_K, 'path: "tools[name=books].semantic_weight", range: [0.1, 0.5]}\n  - {path: "tools[name=books].keyword_weight", range: [0.1, 0.3]}\n  - {path: "tools[name=books].exact_weight", range: [0.1, 0.2]', 18, "axes.numeric[1].path: `tools[name=books].semantic_weight` cannot be tuned: all three weights have axes, and they sum to 1: leave one to follow the others"),
    ("instructions.inline, max_chars: 4000", "instructions.inline, max_chars: 10", 20, "axes.textual[0].max_chars: the text has 19 characters now, and 10 are allowed (hint: give it 100 or so)"),
    ("instructions.inline, max_chars: 4000", "instructions.text, max_chars: 4000", 20, "axes.textual[0].path: `instructions` has no `text`"),
    (DESCRIPTION, 'path: "tools[name=files].description"', 21, "axes.textual[1].path: `tools[name=files].description` cannot be rewritten: a server describes its tools itself"),
    (DESCRIPTION, 'path: "tools[name=books].top_k"', 21, "axes.textual[1].path: `tools[name=books].top_k` is the number 10, and no text"),
    (DESCRIPTION, 'path: "tools[name=books].source"', 21, "axes.textual[1].path: `tools[name=books].source` cannot be rewritten: it is no text that the model reads"),
    (DESCRIPTION, "path: instructions", 21, "axes.textual[1].path: `instructions` and `instructions.inline` are the same text: give it one axis"),
    (DESCRIPTION, "path: name", 21, "axes.textual[1].path: `name` cannot be rewritten: it is no text that the model reads"),
    ("max_demos: 4", "max_demos: 0", 22, "axes.demos.max_demos: the number 0, where 1 or more was expected"),
    ("path: instructions, max_demos: 4", "path: instructon", 22, "axes.demos.path: the agent has no `instructon`; did you mean `instructions`?"),
    (TEMPERATURE, "path: claude.max_turns, range: [1, 30]", 17, "axes.numeric[0].path: `claude.max_turns` cannot be tuned: the model is of `openai`, and has no use for it"),
    (TEMPERATURE, "path: model, range: [1, 30]", 17, "axes.numeric[0].path: `model` is no single value"),
    (TEMPERATURE, "path: tools, range: [1, 30]", 17, "axes.numeric[0].path: `tools` is no single value"),
    (TEMPERATURE, "path: 'tools[name=sum_up].model.endpoint', choices: [gpt-5-mini, gpt-5]", 17, "axes.numeric[0].path: `tools[name=sum_up].model.endpoint` cannot be tuned: it leads elsewhere: another place is another agent"),
    (TEMPERATURE, "path: 'tools[name=sum_up].parameters.text.type', choices: [string, number]", 17, "axes.numeric[0].path: `tools[name=sum_up].parameters.text.type` cannot be tuned: nothing that the agent does depends on it"),
    (TOP_K, 'path: "tools[name=add].file", choices: [tools.py, graders.py]', 18, "axes.numeric[1].path: `tools[name=add].file` cannot be tuned: it leads elsewhere: another place is another agent"),
]
# fmt: on


@pytest.mark.parametrize(("part", "by", "line", "told"), BROKEN)
def test_a_broken_block_is_told(tmp_path: Path, part: str, by: str, line: int, told: str):
    assert BLOCK.count(part) == 1
    (problem,) = problems(tmp_path, BLOCK.replace(part, by))
    where, _, said = problem.partition(" evaluations.optimizer")
    assert (where, said.removeprefix(".")) == (f"agent.yaml:{line}", told)


def test_all_problems_are_told_at_once_from_top_to_bottom(tmp_path: Path):
    block = BLOCK.replace("near:", "nearly:").replace("data/train", "data/gone")
    block = block.replace("min_holdout_cases: 5", "repeats: 0")
    block = block.replace("[0.0, 1.0]", "[0.0, 9.0]").replace("[3, 20]", "[20, 3]")
    block = block.replace("max_chars: 4000", "max_chars: 4").replace("name=add", "name=ad")
    block = block.replace("max_cycles: 4", "max_cycle: 4")
    assert [
        told.split(" ")[1].removeprefix("evaluations.optimizer.")
        for told in problems(tmp_path, block)
    ] == [
        "train_cases_file:",
        "repeats:",
        "axes.numeric[0].range:",
        "axes.numeric[1]:",
        "axes.textual[0].max_chars:",
        "axes.textual[1].path:",
        "budget.global.max_cycle:",
    ]


def test_a_case_that_stands_in_two_files_under_other_names_is_told(tmp_path: Path):
    same = "- {name: NAME, input: what is it?, ground_truth: x}\n"
    files = {
        "data__train_dot_yaml": rows(f"t{n}" for n in range(4)) + same.replace("NAME", "one"),
        "data__holdout_dot_yaml": rows(f"h{n}" for n in range(6)) + same.replace("NAME", "two"),
    }
    assert problems(tmp_path, BLOCK, **files) == [
        "agent.yaml:13 evaluations.optimizer.holdout_cases_file: `two` (there `one`) says the same as a case of train (hint: give each case to one of them)"
    ]


def test_unnamed_cases_that_stand_in_two_files_are_told(tmp_path: Path):
    unnamed = "".join(f"- {{input: what is {n}?}}\n" for n in range(6))
    files = {"data__train_dot_yaml": unnamed, "data__holdout_dot_yaml": unnamed}
    (told,) = problems(tmp_path, BLOCK, **files)
    assert "`holdout-1` (there `train-1`), `holdout-2` (there `train-2`)" in told
    assert "and 3 more say the same as a case of train" in told


def test_a_bad_row_of_a_file_is_told_with_its_line(tmp_path: Path):
    files = {"data__holdout_dot_yaml": rows(f"h{n}" for n in range(6)) + "- {nam: x, input: y}\n"}
    assert problems(tmp_path, BLOCK, **files) == [
        "data/holdout.yaml:7 test_cases[6].nam: unknown key (hint: did you mean `name`?)"
    ]


def test_an_agent_without_cases_is_told_where_they_may_stand(tmp_path: Path):
    block = BLOCK.replace(TRAIN + HOLDOUT, "")
    assert problems(tmp_path, block, own="") == [
        "agent.yaml:10 evaluations.optimizer: there are no cases: the agent has none to be shared out (hint: give `test_cases`, or `train_cases_file` and `holdout_cases_file`)"
    ]


def test_a_metric_that_no_train_case_has_is_told(tmp_path: Path):
    own = "".join(f"- {{input: q{n}, evaluations: [{{metric: rouge}}]}}\n" for n in range(6))
    (told,) = problems(
        tmp_path, BLOCK.replace("near: 0.3", "rouge: 0.3"), data__holdout_dot_yaml=own
    )
    assert told.endswith(
        "loss.rouge: `rouge` is measured on no train case, and so nothing can be learnt of it"
    )


def test_a_holdout_that_the_loss_does_not_weigh_is_told(tmp_path: Path):
    own = "".join(f"- {{input: q{n}, evaluations: [{{metric: rouge}}]}}\n" for n in range(6))
    (told,) = problems(tmp_path, BLOCK, data__holdout_dot_yaml=own)
    assert told.endswith(
        "loss: no holdout case is measured by what the loss weighs, `equality`, `near`"
    )


def test_a_value_that_the_environment_gives_is_not_tuned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEAT", "0.5")
    text = write_optimized(tmp_path, BLOCK).read_text()
    path = tmp_path / "agent.yaml"
    path.write_text(text.replace("name: gpt-5-mini", 'name: gpt-5-mini, temperature: "${HEAT}"', 1))
    with pytest.raises(SpecError):
        read_agent(path)  # in quotes it is a text
    path.write_text(
        text.replace(
            "model: {provider: openai, name: gpt-5-mini}",
            "model:\n  provider: openai\n  name: gpt-5-mini\n  temperature: ${HEAT}",
        )
    )
    with pytest.raises(SpecError) as caught:
        read_tuning(path, (), Tuning())
    (problem,) = caught.value.problems
    assert "`model.temperature` stands as `${HEAT}`" in problem.message


def test_instructions_outside_the_folder_cannot_be_rewritten(tmp_path: Path):
    (tmp_path / "x.md").write_text("Answer.\n")
    inner = tmp_path / "inner"
    path = write_optimized(inner, BLOCK)
    path.write_text(path.read_text().replace("{inline: Answer in one word.}", "{file: ../x.md}"))
    with pytest.raises(SpecError) as caught:
        read_tuning(path, (), Tuning())
    assert {problem.message for problem in caught.value.problems} == {
        "`../x.md` is outside the agent's folder, and no candidate can have it"
    }


def test_what_is_wrong_with_the_agent_hides_nothing_of_the_block(tmp_path: Path):
    block = BLOCK.replace("near:", "nearly:").replace("name=add", "name=ad")
    block = block.replace("path: model.temperature", "path: model.temperatur")
    path = write_optimized(tmp_path, block + "gate: race\nrepeats: 3\n")
    text = path.read_text()
    assert "source: docs" in text
    path.write_text(text.replace("source: docs", "source: gone", 1))
    with pytest.raises(SpecError) as caught:
        read_tuning(path, (), Tuning())
    told = "\n".join(map(str, caught.value.problems))
    for words in (
        "source: there is no file `gone`",
        "`repeats` is of `gate: sigma`, and the gate is `race`",
        "loss.nearly: no case is measured by a metric `nearly`",
        "axes.numeric[0].path:",
        "axes.textual[1].path:",
    ):
        assert words in told, told
