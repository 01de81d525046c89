"""Help: complete, true to the commands, cheap."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kept.sandbox.capabilities import abilities
from kept.testing.server import ModelServer
from kept.ui.cli._command import Command
from kept.ui.cli.main import COMMANDS, SECTIONS, cli
from tests import warm
from tests.orchestrator.experiments.made import write_experiment
from tests.orchestrator.play import GOOD, REPORT, Play, complete, delegate, done, plan, say, write
from tests.orchestrator.run_folder.made import perfect_run
from tests.ui.cli.reference_page import PAGE, reference_page
from tests.ui.cli.tasks import kept, write_task

no_walls = pytest.mark.skipif(not abilities().walls, reason="no walls here")
HEAVY = ("pydantic", "rich", "ruamel", "asyncio", "msgspec", "fastapi", "jinja2", "uvicorn")


def command(name: str) -> Command:
    found = cli.get_command(click.Context(cli, info_name="kept"), name)
    assert isinstance(found, Command)
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says_of_itself(name: str):
    assert command(name).get_short_help_str(limit=200).rstrip(".") == COMMANDS[name].summary


def test_help_lists_every_command_in_its_section():
    text = kept("--help").stdout
    places = [text.index(f"\n{section}:") for section in SECTIONS if f"\n{section}:" in text]
    assert places == sorted(places)
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text[text.index(f"\n{entry.section}:") :]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_every_option_has_help(name: str):
    found = command(name)
    assert found.help
    options = [param for param in found.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_shows_an_example_of_itself(name: str):
    assert command(name).examples
    shown = kept(name, "--help").stdout
    for example in command(name).examples:
        assert example.startswith(f"kept {name}")
        assert f"\n  {example}" in shown


def test_every_command_of_a_group_has_help_and_an_example_of_itself():
    groups = [(name, command(name)) for name in COMMANDS]
    inner = [
        (f"kept {name} {below}", found)
        for name, group in groups
        if isinstance(group, click.Group)
        for below, found in group.commands.items()
    ]
    assert {"kept models list", "kept test run"} <= {name for name, _ in inner}
    for name, found in inner:
        assert isinstance(found, Command)
        assert found.help
        assert all(example.startswith(name) for example in found.examples)
        options = [param for param in found.params if isinstance(param, click.Option)]
        assert [option.name for option in options if not option.help] == []


def commands(group: click.Group, words: str = "kept") -> Iterator[tuple[str, click.Command]]:
    """Every command there is, by what is typed for it."""
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{words} {name}")
        else:
            yield f"{words} {name}", found


def test_every_command_has_an_answer_for_programs():
    options = {words: [o for p in one.params for o in p.opts] for words, one in commands(cli)}
    assert len(options) > 30
    without = [words for words, known in options.items() if "--json" not in known]
    # as its source has it: a line of JSON for every event, the last of which is the answer
    assert without == ["kept test optimize"] and "--progress" in options["kept test optimize"]


def test_the_reference_page_is_what_the_commands_print():
    assert PAGE.read_text(encoding="utf-8") == reference_page(), "run scripts/help"


def test_kept_alone_shows_its_help_and_does_not_pass_for_success():
    called = kept()
    assert called.code == 2
    assert called.stdout == ""
    assert "optimize" in called.stderr


def test_the_version_is_told():
    assert kept("--version").stdout.startswith("kept 0.")


HELPED = """\
import sys
from kept.ui.cli.main import main
for args in {every!r}:
    sys.argv = ["kept", *args]
    try:
        main()
    except SystemExit as end:
        code = end.code
    loaded = [name for name in {heavy!r} if name in sys.modules]
    print(*args, code, loaded, file=sys.stderr)
"""


@pytest.mark.slow
def test_help_imports_nothing_heavy():
    every = [["--help"], *([name, "--help"] for name in COMMANDS)]
    script = HELPED.format(every=every, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    # in one process: the first that is told of is the one that imports it
    assert done.stderr.splitlines() == [f"{' '.join(args)} 0 []" for args in every]


def write_scripted_agent(folder: Path) -> None:
    """An agent whose model says what a file has it say."""
    (folder / "replies.jsonl").write_text('{"text": "no"}\n' * 20)
    (folder / "agent.yaml").write_text(
        "name: refunds\nmodel: {provider: scripted, name: replies.jsonl}\n"
        "instructions: {inline: Say no.}\n"
        "evaluations: {metrics: [{type: standard, metric: equality}]}\n"
        "test_cases: [{name: refund-over-limit, input: may I?, ground_truth: 'no'}]\n"
    )


def write_scripted_skill(folder: Path) -> None:
    """A skill config whose student is always wrong, and whose teacher has nothing to say."""
    rows = [{"id": f"q{n}", "question": f"Who is {n}?", "answers": [f"x{n}"]} for n in range(6)]
    (folder / "data.json").write_text(json.dumps(rows))
    said = '{"failure_summary": [], "patch": {"reasoning": "", "edits": []}}'
    (folder / "teacher.jsonl").write_text(f"{json.dumps(said)}\n" * 20)
    (folder / "student.jsonl").write_text('"<answer>me</answer>"\n' * 200)
    (folder / "SKILL.md").write_text("Answer.\n")
    (folder / "skill.yaml").write_text(
        "model: {optimizer: scripted/teacher.jsonl, target: scripted/student.jsonl}\n"
        "train: {num_epochs: 2}\n"
        "env: {name: searchqa, data_path: data.json, split_ratio: '1:1:1'}\n"
    )


def write_scripted_run(folder: Path) -> None:
    """A manager, workers and critics of an agent run that say what a file has them say."""
    wants = {"name": "file_write", "arguments": {"path": "output/report.md", "content": REPORT}}
    said = [plan("report.md"), delegate("w1"), done("w1"), say(GOOD), complete()]
    lines = [*said[:2], {"text": "", "tool_calls": [wants]}, *said[2:]]
    (folder / "said.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (folder / "run.yaml").write_text("models: {manager: scripted/said.jsonl}\n")
    (folder / "data.csv").write_text("May,12\nJune,15\n")
    (folder / "src").mkdir()
    (folder / "src" / "test_it.py").write_text("def test_it():\n    assert 1\n")


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """One that does every task in the same way."""
    play = Play([plan("report.md"), delegate("w1"), complete()], {"w1": [write(), done("w1")]})
    with ModelServer(play.of_server) as server:
        yield server


def examples_of(name: str) -> list[str]:
    """Those of a command, and for an agent run those of the command below."""
    found = command(name)
    below = found.commands["run"] if name == "agent" and isinstance(found, click.Group) else None
    return [*found.examples, *(below.examples if isinstance(below, Command) else ())]


@pytest.mark.slow
# test_wheel.py runs `kept demo`, which takes its time, and tests/web `kept view`, which ends when
# it is told to
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.sandbox, no_walls] if n == "agent" else [])
        for n in COMMANDS
        if n not in ("demo", "view")
    ],
)
def test_every_example_runs(name: str, here: Path, model: ModelServer):
    write_task(here)
    write_scripted_agent(here)
    write_scripted_skill(here)
    if name == "show":
        assert kept("eval", "agent.yaml").code == 0
    if name == "refine":
        write_experiment(here, perfect_run(here / "runs" / "first"))
    if name in ("resume", "runs", "show", "diff", "report", "adopt", "doctor"):
        assert kept("optimize", "task.yaml").code == 0
    rows = [{"n": n, "expected": "x"} if name == "init" else {"n": n} for n in range(9)]
    (here / "cases.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (here / "cases.csv").write_text("question,answer\nWho?,Me\n")
    (here / "promptfooconfig.yaml").write_text(
        "prompts: ['{{x}}']\nproviders: [openai:gpt-5-mini]\n"
        "tests: [{vars: {x: one}, assert: [{type: contains, value: one}]}]\n"
    )
    bin_folder = here.parent / "bin"
    bin_folder.mkdir()
    warm.put_command(bin_folder)
    asked: dict[str, str] = {}
    if name == "agent":
        write_scripted_run(here)
        asked = {"KEPT_MODEL": "scripted/said.jsonl", "OPENAI_API_KEY": "none"}
        asked["OPENAI_BASE_URL"] = model.v1
    python = Path(sys.executable).parent
    for example in examples_of(name):
        done = subprocess.run(
            example,
            shell=True,
            cwd=here,
            env={"PATH": f"{bin_folder}:{python}:/usr/bin:/bin", "TMPDIR": str(here), **asked},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
