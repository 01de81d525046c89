"""Each environment, trained for two steps and measured through the commands."""

import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.core.rollout import Usage
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.registry import find_env
from kept.testing.server import ModelServer, Seen
from tests.evaluators.environments import babyvision_data, mathverse_data, mmrb_data
from tests.evaluators.environments.bugs import make_kata
from tests.evaluators.environments.docvqa_data import amount, write_split
from tests.evaluators.environments.drawing import page
from tests.evaluators.environments.games import MOST_STEPS, PLANS, games, write_games
from tests.evaluators.environments.livemath_data import right_text, write_months
from tests.evaluators.environments.officeqa_data import spent
from tests.evaluators.environments.officeqa_data import write_split as write_officeqa
from tests.evaluators.environments.sealqa_data import csv_row, founded, write_rows
from tests.evaluators.environments.sealqa_data import write_split as write_sealqa
from tests.evaluators.environments.spreadsheet_data import program
from tests.evaluators.environments.spreadsheet_data import write_split as write_spreadsheets
from tests.evaluators.environments.test_livemathematicianbench import letter_of
from tests.recipes.skill.env_world import (
    JUDGE,
    RULE,
    STUDENT,
    TEACHER,
    EnvWorld,
    Reply,
    check_trained,
    evaluate,
    pictures,
    put_agent,
    system,
    train,
)
from tests.sandbox.coding_agents.stand_in import KEY
from tests.sandbox.coding_agents.worlds import shell
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

__all__ = ["games"]


def invoice(seen: Seen) -> str:
    n = int(seen.text.partition("invoice ")[2].partition("?")[0])
    assert pictures(seen) == [page(f"Invoice {n}", f"Total {amount(n)}")]
    return f"<answer>{amount(n)}</answer>"


def docvqa(folder: Path) -> list[str]:
    write_split(folder, (8, 10, 2))
    return []


def babyvision(folder: Path) -> list[str]:
    babyvision_data.write_babyvision(folder / "data" / "BabyVision", 24)
    return ["split_ratio='8:10:6'", "judge_model=judge"]


def seen_scene(seen: Seen) -> int:
    n = int(re.findall(r"scene (\d+)\?", seen.text)[0])
    assert pictures(seen) == [babyvision_data.drawn(n)]
    return n


def mathverse(folder: Path) -> list[str]:
    mathverse_data.write_mathverse(folder, (8, 10, 2))
    return ["judge_model=judge"]


def seen_rectangle(seen: Seen) -> int:
    n = int(re.findall(r"rectangle (\d+)\?", seen.text)[0])
    assert pictures(seen) == [mathverse_data.drawn(n)]
    return n


def mmrb(folder: Path) -> list[str]:
    mmrb_data.write_mmrb(folder / "data" / "MMRB", 24)
    return ["split_ratio='8:10:6'"]


def seen_row(seen: Seen) -> int:
    n = int(re.findall(r"Row (\d+):", seen.text)[0])
    assert pictures(seen) == mmrb_data.shown(n)
    return n


def letter(seen: Seen) -> str:
    return letter_of(seen.text, right_text(seen.text))


def livemath(folder: Path) -> list[str]:
    write_months(folder, 24)
    return ["split_ratio='8:10:6'"]


def kata(folder: Path) -> list[str]:
    if not (folder / "data").exists():
        make_kata(folder / "data", 12)
    return ["split_ratio='4:8:0'"]


def bash(seen: Seen, line: str) -> Reply:
    """One command, and then a word to end with."""
    if seen.tool_results:
        return "Done."
    call = ToolCall("1", "bash", json.dumps({"command": line}))
    return ModelReply("", Usage(1), "tool_calls", (call,))


def fixed(seen: Seen) -> Reply:
    path, value = re.findall(r"value\(\) of (\S+) should return (\d+)", seen.text)[0]
    return bash(seen, f"sed -i 's/None/{value}/' {path}")


def amounts(seen: Seen) -> list[str]:
    """What the preview shows of the amounts of a workbook."""
    return re.findall(r"B\d=(\d+)", "\n".join(line.text for line in seen.lines))


def spreadsheets(folder: Path) -> list[str]:
    write_spreadsheets(folder)
    return ["recalculate=false", "max_turns=2"]


def doubling(seen: Seen) -> str:
    assert len(amounts(seen)) == 3
    return program()


def tripling(seen: Seen) -> str:
    assert len(amounts(seen)) == 3
    return program(3)


def call(seen: Seen, tool: str, **arguments: object) -> ModelReply:
    """Ask for a tool; the call is named after the request, so that a resume names it alike."""
    given = json.dumps(arguments)
    name = f"call_{len(seen.tool_results)}_{zlib.crc32(given.encode())}"
    return ModelReply("", finish="tool_calls", tool_calls=(ToolCall(name, tool, given),))


def year_of(seen: Seen) -> str:
    return re.findall(r"defense in (\d+)", seen.text)[0]


def looked_up(seen: Seen) -> str | ModelReply:
    """List the documents, find the line of the year, read it, and answer."""
    found = seen.tool_results
    if not found:
        return call(seen, "glob", pattern="*")
    if len(found) == 1:
        return call(seen, "grep", pattern=f"| {year_of(seen)} |")
    path, line = found[1].split(":")[:2]
    if len(found) == 2:
        return call(seen, "read", path=path, start=int(line), limit=1)
    figure = found[2].split("|")[3].strip()
    assert figure == spent(int(year_of(seen)))
    return f"<answer>{figure} million</answer>"


def guessed(seen: Seen) -> str | ModelReply:
    return "<answer>12</answer>" if seen.tool_results else call(seen, "glob", pattern="*")


def officeqa(folder: Path) -> list[str]:
    write_officeqa(folder, (8, 10, 2))
    return []


def town(seen: Seen) -> int:
    asked = "\n".join(line.text for line in seen.lines if line.role == "user")
    return int(re.findall(r"town (\d+) founded", asked)[0])


def weighed(seen: Seen) -> str:
    """Nothing of use at first; then, with the page, the year in words of its own."""
    n = town(seen)
    if "## Fetched URL Content" not in seen.text:
        return "Let me see a page."
    assert f"It was founded {founded(n)}." in seen.text
    return f"<answer>the year {founded(n)[3:]}</answer>"


def compared(seen: Seen) -> str:
    """A judge's letter: whether both have the same year."""
    said = seen.text.partition("<answer>")[2].partition("</answer>")[0]
    gold = seen.text.partition("<expected>")[2].partition("</expected>")[0]
    return "A" if gold.split()[-1] == said.split()[-1] else "B"


def sealqa(folder: Path) -> list[str]:
    write_sealqa(folder, (8, 10, 2))
    return ["pages_dir=pages", f"judge_model={JUDGE}"]


def searchqa(folder: Path) -> list[str]:
    """A prepared split, where the config looks for it."""
    n = 0
    for part, size in (("train", 8), ("val", 10), ("test", 2)):
        place = folder / "data" / "searchqa_split" / part
        place.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                "id": f"q{k}",
                "question": f"Which word is number {k}?",
                "context": f"[DOC] Number {k} is called word{k * 17}.",
                "answers": [f"word{k * 17}"],
            }
            for k in range(n, n + size)
        ]
        (place / "items.json").write_text(json.dumps(rows))
        n += size
    return []


def looked_for(seen: Seen) -> str:
    n = int(re.findall(r"number (\d+)\?", seen.text)[0])
    assert f"[DOC] Number {n} is called" in seen.text
    return f"<answer>The word{n * 17}.</answer>"


def alfworld(folder: Path) -> list[str]:
    write_games(folder / "data" / "alfworld_split")
    limits = (f"max_steps={MOST_STEPS}", "games_at_once=2")
    return ["split_mode=split_dir", "split_dir=data/alfworld_split", *limits]


def played(seen: Seen) -> str:
    """The next action of the plan, one for each that was done."""
    told = "\n".join(line.text for line in seen.lines if line.role == "user")
    plan = next(plan for goal, plan in PLANS.items() if f"Your task is to: {goal}." in told)
    done = sum(line.role == "assistant" for line in seen.lines)
    return f"<action>{plan[done]}</action>"


WORLDS = {
    "babyvision": EnvWorld(
        "babyvision",
        babyvision,
        lambda seen: babyvision_data.right(seen_scene(seen)),
        lambda seen: babyvision_data.wrong(seen_scene(seen)),
        lambda seen: babyvision_data.verdict(seen.text),
    ),
    "docvqa": EnvWorld("docvqa", docvqa, invoice, lambda _: "<answer>unreadable</answer>"),
    "livemathematicianbench": EnvWorld(
        "livemathematicianbench",
        livemath,
        lambda seen: f"<answer>{letter(seen)}</answer>",
        lambda seen: f"<answer>{'A' if letter(seen) != 'A' else 'B'}</answer>",
    ),
    "searchqa": EnvWorld("searchqa", searchqa, looked_for, lambda _: "<answer>a word</answer>"),
    "alfworld": EnvWorld("alfworld", alfworld, played, lambda _: "<action>look</action>", batch=2),
    # what happens in a sandbox takes longer than one reply: fewer cases a step
    "swebench": EnvWorld(
        "swebench", kata, fixed, lambda seen: bash(seen, "echo '# no' >> kata/n00.py"), batch=2
    ),
    "mathverse": EnvWorld(
        "mathverse",
        mathverse,
        lambda seen: mathverse_data.right(seen_rectangle(seen)),
        lambda seen: mathverse_data.wrong(seen_rectangle(seen)),
        lambda seen: mathverse_data.verdict(seen.text),
    ),
    "mmrb": EnvWorld(
        "mmrb",
        mmrb,
        lambda seen: mmrb_data.right(seen_row(seen)),
        lambda seen: mmrb_data.wrong(seen_row(seen)),
    ),
    "spreadsheetbench": EnvWorld("spreadsheetbench", spreadsheets, doubling, tripling),
    "officeqa": EnvWorld("officeqa", officeqa, looked_up, guessed),
    "sealqa": EnvWorld(
        "sealqa", sealqa, weighed, lambda _: "<answer>the year 1066</answer>", compared
    ),
}
"""By the name of the environment; each trains on 8 cases, or on two steps of fewer."""

MARKS = {
    "spreadsheetbench": (pytest.mark.sandbox,),
    "alfworld": (pytest.mark.alfworld, pytest.mark.nightly),
}
"""What an environment needs of the machine; games take longer than all else."""

AGENTS = {
    "babyvision": """
import re
from tests.evaluators.environments.babyvision_data import drawn, right, wrong
task = pathlib.Path("task.md").read_text()
assert "[picture: images/01.png]" in task
n = int(re.findall(r"scene (\\d+)\\?", task)[0])
assert pathlib.Path("images/01.png").read_bytes() == drawn(n)
return right(n) if has_rule else wrong(n)
""",
    "docvqa": """
import hashlib
task = pathlib.Path("task.md").read_text()
assert "[picture: images/01.png]" in task
n = int(task.partition("invoice ")[2].partition("?")[0])
assert pathlib.Path("images/01.png").read_bytes()[:4] == b"\\x89PNG"
return f"<answer>{n * 37 + 100} dollars</answer>" if has_rule else "<answer>unreadable</answer>"
""",
    "livemathematicianbench": """
task = pathlib.Path("task.md").read_text()
from tests.evaluators.environments.livemath_data import right_text
right = right_text(task)
letter = next(line[0] for line in task.splitlines() if line[1:] == f". {right}")
return f"<answer>{letter}</answer>" if has_rule else "<answer>none</answer>"
""",
    "mathverse": """
import re
from tests.evaluators.environments.mathverse_data import drawn, right, wrong
task = pathlib.Path("task.md").read_text()
assert "[picture: images/01.png]" in task
n = int(re.findall(r"rectangle (\\d+)\\?", task)[0])
assert pathlib.Path("images/01.png").read_bytes() == drawn(n)
return right(n) if has_rule else wrong(n)
""",
    "mmrb": """
import re
from tests.evaluators.environments.mmrb_data import right, shown, wrong
task = pathlib.Path("task.md").read_text()
n = int(re.findall(r"Row (\\d+):", task)[0])
named = re.findall(r"\\[picture: (\\S+)\\]", task)
assert [pathlib.Path(one).read_bytes() for one in named] == shown(n)
return right(n) if has_rule else wrong(n)
""",
    "spreadsheetbench": """
import openpyxl
from tests.evaluators.environments.spreadsheet_data import program
task = pathlib.Path("task.md").read_text()
assert "put twice the amount" in task and pathlib.Path("README.txt").read_text()
assert openpyxl.load_workbook("input.xlsx").sheetnames == ["Sales"]
said = program(2 if has_rule else 3)
code = said.partition("```python")[2].partition("```")[0]
pathlib.Path("solution.py").write_text(code)
return "The program is in solution.py."
""",
    "officeqa": """
task = pathlib.Path("task.md").read_text()
year = task.partition("defense in ")[2][:4]
named = task.partition("## Candidate Files")[2].partition("##")[0].split()[1::2]
assert sorted(one.name for one in pathlib.Path(".").glob("*.txt")) == sorted(named)
lines = [line for name in named for line in pathlib.Path(name).read_text().splitlines()]
figure = next(line.split("|")[3] for line in lines if line.startswith(f"| {year} |"))
return f"<answer>{figure}</answer>" if has_rule else "<answer>12</answer>"
""",
    "searchqa": """
import re
task = pathlib.Path("task.md").read_text()
n = int(re.findall(r"number (\\d+)\\?", task)[0])
return f"<answer>word{n * 17}</answer>" if has_rule else "<answer>a word</answer>"
""",
    "sealqa": """
task = pathlib.Path("task.md").read_text()
n = int(task.partition("town ")[2].split()[0])
page = pathlib.Path("pages/01.txt").read_text()
assert page == f"Town {n}\\nIt was founded in {1200 + n * 7}."
return f"<answer>the year {page.split()[-1][:-1]}</answer>" if has_rule else "<answer>?</answer>"
""",
}
"""What a stand-in for an agent CLI does, for the environments that the seed wires one for."""

AGENT_SETTINGS = {"spreadsheetbench": ("env.mode=single",)}


@pytest.fixture(autouse=True)
def here(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if "agent_clis" in request.fixturenames:
        request.getfixturevalue("agent_clis")  # they lie in the cache that is replaced below
    if "[alfworld" in request.node.name:
        request.getfixturevalue("games")  # and so do these
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")
    return tmp_path


def marked(names: Iterable[str]) -> list[Any]:
    """Names as parameters of a test, each with the marks of its environment."""
    return [pytest.param(name, marks=MARKS.get(name, ())) for name in sorted(names)]


@pytest.fixture(params=marked(WORLDS))
def world(request: pytest.FixtureRequest) -> EnvWorld:
    return WORLDS[request.param]


@pytest.fixture
def server(world: EnvWorld) -> Iterator[ModelServer]:
    with ModelServer(world.answer) as made:
        yield made


def test_two_steps_of_training_keep_the_rule(world: EnvWorld, server: ModelServer, here: Path):
    called = train(world, here, server, "evaluation.gate=selection")
    check_trained(called, here)
    asked = [seen for seen in server.log if seen.model == STUDENT]
    assert any(RULE in seen.lines[0].text for seen in asked)


RACED = ("docvqa", "sealqa")
"""Whose race is run in each run of the tests; nightly all are. To a race they differ in nothing."""


@pytest.mark.parametrize(
    "world",
    [
        pytest.param(
            name, marks=() if name in RACED else (*MARKS.get(name, ()), pytest.mark.nightly)
        )
        for name in sorted(WORLDS)
    ],
    indirect=True,
)
def test_a_race_keeps_the_rule(world: EnvWorld, server: ModelServer, here: Path):
    called = train(world, here, server, "evaluation.gate=race")
    assert called.code == 0, called.stderr
    assert json.loads((here / "out" / "config.json").read_text())["gate"] == "race"
    assert RULE in (here / "out" / "best_skill.md").read_text()


def test_a_skill_is_measured_on_all_cases(world: EnvWorld, server: ModelServer, here: Path):
    (here / "ruled.md").write_text(f"# Skill\n\n- {RULE}\n")
    told = evaluate(world, here, server)
    assert told["summary"]["passed"] == 0 < len(told["results"])
    told = evaluate(world, here, server, "env.skill_init=ruled.md")
    assert told["summary"]["passed"] == len(told["results"])


def test_the_baseline_without_any_skill(world: EnvWorld, server: ModelServer, here: Path):
    words = world.words("eval", here, server.v1)
    called = kept(*words[:3], "--skill", "none", "--limit", "2", "--json", *words[4:])
    assert called.code == 0, called.stderr
    asked = [seen for seen in server.log if seen.model == STUDENT and not seen.tool_results]
    first = [seen for seen in asked if all(line.role != "assistant" for line in seen.lines)]
    assert len(first) == 2 and not any("# Skill" in system(seen) for seen in server.log)


STANDALONE = [
    pytest.param("spreadsheetbench", "official", "You are an expert", marks=pytest.mark.sandbox),
    pytest.param("spreadsheetbench", "custom", "## Critical Rules", marks=pytest.mark.sandbox),
    pytest.param("livemathematicianbench", "official", "a careful expert in mathematics"),
    pytest.param("livemathematicianbench", "current", "between <answer> and </answer>"),
]


@pytest.mark.parametrize(("name", "prompt", "told"), STANDALONE)
def test_the_standalone_evaluations_of_the_method(name: str, prompt: str, told: str, here: Path):
    """A prompt without a skill: `eval_prompt_official`, `eval_prompt_custom`, the baseline."""
    made = WORLDS[name]
    with ModelServer(lambda seen: made.right(seen).replace("<answer>", "Answer: ")) as server:  # type: ignore[union-attr] # a text
        words = made.words("eval", here, server.v1)
        config = f"configs/{name}/default.yaml"
        more = ["--prompt", prompt, "--skill", "none", "--limit", "2", "-o", "out.json", "-q"]
        called = kept("eval", config, *more, *words[4:])
        assert called.code == 0, called.stderr
        assert len(server.log) == 2 and all(told in system(seen) for seen in server.log)
        assert not any("# Skill" in system(seen) for seen in server.log)
    report = json.loads(Path("out.json").read_text())
    solved = 2 if prompt != "current" else 0
    assert report["environment"]["prompt"] == prompt
    assert report["summary"]["passed"] == solved and report["summary"]["total_tests"] == 2


def test_missing_data_is_one_error_that_says_what_to_get(
    world: EnvWorld, server: ModelServer, here: Path
):
    words = world.words("train", here / "elsewhere", server.v1)
    words = [word for word in words if "split_ratio" not in word]
    called = kept(*words)
    assert called.code == 2
    (line,) = called.stderr.splitlines()
    env = find_env(EnvSettings(name=world.name))
    assert "there is no" in line and f"{here}/data/" in line
    assert line.endswith(f"(hint: {env.data})")
    assert world.name in env.data.lower().replace("-", "")


def test_a_verdict_that_cannot_be_read_is_no_wrong_answer(here: Path):
    """The case is missing; those that a rule decides are not."""

    def undecided(_: Seen) -> str:
        return "Hard to say."

    made = replace(WORLDS["mathverse"], judge=undecided)
    with ModelServer(made.answer) as server:
        words = made.words("eval", here, server.v1)
        called = kept(*words[:3], "--split", "test", "--json", *words[4:])
    results = {one["test_name"]: one for one in json.loads(called.stdout)["results"]}
    assert {name: one["status"] for name, one in results.items()} == {
        "18": "failed",
        "19": "errored",
    }
    assert results["19"]["errors"] == ["the judge said neither True nor False: `Hard to say.`"]


@pytest.mark.parametrize("command", ["train", "eval"])
def test_known_traps_are_named_before_anything_is_run(command: str, here: Path):
    made = WORLDS["sealqa"]
    with ModelServer(made.answer) as server:
        words = made.words(command, here, server.v1, "evaluation.gate=selection")
        path = here / "data/sealqa_split/val/val.csv"
        rows = [{**csv_row(n), "search_results": "conflicting"} for n in range(8, 18)]
        write_rows(path, rows)
        called = kept(*words)
    assert called.code == 0, called.stderr
    (line,) = [one for one in called.stderr.splitlines() if "only names its kind" in one]
    assert line.startswith("warning: 10 cases: ") and f"`q8` ({path}:2)" in line


def test_analysts_see_the_pictures_of_cases_where_the_config_wants_it(here: Path):
    made = WORLDS["docvqa"]
    for wanted in (False, True):
        with ModelServer(made.answer) as server:
            place = here / str(wanted)
            more = ("evaluation.gate=selection", f"env.out_root={place}")
            more = (*more, f"gradient.pictures_to_teacher={str(wanted).lower()}")
            called = train(made, here, server, *more)
            assert called.code == 0, called.stderr
            shown = [seen for seen in server.log if seen.model == TEACHER and pictures(seen)]
        assert bool(shown) == wanted
        for seen in shown:
            asked = re.findall(r"invoice (\d+)\?", seen.text)
            numbers = [int(n) for n in dict.fromkeys(asked)]
            drawn = [page(f"Invoice {n}", f"Total {amount(n)}") for n in numbers]
            assert pictures(seen) == drawn, "each page behind its own rollout"


WORKED = ("docvqa", "officeqa", "sealqa", "spreadsheetbench")
"""A workspace with pictures, with texts, with pages and with a workbook: each run of the tests has
an agent trained in these, and nightly in all."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=(*MARKS.get(name, ()), *(() if name in WORKED else (pytest.mark.nightly,)))
        )
        for name in sorted(AGENTS)
    ],
)
def test_an_agent_is_trained_as_a_student(name: str, here: Path, monkeypatch: pytest.MonkeyPatch):
    world = WORLDS[name]
    agent = put_agent(here / "programs", AGENTS[name], monkeypatch)
    with ModelServer(world.answer) as server:
        more = ("evaluation.gate=selection", *agent, *AGENT_SETTINGS.get(name, ()))
        called = train(world, here, server, *more)
        asked = {seen.model for seen in server.log}
    check_trained(called, here)
    assert STUDENT not in asked


READ = "cat .agents/skills/*/*.md .claude/skills/*/*.md 2>/dev/null; od -An -c -N4 images/01.png"


@pytest.mark.agents
@pytest.mark.sandbox
@pytest.mark.usefixtures("agent_clis")
@pytest.mark.parametrize(
    "name",
    # each rollout starts the CLI anew, which takes this one some seconds
    ["codex_exec", pytest.param("claude_code_exec", marks=pytest.mark.nightly)],
)
def test_a_real_cli_is_trained_with_the_pictures_in_its_workspace(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
):
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(key, KEY)

    def answer(seen: Seen) -> str | ModelReply:
        if seen.model == TEACHER:
            return WORLDS["docvqa"].answer(seen)
        if not seen.tools:
            return "a title"
        if not seen.tool_results:
            return shell(name, READ)
        assert "P   N   G" in seen.tool_results[-1]
        n = int(re.findall(r"invoice (\d+)\?", "\n".join(line.text for line in seen.lines))[0])
        right = RULE in seen.tool_results[-1]
        return f"<answer>{amount(n)}</answer>" if right else "<answer>unreadable</answer>"

    def write(folder: Path) -> list[str]:
        write_split(folder, (2, 2, 1))
        return []

    world = EnvWorld("docvqa", write, invoice, invoice, batch=1)
    with ModelServer(answer) as server:
        provider = "anthropic" if name == "claude_code_exec" else "openai"
        url = server.url if name == "claude_code_exec" else server.v1
        target = f"{{provider: {provider}, model: some-model, base_url: '{url}'}}"
        more = ("evaluation.gate=selection", f"model.student_backend={name}")
        called = train(world, here, server, *more, f"model.target={target}")
    check_trained(called, here)
