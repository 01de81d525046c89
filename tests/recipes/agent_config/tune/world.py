"""An agent that names moods, and a server that is its model, its critic and its applier.

How often the agent is right depends on its instructions and on its temperature. The applier draws
from a pool of good, useless and harmful sentences, by what it is asked and by nothing else, so that
a run that was cut hears the same again.
"""

import hashlib
import json
from pathlib import Path

from kept.core.llm import ModelReply
from kept.testing.server import Seen

GOOD = "Answer with one word, positive or negative."
MORE = "Read the last sentence twice: it decides."
USELESS = "Be polite at all times."
HARMFUL = "Answer in French, at length."
POOL = (GOOD, USELESS, HARMFUL, MORE)

AGENT = """\
# tells moods; its numbers were guessed
name: moods
model:
  provider: openai
  name: gpt-5-mini
  endpoint: "{url}"
  api_key: "${{KEY}}"  # never written here
  temperature: 0.9  # hot
instructions:
  inline: |
    You say what mood a text has.
evaluations:
  metrics:
    - {{type: standard, metric: equality, case_insensitive: true}}
  optimizer:
    loss: {{equality: 1.0}}
    axes:
      numeric:
        - {{path: model.temperature, range: [0.0, 1.0]}}
      textual:
        - {{path: instructions, max_chars: 400}}
    budget:
      global: {{max_cycles: 2}}
      numeric_phase: {{max_trials: {trials}, patience: {trials}}}
      textual_phase: {{max_trials: {trials}, patience: {trials}}}
{more}
test_cases_file: cases.yaml
"""


def write_agent(
    folder: Path, url: str, *, cases: int = 40, trials: int = 4, more: str = ""
) -> Path:
    """The agent with its cases; `more` are further lines of its block `optimizer`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[str] = []
    for n in range(cases):
        rows += [f"- name: text-{n}", f"  input: text number {n}", f"  ground_truth: {truth(n)}"]
    (folder / "cases.yaml").write_text("\n".join(rows) + "\n")
    path = folder / "agent.yaml"
    indented = "".join(f"    {line}\n" for line in more.splitlines())
    path.write_text(AGENT.format(url=url, trials=trials, more=indented))
    return path


def truth(n: int) -> str:
    return "positive" if n % 2 else "negative"


def share(*what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def chance_of(instructions: str, temperature: float) -> float:
    """How often the agent is right: with good instructions, best at a temperature of 0.2."""
    base = 0.35 + 0.3 * (GOOD in instructions) + 0.1 * (MORE in instructions)
    base -= 0.5 * (HARMFUL in instructions)
    return max(0.0, base) + 0.2 * (1 - min(1.0, abs(temperature - 0.2) / 0.7))


def answer(seen: Seen) -> ModelReply | str:
    """As the critic, the applier or the agent."""
    system = seen.lines[0].text
    schema = json.dumps(seen.body.get("response_format") or {})
    if "failing_pattern" in schema:
        return criticise(seen)
    if "new_text" in schema:
        return apply(seen)
    n = int(seen.text.rpartition(" ")[2])
    temperature = float(seen.body.get("temperature", 1.0))
    right = share(system, seen.text, seen.body.get("seed"), temperature)
    mood = truth(n) if right < chance_of(system, temperature) else "neither"
    return mood.title()


def criticise(seen: Seen) -> str:
    confidence = 0.2 if share("critic", seen.body.get("seed"), seen.text) < 0.15 else 0.8
    return json.dumps(
        {
            "failing_pattern": "answers are not one of the two words",
            "root_cause_hypothesis": "nothing says which words there are",
            "suggested_change_direction": "say which words there are",
            "confidence": confidence,
            "citations": ["text-1"],
            "avoid": [],
        }
    )


def apply(seen: Seen) -> str:
    at = int(share("applier", seen.body.get("seed"), seen.text) * len(POOL))
    line = POOL[at]
    old = "You say what mood a text has."
    kept = [one for one in POOL if one in seen.text and one != line]
    return json.dumps(
        {
            "edit_type": "insert",
            "rationale": f"added: {line}",
            "new_text": "\n".join([old, *kept, line]) + "\n",
            "diff_summary": "one line more",
        }
    )
