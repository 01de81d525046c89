"""Every way to get a task.yaml wrong, and what Kept says about it."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

from pathlib import Path

import pytest

from kept.errors import Problem, SetupError, SpecError
from kept.recipes.task.compile import compile_task
from tests.recipes.task.tasks import TASK, write_task


def problems(folder: Path, text: str, *overrides: str) -> list[Problem]:
    path = write_task(folder, text)
    with pytest.raises(SpecError) as caught:
        compile_task(path, overrides)
    return list(caught.value.problems)


def problem(folder: Path, text: str, *overrides: str) -> str:
    """The only problem, on one line and without the folder in front."""
    (found,) = problems(folder, text, *overrides)
    return str(found).replace(f"{folder}/", "").replace(str(folder), "FOLDER")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "by", "said"),
    [
        ("artifacts:", "artefacts:", "task.yaml:1 artifacts: missing"),
        ("[prompt.md]", "prompt.md", "task.yaml:1 artifacts.include: the text `prompt.md`, where a list was expected"),
        ("[prompt.md]", "[]", "task.yaml:1 artifacts.include: empty, where at least one was expected"),
        ("[prompt.md]", "[7]", "task.yaml:1 artifacts.include[0]: the number 7, where a text was expected"),
        ("[prompt.md]", "[promt.md]", "task.yaml:1 artifacts.include[0]: `promt.md` matches nothing in FOLDER (hint: did you mean `prompt.md`?)"),
        ("[prompt.md]", "[nothing.md]", "task.yaml:1 artifacts.include[0]: `nothing.md` matches nothing in FOLDER"),
        ("[prompt.md]", "[/etc/passwd]", "task.yaml:1 artifacts.include[0]: `/etc/passwd` leaves the folder of task.yaml"),
        ("[prompt.md]", "[../x.md]", "task.yaml:1 artifacts.include[0]: `../x.md` leaves the folder of task.yaml"),
        ("[prompt.md]", "[alternatives]", "task.yaml:1 artifacts.include[0]: `alternatives` matches folders only (hint: write `alternatives/**/*`)"),
        ("[prompt.md]", "[prompt.md], exclude: ['*.md']", "task.yaml:1 artifacts.include[0]: all that `prompt.md` matches is excluded"),
        ("[prompt.md]", "[prompt.md], max_files_per_iteration: 0", "task.yaml:1 artifacts.max_files_per_iteration: the number 0, where 1 or more was expected"),
        ('{command: "true"}\nscorer', "{}\nscorer", "task.yaml:2 runner.command: missing"),
        ('{command: "true"}\nscorer', "\nscorer", "task.yaml:2 runner: nothing, where a mapping was expected"),
        ('{command: "true"}\nscorer', "{command: ''}\nscorer", "task.yaml:2 runner.command: the text ``, where a text that is not empty was expected"),
        ('{command: "true"}\nscorer', "{command: ls, cmd: y}\nscorer", "task.yaml:2 runner.cmd: unknown key (hint: known keys: type, command, cwd, timeout_seconds, env, retry_exit)"),
        ('{command: "true"}\nscorer', "{command: ls, timeout: 3}\nscorer", "task.yaml:2 runner.timeout: unknown key (hint: did you mean `timeout_seconds`?)"),
        ('{command: "true"}\nscorer', "{command: ls, timeout_seconds: 0}\nscorer", "task.yaml:2 runner.timeout_seconds: the number 0, where more than 0 was expected"),
        ('{command: "true"}\nscorer', "{command: ls, timeout_seconds: .inf}\nscorer", "task.yaml:2 runner.timeout_seconds: the number inf, where a finite number was expected"),
        ('{command: "true"}\nscorer', "{command: ls, timeout_seconds: '9'}\nscorer", "task.yaml:2 runner.timeout_seconds: the text `9`, where a number was expected"),
        ('{command: "true"}\nscorer', "{command: ls, cwd: gone}\nscorer", "task.yaml:2 runner.cwd: there is no folder `gone`"),
        ('{command: "true"}\nscorer', "{command: ls, env: {A: 1}}\nscorer", "task.yaml:2 runner.env.A: the number 1, where a text was expected"),
        ('{command: "true"}\nscorer', "{command: ls, env: {KEPT_CASE: x}}\nscorer", "task.yaml:2 runner.env: `KEPT_CASE` is not yours to set: names with KEPT_ are Kept's"),
        ('{command: "true"}\nscorer', "{command: ls, env: {A-B: x}}\nscorer", "task.yaml:2 runner.env: `A-B` is not the name of a variable"),
        ('{command: "true"}\nscorer', '{command: "x\\0"}\nscorer', "task.yaml:2 runner.command: holds a NUL character"),
        ('scorer: {', "scorer: {type: comand, ", "task.yaml:3 scorer.type: the text `comand`, where one of `command`, `python`, `rules`, `judge`, `assertions`, `composite` was expected (hint: did you mean `command`?)"),
        ("scorer: {", "scorer: {parse: {format: csv}, ", "task.yaml:3 scorer.parse.format: the text `csv`, where `json` was expected"),
        ("scorer: {", "scorer: {parse: {score: s}, ", "task.yaml:3 scorer.parse.score: unknown key (hint: did you mean `score_field`?)"),
        ("scorer: {", "scorer: {parse: {metrics_field: 1}, ", "task.yaml:3 scorer.parse.metrics_field: the number 1, where a text was expected"),
        ("scorer: {", "scorer: {parse: json, ", "task.yaml:3 scorer.parse: the text `json`, where a mapping was expected"),
        ("proposers: [{kind: variants, files: [\"alternatives/*.md\"]}]\n", "", "task.yaml:1 proposers: missing (hint: without one nothing is ever proposed)"),
        ("proposers: [{kind: variants, files: [\"alternatives/*.md\"]}]\n", "mutation: {mode: direct_edit}\n", "task.yaml:5 mutation.mode: `direct_edit` needs a model that edits (hint: name one in `models.optimizer` or in KEPT_MODEL, or give `proposers`)"),
        ("max_iterations: 20", "max_failures: 0", "task.yaml:6 budget.max_failures: the number 0, where 1 or more was expected"),
        ("max_iterations: 20", "max_minutes: 0", "task.yaml:6 budget.max_minutes: the number 0, where more than 0 was expected"),
        ("direction: maximize", "direction: up", "task.yaml:4 objective.direction: the text `up`, where `maximize` or `minimize` was expected"),
        (", direction: maximize", "", "task.yaml:4 objective.direction: missing"),
        ("maximize}", "maximize, bounds: [1, 0]}", "task.yaml:4 objective: `bounds` are reversed: write the least value, then the greatest"),
        ("maximize}", "maximize, bounds: [1]}", "task.yaml:4 objective.bounds[1]: missing"),
        ("maximize}", "maximize, bounds: [0, 1, 2]}", "task.yaml:4 objective.bounds: at most 2 expected, 3 given"),
        ("maximize}", "maximize, bounds: ['0', 1]}", "task.yaml:4 objective.bounds[0]: the text `0`, where a number was expected"),
        ("maximize}", "maximize, bounds: [0, .inf]}", "task.yaml:4 objective.bounds[1]: the number inf, where a finite number was expected"),
        ("maximize}", "maximize, tie_tolerance: -1}", "task.yaml:4 objective.tie_tolerance: the number -1, where 0 or more was expected"),
        ("kind: variants", "kind: merge", "task.yaml:5 proposers[0].kind: the text `merge`, where one of `variants`, `numeric`, `prune`, `demos`, `command`, `edit`, `rewrite`, `simplify`, `reflect`, `agent` was expected (hint: a race puts near misses together by itself: leave it out)"),
        ("kind: variants", "kind: [merge]", "task.yaml:5 proposers[0].kind: a list, where one of `variants`, `numeric`, `prune`, `demos`, `command`, `edit`, `rewrite`, `simplify`, `reflect`, `agent` was expected"),
        ("kind: variants", "kind: model", "task.yaml:5 proposers[0].kind: the text `model`, where one of `variants`, `numeric`, `prune`, `demos`, `command`, `edit`, `rewrite`, `simplify`, `reflect`, `agent` was expected"),
        ("alternatives/*.md", "other/*.md", "task.yaml:5 proposers[0].files[0]: `other/*.md` matches nothing in FOLDER"),
        ('[{kind: variants, files: ["alternatives/*.md"]}]', "[]", "task.yaml:5 proposers: empty, where at least one was expected"),
        ("max_iterations: 20", "", "task.yaml:6 budget: no limit; give one of max_iterations, max_failures, max_minutes, max_usd, max_rollouts"),
        ("max_iterations: 20", "max_iteration: 20", "task.yaml:6 budget.max_iteration: unknown key (hint: did you mean `max_iterations`?)"),
        ("max_iterations: 20", "max_iterations: many", "task.yaml:6 budget.max_iterations: the text `many`, where a whole number was expected"),
        ("max_iterations: 20", "max_iterations: 2.5", "task.yaml:6 budget.max_iterations: the number 2.5, where a whole number was expected"),
        ("max_iterations: 20", "max_iterations: true", "task.yaml:6 budget.max_iterations: `true`, where a whole number was expected"),
    ],
)  # fmt: skip
def test_a_broken_line_is_named_with_what_is_wrong_about_it(
    line: str, by: str, said: str, tmp_path: Path
):
    assert line in TASK
    text = TASK.replace(line, by)
    if said.startswith("task.yaml:1 artifacts: missing"):
        told = "\n".join(map(str, problems(tmp_path, text)))
        assert said in told
        assert "artefacts: unknown key (hint: did you mean `artifacts`?)" in told
    else:
        assert problem(tmp_path, text) == said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("gate: rase", "task.yaml:7 gate: the text `rase`, where `strict`, `race` or `repeats` was expected (hint: did you mean `race`?)"),
        ("gate: race\npolicy: {tie_breakers: [{lower: length}]}", "task.yaml:1 `policy.tie_breakers` of a race need `objective.bounds`, to tell what is a tie"),
        ("race: quick", "task.yaml:7 race.preset: the text `quick`, where `fast`, `balanced` or `careful` was expected"),
        ("race: {simplify: {margin: 2}}", "task.yaml:7 race.simplify.margin: 2 is no part of the scale; write it as in 0.05"),
        ("race: {promote_passes: [4, 2]}", "task.yaml:7 race.promote_passes: each look is later than the one before; write them as in [2, 4, 8]"),
        ("race: {screen: {steps: [[8, 0.1], [8, 0.2]]}}", "task.yaml:7 race.screen.steps: each look is later than the one before; write them as in [2, 4, 8]"),
        ("race: {alpha: 1.5}", "task.yaml:7 race.alpha: the number 1.5, where less than 1 was expected"),
        ("race: {patient: 2}", "task.yaml:7 race.patient: unknown key (hint: did you mean `patience`?)"),
        ("gate: repeats\nrace: fast", "task.yaml:1 `race` says how to race, and needs `gate: race`"),
        ("gate: repeats\npolicy: {tie_breakers: [{lower: length}]}", "task.yaml:1 `policy.tie_breakers` are of the gates `strict` and `race`"),
        ("gate: strict\nrace: fast", "task.yaml:1 `race` says how to race, and needs `gate: race`"),
        ("workers: 0", "task.yaml:7 workers: the number 0, where 1 or more was expected"),
        ("width: two", "task.yaml:7 width: the text `two`, where a whole number was expected"),
        ("wdith: 2", "task.yaml:7 wdith: unknown key (hint: did you mean `width`?)"),
        ("budget: {max_usd: 1}", "task.yaml:7 budget: the key stands twice, first in line 6"),
        (
            "constraints:\n  - {metric: a, op: '<='}",
            "task.yaml:8 constraints[0].value: missing",
        ),
        (
            "constraints:\n  - metric: a\n    op: '=<'\n    value: 1",
            "task.yaml:9 constraints[0].op: the text `=<`, where "
            "`<`, `<=`, `>`, `>=`, `==` or `!=` was expected (hint: did you mean `<=`?)",
        ),
        (
            "policy: {tie_breakers: [{lower: a, higher: b}]}",
            "task.yaml:7 policy.tie_breakers[0]: a tie-breaker is either `lower: METRIC` or "
            "`higher: METRIC`",
        ),
        (
            "policy: {tie_breakers: [{fewer: a}]}",
            "task.yaml:7 policy.tie_breakers[0].fewer: unknown key (hint: known keys: lower, higher)",
        ),
        ("mutation: {mode: rewrite}", "task.yaml:7 mutation.mode: the text `rewrite`, where `direct_edit` was expected"),
        ("mutation: {max_changed_lines: 0}", "task.yaml:7 mutation.max_changed_lines: the number 0, where 1 or more was expected"),
        ("mutation: {max_changed_files: 2}", "task.yaml:7 mutation.max_changed_files: unknown key (hint: did you mean `max_changed_lines`?)"),
        ("mutation: {allowed_file_types: .md}", "task.yaml:7 mutation.allowed_file_types: the text `.md`, where a list was expected"),
        ("mutation: {allowed_file_types: [md]}", "task.yaml:7 mutation.allowed_file_types[0]: `md` is not a file type; write it as in `.md`"),
        ("mutation: {allowed_file_types: ['*.md']}", "task.yaml:7 mutation.allowed_file_types[0]: `*.md` is not a file type; write it as in `.md`"),
        ("mutation: {allowed_file_types: [.py, .txt]}", "task.yaml:7 mutation.allowed_file_types: leaves no artifact to edit (hint: there are prompt.md)"),
        ("mutation: {protect: [{begin: x}]}", "task.yaml:7 mutation.protect[0]: give both marks, `begin` and `end`, or a `section`"),
        ("mutation: {protect: [{}]}", "task.yaml:7 mutation.protect[0]: give both marks, `begin` and `end`, or a `section`"),
        ("mutation: {protect: [{begin: x, end: x}]}", "task.yaml:7 mutation.protect[0]: `begin` and `end` are the same mark"),
        ("mutation: {protect: [{begin: x, end: y, section: z}]}", "task.yaml:7 mutation.protect[0]: `section` and marks are two entries, not one"),
        ("mutation: {protect: [{begin: '<!-- x', end: '-->'}]}", "task.yaml:7 mutation.protect[0].begin: no artifact has the mark `<!-- x`"),
        ("mutation: {protect: [{begin: see, end: '-->'}]}", "task.yaml:7 mutation.protect[0].end: `prompt.md` has `see` and no `-->` behind it (hint: the rest of the file would be protected)"),
        ("mutation: {protect: [{section: Limits}]}", "task.yaml:7 mutation.protect[0].section: no artifact has a section `Limits` (hint: there are no headings)"),
        ("mutation: {protect: [{heading: Limits}]}", "task.yaml:7 mutation.protect[0].heading: unknown key (hint: known keys: begin, end, section)"),
        ("mutation: {protect: Limits}", "task.yaml:7 mutation.protect: the text `Limits`, where a list was expected"),
        ("mutations: {}", "task.yaml:7 mutations: unknown key (hint: did you mean `mutation`?)"),
        ("models: {optimiser: x}", "task.yaml:7 models.optimiser: unknown key (hint: did you mean `optimizer`?)"),
        ("models: {optimizer: ''}", "task.yaml:7 models.optimizer: the text ``, where a text that is not empty was expected"),
        ("policy: {keep_if: better}", "task.yaml:7 policy.keep_if: the text `better`, where `better_primary` was expected (hint: did you mean `better_primary`?)"),
        ("policy: {on_failure: retry}", "task.yaml:7 policy.on_failure: the text `retry`, where `discard` or `stop` was expected"),
        ("policy: {on_fail: stop}", "task.yaml:7 policy.on_fail: unknown key (hint: did you mean `on_failure`?)"),
        ("policy: {tie_breaker: []}", "task.yaml:7 policy.tie_breaker: unknown key (hint: did you mean `tie_breakers`?)"),
        ("constraint: []", "task.yaml:7 constraint: unknown key (hint: did you mean `constraints`?)"),
        ("constraints: {metric: a, op: <, value: 1}", "task.yaml:7 constraints: a mapping, where a list was expected"),
        ("constraints: [{metric: a, op: <, value: high}]", "task.yaml:7 constraints[0].value: the text `high`, where a number was expected"),
        ("constraints: [{metric: a, op: <, value: .nan}]", "task.yaml:7 constraints[0].value: the number nan, where a finite number was expected"),
        ("constraints: [{metrics: a, metric: a, op: <, value: 1}]", "task.yaml:7 constraints[0].metrics: unknown key (hint: did you mean `metric`?)"),
        ("logging: {results: x}", "task.yaml:7 logging.results: unknown key (hint: did you mean `results_file`?)"),
        ("logging: {results_file: /tmp/x.jsonl}", "task.yaml:7 logging.results_file: `/tmp/x.jsonl` is not a path below the task's folder"),
        ("logging: {results_file: ../x.jsonl}", "task.yaml:7 logging.results_file: `../x.jsonl` is not a path below the task's folder"),
        ("logging: {results_file: .git/x}", "task.yaml:7 logging.results_file: `.git/x` is in a folder that is not yours to write to"),
        ("logging: {results_file: prompt.md}", "task.yaml:7 logging.results_file: `prompt.md` is there and holds something else (hint: name another file: this one would be written to)"),
        ("logging: {results_file: alternatives}", "task.yaml:7 logging.results_file: `alternatives` is a folder (hint: name a file, as in `alternatives/results.jsonl`)"),
        ("logging: {candidate_dir: ../x}", "task.yaml:7 logging.candidate_dir: `../x` is not a path below the task's folder"),
        ("logging: {candidate_dir: prompt.md}", "task.yaml:7 logging.candidate_dir: `prompt.md` is a file, where a folder was expected"),
        ("cases: {file: gone.jsonl}", "task.yaml:7 cases.file: cannot read `gone.jsonl`: No such file or directory (hint: did you mean `one.jsonl`?)"),
        ("cases: {file: four.jsonl, split: 1:2}", "task.yaml:7 cases.split: `1:2` is not a split; write train:holdout:test, as in 3:5:2"),
        ("cases: {file: four.jsonl, split: 1:0:1}", "task.yaml:7 cases.split: `1:0:1` leaves no holdout case to decide by"),
        ("cases: {file: one.jsonl, split: 8:1:1}", "task.yaml:7 cases.split: `8:1:1` of 1 case leaves no holdout case to decide by (hint: add cases, or give holdout a larger share)"),
        ("cases: {file: four.jsonl, stratify: kind}", "task.yaml:7 cases.stratify: no case has a field `kind` (hint: name a field that the cases have)"),
        ("cases: {file: none.jsonl}", "task.yaml:7 cases.file: `none.jsonl` holds no cases"),
        ("cases: {file: bad.jsonl}", "bad.jsonl:2 not JSON: Expecting property name enclosed in double quotes"),
        ("cases: {file: twice.jsonl}", "twice.jsonl:3 the id `a` stands twice (also 1)"),
        ("cases: {file: ids.jsonl}", "ids.jsonl:1 `id` is neither a text nor a whole number"),
        ("cases: {file: object.json}", "object.json:1 not a list of cases"),
        ("cases: {file: bad.json}", "bad.json:3 not JSON: Expecting value"),
        ("cases: {file: half.jsonl}", "half.jsonl:1 holds half of a surrogate pair, which is no character"),
        ("cases: {file: latin.jsonl}", "task.yaml:7 cases.file: `latin.jsonl` is not UTF-8 text"),
        ("cases: {file: .}", "task.yaml:7 cases.file: cannot read `.`: Is a directory"),
    ],
)  # fmt: skip
def test_a_broken_addition_is_named_with_what_is_wrong_about_it(
    more: str, said: str, tmp_path: Path
):
    files = {
        "four.jsonl": b"1\n2\n3\n4\n",
        "one.jsonl": b"{}\n",
        "none.jsonl": b"\n \n",
        "bad.jsonl": b'{"x": 1}\n{x: 1}\n',
        "twice.jsonl": b'{"id": "a"}\n\n{"id": "a", "x": 1}\n',
        "ids.jsonl": b'{"id": [1]}\n',
        "object.json": b'{"cases": []}',
        "bad.json": b"[\n  1,\n  nope\n]\n",
        "half.jsonl": b'{"x": "\\ud800"}\n',
        "latin.jsonl": b'"\xe9"\n',
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    assert problem(tmp_path, TASK + more + "\n") == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "task.yaml:1 the file is empty"),
        ("# nothing yet\n", "task.yaml:1 the file is empty"),
        ("- a\n- b\n", "task.yaml:1 the file is a list, not a mapping of keys"),
        ("just words\n", "task.yaml:1 the file is the text `just words`, not a mapping of keys"),
        ("a: [1\nb: 2\n", "task.yaml:2 not YAML: while parsing a flow sequence, expected ',' or ']', but got ':'"),
        ("a: 1\nb: *c\n", "task.yaml:2 not YAML: found undefined alias 'c' (hint: put quotes round a text that begins with a sign)"),
        ("a: 1\n\tb: 2\n", "task.yaml:2 not YAML: while scanning for the next token, found character '\\t' that cannot start any token (hint: indent with spaces: YAML does not take tabs)"),
        ("op: >=\n", "task.yaml:1 not YAML: while scanning a block scalar, expected chomping or indentation indicators, but found '=' (hint: put quotes round a text that begins with a sign)"),
        ("op: !=\n", "task.yaml:1 not YAML: could not determine a constructor for the tag '!=' (hint: put quotes round a text that begins with a sign)"),
        ("a: 1\n---\nb: 2\n", "task.yaml:2 not YAML: expected a single document in the stream, but found another document"),
        ("a: &a [*a]\n", "task.yaml:1 not YAML: nested more than 100 levels deep, or an alias of itself"),
        ("a: 1\n? [b]\n: 2\n", "task.yaml:2 not YAML: a list or a mapping cannot be a key"),
        ("a: \x07\n", "task.yaml:1 not YAML: special characters are not allowed"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_mapping_is_refused_with_the_line(text: str, said: str, tmp_path: Path):
    assert problem(tmp_path, text) == said


def test_a_bomb_of_aliases_does_not_go_off(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "too many values" in problem(tmp_path, "\n".join(lines))


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path):
    path = write_task(tmp_path)
    path.write_bytes(b"a: 1\nb: \xe9\n")
    with pytest.raises(SpecError, match=r"task.yaml:2 not UTF-8 text"):
        compile_task(path)


def test_a_missing_file_is_no_matter_of_the_spec(tmp_path: Path):
    with pytest.raises(SetupError, match=r"cannot read gone.yaml: No such file"):
        compile_task(Path("gone.yaml"))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("b.bin", b"\x00\x01", "`b.bin` is binary"),
        ("b.txt", b"a\n\xff\n", "`b.txt` is not UTF-8 text (line 2)"),
        ("big.txt", b"x" * (1024 * 1024 + 1), "`big.txt` is too large: 1.0 MiB, 1 MiB allowed"),
        ("c:.txt", b"x", "`c:.txt` is not a name that can be carried"),
    ],
)
def test_a_file_that_cannot_be_an_artifact_is_named(
    name: str, data: bytes, said: str, tmp_path: Path
):
    (tmp_path / name).write_bytes(data)
    text = TASK.replace("prompt.md", f'prompt.md, "{name}"')
    assert problem(tmp_path, text) == f"task.yaml:1 artifacts.include[1]: {said}"


def test_a_link_that_leaves_the_folder_is_no_artifact(tmp_path: Path):
    folder = tmp_path / "task"
    folder.mkdir()
    (tmp_path / "secret.md").write_text("s")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    said = problem(folder, TASK.replace("prompt.md", "prompt.md, link.md"))
    assert said.endswith("artifacts.include[1]: `link.md` is a link that leaves the folder")


def test_all_problems_are_told_at_once_from_top_to_bottom(tmp_path: Path):
    text = TASK.replace("prompt.md", "gone.md").replace("direction: maximize", "direction: up")
    text = text.replace("alternatives/*.md", "/tmp/*.md").replace("max_iterations", "max_iters")
    text += "cases: {file: gone.jsonl}\nwhat: 1\ngate: strict\ngate: strict\n"
    found = problems(tmp_path, text)
    assert [p.where for p in found] == [f"task.yaml:{n}" for n in (1, 4, 5, 6, 7, 8, 10)]
    assert [p.path for p in found] == [
        "artifacts.include[0]",
        "objective.direction",
        "proposers[0].files[0]",
        "budget.max_iters",
        "cases.file",
        "what",
        "gate",
    ]


def test_a_spec_elsewhere_is_named_by_its_whole_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write_task(tmp_path / "deep" / "task", TASK + "x: 1\n")
    with pytest.raises(SpecError, match=r"^deep/task/task.yaml:7 x: unknown key"):
        compile_task(path)
    monkeypatch.chdir(path.parent / "alternatives")
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    assert caught.value.problems[0].where == f"{path}:7"


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("budget.max_iterations=x", "--set budget.max_iterations=x budget.max_iterations: the text `x`, where a whole number was expected"),
        ("budget={max_iterations: 0}", "--set budget={max_iterations: 0} budget.max_iterations: the number 0, where 1 or more was expected"),
        ("budget.max=3", "--set budget.max=3 budget.max: unknown key (hint: known keys: max_iterations, max_failures, max_minutes, max_usd, usd_per_rollout, max_rollouts)"),
        ("proposers.0.files=[gone/*]", "--set proposers.0.files=[gone/*] proposers[0].files[0]: `gone/*` matches nothing in FOLDER"),
        ("proposers.7.files=[x]", "--set proposers.7.files=[x] proposers[7].files: unknown key"),
        ("gate.name=x", "--set gate.name=x gate: a mapping, where `strict`, `race` or `repeats` was expected"),
        ("runner.command.x=1", "--set runner.command.x=1 runner.command.x: unknown key"),
        ("workers", "--set workers not KEY=VALUE (hint: write it as in --set budget.max_iterations=50)"),
        ("=3", "--set =3 not KEY=VALUE (hint: write it as in --set budget.max_iterations=50)"),
        ("workers=[1", "--set workers=[1 workers: the value is not YAML: while parsing a flow sequence, expected ',' or ']', but got '<stream end>'"),
    ],
)  # fmt: skip
def test_a_broken_override_is_named_by_its_flag(override: str, said: str, tmp_path: Path):
    assert problem(tmp_path, TASK, override) == said


@pytest.mark.parametrize(
    ("key", "value", "link"),
    [
        ("results_file", "out/r.jsonl", "out"),
        ("results_file", "r.jsonl", "r.jsonl"),
        ("candidate_dir", "out/c", "out"),
        ("candidate_dir", "c", "c"),
    ],
)
def test_an_output_that_a_link_leads_to_is_refused(tmp_path: Path, key: str, value: str, link: str):
    (tmp_path / "real").mkdir()
    (tmp_path / link).symlink_to("real/r.jsonl" if link == "r.jsonl" else "real")
    path = write_task(tmp_path, f"{TASK}logging: {{{key}: {value}}}\n")
    with pytest.raises(SpecError) as caught:
        compile_task(path)
    (problem,) = caught.value.problems
    assert f"logging.{key}: `{link}` is a link" in str(problem)
