"""Prompts of an agent's own for the judges of its metrics, and what is wrong with them."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.models.prompts import METRICS, Name, prompt
from kept.run import inputs_of
from kept.testing.server import ModelServer, Seen
from tests.recipes.agent_config.spec.agents import write
from tests.recipes.agent_config.test_agent import measured, plan_of
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

AGENT = """\
name: told
model: {provider: openai, name: gpt-4o-mini, endpoint: "URL"}
instructions: {inline: Answer.}
prompts: told
evaluations:
  model: {provider: openai, name: judge, endpoint: "URL"}
  metrics:
  - {metric: groundedness}
  - {metric: relevance}
  - {metric: coherence}
  - {metric: fluency}
  - {type: geval, name: Kind, criteria: It is kind.}
  - {type: rag, metric_type: faithfulness}
  - {type: rag, metric_type: answer_relevancy}
  - {type: rag, metric_type: contextual_precision}
  - {type: rag, metric_type: contextual_recall}
  - {type: rag, metric_type: contextual_relevancy}
test_cases: [{name: a, input: hello, ground_truth: hi, retrieval_context: [one]}]
"""
REPLIES = {
    "grade": '{"steps": [], "reason": "r", "grade": 5}',
    "verdict": '{"reason": "r", "verdict": "yes"}',
    "statements": '{"statements": ["it is"]}',
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def say(seen: Seen) -> str:
    if seen.model != "judge":
        return "hi"
    wanted = str(seen.body["response_format"])
    reply = next(text for name, text in REPLIES.items() if f"'{name}'" in wanted)
    return reply if "'steps'" in wanted else reply.replace('"steps": [], ', "")


def agent(folder: Path, url: str = "http://127.0.0.1:9", **files: str) -> Path:
    told = {f"told/{name}.md": text for name, text in files.items()}
    return write(folder, {"agent.yaml": AGENT.replace("URL", url), "told/.keep": "", **told})


def asked(folder: Path, **files: str) -> set[str]:
    """The first line of what judges were told."""
    with ModelServer(say) as server:
        sweep = measured(plan_of(agent(folder, server.v1, **files)), folder)
        bodies = [seen.body["messages"] for seen in server.log if seen.model == "judge"]
    assert sweep.count("passed") == 1, sweep.cases[0].why
    return {str(messages[0]["content"]).splitlines()[0] for messages in bodies}


def test_each_prompt_of_a_judge_has_its_place_taken_by_a_file(tmp_path: Path):
    own: dict[str, str] = {name: f"My {name}.\n" for name in METRICS}
    assert asked(tmp_path, **own) == {f"My {name}." for name in METRICS}


def test_where_there_is_no_file_kepts_own_is_told(tmp_path: Path):
    first: dict[Name, str] = {name: prompt(name).strip().splitlines()[0] for name in METRICS}
    told = asked(tmp_path, fluency="My {{kept.scale}}.\n")
    assert told == {*first.values()} - {first["fluency"]} | {"My 5."}


def test_a_prompt_of_one_metric_goes_before_the_folder(tmp_path: Path):
    path = agent(tmp_path, fluency="My fluency.\n")
    with ModelServer(say) as server:
        text = path.read_text().replace("http://127.0.0.1:9", server.v1)
        path.write_text(text.replace("metric: fluency", "metric: fluency, custom_prompt: Only."))
        measured(plan_of(path), tmp_path)
        told = [str(seen.body["messages"]) for seen in server.log]
    assert any("Only." in one for one in told) and not any("My fluency" in one for one in told)


def problems(path: Path) -> str:
    with pytest.raises(SpecError) as caught:
        plan_of(path)
    return "\n".join(map(str, caught.value.problems))


def test_what_is_wrong_with_a_prompt_is_told_with_its_line(tmp_path: Path):
    files = {"fluency": "A.\n\n{{kept.scales}}\n", "fluenci": "x", "geval": " \n"}
    told = problems(agent(tmp_path, statements="{{kept.x}}\n", **files))
    assert "told/fluency.md:3 prompts: `{{kept.scales}}` is no placeholder" in told
    assert "told/statements.md:1" in told and "(hint: it has none)" in told
    assert "`told/fluenci.md` has the name of no prompt" in told
    assert "did you mean `fluency.md`?" in told
    assert "`told/geval.md` is empty" in told


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("tolt", "agent.yaml:4 prompts: there is no folder `tolt`"),
        ("../told", "`../told` is not a path below the agent's folder"),
    ],
)
def test_a_folder_that_is_not_there_is_told(tmp_path: Path, given: str, problem: str):
    path = agent(tmp_path)
    path.write_text(path.read_text().replace("prompts: told", f"prompts: {given}"))
    assert problem in problems(path)


def test_a_run_goes_on_only_with_the_prompts_that_it_began_with(tmp_path: Path):
    path = agent(tmp_path, fluency="One.\n")
    before = inputs_of(plan_of(path))
    (tmp_path / "told" / "fluency.md").write_text("Another.\n")
    after = inputs_of(plan_of(path))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"`told/fluency.md`"}


def test_a_check_names_the_files_that_are_in_force(tmp_path: Path):
    path = agent(tmp_path, fluency="Read it.\n", geval="Judge it.\n")
    assert "told by your told/fluency.md, told/geval.md" in kept("check", str(path)).stdout
