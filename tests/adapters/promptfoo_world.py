"""A config of a size that people have, and a model that answers by how it is asked.

Tickets are sorted into categories. The model answers in JSON, rightly as often as the prompt is
worth; a judge says that an answer is kind unless it shouts.
"""

import csv
import hashlib
import json
import re
from pathlib import Path

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import ModelServer, Seen

CATEGORIES = ("billing", "delivery", "login", "refund")
SEED, USELESS, HARMFUL, GOOD = (
    "Sort the ticket.",
    "Be so kind.",
    "Chat freely.",
    "One category only.",
)
WORTH = {HARMFUL: 0.1, GOOD: 0.95}
"""How often an answer is right where a prompt says so, the last word counting; 0.5 elsewhere."""

CONFIG = """\
# yaml-language-server: $schema=https://promptfoo.dev/config-schema.json
description: Sorting tickets of customers
prompts:
  - file://prompts/plain.txt
  - file://prompts/chat.json
  - {{id: file://prompts/free.md, label: free}}
providers:
  - id: openai:chat:sorter
    label: sorter
    config: {{temperature: 0.7, max_tokens: 60, apiBaseUrl: "{url}", apiKeyEnvar: SORTER_KEY}}
defaultTest:
  options:
    provider: {{id: openai:chat:judge, config: {{apiBaseUrl: "{url}", apiKeyEnvar: SORTER_KEY}}}}
  assert:
    - type: is-json
      value: {{type: object, required: [category], properties: {{category: {{type: string}}}}}}
    - type: python
      value: json.loads(output)["category"] == context["vars"]["category"]
      weight: 3
      metric: accuracy
    - type: not-icontains
      value: as an AI
tests:
  - file://tests.csv
  - description: An angry customer
    vars: {{ticket: "WHERE IS IT, #901?", category: delivery}}
    threshold: 0.5
    assert:
      - {{type: llm-rubric, value: "Is kind to whoever wrote {{{{ticket}}}}"}}
      - {{type: word-count, value: {{max: 40}}, metric: brevity}}
  - description: The same in other words
    vars: {{ticket: ["lost parcel #902", "no parcel #903"], category: delivery}}
    assert:
      - type: assert-set
        threshold: 0.5
        assert: [{{type: contains-any, value: [delivery, parcel]}}, {{type: regex, value: "^{{"}}]
evaluateOptions: {{maxConcurrency: 8}}
"""
CHAT = [
    {"role": "system", "content": f"Sort tickets. {GOOD}"},
    {"role": "user", "content": "{{ ticket }}"},
]
PROMPTS = [
    f"{SEED} {{{{ ticket }}}}",
    f"{USELESS} {SEED} {{{{ ticket }}}}",
]
FREE = f"{HARMFUL} {SEED} {{{{ ticket }}}}"


def write_config(folder: Path, url: str, tests: int = 60) -> Path:
    """The config and all its files; that many tests in a csv, and three beside."""
    (folder / "prompts").mkdir(parents=True)
    (folder / "prompts" / "plain.txt").write_text("\n---\n".join(PROMPTS) + "\n")
    (folder / "prompts" / "chat.json").write_text(json.dumps(CHAT))
    (folder / "prompts" / "free.md").write_text(FREE)
    with (folder / "tests.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["ticket", "category", "__expected", "__metadata:lang"])
        for number in range(tests):
            category = CATEGORIES[number % 4]
            word = hashlib.sha256(str(number).encode()).hexdigest()[:6]
            rows.writerow(
                [f"#{number} {word}: {category}?", category, f"contains: {category}", "en"]
            )
    path = folder / "promptfooconfig.yaml"
    path.write_text(CONFIG.format(url=url))
    return path


def answer(seen: Seen) -> ModelReply:
    """What the sorter or the judge says."""
    if seen.model == "judge":
        level = "fail" if "!!!" in seen.text else "pass"
        said = json.dumps({"verdict": {"reason": "it does not shout", "level": level}})
        return ModelReply(said, Usage(1, 100, 10))
    asked = "\n".join(line.text for line in seen.lines)
    ticket = re.findall(r"#\d+[^\n]*|[A-Z ]+, #\d+\?|\w+ parcel #\d+", asked)[-1]
    right = next((name for name in CATEGORIES if name in ticket), "delivery")
    worth = next((WORTH[word] for word in (HARMFUL, GOOD) if word in asked), 0.5)
    drawn = hashlib.sha256(f"{asked} {seen.body.get('seed')}".encode()).digest()
    if int.from_bytes(drawn[:4], "big") / 2**32 >= worth:
        right = CATEGORIES[(CATEGORIES.index(right) + 1 + drawn[4] % 3) % 4]
    return ModelReply(json.dumps({"category": right}), Usage(1, 50, 10))


def serve(latency: float = 0.0) -> ModelServer:
    """A server that answers so."""
    return ModelServer(answer, latency=latency)
