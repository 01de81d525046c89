"""Every way to get a scorer or a guard wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.task.compile import compile_task
from tests.recipes.task.tasks import TASK, write_task

GRADERS = "def good(output): return 1\ndef greedy(output, model): return 1\n"
RULES = "type: rules, rules: "


def problem(folder: Path, text: str) -> str:
    path = write_task(folder, text)
    (folder / "graders.py").write_text(GRADERS)
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    (found,) = caught.value.problems
    return str(found).replace(f"{folder}/", "")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("scorer", "said"),
    [
        ("7", "scorer: the number 7, where a mapping was expected"),
        ("", "scorer: nothing, where a mapping was expected"),
        ("{type: [rules]}", "scorer.type: a list, where one of `command`, `python`, `rules`, `judge`, `assertions`, `composite` was expected"),
        ("{type: grader}", "scorer.type: the text `grader`, where one of `command`, `python`, `rules`, `judge`, `assertions`, `composite` was expected"),
        ("{type: rule, rules: []}", "scorer.type: the text `rule`, where one of `command`, `python`, `rules`, `judge`, `assertions`, `composite` was expected (hint: did you mean `rules`?)"),
        ("{type: command}", "scorer.command: missing"),
        ("{command: ls, function: y}", "scorer.function: unknown key (hint: known keys: type, command, cwd, timeout_seconds, parse)"),
        ("{command: ls, cwd: gone}", "scorer.cwd: there is no folder `gone`"),
        ("{type: python}", "scorer.function: missing"),
        ("{type: python, function: graders}", "scorer.function: `graders` is not a function; write `module:function`"),
        ("{type: python, function: 'a b:c'}", "scorer.function: `a b:c` is not a function; write `module:function`"),
        ("{type: python, function: 'graders.py:good'}", "scorer.function: there is no module `graders.py`"),
        ("{type: python, function: 'nowhere:good'}", "scorer.function: there is no module `nowhere`"),
        ("{type: python, function: 'graders:bad'}", "scorer.function: the module `graders` has no `bad`"),
        ("{type: python, function: 'graders:greedy'}", "scorer.function: `graders:greedy` wants `model`; a scorer is given candidate, case, output, files, metrics"),
        ("{type: python, function: 'graders:good', timeout: 3}", "scorer.timeout: unknown key (hint: did you mean `timeout_seconds`?)"),
        ("{type: rules}", "scorer.rules: missing"),
        ("{type: rules, rules: []}", "scorer: there are no rules"),
        ("{type: rules, rules: [3]}", "scorer.rules[0]: the number 3, where a mapping was expected"),
        (f"{{{RULES}[{{pattern: x}}]}}", "scorer.rules[0].kind: missing"),
        (f"{{{RULES}[{{kind: match, pattern: x}}]}}", "scorer.rules[0].kind: the text `match`, where one of `sections`, `matches`, `lacks`, `tokens`, `phrases`, `format`, `keywords`, `growth` was expected (hint: did you mean `matches`?)"),
        (f"{{{RULES}[{{kind: matches, pattern: '(x'}}]}}", "scorer.rules[0].pattern: `(x` is not a regular expression: missing ), unterminated subpattern at position 0"),
        (f"{{{RULES}[{{kind: matches, patern: x}}]}}", None),
        (f"{{{RULES}[{{kind: lacks, pattern: x, times: 3}}]}}", "scorer.rules[0].times: unknown key (hint: known keys: name, weight, target, kind, pattern)"),
        (f"{{{RULES}[{{kind: sections, names: []}}]}}", "scorer.rules[0].names: empty, where at least one was expected"),
        (f"{{{RULES}[{{kind: tokens}}]}}", "scorer.rules[0]: no bound; give `min`, `max` or both"),
        (f"{{{RULES}[{{kind: tokens, min: 9, max: 3}}]}}", "scorer.rules[0]: `min` is more than `max`"),
        (f"{{{RULES}[{{kind: format, format: xml}}]}}", "scorer.rules[0].format: the text `xml`, where `json`, `yaml` or `toml` was expected"),
        (f"{{{RULES}[{{kind: keywords, words: [x], max_density: 3}}]}}", "scorer.rules[0].max_density: the number 3, where 1 or less was expected"),
        (f"{{{RULES}[{{kind: growth, max: 2, target: output}}]}}", "scorer: growth is measured on the candidate; give that rule its target"),
        (f"{{target: output, {RULES}[{{kind: growth, max: 2}}]}}", "scorer: growth is measured on the candidate; give that rule its target"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, target: stdout}}]}}", "scorer.rules[0].target: `stdout` is not a target; write `candidate`, `candidate:PATH`, `output` or `file:PATH`"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, target: 'file:../x'}}]}}", "scorer.rules[0].target: `file:../x` is not a target; write `candidate`, `candidate:PATH`, `output` or `file:PATH`"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, target: 'candidate:x.md'}}]}}", "scorer.rules[0].target: there is no artifact `x.md` (hint: there are prompt.md)"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, weight: 0}}]}}", "scorer: the weights add up to nothing"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, weight: -1}}]}}", "scorer.rules[0].weight: the number -1, where 0 or more was expected"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, name: score}}]}}", "scorer: no rule can be named `score`: that is a measure of its own"),
        (f"{{{RULES}[{{kind: lacks, pattern: x, name: a}}, {{kind: matches, pattern: x, name: a}}]}}", "scorer: two rules are named `a`"),
        ("{type: composite}", "scorer.parts: missing"),
        ("{type: composite, parts: []}", "scorer: there are no parts"),
        ("{type: composite, parts: [{name: a}]}", "scorer.parts[0].scorer: missing"),
        ("{type: composite, parts: [{name: a b, scorer: {command: ls}}]}", "scorer.parts[0].name: `a b` is not a name; write letters, digits, `-` and `_`"),
        ("{type: composite, parts: [{name: a, scorer: {type: python, function: 'graders:bad'}}]}", "scorer.parts[0].scorer.function: the module `graders` has no `bad`"),
        ("{type: composite, parts: [{name: a, scorer: {command: ls, cwd: gone}}]}", "scorer.parts[0].scorer.cwd: there is no folder `gone`"),
        ("{type: composite, parts: [{name: a, scorer: {type: rules, rules: [{kind: format, format: 1}]}}]}", "scorer.parts[0].scorer.rules[0].format: the number 1, where `json`, `yaml` or `toml` was expected"),
        ("{type: composite, parts: [{name: a, weight: 0, scorer: {command: ls}}]}", "scorer: the weights add up to nothing"),
        ("{type: composite, parts: [{name: a, scorer: {command: ls}}, {name: a, scorer: {command: cat}}]}", "scorer: two parts are named `a`"),
        ("{type: composite, parts: [{name: a, bounds: [1, 1], scorer: {command: ls}}]}", "scorer.parts[0]: `bounds` are the same: give what counts as 0 and what as 1"),
    ],
)  # fmt: skip
def test_a_broken_scorer_is_named_with_what_is_wrong_about_it(
    scorer: str, said: str | None, tmp_path: Path
):
    text = TASK.replace('scorer: {command: "true"}', f"scorer: {scorer}")
    if said is None:
        path = write_task(tmp_path, text)
        with pytest.raises(SpecError) as caught:
            compile_task(path)
        told = [str(p).partition(" ")[2] for p in caught.value.problems]
        assert told == [
            "scorer.rules[0].pattern: missing",
            "scorer.rules[0].patern: unknown key (hint: did you mean `pattern`?)",
        ]
    else:
        assert problem(tmp_path, text) == f"task.yaml:3 {said}"


@pytest.mark.parametrize(
    ("scorer", "metric", "said"),
    [
        (f"{{{RULES}[{{kind: lacks, pattern: x}}]}}", "quality", "the scorer `rules` does not emit `quality` (hint: it emits score, violation_count, lacks)"),
        ("{type: composite, parts: [{name: a, scorer: {command: ls}}]}", "b.score", "the scorer `composite` does not emit `b.score` (hint: it emits score, a.score)"),
    ],
)  # fmt: skip
def test_a_metric_that_the_scorer_cannot_emit_is_known_before_a_run(
    scorer: str, metric: str, said: str, tmp_path: Path
):
    text = TASK.replace('scorer: {command: "true"}', f"scorer: {scorer}")
    text = text.replace("primary_metric: score", f"primary_metric: {metric}")
    assert problem(tmp_path, text) == f"task.yaml:4 objective.primary_metric: {said}"


@pytest.mark.parametrize(
    ("guards", "said"),
    [
        ("3", "guards: the number 3, where a mapping was expected"),
        ("{lenght: {}}", "guards.lenght: unknown key (hint: did you mean `length`?)"),
        ("{copied: {}}", "guards.copied: unknown key (hint: known keys: length, stuffing, sections, copy)"),
        ("{length: {max_growth: 0.5}}", "guards.length.max_growth: the number 0.5, where 1 or more was expected"),
        ("{length: {max_token: 5}}", "guards.length.max_token: unknown key (hint: did you mean `max_tokens`?)"),
        ("{length: yes}", "guards.length: the text `yes`, where a mapping was expected"),
        ("{stuffing: {max_density: 0}}", "guards.stuffing.max_density: the number 0, where more than 0 was expected"),
        ("{sections: {keep: some}}", "guards.sections.keep: neither `all` nor a list of titles"),
        ("{sections: {}}", "guards.sections: no artifact has a heading to keep"),
        ("{sections: {keep: [Steps]}}", "guards.sections.keep[0]: no artifact has a section `Steps` (hint: there are no headings)"),
        ("{copy: {allow_train: 3}}", "guards.copy.allow_train: the number 3, where true or false was expected"),
        ("{copy: {alow_train: true}}", "guards.copy.alow_train: unknown key (hint: did you mean `allow_train`?)"),
    ],
)  # fmt: skip
def test_a_broken_guard_is_named_with_what_is_wrong_about_it(
    guards: str, said: str, tmp_path: Path
):
    assert problem(tmp_path, TASK + f"guards: {guards}\n") == f"task.yaml:7 {said}"
