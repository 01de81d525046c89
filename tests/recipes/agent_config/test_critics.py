"""The agents that improve an agent: where they lie, whose model they ask, what they may see."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases
from kept.core.edit import Write
from kept.core.llm import ModelReply
from kept.core.proposal import Answer, Ask, Proposal, Turn
from kept.core.rollout import Pair
from kept.core.schedules.round_robin import Turns
from kept.core.score import Outcome
from kept.errors import SpecError
from kept.gates.seed_rules import Strict
from kept.proposers.critique import DIAGNOSIS
from kept.proposers.text_units import TextAxis
from kept.recipes.agent_config.compile import plan_of
from kept.recipes.agent_config.critics import FOLDER, THEIRS, Critics, further_texts, read_critics
from kept.recipes.agent_config.spec.read import read_agent
from kept.recipes.evaluate.request import Wanted
from kept.testing import MemoryJournal
from kept.testing.run import sit
from kept.testing.server import ModelServer, Seen
from tests.proposers.briefs import ask, make_brief
from tests.recipes.agent_config.world import answer, write_agent

AGENT = """\
name: desk
model: {{provider: openai, name: gpt-5-mini, endpoint: "{url}", api_key: "${{DESK_KEY}}", max_tokens: 40, top_p: 0.5}}
instructions: {{inline: Answer in one word.}}
execution: {{llm_timeout: 7}}
tools:
- type: mcp
  name: files
  description: Finds files.
  command: npx
  args: [server, --token, not-for-critics]
  env: {{TOKEN: "literal-secret"}}
- {{type: prompt, name: sum_up, description: Sums up., template: "Sum up: {{{{text}}}}", parameters: {{text: {{type: string}}}}}}
test_cases:
- {{name: one, input: 1 + 1?, ground_truth: '2'}}
"""  # noqa: E501 # YAML that is not wrapped

FOUND = {
    "failing_pattern": "p",
    "root_cause_hypothesis": "c",
    "suggested_change_direction": "d",
    "confidence": 0.9,
    "citations": ["one"],
    "avoid": [],
}
REVISED = {
    "edit_type": "replace",
    "rationale": "r",
    "new_text": "Use the tool, then double.",
    "diff_summary": "s",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DESK_KEY", "key-that-nobody-may-see")


def critics(
    folder: Path, url: str = "http://127.0.0.1:1/v1", texts: Mapping[str, str] | None = None
) -> Critics:
    (folder / "agent.yaml").write_text(AGENT.format(url=url))
    for name, text in (texts or {}).items():
        path = folder / ".kept" / FOLDER / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_critics(read_agent(folder / "agent.yaml"), folder / ".kept")


def test_they_are_put_into_the_project_once_and_what_people_change_stays(tmp_path: Path):
    first = critics(tmp_path)
    assert first.critic.path == tmp_path / ".kept/optimizer/agents/critic.yaml"
    assert first.applier.path.read_text().startswith("# The applier")
    changed = first.critic.path.read_text().replace("temperature: 0.2", "temperature: 0.9")
    first.critic.path.write_text(changed)
    again = critics(tmp_path)
    assert first.critic.path.read_text() == changed
    assert again.critic.config.temperature == 0.9
    assert again.inputs["critic.yaml"] != first.inputs["critic.yaml"], "a run depends on them"
    assert again.inputs["applier.yaml"] == first.inputs["applier.yaml"]


def test_without_a_model_of_their_own_they_ask_the_agents_at_their_own_temperature(tmp_path: Path):
    both = critics(tmp_path)
    for one, temperature, most in ((both.critic, 0.2, 2000), (both.applier, 0.4, 4000)):
        config = one.config
        assert (config.name, config.base_url) == ("openai/gpt-5-mini", "http://127.0.0.1:1/v1")
        assert (config.api_key, config.timeout) == ("${DESK_KEY}", 7)
        assert (config.temperature, config.max_tokens, config.top_p) == (temperature, most, 0.5)
        assert (one.asked.request.temperature, one.asked.request.max_tokens) == (temperature, most)
        assert one.asked.room is not None


def test_one_that_names_a_model_has_nothing_of_the_agents(tmp_path: Path):
    named = (
        "name: c\nmodel: {provider: openai_compatible, name: m, endpoint: 'https://models.example/v1'}\n"
        "instructions: {inline: Look.}\n"
        "response_format: {type: json_schema, schema: {type: object, required: "
        f"{json.dumps(DIAGNOSIS['required'])}}}}}\n"
    )
    both = critics(tmp_path, texts={"critic": named})
    config = both.critic.config
    assert (config.name, config.api_key, config.top_p) == ("openai_compatible/m", None, None)
    assert both.critic.asked.request.messages[0].text == "Look."
    assert both.critic.asked.request.schema["type"] == "object", "as providers wrap it"
    assert both.warnings == (
        "the price of `openai_compatible/m` is not known: what it costs is not counted",
    )


def test_what_lies_where_holodeck_has_it_comes_first(tmp_path: Path):
    theirs = tmp_path / THEIRS / "critic.yaml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("name: c\nmodel: {temperature: 0.1}\ninstructions: {inline: Look.}\n")
    both = critics(tmp_path)
    assert both.critic.path == theirs
    assert both.critic.asked.request.schema == DIAGNOSIS, "where it names none"
    assert not (tmp_path / ".kept" / FOLDER / "critic.yaml").exists()
    assert both.applier.path == tmp_path / ".kept" / FOLDER / "applier.yaml"


def test_all_that_is_wrong_with_both_is_told_at_once(tmp_path: Path):
    broken = {
        "critic": "name: c\nmodel: {temperature: 9}\ninstructions: {inline: Look.}\n",
        "applier": "name: a\ninstructions: {inline: Write.}\ntools: []\n"
        "response_format: {type: object, required: [edit_type, rationale, diff_summary]}\n",
    }
    with pytest.raises(SpecError) as caught:
        critics(tmp_path, texts=broken)
    told = [str(problem) for problem in caught.value.problems]
    assert len(told) == 3
    assert ".kept/optimizer/agents/critic.yaml:2 model.temperature" in told[0]
    assert "applier.yaml:3 tools: the applier has no use for this" in told[1]
    assert (
        "applier.yaml:4 response_format: the applier must be required to say `new_text`" in told[2]
    )


def test_a_critic_may_read_what_models_read_of_the_agent_and_nothing_else(tmp_path: Path):
    text = AGENT.format(url="http://127.0.0.1:1/v1")
    texts = {"agent.yaml": text, "more.md": "---\nversion: 1\n---\nA file.\n"}
    assert further_texts("agent.yaml", texts) == {
        "The agent's instructions": "Answer in one word.",
        "The description of its tool `files`": "Finds files.",
        "The description of its tool `sum_up`": "Sums up.",
        "The template of its tool `sum_up`": "Sum up: {{text}}",
        "The agent's file `more.md`": "A file.\n",
    }


def test_no_secret_reaches_a_prompt_and_both_are_asked_as_their_files_say(tmp_path: Path):
    """Over HTTP, with the files as they are shipped."""

    def each(seen: Seen) -> str:
        applies = seen.lines[0].text.startswith("You change one text")
        return json.dumps(REVISED if applies else FOUND)

    with ModelServer(each) as server:
        axis = TextAxis("instructions", "agent.yaml", "instructions.inline")
        proposer = critics(tmp_path, server.v1).make([axis], 0.4)
        texts = {"agent.yaml": (tmp_path / "agent.yaml").read_text()}
        case = Case("one", {"name": "one", "input": "1 + 1?", "ground_truth": "2"})
        brief = make_brief(texts, train=(case,))
        brief = replace(
            brief, incumbent=Candidate(texts), turn=Turn("critique", settings={"axis": axis.path})
        )
        pair = Pair("one", 0)
        answered = Answer(
            Ask("x", (pair,), "feedback"), {pair: Outcome({"passed": 0.0, "score": 0.0})}, {}
        )
        reply = ask(proposer, replace(brief, answers=(answered,)))
        first, second = server.log
    assert isinstance(reply, Proposal)
    assert reply.cites == ("one",)
    assert (first.body["temperature"], second.body["temperature"]) == (0.2, 0.4)
    assert "Finds files." in first.text
    for secret in ("literal-secret", "not-for-critics", "DESK_KEY", "nobody-may-see"):
        assert secret not in json.dumps([first.body, second.body]), secret


@pytest.mark.slow
def test_a_real_agent_is_run_on_its_train_cases_and_the_critic_reads_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEY", "sk-a-secret-that-nobody-sees")
    asked: list[Seen] = []

    def each(seen: Seen) -> ModelReply | str:
        first = seen.lines[0].text
        if first.startswith(("You find out", "You change one text")):
            asked.append(seen)
            return json.dumps(REVISED if first.startswith("You change") else FOUND)
        return answer(seen)

    with ModelServer(each) as server:
        path = write_agent(tmp_path, server.v1, 4)
        read = read_agent(path)
        plan = plan_of(read, Wanted())
        cases = plan.cases.holdout
        proposer = read_critics(read, tmp_path / ".kept").make(
            [TextAxis("instructions", "prompt.md")], 0.4
        )
        plan = replace(
            plan,
            cases=Cases(cases[:3], cases[3:]),
            proposers=(proposer,),
            schedule=Turns("critique", 1),
            gate=Strict(),
        )
        state = asyncio.run(sit(plan, MemoryJournal()))
    (step,) = state.history
    assert step.proposal is not None, step
    assert step.proposal.edits == (Write("prompt.md", "Use the tool, then double.\n"),)
    critic, applier = asked
    shown = """\
--- turn 1 of 2
[input] what is 0 + 1?
[expected answer] -1
[expected tools] [{"name": "add", "args": {"a": 0}, "count": 1, "match": "PLACE"}]
[tool call] add({"a": 0, "b": 1})
[tool result] 1
[answer] 1
--- turn 2 of 2
[input] double it
[expected answer] 2
[answer] 2.0
[finding] turn 1, numeric 0.00, 1 needed: """
    told = re.sub(r'"match": "[^"]*"', '"match": "PLACE"', critic.text)
    assert shown in told
    assert told.count("did not pass\n") == 1, "the other two cases do"
    assert "1 case of 3 did not pass." in told
    assert "adds two numbers" in told, "what else a model reads of the agent"
    assert "sk-a-secret" not in json.dumps([critic.body, applier.body])
