"""`kept init --from FILE`: a task from what somebody has, in order and running."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import ModelServer, Seen
from tests.adapters.promptfoo_world import GOOD, serve, write_config
from tests.ui.cli.tasks import kept


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModelServer]]:
    """A server that `openai/…` means, with a function that answers."""
    serving: list[ModelServer] = []

    def start(reply: Callable[[Seen], ModelReply]) -> ModelServer:
        server = ModelServer(reply)
        server.start()
        serving.append(server)
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        return server

    yield start
    for server in serving:
        server.stop()


@pytest.mark.slow
def test_a_promptfoo_config_becomes_a_task_that_checks_and_runs(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SORTER_KEY", "none")
    with serve() as server:
        config = write_config(here / "theirs", server.v1)
        called = kept("init", "--from", str(config), "mine")
        assert called.code == 0, called.stderr
        assert "mine/task.yaml" in called.stdout.splitlines()
        assert "next: cd mine" in called.stderr
        checked = kept("check", "mine")
        assert checked.code == 0, checked.stderr
        assert "asked with prompt.txt about ticket\n" in checked.stdout, (
            "the category is the answer"
        )
        assert not server.log, "a check asks nobody"
        told = kept("optimize", "mine", "--json", "--set", "budget={max_rollouts: 1500}").json
    assert told["improved"]
    monkeypatch.chdir(here / "mine")
    assert kept("adopt", "--yes").code == 0
    assert GOOD in (here / "mine" / "prompt.txt").read_text()
    report = kept("report").stdout
    assert "what each case asserts" in report


def test_prompts_of_a_config_can_be_compared_with_each_other(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SORTER_KEY", "none")
    with serve() as server:
        config = write_config(here / "theirs", server.v1, tests=30)
        assert kept("init", "--from", str(config), "mine").code == 0
        monkeypatch.chdir(here / "mine")
        told = kept("compare", "prompt.txt", "prompts/02-chat.txt", "--cases", "cases.jsonl", "-q")
    assert told.code == 0, told.stderr
    assert "better" in told.stdout


def test_a_config_that_is_wrong_is_told_with_its_lines_and_nothing_is_written(here: Path):
    text = "prompts: [a]\nproviders: [b:c]\ntests: [{asert: []}]\n"
    (here / "promptfooconfig.yaml").write_text(text)
    called = kept("init", "--from", "promptfooconfig.yaml")
    assert called.code == 2
    assert "promptfooconfig.yaml:2" in called.stderr
    assert "promptfooconfig.yaml:3" in called.stderr
    assert [path.name for path in here.iterdir()] == ["promptfooconfig.yaml"]


ROWS = [{"question": f"Is {n} even?", "label": "yes" if n % 2 == 0 else "no"} for n in range(40)]


def by_rule(seen: Seen) -> ModelReply:
    """Right where it is told to answer with the answer only, and chatty elsewhere."""
    asked = "\n".join(line.text for line in seen.lines)
    number = int(asked.rpartition("Is ")[2].split()[0])
    right = "yes" if number % 2 == 0 else "no"
    if "only, nothing else" not in asked and number % 3:
        right = "it depends"
    return ModelReply(right, Usage(1, 20, 2))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_cases_become_a_task_that_checks_and_runs(
    suffix: str, here: Path, answering: Callable[..., ModelServer]
):
    text = "".join(json.dumps(row) + "\n" for row in ROWS)
    if suffix == "json":
        text = json.dumps(ROWS)
    elif suffix == "csv":
        text = "question,label\n" + "".join(f"{r['question']},{r['label']}\n" for r in ROWS)
    (here / f"cases.{suffix}").write_text(text)
    answering(by_rule)
    called = kept("init", "--from", f"cases.{suffix}", "--model", "openai/m", "mine")
    assert called.code == 0, called.stderr
    assert "yes or no?" in (here / "mine" / "prompt.md").read_text()
    assert kept("check", "mine").code == 0
    one = "proposers=[{kind: variants, files: ['drafts/*.md']}]"
    told = kept("optimize", "mine", "--json", "--set", one).json
    assert told["improved"]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.csv", "q,answer\na,1\nb,2,3\nc,4\n", "c.csv:3 3 cells, where the first line has 2"),
        ("c.csv", 'q,answer\na,"1\n', "c.csv:2 not csv"),
        ("c.csv", "q,q\na,b\n", "c.csv:1 two columns are named `q`"),
        ("c.jsonl", '{"q": 1, "answer": 2}\n{"q": \n', "c.jsonl:2 not JSON"),
        ("c.jsonl", '{"q": 1, "answer": 2}\n{"q": 3}\n', "c.jsonl:2 no `answer`, which the rows"),
        ("c.jsonl", "[1]\n", "c.jsonl:1 a list, where an object with fields was expected"),
        ("c.jsonl", "", "c.jsonl:1 there are no cases in it"),
        ("c.json", "{}", "c.json:1 not a list of cases"),
        (
            "c.csv",
            "q,__expected\na,contains: b\n",
            "c.csv:1 `__expected` is what promptfoo asserts",
        ),
        (
            "f.py",
            "CASES = [{1, 2}]\ndef f(t='x', case=None): ...\n",
            "case of f.py cannot be JSON",
        ),
        ("c.jsonl", '{"q": 1, "w": 2}\n', "c.jsonl does not say what a right answer is"),
        ("c.json", "[" * 200_000, "c.json:1 not JSON: it is nested more than 100 levels deep"),
        ("SKILL.md", " \n", "SKILL.md is empty"),
        (
            "f.py",
            "TEXT = 'x'\nCASES = [{1, 2}]\ndef f(a, b):\n    pass\n",
            "a case of f.py cannot be JSON",
        ),
        ("SKILL.md", "---\nname: [\n---\nx\n", "SKILL.md:2 is not YAML"),
        ("f.py", "def f(:\n", "f.py:1 not Python"),
        ("f.py", "x = 1\n", "f.py has no function"),
        ("f.py", "def f(a):\n    return 1\n", "f.py has no text to begin with"),
        ("f.py", "T = 'x'\ndef f():\n    pass\n", "`f` cannot be called with a text"),
        ("f.py", "TEXT = 'x'\ndef f(a, b):\n    pass\n", "`f` wants a case, and there are none"),
        (
            "f.py",
            "TEXT = 'x'\nCASES = [n for n in range(9)]\ndef f(a, b):\n    pass\n",
            "f.py:2 CASES: not a list of what JSON can hold that is written out",
        ),
        (
            "f.py",
            "A = 'x'\nSEED = A + 'y'\ndef f(a):\n    pass\n",
            "f.py:2 SEED: not a text that is written out",
        ),
        ("c.csv", "a,answer\n1\n", "c.csv:2 1 cell, where the first line has 2"),
        ("f.py", "def f(a):\n    1\ndef g(a):\n    1\n", "f.py has several functions"),
        ("c.csv", "a b,a.b,answer\n1,2,3\n", "`a b` and `a.b` of c.csv are both `a_b`"),
        ("x.toml", "a = 1\n", "x.toml is nothing that a task can be made from"),
        ("latin.csv", None, "latin.csv is not UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_taken_says_why(name: str, text: str | None, told: str, here: Path):
    if text is None:
        (here / name).write_bytes(b"q,answer\n\xe9,1\n")
    else:
        (here / name).write_text(text)
    called = kept("init", "--from", name)
    assert called.code == 2
    assert told in called.stderr
    assert [path.name for path in here.iterdir()] == [name]


def said(text: str) -> Callable[[Seen], ModelReply]:
    return lambda seen: ModelReply(text, Usage(1, 20, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "field"),
    [("q.text", "q_text"), ("The question?", "The_question"), ("1", "field_1"), ("¿?", "field_1")],
)
def test_a_model_is_shown_a_column_whose_name_no_prompt_can_say(
    column: str,
    field: str,
    here: Path,
    answering: Callable[..., ModelServer],
    monkeypatch: pytest.MonkeyPatch,
):
    rows = ({column: f"What is {n}?", "expected": str(n)} for n in range(12))
    (here / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def seven(_: Seen) -> ModelReply:
        return ModelReply("7", Usage(1, 20, 2))

    server = answering(seven)
    # without a model that edits: drafts and examples are what was written
    monkeypatch.setenv("KEPT_MODEL", "")
    called = kept("init", "--from", "cases.jsonl", "mine")
    assert called.code == 0, called.stderr
    task = (here / "mine" / "task.yaml").read_text().replace("local/smollm2", "openai/m")
    (here / "mine" / "task.yaml").write_text(task)
    checked = kept("check", "mine")
    assert checked.code == 0, checked.stderr
    assert "filled in by nothing" not in checked.stderr
    kept("optimize", "mine", "--set", "budget={max_iterations: 3}")
    asked = ["\n".join(line.text for line in seen.lines) for seen in server.log]
    assert asked
    assert all("What is " in text and "{{" not in text for text in asked)
    assert f"the column `{column}` is the field `{field}`" in called.stderr


def test_rows_that_all_have_the_same_answer_ask_for_no_choice(here: Path):
    (here / "cases.csv").write_text("q,label\n" + "a,good\n" * 9)
    called = kept("init", "--from", "cases.csv", "mine")
    assert called.code == 0, called.stderr
    assert "the `label` of every row is `good`: no prompt can do better" in called.stderr
    assert "Which is it" not in (here / "mine" / "prompt.md").read_text()


def scorer_of(folder: Path) -> Callable[[str, str], float]:
    found: dict[str, Any] = {}
    exec((folder / "score.py").read_text(), found)
    return lambda output, label: found["score"](output, {"label": label})["score"]


def test_an_answer_is_right_where_it_names_the_one_label_that_is_expected(here: Path):
    rows = [{"q": f"{n}", "label": ("good", "bad", "so so")[n % 3]} for n in range(12)]
    (here / "c.json").write_text(json.dumps(rows))
    assert kept("init", "--from", "c.json", "mine").code == 0
    score = scorer_of(here / "mine")
    for said in ("good", "Good!", '"good"', "**good**", "It is good.", "bad? No.\n\nAnswer: good"):
        assert score(said, "good") == 1, said
    for said in ("good or bad", "not good", "bad", "goodness", "", "It is not good."):
        assert score(said, "good") == 0, said
    assert score("so so", "so so") == 1
    assert score("“Good”", "good") == 1
    assert score("", "?") == score("!", "?") == 0
    drafts = [*(here / "mine" / "drafts").iterdir(), here / "mine" / "prompt.md"]
    for draft in drafts:
        assert "Which is it: good, bad or so so?" in draft.read_text(), draft


def test_an_answer_that_is_no_label_is_right_where_it_is_in_what_is_said(here: Path):
    rows = [{"q": f"{n}", "label": f"{n}.5"} for n in range(12)]
    (here / "c.json").write_text(json.dumps(rows))
    assert kept("init", "--from", "c.json", "mine").code == 0
    score = scorer_of(here / "mine")
    assert score("It is **3.5**.", "3.5") == score("3.5", "3.5") == 1
    assert score("13.5", "3.5") == score("3", "3.5") == 0


def test_cases_may_be_longer_than_a_text_that_is_edited(here: Path):
    row = {"question": "word " * 200, "label": "yes"}
    (here / "c.jsonl").write_text((json.dumps(row) + "\n") * 1100)
    called = kept("init", "--from", "c.jsonl", "mine")
    assert called.code == 0, called.stderr
    assert (here / "mine" / "cases.jsonl").stat().st_size > 2**20


def skilled(seen: Seen) -> ModelReply:
    """Follows the skill, judges by length, and writes an edit that helps."""
    asked = "\n".join(line.text for line in seen.lines)
    if "# Criteria" in asked:
        level = 5 if "with a reason" in asked else 2
        said = json.dumps({"done": {"reason": "so it seems", "level": level}})
        return ModelReply(said, Usage(1, 20, 2))
    if "schema" in str(seen.body) or "edits" in asked:
        edit = {"path": "SKILL.md", "op": "append", "text": "\nAlways give a reason.\n"}
        said = json.dumps({"why": "reasons help", "cases": [], "edits": [edit]})
        return ModelReply(said, Usage(1, 20, 2))
    reason = " with a reason" if "Always give a reason" in asked else ""
    return ModelReply(f"done{reason}", Usage(1, 20, 2))


def test_a_skill_becomes_a_task_that_checks_and_runs(
    here: Path, answering: Callable[..., ModelServer]
):
    skill = (
        "---\nname: Release Notes\ndescription: Write notes of a release.\n---\n# Notes\n\nShort.\n"
    )
    (here / "SKILL.md").write_text(skill)
    (here / "tasks.jsonl").write_text("".join(f'{{"task": "version {n}"}}\n' for n in range(12)))
    server = answering(skilled)
    called = kept("init", "--from", "SKILL.md", "--cases", "tasks.jsonl", "--model", "openai/m")
    assert called.code == 0, called.stderr
    assert (here / "my-skill" / "SKILL.md").read_text() == skill
    assert "id: release-notes" in (here / "my-skill" / "task.yaml").read_text()
    assert kept("check", "my-skill").code == 0
    settings = ("--set", "budget={max_iterations: 2}", "--set", "gate=strict")
    told = kept("optimize", "my-skill", "--json", *settings)
    assert told.code == 0, told.stderr
    assert sum(told.json["verdicts"].values()) == 2
    assert len(server.answered) > 12


def write_skill(folder: Path) -> Path:
    """One that names files of all kinds, in a folder of its own."""
    skill = folder / "theirs"
    for name, text in {
        "SKILL.md": '# Sum up\n\nAs in [the form](ref/the%20form.md#top "form"). Then run\n'
        "`python {dir}/scripts/go.py`, see scripts/, logo.png, ../secret.md and task.yaml.\n",
        "ref/the form.md": "See more.md.\n",
        "ref/more.md": "One page. Back to ../SKILL.md, or https://example.org/unnamed.md\n",
        "scripts/go.py": "print(1)\n",
        "scripts/unnamed.py": "print(2)\n",
        "task.yaml": "theirs\n",
        "../secret.md": "not theirs to give\n",
    }.items():
        (skill / name).parent.mkdir(parents=True, exist_ok=True)
        (skill / name).write_text(text)
    (skill / "logo.png").write_bytes(b"\x89PNG\xff")
    return skill / "SKILL.md"


def test_a_skill_brings_the_files_that_it_names_and_the_model_reads_them(
    here: Path, answering: Callable[..., ModelServer]
):
    def done(_: Seen) -> ModelReply:
        return ModelReply("done", Usage(1, 20, 2))

    server = answering(done)
    called = kept("init", "--from", str(write_skill(here)), "--model", "openai/m", "mine")
    assert called.code == 0, called.stderr
    brought = {path.relative_to(here / "mine").as_posix() for path in (here / "mine").rglob("*.*")}
    assert brought == {
        *("task.yaml", "SKILL.md", "cases.jsonl"),
        *("ref/the form.md", "ref/more.md", "scripts/go.py"),
    }
    assert (here / "mine" / "ref" / "more.md").read_text().startswith("One page.")
    for note in (
        "shown ref/the form.md, ref/more.md too, and they may be edited",
        "scripts/go.py is copied, but a model cannot open files: `runner.agent`",
        "names the folder scripts/: what no text of it names is not copied",
        "logo.png is not UTF-8 text",
        "names secret.md, which is not in its folder: it is not copied",
        "names task.yaml, which the task has of its own: it is not copied",
    ):
        assert note in called.stderr
    assert kept("check", "mine").code == 0
    kept("optimize", "mine", "--set", "budget={max_iterations: 1}")
    assert "See more.md." in server.log[0].text
    assert "One page. Back" in server.log[0].text


@pytest.mark.parametrize("name", ["cases.csv", "SKILL.md", "f.py", "promptfooconfig.yaml"])
def test_what_a_first_run_may_spend_is_limited_where_that_can_be_kept(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    told = {
        "cases.csv": "q,label\n" + "".join(f"Is {n} even?,{n % 2}\n" for n in range(20)),
        "SKILL.md": "# Sum up\n",
        "f.py": "TEXT = 'x'\ndef f(text):\n    return len(text)\n",
        "promptfooconfig.yaml": "prompts: ['{{x}}']\nproviders: [openai:chat:gpt-4o-mini]\n"
        "tests: [{vars: {x: a}, assert: [{type: contains, value: a}]}]\n",
    }
    (here / name).write_text(told[name])
    model = () if name.startswith("prompt") else ("--model", "openai/gpt-4o-mini")
    called = kept("init", "--from", name, *model, "mine")
    assert called.code == 0, called.stderr
    assert "a run may spend $5: `budget.max_usd`" in called.stderr
    checked = kept("check", "mine")
    assert checked.code == 0, checked.stderr
    assert ", $5.00\n" in checked.stdout
    assert "without limit" not in checked.stdout


@pytest.mark.parametrize("judge", [False, True])
def test_prompts_of_a_config_meet_in_a_final_within_the_money_of_a_first_run(
    here: Path, judge: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    check = "{type: llm-rubric, value: kind}" if judge else "{type: contains, value: a}"
    rows = "".join(f"  - {{vars: {{x: text {n}}}, assert: [{check}]}}\n" for n in range(40))
    (here / "promptfooconfig.yaml").write_text(
        "prompts: ['Say {{x}}', 'Repeat {{x}}', 'Echo {{x}}']\n"
        "providers: [openai:chat:gpt-4o-mini]\n"
        "defaultTest: {options: {provider: openai:chat:gpt-4o-mini}}\n"
        f"tests:\n{rows}"
    )
    called = kept("init", "--from", "promptfooconfig.yaml", "mine")
    assert called.code == 0, called.stderr
    assert "max_usd: 5" in (here / "mine" / "task.yaml").read_text()
    assert "holds a final among 2 alternatives" in kept("check", "mine").stdout


def test_a_task_has_no_limit_of_money_that_could_not_be_kept(here: Path):
    (here / "cases.csv").write_text("q,label\n" + "a,b\n" * 9)
    strange = kept("init", "--from", "cases.csv", "--model", "openai/nobody-knows-me", "strange")
    assert "what `openai/nobody-knows-me` costs at most is not known, so the" in strange.stderr
    free = kept("init", "--from", "cases.csv", "free")
    assert "spend" not in free.stderr
    for folder in ("strange", "free"):
        assert "budget: {max_iterations: 20}\n" in (here / folder / "task.yaml").read_text()


def test_a_skill_without_tasks_says_that_one_proves_nothing(here: Path):
    (here / "SKILL.md").write_text("# Notes\n\nWrite short notes.\n")
    called = kept("init", "--from", "SKILL.md")
    assert called.code == 0
    assert "which proves nothing" in called.stderr
    assert json.loads((here / "my-skill" / "cases.jsonl").read_text()) == {
        "task": "Write short notes."
    }


FUNCTION = '''\
PROMPT = """Keep this.
Drop this noise.
And this noise.
"""
CASES = [{"word": "Keep"}, {"word": "this"}, {"word": "Keep this"}, {"word": "eep"}]


async def evaluate(candidate, case):
    """Shorter is better, as long as the word is there."""
    return (case["word"] in candidate.text) - len(candidate) / 1000, "a note"
'''


@pytest.mark.sandbox
@pytest.mark.parametrize("given", ["measure.py", "measure.py:evaluate"])
def test_a_function_becomes_a_task_that_checks_and_runs(given: str, here: Path):
    (here / "measure.py").write_text(FUNCTION)
    called = kept("init", "--from", given)
    assert called.code == 0, called.stderr
    assert (here / "my-measure" / "text.md").read_text().startswith("Keep this.\n")
    assert kept("check", "my-measure").code == 0
    told = kept("optimize", "my-measure", "--json", "--set", "budget={max_iterations: 4}")
    assert told.code == 0, told.stderr
    assert told.json["improved"]
    assert "a note" in kept("show", told.json["folder"], "--step", "0").stdout


@pytest.mark.sandbox
@pytest.mark.parametrize("given", ["deep/main.py", "./deep/main.py", "{here}/deep/main.py"])
def test_a_function_is_found_wherever_its_file_is_and_whatever_it_is_called(given: str, here: Path):
    """Also `score`, as the one that calls it is."""
    (here / "deep").mkdir()
    (here / "deep" / "main.py").write_text(FUNCTION.replace("evaluate", "score"))
    called = kept("init", "--from", given.format(here=here), "mine")
    assert called.code == 0, called.stderr
    told = kept("optimize", "mine", "--json", "--set", "budget={max_iterations: 4}")
    assert told.code == 0, told.stderr
    assert told.json["improved"]


def test_what_to_write_for_one_of_several_functions_names_the_file_as_it_was_given(here: Path):
    (here / "deep").mkdir()
    (here / "deep" / "main.py").write_text("def a(t='x'): ...\ndef b(t='x'): ...\n")
    called = kept("init", "--from", "deep/main.py", "mine")
    assert called.code == 2
    assert "there are a, b: write --from deep/main.py:NAME" in called.stderr


@pytest.mark.sandbox
def test_what_a_function_imports_from_beside_it_comes_along_and_stays_hidden(here: Path):
    (here / "measure.py").write_text(
        "import json\nimport helper\n\nSEED = 'Be good.\\n\\nNoise.\\n'\n\n"
        "def evaluate(text):\n    return helper.n(text)\n"
    )
    (here / "helper.py").write_text("from more import N\ndef n(text):\n    return N / len(text)\n")
    (here / "more.py").write_text("import helper\nN = 1.0\n")
    assert kept("init", "--from", "measure.py", "mine").code == 0
    checked = kept("check", "mine")
    assert (checked.code, checked.stderr) == (0, "")
    assert "hidden: measure.py helper.py more.py" in checked.stdout
    ran = kept("optimize", "mine", "-q", "--set", "budget.max_iterations=1")
    assert ran.code == 0, ran.stderr
    assert "score " in ran.stdout, ran.stdout


def test_a_package_that_a_function_imports_is_named_and_one_in_the_way_refused(here: Path):
    (here / "lib").mkdir()
    (here / "measure.py").write_text("import lib.deep\ndef evaluate(text='Be.'): ...\n")
    called = kept("init", "--from", "measure.py", "mine")
    assert "`lib/` is imported and not copied: put it into the folder" in called.stderr
    (here / "measure.py").write_text("from score import n\ndef evaluate(text='Be.'): ...\n")
    (here / "score.py").write_text("")
    refused = kept("init", "--from", "measure.py", "other")
    assert refused.code == 2
    assert "score.py, which measure.py imports, is in the way" in refused.stderr


def test_a_function_of_a_text_alone_needs_no_cases(here: Path):
    (here / "measure.py").write_text("def size(text='a\\n\\nb\\n'):\n    return -len(text)\n")
    assert kept("init", "--from", "measure.py").code == 0
    assert not (here / "my-measure" / "cases.jsonl").exists()
    checked = kept("check", "my-measure")
    assert checked.code == 0, checked.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "no.csv"), "there is no file no.csv"),
        (("--model", "openai/m"), "--prompt-file and --cases go with --from"),
        (("--from", "S.md", "--prompt-file", "x"), "--prompt-file means nothing for this kind"),
        (("--from", "c.csv", "a", "b"), "with --from there is only a FOLDER"),
        (("--from", "c.csv", "--prompt", "x"), "--prompt means nothing for this kind of file"),
        (("--from", "c.csv", "--cases", "c.csv"), "--cases means nothing for this kind of file"),
    ],
)
def test_words_that_mean_nothing_together_are_refused(
    words: tuple[str, ...], told: str, here: Path
):
    (here / "c.csv").write_text("q,answer\na,b\n")
    (here / "S.md").write_text("# A skill\n")
    called = kept("init", *words)
    assert called.code == 2
    assert told in called.stderr


def test_nothing_that_is_there_is_overwritten(here: Path):
    (here / "c.csv").write_text("q,answer\na,b\n")
    (here / "my-c").mkdir()
    (here / "my-c" / "prompt.md").write_text("mine")
    called = kept("init", "--from", "c.csv")
    assert called.code == 2
    assert "my-c already has prompt.md" in called.stderr
    assert [path.name for path in (here / "my-c").iterdir()] == ["prompt.md"]


def test_a_model_without_a_provider_is_refused_before_anything_is_written(here: Path):
    (here / "rows.jsonl").write_text('{"q": "1+1", "answer": "2"}\n')
    called = kept("init", "--from", "rows.jsonl", "--model", "gpt-5", "mine")
    assert called.code == 2
    assert "`gpt-5` is not a model; write provider/model" in called.stderr
    assert not (here / "mine").exists()


@pytest.mark.parametrize("column", ["Answer", "EXPECTED", "Label"])
def test_a_column_with_the_answer_may_be_written_as_people_write_headers(column: str, here: Path):
    (here / "rows.csv").write_text(f"Question,{column}\n1+1,2\n2+1,3\n")
    called = kept("init", "--from", "rows.csv", "mine")
    assert called.code == 0, called.stderr
    assert f"case['{column}']" in (here / "mine" / "score.py").read_text().replace('"', "'")


def test_a_skill_is_tried_on_the_one_field_that_is_no_answer(here: Path):
    (here / "rows.jsonl").write_text('{"question": "1+1", "expected": "2"}\n' * 6)
    (here / "SKILL.md").write_text("---\nname: sums\ndescription: Adds\n---\n# Add\n\nAdd them.\n")
    called = kept("init", "--from", "SKILL.md", "--cases", "rows.jsonl", "mine")
    assert called.code == 0, called.stderr
    assert "input: question" in (here / "mine" / "task.yaml").read_text()
    (here / "more.jsonl").write_text('{"question": "1+1", "context": "sums", "expected": "2"}\n')
    called = kept("init", "--from", "SKILL.md", "--cases", "more.jsonl", "other")
    assert called.code == 2
    assert "there are `question`, `context`, `expected`" in called.stderr


@pytest.mark.parametrize("sign", [";", "\t"])
def test_cells_may_be_told_apart_as_spreadsheets_of_other_countries_do(sign: str, here: Path):
    (here / "rows.csv").write_text(f"question{sign}answer\n1, and 1{sign}2\n2+1{sign}3\n")
    assert kept("init", "--from", "rows.csv", "mine").code == 0
    first = json.loads((here / "mine" / "cases.jsonl").read_text().splitlines()[0])
    assert (first["question"], first["answer"]) == ("1, and 1", "2")


def test_a_csv_in_another_encoding_is_refused_with_what_to_do(here: Path):
    (here / "latin.csv").write_bytes("frage,answer\ngrün?,ja\n".encode("latin-1"))
    assert "hint: save it as `CSV UTF-8`" in kept("init", "--from", "latin.csv").stderr


PROMPTS = {
    "Is it spam?\n\nMail: {{text}}\n": "Is it spam?\n\nMARKS\n\nMail: {{text}}\n",
    "Is it spam? {text}": "MARKS\n\nIs it spam? {{text}}\n",
    "Say spam or ham.": "Say spam or ham.\n\nMARKS\n",
    "A.\n\nMARKS\n\n{{text}}": "A.\n\nMARKS\n\n{{text}}\n",
}
MARKS = "<!-- demos:start -->\n<!-- demos:end -->"


@pytest.mark.parametrize("mine", PROMPTS)
def test_a_prompt_of_the_user_is_the_seed_with_marks_for_examples(here: Path, mine: str):
    (here / "prompt.md").write_text(mine.replace("MARKS", MARKS))
    rows = [{"text": f"mail {n}", "label": "spam" if n % 2 else "ham"} for n in range(12)]
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    called = kept("init", "--from", "rows.jsonl", "--prompt-file", "prompt.md", "made")
    assert called.code == 0, called.stderr
    made = PROMPTS[mine].replace("MARKS", MARKS)
    assert (here / "made" / "prompt.md").read_text() == made
    draft = (here / "made" / "drafts" / "1-only-the-answer.md").read_text()
    assert draft == made + "\nAnswer with the label only, nothing else.\n"
    checked = kept("check", "made")
    assert checked.code == 0, checked.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{body}}", "asks for `{{body}}`, which the cases do not have"),
        ("{{label}}", "asks for `{{label}}`, which the cases do not have"),
        ("  \n", "prompt.md is empty"),
    ],
)
def test_a_prompt_of_the_user_that_cannot_be_filled_is_refused(here: Path, text: str, words: str):
    (here / "prompt.md").write_text(text)
    (here / "rows.jsonl").write_text('{"text": "a", "label": "b"}\n')
    called = kept("init", "--from", "rows.jsonl", "--prompt-file", "prompt.md", "made")
    assert (called.code, words in called.stderr) == (2, True), called.stderr
    assert not (here / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rows.jsonl", "promptfooconfig.yaml"])
def test_rollouts_of_a_model_behind_an_api_run_8_at_a_time(
    here: Path, name: str, monkeypatch: pytest.MonkeyPatch
):
    rows = [{"text": f"mail {n}", "label": "spam" if n % 2 else "ham"} for n in range(40)]
    (here / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    checked = "assert: [{type: contains, value: a}]"
    tests = "".join(f"  - {{vars: {{x: {row['text']}}}, {checked}}}\n" for row in rows)
    (here / "promptfooconfig.yaml").write_text(
        f"prompts: ['{{{{x}}}}']\nproviders: [openai:gpt-5-mini]\ntests:\n{tests}"
    )
    with ModelServer(lambda _: "ham", latency=0.3) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        model = () if name.startswith("prompt") else ("--model", "openai/gpt-5-mini")
        assert kept("init", "--from", name, "mine", *model).code == 0
        assert kept("eval", "mine", "-q").code == 0
        assert server.most_at_once == 8


def test_a_skill_with_labelled_cases_is_scored_by_the_labels(here: Path):
    (here / "SKILL.md").write_text("# Sorting\n\nSort mails.\n")
    rows = [{"task": f"mail {n}", "label": "spam" if n % 2 else "ham"} for n in range(12)]
    (here / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    called = kept("init", "--from", "SKILL.md", "--cases", "tasks.jsonl", "made")
    assert called.code == 0, called.stderr
    spec = (here / "made" / "task.yaml").read_text()
    assert "judge" not in spec
    assert 'scorer: {type: python, function: "score:score"}' in spec
    assert "expected: label" in spec
    assert "LABELS = ['ham', 'spam']" in (here / "made" / "score.py").read_text()
    checked = kept("check", "made")
    assert checked.code == 0, checked.stderr
