"""`kept eval` of a skill: one skill measured on one split, as a run."""

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from kept.testing.server import Fault, ModelServer, Seen
from tests.recipes.skill import world
from tests.sandbox.coding_agents import stand_in
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")


def right(seen: Seen) -> str:
    """Every second question is answered, and one of three with nothing."""
    n = int(seen.text.split("What is number ")[1].split("?")[0])
    if n % 6 == 5:
        return "<answer></answer>"
    return f"<answer>word{n * 17}</answer>" if n % 2 == 0 else "<answer>no idea</answer>"


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(right) as made:
        yield made


def words(here: Path, server: ModelServer, *more: str) -> list[str]:
    (here / "mine #1.md").write_text("Be brief.\n")
    given = world.write_searchqa(here, server.v1)
    return ["eval", *given[1:3], "--skill", "mine #1.md", *more, *given[4:]]


def test_a_skill_is_measured_on_the_cases_that_nobody_has_seen(here: Path, server: ModelServer):
    called = kept(*words(here, server, "--json"))
    assert called.code == 0, called.stderr
    told = json.loads(called.stdout)
    assert told["agent_name"] == "searchqa, test"
    rows = {row["test_name"]: row for row in told["results"]}
    assert len(rows) == 12
    solved = sum(int(name[1:]) % 2 == 0 for name in rows)
    assert told["summary"]["passed"] == solved
    means = told["summary"]["average_scores"]
    assert means["hard"] == pytest.approx(solved / 12), "an empty answer counts, and not as nothing"
    asked = {line.lines[0].text for line in server.log}
    assert all("Be brief." in text for text in asked)


def test_a_skill_that_is_not_there_is_reported_as_the_flag(here: Path, server: ModelServer):
    called = kept("eval", *world.write_searchqa(here, server.v1)[1:3], "--skill", "nope.md")
    assert called.code == 2
    assert "error: --skill nope.md: there is no " in called.stderr
    assert "skill_init" not in called.stderr


@pytest.mark.parametrize("command", ["eval", "train"])
def test_any_flag_with_a_wrong_value_is_reported_as_it_was_typed(
    here: Path, server: ModelServer, command: str
):
    config = world.write_searchqa(here, server.v1)[1:3]
    flags = ("--batch-size", "x", "--exports=ful")
    called = kept(command, *config, *flags)
    assert called.code == 2
    wrong = "error: --batch-size x: the text `x`, where a whole number was expected"
    assert wrong in called.stderr
    assert "error: --exports ful: the text `ful`, where `brief` or `full` was" in called.stderr
    assert "train.batch_size" not in called.stderr


def test_a_split_is_chosen_by_either_of_its_names(here: Path, server: ModelServer):
    for name in ("val", "valid_seen"):
        called = kept(*words(here, server, "--split", name, "--json"))
        assert len(json.loads(called.stdout)["results"]) == 18
    called = kept(*words(here, server, "--split", "vall"))
    assert called.code == 2
    assert "there is no split `vall`" in called.stderr


def test_its_cases_can_be_looked_at(here: Path, server: ModelServer):
    assert kept(*words(here, server, "--limit", "4")).code == 0
    listed = kept("show", "last")
    assert listed.code == 0, listed.stderr
    assert "hard" in listed.stdout
    case = next(word for word in listed.stdout.split() if word.startswith("q"))
    shown = kept("show", "last", case)
    assert shown.code == 0, shown.stderr
    assert "What is number" in shown.stdout
    assert "hard " in shown.stdout, "what the scorer says is told"
    many = kept("show", "last", "q")
    assert many.code == 2 and "has 4 cases that begin with `q`" in many.stderr
    # names of games are long: how one begins is enough, where no other begins so
    called = kept(*words(here, server, "--limit", "1"))
    assert called.code == 0 and called.stderr.splitlines()[0].endswith(", 1 rollout")
    assert "What is number" in kept("show", "last", "q").stdout


def test_an_outage_is_missing_and_never_a_wrong_answer(here: Path):
    """The original wrote it down as done and wrong, and counted it."""
    seen: set[str] = set()

    def reply(asked: Seen) -> str | Fault:
        if "number 30?" in asked.text:
            return Fault("status", 503)
        if "number 3" in asked.text and asked.text not in seen:
            seen.add(asked.text)
            return Fault("status", 503)
        return right(asked)

    with ModelServer(reply) as server:
        given = words(here, server, "--split", "all", "--json")
        called = kept(*given[:-1], given[-1].replace("cache: false", "cache: false, tries: 2"))
    assert called.code == 3, called.stderr
    told = called.json["summary"]
    assert len(seen) == 10
    assert (told["passed"], told["failed"], told["errored"]) == (29, 30, 1)
    assert told["average_scores"]["hard"] == pytest.approx(29 / 59), "what is missing is no zero"


def test_a_config_is_known_for_what_it_is(here: Path, server: ModelServer):
    given = words(here, server)
    base = Path(str(files("kept")), "recipes", "skill", "configs", "searchqa", "default.yaml")
    (here / "own.yaml").write_text(f"_base_: {base}\ntrain: {{batch_size: 4}}\n")
    called = kept("eval", "own.yaml", *given[3:], "--limit", "2")
    assert called.code == 0, called.stderr


def test_words_of_a_skill_are_refused_elsewhere(here: Path):
    (here / "task.yaml").write_text("artifacts: {include: [a]}\n")
    called = kept("eval", "task.yaml", "--skill", "x.md")
    assert called.code == 2
    assert "--skill is for a skill config" in called.stderr
    called = kept("eval", "task.yaml", "--split_mode", "ratio")
    assert called.code == 2
    assert "--split_mode" in called.stderr
    assert kept("eval").code == 2


def test_a_measurement_that_was_cut_goes_on_from_another_folder(
    here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    """Its paths begin where it was started; it asks nothing that its budget does not pay for."""
    called = kept(*words(here, server, "--split", "val", "--json"), "budget.max_rollouts=7")
    assert called.code == 3, called.stderr
    assert not server.log, "a part of the cases is no measurement"
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    again = kept("resume", "last", "--json", "--set", "budget.max_rollouts=100")
    assert again.code == 0, again.stderr
    assert len(again.json["results"]) == 18
    assert len(server.log) == 18


def test_eval_resumes_a_measurement_and_writes_its_report(here: Path, server: ModelServer):
    """As the standalone scripts of the method do: what was asked is not asked again."""
    given = words(here, server, "--split", "val", "-q")
    called = kept(*given, "budget.max_rollouts=7")
    assert called.code == 3, called.stderr
    again = [*given[:3], "--resume", "-o", "out.json", *given[3:]]
    called = kept(*again, "budget.max_rollouts=100")
    assert called.code == 0, called.stderr
    assert len(server.log) == 18
    first = json.loads((here / "out.json").read_text())
    assert len(first["results"]) == 18 and 0 < first["summary"]["average_scores"]["hard"] < 1
    run = first["environment"]["run"]
    named = [*given[:3], "--resume", run, "-o", "again.json", *given[3:]]
    assert kept(*named, "budget.max_rollouts=100").code == 0
    assert len(server.log) == 18, "a run that is over is only told again"
    assert json.loads((here / "again.json").read_text())["results"] == first["results"]


def test_resume_is_for_a_skill_config_and_needs_a_run(here: Path, server: ModelServer):
    given = words(here, server, "--split", "val", "-q")
    called = kept(*given[:3], "--resume", *given[3:])
    assert called.code == 2 and "there is no run in" in called.stderr
    (here / "task.yaml").write_text("artifacts: {include: [a]}\n")
    called = kept("eval", "task.yaml", "--resume", "last")
    assert called.code == 2 and "--resume is for a skill config" in called.stderr


def test_what_an_agent_cli_did_is_reported(
    here: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    stand_in.put(here, "cat > /dev/null", monkeypatch)
    agent = ["model.student_backend=codex_exec", "model.codex_exec_sandbox=danger-full-access"]
    given = words(here, server, "--limit", "1", "--json")
    given = [word for word in given if not word.startswith("model.target=")]
    given.append("model.target={provider: openai, model: m, base_url: 'http://127.0.0.1:1/v1'}")
    called = kept(*given, *agent)
    assert called.code == 0, called.stderr
    (row,) = json.loads(called.stdout)["results"]
    first = row["tool_invocations"][0]
    command = "cat .agents/skills/units/SKILL.md"
    assert (first["name"], first["args"]) == ("command", {"command": command})
    assert row["agent_response"] == "I wrote 1.83 m to answer.txt."
    shown = kept("show", "last", row["test_name"])
    assert shown.code == 0 and command in shown.stdout
