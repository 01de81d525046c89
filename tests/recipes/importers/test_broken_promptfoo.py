"""Configs of promptfoo's that cannot be taken: every problem with its line, and what to do."""

from pathlib import Path

import pytest

from kept.errors import SetupError, SpecError
from kept.recipes.importers.promptfoo.compile import Chosen, draft_of

WHOLE = """\
prompts: ["Say {{x}}"]
providers: [openai:chat:gpt-5-mini]
tests:
  - vars: {x: one}
    assert: [{type: contains, value: one}]
"""


def problems(folder: Path, text: str, **files: str) -> list[str]:
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    (folder / "promptfooconfig.yaml").write_text(text)
    with pytest.raises(SpecError) as told:
        draft_of(folder / "promptfooconfig.yaml")
    return [str(problem).replace(f"{folder}/", "") for problem in told.value.problems]


def test_the_config_that_the_broken_ones_are_made_of_is_whole(tmp_path: Path):
    (tmp_path / "promptfooconfig.yaml").write_text(WHOLE)
    assert draft_of(tmp_path / "promptfooconfig.yaml").notes


A_TEST = "  - vars: {x: one}\n    assert: [{type: contains, value: one}]\n"
CONFIG = "promptfooconfig.yaml"
BROKEN: list[tuple[str, str, str]] = [
    # what is changed, into what, what is said
    (
        'prompts: ["Say {{x}}"]',
        "prompt: [x]",
        "1 prompt: unknown key (hint: did you mean `prompts`?",
    ),
    ('prompts: ["Say {{x}}"]\n', "", "1 prompts: missing"),
    ('["Say {{x}}"]', "[3]", "1 prompts[0]: the number 3, where a prompt was expected"),
    ('["Say {{x}}"]', "[file://no.txt]", "1 prompts[0]: there is no file `no.txt`"),
    ('["Say {{x}}"]', '["file://no/*.txt"]', "1 prompts[0]: `no/*.txt` matches no file"),
    (
        '["Say {{x}}"]',
        "[file://make.py:f]",
        "1 prompts[0]: `file://make.py:f` is made by a program",
    ),
    ('["Say {{x}}"]', "[exec:./x.sh]", "1 prompts[0]: `exec:./x.sh` is made by a program"),
    (
        '"Say {{x}}"',
        '"{{ x | shuffle }}"',
        "1 prompts[0]: the prompt `prompt-1`, line 1: there is no",
    ),
    (
        '"Say {{x}}"',
        '"{{ x.split() }}"',
        "1 prompts[0]: the prompt `prompt-1`, line 1: functions and",
    ),
    ('"Say {{x}}"', '"{{ env.HOME }}"', "1 prompts[0]: the prompt `prompt-1` asks for `env`"),
    ("openai:chat:gpt-5-mini", "opnai:gpt-5", "2 providers[0].id: `opnai:gpt-5` is no provider"),
    ("openai:chat:gpt-5-mini", "file://p.py", "2 providers[0].id: `file://p.py` is no provider"),
    (
        "openai:chat:gpt-5-mini",
        "openai:embedding:e",
        "2 providers[0].id: `openai:embedding:e` is not",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {temprature: 1}}",
        "2 providers[0].config.temprature: unknown key (hint: did you mean `temperature`?",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {temperature: hot}}",
        "2 providers[0].config.temperature: the text `hot`, where a number was expected",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiKey: sk-SECRET}}",
        "2 providers[0].config.apiKey: a key is kept in the environment, not in a file",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiKey: 5120333}}",
        "2 providers[0].config.apiKey: a key is kept in the environment, not in a file",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiKeyEnvar: sk-SECRET}}",
        "2 providers[0].config.apiKeyEnvar: is no name of a variable of the environment",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiBaseUrl: 'https://u:sk-SECRET@h/v1'}}",
        "2 providers[0].config.apiBaseUrl: an address with a user or a key in it is not taken",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiBaseUrl: 'https://h/v1?key=sk-SECRET'}}",
        "2 providers[0].config.apiBaseUrl: an address with a query, which may hold a key, is not",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiHost: 'h?key=sk-SECRET'}}",
        "2 providers[0].config.apiHost: an address with a query, which may hold a key, is not",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: openai:m, config: {apiHost: 'sk-SECRET@h'}}",
        "2 providers[0].config.apiHost: an address with a user or a key in it is not taken",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: https, config: {url: 'https://u:sk-SECRET@h/v1/chat/completions', body: {model: m}}}",
        "2 providers[0].config.url: an address with a user or a key in it is not taken",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: https, config: {url: 'https://h/v1/chat/completions', body: {model: m}, "
        "headers: {Authorization: 5120333}}}",
        "2 providers[0].config.headers.Authorization: a key is kept in the environment",
    ),
    (
        "openai:chat:gpt-5-mini",
        "{id: https, config: {url: 'https://a.b/ask', body: {q: '{{prompt}}'}}}",
        "2 providers[0].config: an `https` provider is taken where it speaks like OpenAI",
    ),
    ("tests:\n" + A_TEST, "", "1 tests: missing"),
    ("tests:\n" + A_TEST, "tests: file://t.csv\n", "3 tests: there is no file `t.csv`"),
    ("tests:\n" + A_TEST, "tests: file://gen.py\n", "3 tests: `file://gen.py` is no file of tests"),
    (
        "    assert:",
        "    asserts:",
        "5 tests[0].asserts: unknown key (hint: did you mean `assert`?",
    ),
    ("type: contains", "type: contians", "5 tests[0].assert[0].type: `contians` is no assertion"),
    (
        "type: contains",
        "type: javascript",
        "5 tests[0].assert[0].type: `javascript` is not supported",
    ),
    ("type: contains", "type: similar", "5 tests[0].assert[0].type: `similar` is not supported"),
    ("type: contains", "typ: contains", "5 tests[0].assert[0].typ: unknown key"),
    ("value: one", "value: []", "5 tests[0].assert[0].value: a list, where a text was expected"),
    ("value: one", "value: one, weight: -1", "5 tests[0].assert[0].weight: the number -1, where 0"),
    ("value: one", "value: one, weight: 0", "5 tests[0].assert: the weights add up to nothing"),
    (
        "value: one",
        "value: one, transform: 'o'",
        "5 tests[0].assert[0].transform: is not supported",
    ),
    (
        "contains, value: one",
        "llm-rubric, value: kind",
        "5 tests[0].assert: nobody is named to grade `llm-rubric` (hint: name one in `defaultTest",
    ),
    (
        "contains, value: one",
        "python, value: 'len('",
        "5 tests[0].assert[0].value: is not Python",
    ),
    (
        "contains, value: one",
        "python, value: file://no.py",
        "5 tests[0].assert[0].value: cannot read `no.py`",
    ),
    (
        "contains, value: one",
        "is-json, value: file://no.json",
        "5 tests[0].assert[0].value: there is no file `no.json`",
    ),
    ("vars: {x: one}", "vars: {x: !!binary aGk=}", "4 cannot be JSON"),
    ("vars: {x: one}", "vars: {x: .nan}", "4 cannot be JSON"),
    ("vars: {x: one}", "vars: [x]", "4 tests[0].vars: a list, where a mapping was expected"),
    ("vars: {x: one}", "vars: {id: one}", "4 tests[0].vars.id: a variable cannot be named `id`"),
    (
        "vars: {x: one}",
        "vars: {x: '{{ env.HOME }}'}",
        "4 tests[0].vars.x: it asks for `env` (hint: variables of the environment may be secrets",
    ),
    (
        "value: one",
        "value: '{{ env.HOME }}'",
        "5 tests[0].assert[0].value: it asks for `env` (hint: variables of the environment",
    ),
    (
        "vars: {x: one}",
        "vars: {x: one, label: two}",
        "5 tests[0].assert[0].value: asks for `{{labl}}`, which is no variable of the test "
        "(hint: did you mean `label`?",
    ),
    ("value: one", "value: 'as {{y}}'", "5 tests[0].assert[0].value: asks for `{{y}}`, which is"),
    ("vars: {x: one}", "vars: {x: '{{ }'}", "4 tests[0].vars.x: is no template"),
    (
        "vars: {x: one}",
        "provider: openai:m",
        "4 tests[0].provider: is not supported (hint: one model",
    ),
    (
        "  - vars: {x: one}\n",
        "  - vars: {x: one}\n    options: {transform: output.a}\n",
        "5 tests[0].options.transform: is not supported (hint: let a `python` assertion",
    ),
    ("tests:", "scenarios: []\ntests:", "3 scenarios: is not supported (hint: write each"),
    (
        "tests:",
        "env: {OPENAI_API_KEY: sk-SECRET}\ntests:",
        "3 env: is not supported (hint: set var",
    ),
    (
        "tests:",
        "defaultTest: {asert: []}\ntests:",
        "3 defaultTest.asert: unknown key (hint: did you",
    ),
    ("tests:", "defaultTest: file://d.yaml\ntests:", "3 defaultTest: there is no file `d.yaml`"),
    ("[{type: contains, value: one}]", "[]", "3 tests: no test asserts anything"),
    ("vars: {x: one}", "description: d", "tests: no test has variables"),
    ("Say {{x}}", "Say it", "tests: no prompt asks for a variable, so all of them ask the same"),
    (
        "[{type: contains, value: one}]",
        "[{$ref: '#/no/where'}]",
        "5 tests[0].assert[0].$ref: `#/no",
    ),
    ("tests:", "tests: [", "not YAML"),
]


@pytest.mark.parametrize(("old", "new", "told"), BROKEN)
def test_a_broken_config_is_named_with_what_is_wrong_about_it(
    old: str, new: str, told: str, tmp_path: Path
):
    text = WHOLE.replace(old, new)
    assert text != WHOLE
    if "labl" in told:
        text = text.replace("value: one", "value: '{{labl}}'")
    if "no test has variables" in told:
        text = text.replace("Say {{x}}", "Say it")
    found = problems(tmp_path, text)
    assert any(one.removeprefix(f"{CONFIG}:").startswith(told) or told in one for one in found), (
        found
    )
    assert "SECRET" not in str(found)
    assert "5120333" not in str(found)


def test_all_that_is_wrong_is_told_at_once_wherever_it_stands(tmp_path: Path):
    text = """\
prompts: [file://no.txt, "{{ a | nope }}"]
providers: [what:ever]
defaultTest:
  assert: [{type: webhook, value: u}]
tests:
  - file://rows.csv
  - file://more.yaml
  - assert: [{type: regex, value: "("}]
"""
    rows = 'q,__expected\na,contains: a\n"b, c",bleu: b\nd,e,f\n'
    more = "- vars: {q: x}\n  assert:\n    - type: contains\n      valeu: x\n"
    found = problems(tmp_path, text, rows__csv=rows, more__yaml=more)
    assert sorted(one.partition(" ")[0] for one in found) == [
        *("more.yaml:4", *(f"{CONFIG}:{line}" for line in (1, 1, 2, 4, 8))),
        *("rows.csv:3", "rows.csv:4"),
    ]
    assert found[0].startswith(CONFIG), "the file itself comes first"


def test_a_bad_row_of_a_csv_is_named(tmp_path: Path):
    text = WHOLE.replace("tests:\n" + A_TEST, "tests: file://t.csv\n")
    rows = 'x,__expected\none,contains: one\n"two\nlines",contains: two\nthree,four,five\n'
    (found,) = problems(tmp_path, text, t__csv=rows)
    assert found.startswith("t.csv:5 3 cells, where the first line has 2")


def test_a_type_that_is_misspelt_in_a_csv_is_no_text_that_is_expected(tmp_path: Path):
    text = WHOLE.replace("tests:\n" + A_TEST, "tests: file://t.csv\n")
    rows = "x,__expected\none,contians: one\ntwo,not-regx(2): two\nthree,note: this\n"
    first, second = problems(tmp_path, text, t__csv=rows)
    assert first.startswith("t.csv:2 `contians` is no assertion")
    assert "did you mean `contains`?" in first
    assert second.startswith("t.csv:3 `regx` is no assertion")


def test_an_assertion_that_is_empty_for_one_test_is_named_there(tmp_path: Path):
    more = "  - vars: {x: two, label: l}\n    assert: [{type: contains, value: '{{label}}'}]\n"
    text = WHOLE.replace("value: one", "value: '{{label}}'") + more
    (found,) = problems(tmp_path, text)
    assert found.startswith(f"{CONFIG}:5 tests[0].assert[0].value: asks for `{{{{label}}}}`")


def test_lists_that_make_too_many_cases_are_named_before_any_is_made(tmp_path: Path):
    names = [f"v{n}" for n in range(12)]
    values = ", ".join(f"{name}: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]" for name in names)
    (found,) = problems(tmp_path, WHOLE.replace("x: one", f"x: one, {values}"))
    assert "4 tests[0].vars: the lists make 1,000,000,000,000 cases, 100,000 are taken" in found


def test_tests_that_make_too_many_cases_together_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kept.recipes.importers.promptfoo.compile.MOST_CASES", 3)
    many = A_TEST.replace("x: one", "x: [1, 2]")
    (found,) = problems(tmp_path, WHOLE.replace(A_TEST, many + many))
    assert "tests: they make more than 3 cases" in found


def test_a_line_that_is_no_json_is_named(tmp_path: Path):
    text = WHOLE.replace("tests:\n" + A_TEST, "tests: file://t.jsonl\n")
    (found,) = problems(tmp_path, text, t__jsonl='{"vars": {"x": "1"}}\n{"vars": \n')
    assert found.startswith("t.jsonl:2 not JSON")


OUTSIDE = [
    ('["Say {{x}}"]', "[file://../secret.txt]", "prompts[0]: `../secret.txt`"),
    ('["Say {{x}}"]', "['file://links/*.txt']", "prompts[0]: `links/secret.txt`"),
    ("{x: one}", "{x: file:///etc/hostname}", "tests[0].vars.x: `/etc/hostname`"),
    ("{x: one}", "{x: file://../secret.txt}", "tests[0].vars.x: `../secret.txt`"),
    ("{x: one}", "{x: file://links/secret.txt}", "tests[0].vars.x: `links/secret.txt`"),
    ("value: one", "value: file://../secret.txt", "tests[0].assert[0].value: `../secret.txt`"),
    (
        "contains, value: one",
        "python, value: file://../check.py",
        "tests[0].assert[0].value: `file://../check.py`",
    ),
    ("tests:\n" + A_TEST, "tests: file://../t.csv\n", "tests: `../t.csv`"),
    ("tests:", "defaultTest: file://../d.yaml\ntests:", "defaultTest: `../d.yaml`"),
]


@pytest.mark.parametrize(("old", "new", "told"), OUTSIDE)
def test_a_file_that_is_not_below_the_config_is_not_read(
    old: str, new: str, told: str, tmp_path: Path
):
    (tmp_path / "secret.txt").write_text("SECRET {{x}}")
    (tmp_path / "t.csv").write_text("x,__expected\nSECRET,contains: a\n")
    (tmp_path / "d.yaml").write_text("vars: {x: SECRET}\n")
    (tmp_path / "check.py").write_text("def get_assert(output, context):\n    return True\n")
    folder = tmp_path / "theirs"
    (folder / "links").mkdir(parents=True)
    (folder / "links" / "secret.txt").symlink_to(tmp_path / "secret.txt")
    text = WHOLE.replace(old, new)
    assert text != WHOLE
    found = problems(folder, text)
    assert f"{told} is not below the folder of the config" in str(found)
    assert "SECRET" not in str(found)


def test_two_graders_are_one_too_many(tmp_path: Path):
    rubric = "{type: llm-rubric, value: kind, provider: openai:chat:a}"
    text = WHOLE.replace(
        "{type: contains, value: one}", f"{rubric}, {rubric.replace(':a}', ':b}')}"
    )
    (found,) = problems(tmp_path, text)
    assert "tests[0].assert[1].provider: another model grades elsewhere: `openai:chat:a`" in found


def test_of_two_graders_no_key_is_told(tmp_path: Path):
    first = "{id: openai:chat:a, config: {apiKey: sk-SECRET}}"
    rubric = "{type: llm-rubric, value: kind, provider: openai:chat:b}"
    other = rubric.replace("openai:chat:b", first)
    text = WHOLE.replace("{type: contains, value: one}", f"{other}, {rubric}")
    found = problems(tmp_path, text)
    assert any("another model grades elsewhere: `openai:chat:a`" in one for one in found), found
    assert "SECRET" not in str(found)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (Chosen(prompt="best"), "there is no prompt `best`"),
        (Chosen(provider="gpt"), "there is no provider `gpt` in the config"),
    ],
)
def test_what_is_not_in_the_config_cannot_be_chosen(chosen: Chosen, told: str, tmp_path: Path):
    (tmp_path / CONFIG).write_text(WHOLE)
    with pytest.raises(SetupError) as error:
        draft_of(tmp_path / CONFIG, chosen)
    assert error.value.message == told
    assert error.value.hint is not None
