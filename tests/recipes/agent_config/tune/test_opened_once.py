"""What the tools of an agent have open is opened once for a run, however many agents are tried."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.store.home import Home
from kept.testing.server import ModelServer, Seen
from tests.evaluators.tools.retrieval.worlds import HANDBOOK
from tests.processes import is_gone
from tests.recipes.agent_config.tune.world import share

pytestmark = pytest.mark.slow

TRIALS = 50
SERVER = Path(__file__).parents[3] / "evaluators" / "tools" / "plain_server.py"
AGENT = """\
name: clerk
model: {{provider: openai, name: gpt-5-mini, endpoint: "{url}", api_key: "${{KEY}}"}}
embedding_provider:
  {{provider: openai, name: text-embedding-3-small, endpoint: "{url}", api_key: "${{KEY}}"}}
instructions: {{inline: Look it up.}}
tools:
  - type: hierarchical_document
    name: manual
    description: The rules.
    source: manual
    contextual_embeddings: false
    top_k: 2
  - type: mcp
    name: shop
    description: The shop.
    command: python
    args: ["{server}", "{pids}"]
evaluations:
  metrics: [{{type: standard, metric: equality}}]
  optimizer:
    loss: {{equality: 1.0}}
    gate: sigma
    repeats: 1
    split: "3:5:0"
    numeric_convergence_eps: 0
    axes:
      numeric:
        - {{path: "tools[name=manual].top_k", range: [1, 6]}}
        - {{path: "tools[name=manual].semantic_weight", range: [0.1, 0.9]}}
    budget:
      global: {{max_cycles: 1}}
      numeric_phase: {{max_trials: {trials}, patience: {trials}}}
test_cases_file: cases.yaml
"""


def answer(seen: Seen) -> ModelReply | str:
    """Look it up, have the shop say it again, and be right more often the more was found."""
    if not seen.tool_results:
        calls = (("manual", {"query": seen.text}), ("echo", {"text": seen.text}))
        wanted = (ToolCall(f"call-{name}", name, json.dumps(given)) for name, given in calls)
        return ModelReply("", finish="tool_calls", tool_calls=tuple(wanted))
    found, said = seen.tool_results
    assert said == seen.text
    right = share(seen.text, seen.body.get("seed")) < found.count("handbook") / 10
    return "yes" if right else "no"


def write_agent(folder: Path, url: str) -> Path:
    (folder / "manual").mkdir()
    (folder / "manual" / "handbook.md").write_text(HANDBOOK)
    rows = (f"- {{name: q-{n}, input: parcel {n}, ground_truth: 'yes'}}" for n in range(8))
    (folder / "cases.yaml").write_text("\n".join(rows))
    path = folder / "agent.yaml"
    pids = folder / "pids"
    path.write_text(AGENT.format(url=url, server=SERVER, pids=pids, trials=TRIALS))
    return path


def test_over_fifty_trials_a_source_is_taken_in_once_and_a_server_opened_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEY", "none")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    with ModelServer(answer) as server:
        plan = compile_coordinate(write_agent(tmp_path, server.v1)).plan
        _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
        embedded = [seen.body["input"] for seen in server.log if seen.wire == "embeddings"]
    trials = [step for step in state.history if step.turn.phase == "c1/numeric"]
    assert len(trials) == TRIALS
    tried = {step.candidate for step in trials}
    assert len(tried) == TRIALS, "each trial is another agent"
    ingests = [texts for texts in embedded if len(texts) > 1]
    assert len(ingests) == 1
    assert len(embedded) > TRIALS, "each trial asks the index"
    (pid,) = (tmp_path / "pids").read_text().split()
    assert is_gone(int(pid)), "what was opened is closed at the end"
