"""A config of promptfoo's, read: what its prompts, providers and tests become."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Message
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.errors import SetupError
from kept.evaluators.runners.model import Form, request_for
from kept.evaluators.scorers.assertions.llm import Asked
from kept.evaluators.scorers.assertions.python import PythonAssertions
from kept.evaluators.scorers.assertions.spec import Assertion, Grade
from kept.recipes.importers import Draft, write
from kept.recipes.importers.promptfoo.compile import Chosen, draft_of
from kept.recipes.importers.promptfoo.read import assertion_of
from kept.recipes.task.compile import compile_task
from kept.spec.yaml import read_yaml
from kept.testing.journal import MemoryJournal

HEAD = "providers: [openai:chat:gpt-5-mini]\n"
TEST = "tests: [{vars: {x: one}, assert: [{type: contains, value: one}]}]\n"


def draft(folder: Path, text: str, chosen: Chosen | None = None, **files: str) -> Draft:
    for name, content in files.items():
        path = folder / name.replace("__", ".").replace("_IN_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "promptfooconfig.yaml").write_text(text)
    return draft_of(folder / "promptfooconfig.yaml", chosen)


def task_of(made: Draft) -> Any:
    return read_yaml(made.files["task.yaml"]).data


def cases_of(made: Draft) -> list[dict[str, Any]]:
    return [json.loads(line) for line in made.files["cases.jsonl"].splitlines()]


def test_prompts_come_from_lines_files_patterns_and_tables(tmp_path: Path):
    text = (
        HEAD
        + TEST
        + """\
prompts:
  - "Inline {{x}}"
  - file://p/many.txt
  - {id: file://p/chat.yaml, label: as a chat}
  - file://p/table.csv
  - file://p/*.md
"""
    )
    made = draft(
        tmp_path,
        text,
        p_IN_many__txt="One {{x}}\n---\nTwo {{x}}\n---\n",
        p_IN_chat__yaml="- {role: system, content: Be kind}\n- {role: user, content: '{{x}}'}\n",
        p_IN_table__csv='prompt,label\n"Row, {{x}}",first row\n',
        p_IN_notes__md="# Title\n---\nstill {{x}}\n",
    )
    assert made.files["prompt.txt"] == "Inline {{x}}\n"
    variants = {name: text for name, text in made.files.items() if name.startswith("prompts/")}
    assert list(variants) == [
        "prompts/01-many-1.txt",
        "prompts/02-many-2.txt",
        "prompts/03-as-a-chat.txt",
        "prompts/04-first-row.txt",
        "prompts/05-notes.txt",
    ]
    assert variants["prompts/04-first-row.txt"] == "Row, {{x}}\n"
    assert "---" in variants["prompts/05-notes.txt"]
    assert json.loads(variants["prompts/03-as-a-chat.txt"])[0]["content"] == "Be kind"


def asked(prompt: str, given: dict[str, object], name: str = "prompt.txt") -> tuple[Message, ...]:
    form = Form((name,), tuple(given), template="nunjucks")
    request = request_for(form, Candidate({name: prompt}), Case("c", given))
    assert not isinstance(request, Failure), request
    return request.messages


def test_a_text_is_what_the_user_says_and_a_chat_is_sent_message_by_message():
    assert asked("Say {{ x | upper }}.\n", {"x": "a"}) == (Message("user", "Say A."),)
    chat = '[{"role": "system", "content": "Be kind"}, {"role": "user", "content": "{{x}}"}]'
    said = 'a "quoted" word\nand a line'
    assert asked(chat, {"x": said}) == (Message("system", "Be kind"), Message("user", said))
    made = (
        '[{% for m in x %}{"role": "user", "content": {{ m | dump }}}'
        "{% if not loop.last %},{% endif %}{% endfor %}]"
    )
    assert asked(made, {"x": ["p", 'q"']}) == (Message("user", "p"), Message("user", 'q"'))


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("Say {{ y }}", "the prompt asks for `{{y}}`, which the model is not given"),
        ("Say {{ x", "the prompt is no template: `{{` is not closed"),
        ('[{"role": "king", "content": "x"}]', "`king` is no role of a message"),
        (
            '[{"role": "user", "content": [{"type": "image_url"}]}]',
            "a message holds what is no text",
        ),
    ],
)
def test_a_prompt_that_cannot_be_sent_is_the_candidates_failure(prompt: str, why: str):
    form = Form(("p.txt",), ("x",), template="nunjucks")
    told = request_for(form, Candidate({"p.txt": prompt}), Case("c", {"x": "1"}))
    assert isinstance(told, Failure)
    assert told.blame == "candidate"
    assert why in told.message


@pytest.mark.parametrize(
    ("provider", "block"),
    [
        ("openai:gpt-5", {"provider": "openai", "model": "gpt-5"}),
        ("openai:chat:ft:gpt-4o:me", {"provider": "openai", "model": "ft:gpt-4o:me"}),
        ("anthropic:messages:claude-x", {"provider": "anthropic", "model": "claude-x"}),
        ("anthropic:claude-x", {"provider": "anthropic", "model": "claude-x"}),
        ("ollama:chat:llama3:8b", {"provider": "ollama", "model": "llama3:8b"}),
        (
            "{id: azureopenai:chat:dep, config: {apiHost: me.openai.azure.com, apiVersion: v1}}",
            {
                "provider": "azure_openai",
                "model": "dep",
                "base_url": "https://me.openai.azure.com",
                "api_version": "v1",
            },
        ),
        (
            "{openai:m: {config: {temperature: 0, max_tokens: 5, apiKeyEnvar: MINE}}}",
            {
                "provider": "openai",
                "model": "m",
                "api_key": "${MINE}",
                "temperature": 0.0,
                "max_tokens": 5,
            },
        ),
        (
            "{id: openai:chat:m, config: {apiBaseUrl: '{{env.URL}}/v1', apiKey: '{{ env.KEY }}'}}",
            {"provider": "openai", "model": "m", "base_url": "${URL}/v1", "api_key": "${KEY}"},
        ),
        (
            "{id: https, config: {url: 'https://h/v1/chat/completions', body: {model: q, "
            "temperature: 0.5}, headers: {Authorization: 'Bearer {{env.TOKEN}}'}}}",
            {
                "provider": "openai_compatible",
                "model": "q",
                "base_url": "https://h/v1",
                "api_key": "${TOKEN}",
                "temperature": 0.5,
            },
        ),
    ],
)
def test_a_provider_becomes_a_model_and_its_key_stays_a_name(
    provider: str, block: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEY", "sk-SECRET")
    made = draft(
        tmp_path, f'prompts: ["{{{{x}}}}", "b {{{{x}}}}"]\nproviders: [{provider}]\n{TEST}'
    )
    assert task_of(made)["models"] == {"target": block}
    assert "SECRET" not in str(made.files)


def test_tests_come_from_every_kind_of_file_and_keep_what_they_say(tmp_path: Path):
    text = (
        HEAD
        + """\
prompts: ["{{x}} {{y}}", "b {{x}}"]
defaultTest:
  vars: {y: default}
  assert: [{type: not-contains, value: "{{y}}!"}]
  metadata: {from: config}
tests:
  - file://t.csv
  - file://t.yaml
  - file://t.json
  - file://t.jsonl
  - description: Inline, and twice
    vars: {x: [p, q], y: "{{x}}-{{x}}"}
    assert: [{type: equals, value: file://answer.txt}]
"""
    )
    csv = (
        "x,__expected,__expected2,__threshold,__metric,__description,__metadata:kind\n"
        'a,contains: A,"contains-any: b, c",0.5,m,First,k\nb,,,,,,\n'
    )
    made = draft(
        tmp_path,
        text,
        t__csv=csv,
        t__yaml="tests:\n  - {vars: {x: c}, assert: [{type: is-json, value: file://s.json}]}\n",
        t__json='[{"vars": {"x": "d", "z": 1}, "assert": []}]',
        t__jsonl='{"vars": {"x": "e"}, "options": {"disableDefaultAsserts": true}}\n',
        s__json='{"type": "object"}',
        answer__txt="Yes\n",
    )
    rows = cases_of(made)
    assert [row["x"] for row in rows] == ["p", "q", "a", "b", "c", "d"]
    assert [row["y"] for row in rows] == ["p-p", "q-q", *["default"] * 4]
    assert [row["z"] for row in rows] == [None] * 5 + [1]
    assert rows[0]["id"] == "1-inline-and-twice"
    common = {"type": "not-contains", "value": "p-p!"}
    assert rows[0]["assert"] == [common, {"type": "equals", "value": "Yes"}]
    assert rows[2]["metadata"] == {"from": "config", "kind": "k"}
    assert rows[2]["assert"] == [
        {
            "type": "assert-set",
            "threshold": 0.5,
            "assert": [
                {"type": "not-contains", "value": "default!"},
                {"type": "contains", "value": "A", "metric": "m"},
                {"type": "contains-any", "value": ["b", "c"], "metric": "m"},
            ],
        }
    ]
    assert rows[4]["assert"][1] == {"type": "is-json", "value": {"type": "object"}}
    assert made.notes == ("1 test that asserts nothing is left out",)


@pytest.mark.parametrize(
    ("cell", "assertion"),
    [
        ("Paris", {"type": "equals", "value": "Paris"}),
        ("Note: this", {"type": "equals", "value": "Note: this"}),
        ("contains: Paris", {"type": "contains", "value": "Paris"}),
        ("not-icontains:x", {"type": "not-icontains", "value": "x"}),
        ("levenshtein(2): abc", {"type": "levenshtein", "value": "abc", "threshold": 2.0}),
        ("contains-all: a, b", {"type": "contains-all", "value": ["a", "b"]}),
        ("is-json", {"type": "is-json"}),
        ("grade: is kind", {"type": "llm-rubric", "value": "is kind"}),
        ("fn: output.length", {"type": "javascript", "value": "output.length"}),
        ("python: len(output) < 3", {"type": "python", "value": "len(output) < 3"}),
        ("file://a.py:f", {"type": "python", "value": "file://a.py:f"}),
        ("word-count: 4", {"type": "word-count", "value": 4}),
        ("latency(200)", {"type": "latency", "threshold": 200.0}),
    ],
)
def test_a_cell_says_what_is_expected(cell: str, assertion: dict[str, Any]):
    assert assertion_of(cell) == assertion


def test_the_first_prompt_is_the_artifact_unless_another_is_chosen(tmp_path: Path):
    text = HEAD + TEST + 'prompts: [{raw: "a {{x}}", label: A}, {raw: "b {{x}}", label: B}]\n'
    assert draft(tmp_path, text).files["prompt.txt"] == "a {{x}}\n"
    chosen = draft(tmp_path, text, Chosen(prompt="B"))
    assert chosen.files["prompt.txt"] == "b {{x}}\n"
    assert chosen.files["prompts/01-a.txt"] == "a {{x}}\n"


def test_a_provider_is_asked_with_the_prompts_that_are_meant_for_it(tmp_path: Path):
    text = (
        'prompts: [{raw: "a {{x}}", label: A}, {raw: "b {{x}}", label: B}]\n'
        + TEST
        + "providers:\n"
        "  - {id: openai:m, prompts: [B], config: {max_tokens: 9}}\n"
        "  - {id: openai:n, label: other}\n"
    )
    made = draft(tmp_path, text)
    assert made.files["prompt.txt"] == "b {{x}}\n"
    assert not [name for name in made.files if name.startswith("prompts/")]
    other = draft(tmp_path, text, Chosen(provider="other"))
    assert task_of(other)["models"]["target"]["model"] == "n"
    own = draft(tmp_path, text, Chosen(provider="local/smollm2"))
    local = {"provider": "local", "model": "smollm2", "max_tokens": 9}
    assert task_of(own)["models"]["target"] == local


def test_one_prompt_is_edited_by_a_model_and_somebody_should_know_which(tmp_path: Path):
    made = draft(tmp_path, HEAD + TEST + 'prompts: ["{{x}}"]\n')
    task = task_of(made)
    assert task["proposers"] == [{"kind": "edit"}]
    assert task["models"]["optimizer"] == task["models"]["target"]
    assert "name a better one" in made.notes[0]


def test_a_test_without_a_variable_of_a_prompt_is_told(tmp_path: Path):
    rest = "  - {vars: {reveiw: two}, assert: [{type: contains, value: a}]}\n"
    text = f"""\
{HEAD}prompts: ["{{{{review}}}}", "b {{{{review}}}}"]
tests:
  - {{vars: {{review: one}}, assert: [{{type: contains, value: a}}]}}
{rest}{rest}"""
    (note,) = draft(tmp_path, text).notes
    assert note.startswith("2 tests without `review`, which a prompt asks for")
    assert note.endswith("promptfooconfig.yaml:5, which has `reveiw`")


def test_a_variable_that_some_tests_have_may_be_asked_for_where_something_else_is_said(
    tmp_path: Path,
):
    text = f"""\
{HEAD}prompts: ["{{{{x}}}}", "b {{{{x}}}}"]
defaultTest:
  assert: [{{type: contains, value: "kind{{% if name %}} to {{{{name}}}}{{% endif %}}"}}]
tests: [{{vars: {{x: one, name: Bo}}}}, {{vars: {{x: two}}}}]
"""
    said = [row["assert"][0]["value"] for row in cases_of(draft(tmp_path, text))]
    assert said == ["kind to Bo", "kind"]


def test_a_provider_that_is_not_asked_is_told(tmp_path: Path):
    text = 'providers: [openai:m, {id: openai:n, label: other}]\nprompts: ["{{x}}", "b {{x}}"]\n'
    told = "`openai:m` is asked, and `other` is not: one model is asked in a run"
    assert draft(tmp_path, text + TEST).notes == (told,)
    assert draft(tmp_path, text + TEST, Chosen(provider="other")).notes == ()


def test_a_date_is_the_text_that_is_written(tmp_path: Path):
    text = f"""\
{HEAD}prompts: ["{{{{x}}}}", "b {{{{x}}}}"]
tests:
  - file://more.yaml
  - vars: {{x: 2024-01-02, at: [2024-01-02T10:00:00]}}
    metadata: {{on: 2024-03-04}}
    assert: [{{type: contains, value: 2024-05-06}}, {{type: equals, value: "{{{{x}}}}"}}]
"""
    more = "- {vars: {x: 2024-07-08}, assert: [{type: contains, value: a}]}\n"
    first, second = cases_of(draft(tmp_path, text, more__yaml=more))
    assert (first["x"], first["at"]) == ("2024-01-02", "2024-01-02T10:00:00")
    assert first["metadata"] == {"on": "2024-03-04"}
    assert [one["value"] for one in first["assert"]] == ["2024-05-06", "2024-01-02"]
    assert second["x"] == "2024-07-08"


def test_tests_may_be_longer_than_a_text_that_is_edited(tmp_path: Path):
    rows = "".join(f"{'word ' * 200}{n},contains: a\n" for n in range(1100))
    text = HEAD + 'prompts: ["{{x}}", "b {{x}}"]\ntests: file://t.csv\n'
    made = draft(tmp_path, text, t__csv="x,__expected\n" + rows)
    assert len(made.files["cases.jsonl"]) > 2**20
    assert len(cases_of(made)) == 1100


def test_who_writes_prompts_is_not_held_to_the_length_of_an_answer(tmp_path: Path):
    provider = (
        "providers: [{id: openai:m, config: {temperature: 0, top_p: 0.5, max_tokens: 20, seed: 3, "
        "reasoning_effort: low, apiBaseUrl: 'https://h/v1', apiKeyEnvar: MINE}}]\n"
    )
    models = task_of(draft(tmp_path, provider + TEST + 'prompts: ["{{x}}"]\n'))["models"]
    assert models["target"]["max_tokens"] == 20
    assert models["optimizer"] == {
        "provider": "openai",
        "model": "m",
        "base_url": "https://h/v1",
        "api_key": "${MINE}",
    }


def test_a_variable_that_no_test_has_is_empty_and_said_so(tmp_path: Path):
    made = draft(tmp_path, HEAD + TEST + 'prompts: ["{{x}}{{ hint }}", "{{x}}"]\n')
    assert task_of(made)["runner"]["input"] == ["x", "hint"]
    assert cases_of(made)[0]["hint"] is None
    assert made.notes == ("a prompt asks for `{{hint}}`, which no test has: it is empty",)


LABELLED = """\
prompts: ["{{x}}", "b {{x}}"]
tests:
  - vars: {x: Bo, label: kind}
    assert: [{type: equals, value: "{{label}}"}]
"""


def test_the_model_is_not_given_what_assertions_alone_use(tmp_path: Path):
    made = draft(tmp_path, HEAD + LABELLED)
    assert task_of(made)["runner"]["input"] == ["x"]
    assert "input" not in task_of(made)["scorer"], "a judge sees what the model was given"
    (row,) = cases_of(made)
    assert row["assert"] == [{"type": "equals", "value": "kind"}]


def test_assertions_in_python_see_all_variables(tmp_path: Path):
    code = LABELLED.replace(
        'equals, value: "{{label}}"', 'python, value: \'output == context["vars"]["label"]\''
    )
    task = task_of(draft(tmp_path, HEAD + code))
    assert task["runner"]["input"] == ["x"]
    assert task["scorer"]["input"] == ["x", "label"]


def test_a_grader_becomes_the_judge_and_latency_leaves_no_reply_in_the_cache(tmp_path: Path):
    text = (
        HEAD
        + """\
prompts: ["{{x}}", "b {{x}}"]
assertionTemplates: {kind: {type: llm-rubric, value: "is kind to {{x}}", weight: 2}}
defaultTest: {options: {provider: {text: {id: openai:chat:g, config: {temperature: 0}}}}}
tests:
  - vars: {x: Bo}
    assert: [{$ref: "#/assertionTemplates/kind"}, {type: latency, threshold: 100}]
"""
    )
    made = draft(tmp_path, text)
    models = task_of(made)["models"]
    assert models["judge"] == {"provider": "openai", "model": "g", "temperature": 0.0}
    assert models["target"]["cache"] is False
    (row,) = cases_of(made)
    assert row["assert"][0] == {"type": "llm-rubric", "value": "is kind to Bo", "weight": 2.0}


def test_the_task_of_a_config_is_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    text = (
        HEAD
        + """\
description: "A bot: kind, quick # and more"
prompts: ["{{x}}", "b {{x}}"]
tests:
  - vars: {x: Bo}
    assert: [{type: python, value: file://checks/check.py}]
"""
    )
    check = "def get_assert(output, context):\n    return True\n"
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "theirs").mkdir()
    made = draft(tmp_path / "theirs", text, checks_IN_check__py=check)
    write(made.files, tmp_path / "ours")
    compiled = compile_task(tmp_path / "ours" / "task.yaml")
    assert compiled.plan.spec.description == "A bot: kind, quick # and more"
    assert "`checks/check.py`" in compiled.plan.inputs, "a resume notices when it changes"


def test_files_of_python_are_copied_under_names_that_stay_in_the_task(tmp_path: Path):
    text = (
        HEAD
        + """\
prompts: ["{{x}}", "b {{x}}"]
tests:
  - vars: {x: Bo}
    assert:
      - {type: python, value: "file://./check.py:kind"}
      - type: assert-set
        assert: [{type: not-python, value: "file://a/b/../check.py"}]
      - {type: python, value: "file://a/check.py"}
      - {type: python, value: "len(output) > 1"}
"""
    )
    kind = "def kind(output, context):\n    return True\n"
    rude = "def get_assert(output, context):\n    return False\n"
    made = draft(tmp_path, text, check__py=kind, a_IN_check__py=rude, a_IN_b_IN_c__txt="")
    (row,) = cases_of(made)
    assert [one.get("value") for one in row["assert"]] == [
        *("file://checks/check.py:kind", None, "file://checks/check_3.py", "len(output) > 1"),
    ]
    assert row["assert"][1]["assert"][0]["value"] == "file://checks/check_2.py"
    assert made.files["checks/check.py"] == kind
    assert made.files["checks/check_2.py"] == made.files["checks/check_3.py"] == rude
    files = ["checks/check.py", "checks/check_2.py", "checks/check_3.py"]
    assert task_of(made)["scorer"]["files"] == files


GRADED = """\
prompts: ["{{x}}", "b {{x}}"]
tests:
  - vars: {x: Bo}
    assert: [{type: python, value: "file://graders/check.py"}]
  - vars: {x: Al}
    assert: [{type: python, value: "file://other/check.py"}]
"""
CHECK = "import helper\n\n\ndef get_assert(output, context):\n    return helper.ok(output)\n"


def test_what_a_grader_imports_from_beside_it_comes_along_and_is_found(tmp_path: Path):
    helper = "import deep\n\n\ndef ok(output):\n    return deep.LETTER in output\n"
    (tmp_path / "theirs" / "graders" / "tools").mkdir(parents=True)
    made = draft(
        tmp_path / "theirs",
        HEAD + GRADED.replace("other/check.py", "graders/check.py"),
        graders_IN_check__py="import json, tools\n" + CHECK,
        graders_IN_helper__py=helper,
        graders_IN_deep__py="LETTER = 'a'\n",
        graders_IN_unused__py="",
    )
    files = ["checks/check.py", "checks/helper.py", "checks/deep.py"]
    assert [name for name in made.files if name.startswith("checks/")] == files
    assert task_of(made)["scorer"]["files"] == files, "a resume notices when one changes"
    assert "`tools/` is imported and not copied: put it into checks/" in made.notes
    (tmp_path / "ours" / "checks" / "tools").mkdir(parents=True)
    (tmp_path / "ours" / "checks" / "tools" / "__init__.py").write_text("")
    write(made.files, tmp_path / "ours")
    assertions = PythonAssertions(tmp_path / "ours", 20, ())
    (one,) = cases_of(made)[0]["assert"]

    async def graded(output: str) -> object:
        job, scope = Job("seed", "a", 0, "decide"), JournalScope(MemoryJournal(), "rollout/1")
        asked = Asked(job, Rollout(output=output), {}, scope)
        return await assertions.grade(Assertion("python", value=one["value"]), asked)

    try:
        right, wrong = (asyncio.run(graded(output)) for output in ("a", "b"))
    finally:
        assertions.close()
    assert isinstance(right, Grade) and right.passed
    assert isinstance(wrong, Grade) and not wrong.passed


def test_graders_that_import_two_files_of_one_name_are_refused(tmp_path: Path):
    told = "assertions use two files that are named helper.py"
    with pytest.raises(SetupError, match=told):
        draft(
            tmp_path,
            HEAD + GRADED,
            graders_IN_check__py=CHECK,
            graders_IN_helper__py="def ok(output):\n    return True\n",
            other_IN_check__py=CHECK,
            other_IN_helper__py="def ok(output):\n    return False\n",
        )


@pytest.mark.parametrize("name", ["../there.py", "link/there.py", "{}/there.py", "dangling.py"])
def test_a_task_is_written_into_its_folder_and_over_nothing(name: str, tmp_path: Path):
    (tmp_path / "there.py").write_text("mine")
    folder = tmp_path / "ours"
    if "/" not in name or name.startswith("link"):
        folder.mkdir()
        (folder / "link").symlink_to(tmp_path)
        (folder / "dangling.py").symlink_to(tmp_path / "new.py")
    with pytest.raises(SetupError):
        write({name.format(tmp_path): "theirs"}, folder)
    assert (tmp_path / "there.py").read_text() == "mine"
    assert not (tmp_path / "new.py").exists()
