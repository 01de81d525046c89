"""An agent with a tool and two turns, and what its model says to it over HTTP."""

import json
import re
from pathlib import Path

from kept.core.llm import ModelReply, ToolCall
from kept.testing.server import Seen

AGENT = """\
name: sums
model: {{provider: openai, name: gpt-5-mini, endpoint: "{url}", api_key: "${{KEY}}"}}
instructions: {{file: prompt.md}}
tools:
  - type: function
    name: add
    description: adds two numbers
    file: sums.py
    function: add
evaluations:
  metrics:
    - {{type: standard, metric: numeric, threshold: 1.0}}
test_cases_file: cases.yaml
"""
SUMS = "def add(a: float, b: float) -> float:\n    return a + b\n"


def write_agent(folder: Path, url: str, cases: int = 6, *, extra: str = "") -> Path:
    """Cases of two turns each: a sum, then the same doubled; every third has a wrong truth."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text("You add numbers with the tool.\n")
    (folder / "sums.py").write_text(SUMS)
    rows: list[str] = []
    for n in range(cases):
        truth = 2 * n + 1 if n % 3 else -1
        rows += [
            f"- name: sum-{n}",
            "  turns:",
            f"    - input: what is {n} + {n + 1}?",
            f"      ground_truth: '{truth}'",
            f"      expected_tools: [{{name: add, args: {{a: {n}}}}}]",
            "    - input: double it",
            f"      ground_truth: '{4 * n + 2}'",
        ]
    (folder / "cases.yaml").write_text("\n".join(rows) + "\n")
    path = folder / "agent.yaml"
    path.write_text(AGENT.format(url=url) + extra)
    return path


def answer(seen: Seen) -> ModelReply | str:
    """Use the tool once, say what it said, then double that."""
    if seen.text == "double it":
        said = [line.text for line in seen.lines if line.role == "assistant" and line.text]
        return str(2 * float(said[-1]))
    if seen.tool_results:
        return seen.tool_results[-1]
    a, b = re.findall(r"\d+", seen.text)
    call = ToolCall(f"call-{a}", "add", json.dumps({"a": int(a), "b": int(b)}))
    return ModelReply("", finish="tool_calls", tool_calls=(call,))
