"""Messages that go to a desk, and a model that is right by the prompt, by the case and by luck.

Luck is drawn from the prompt, the case and how often both were asked about: whatever answer comes
first, a run hears the same, so that its pages are the same each time.
"""

import json
from collections import Counter
from pathlib import Path

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import Seen
from tests.recipes.skill.world import share

DESKS = ("billing", "delivery", "account")
SAYS = (
    ("billing", "I was charged twice for order {n}."),
    ("delivery", "Parcel {n} has been in the depot for a week."),
    ("account", "The code that you mail me for login {n} never works."),
    ("billing", "Where is the refund for invoice {n}?"),
    ("delivery", "Order {n} went to my old address, and I cannot change it."),
)
SEED = "Say which desk a message goes to: billing, delivery or account.\n"
GOOD = "Billing is about money, delivery about parcels, account about getting in."
MORE = "Where a message is about two, take what has to be done first."
HARM = "Explain your choice at length."
SPEC = """\
artifacts: {{include: [prompt.md]}}
models:
  target:
    {{provider: openai, model: gpt-5-mini, base_url: "{url}", api_key: "${{KEY}}", cache: false}}
runner: {{prompt: prompt.md, input: message}}
scorer: {{type: assertions}}
objective: {{primary_metric: score, direction: maximize, bounds: [0, 1]}}
cases: {{file: cases.jsonl}}
proposers: [{{kind: variants, files: ["alternatives/*.md"]}}]
budget: {{max_rollouts: 1200}}
workers: 8
"""


def write_desk(folder: Path, url: str, *, cases: int = 40, more: str = "") -> Path:
    """The task; one of its variants ends with further words."""
    (folder / "alternatives").mkdir(parents=True, exist_ok=True)
    texts = {
        "prompt": SEED,
        "alternatives/1-at-length": f"{SEED}{HARM}\n",
        "alternatives/2-defined": f"{SEED}{GOOD}\n",
        "alternatives/3-polite": f"{SEED}Be polite.\n{more}",
        "alternatives/4-both": f"{SEED}{GOOD}\n{MORE}\n",
    }
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text)
    rows = (_case(n) for n in range(cases))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(SPEC.format(url=url))
    return folder / "task.yaml"


def _case(n: int) -> dict[str, object]:
    desk, says = SAYS[n % len(SAYS)]
    holds = [{"type": "icontains", "value": desk}]
    return {"id": f"c{n:02}", "message": says.format(n=100 + 7 * n), "assert": holds}


class Desk:
    """The model."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def __call__(self, seen: Seen) -> ModelReply:
        prompt, message = (line.text for line in seen.lines[-2:])
        key = f"{prompt}\n{message}"
        self.asked[key] += 1
        easy = 0.15 + 0.5 * share(message)
        helped = 0.22 * (GOOD in prompt) + 0.18 * (MORE in prompt) - 0.2 * (HARM in prompt)
        words = [desk for desk, says in SAYS if says.partition("{n}")[0] in message]
        right = words[0] if words else DESKS[0]
        draw = share(key, self.asked[key])
        said = right if draw < easy + helped else DESKS[(DESKS.index(right) + 1) % 3]
        return ModelReply(said, usage=Usage(tokens_in=len(key) // 4, tokens_out=1))
