"""The world, fixed before anything was tuned to it: the best number moves with the prompt.

A bump over the temperature, at one place for the prompt that the agent begins with and at another
for the improved one, which is better everywhere, and best at its own place. Whoever tunes the
number first moves away from where it will have to be in the end. A rollout passes or fails by the
odds that come out, and cases differ in difficulty.
"""

import hashlib
import json
from collections.abc import Mapping
from math import exp, log
from pathlib import Path
from statistics import NormalDist, fmean
from typing import NamedTuple

from kept.core.llm import ModelRequest

SEEDS = 20
TOLERANCE = 0.15
"""How far from its best a number may be to count as found, in a range of 1."""
GOAL = 18
"""Of 20 runs, how many are to find both."""

TRIALS = {"numeric_phase": (15, 5), "textual_phase": (10, 4)}
"""At most, and without a keep: what an agent.yaml has that says nothing."""
CYCLES = 4
CASES = 60
START = 0.5
"""The temperature that the agent begins with: as far from the one place as from the other."""


class Bump(NamedTuple):
    """How often an agent passes, over its temperature."""

    base: float
    height: float
    best: float
    width: float = 0.15

    def at(self, temperature: float) -> float:
        away = (temperature - self.best) / self.width
        return self.base + self.height * exp(-away * away / 2)


BEFORE = Bump(0.30, 0.25, 0.75)
AFTER = Bump(0.70, 0.25, 0.25)
HARM = 0.25
"""What each harmful line takes off."""
SPREAD = 0.5
"""Of the difficulty of cases, in logits: standard deviation."""

PROMPT = "You say what mood a text has."
GOOD = ("Answer with one word: positive or negative.", "Your whole answer is one of two words.")
"""Either makes the improved prompt; both together are no better than one."""
USELESS = ("Be polite at all times.", "Think of the reader.")
HARMFUL = ("Answer in French, at length.", "Never commit yourself.")
POOL = (*GOOD, *USELESS, *HARMFUL)
UNSURE = 0.1
"""Share of diagnoses that the critic has little faith in."""

AGENT = """\
name: moods
model:
  provider: scripted
  name: never-asked.jsonl
  temperature: {start}
instructions:
  inline: |
    {prompt}
evaluations:
  metrics:
    - {{type: standard, metric: equality}}
  optimizer:
    loss: {{equality: 1.0}}
    gate: {gate}
    seed: {seed}
    axes:
      numeric:
        - {{path: model.temperature, range: [0.0, 1.0]}}
      textual:
        - {{path: instructions, max_chars: 600}}
    budget:
      global: {{max_cycles: {cycles}}}
"""


def write_agent(folder: Path, gate: str, seed: int) -> Path:
    """The agent with its cases, in a folder; the split is the one that nobody names."""
    text = AGENT.format(start=START, prompt=PROMPT, gate=gate, seed=seed, cycles=CYCLES)
    for phase, (most, patience) in TRIALS.items():
        text += f"      {phase}: {{max_trials: {most}, patience: {patience}}}\n"
    rows = "".join(
        f"  - {{name: text-{n}, input: text number {n}, ground_truth: positive}}\n"
        for n in range(CASES)
    )
    (folder / "never-asked.jsonl").touch()
    path = folder / "agent.yaml"
    path.write_text(f"{text}test_cases:\n{rows}", encoding="utf-8")
    return path


def is_improved(prompt: str) -> bool:
    """Whether a prompt is the improved one, with nothing harmful in it."""
    return any(line in prompt for line in GOOD) and not any(line in prompt for line in HARMFUL)


def rate(prompt: str, temperature: float) -> float:
    """How often an agent passes a case of middling difficulty."""
    bump = AFTER if any(line in prompt for line in GOOD) else BEFORE
    return max(0.02, bump.at(temperature) - HARM * sum(line in prompt for line in HARMFUL))


def odds(prompt: str, temperature: float, case: str, seed: int) -> float:
    """How often it passes this case."""
    share = rate(prompt, temperature)
    logit = log(share / (1 - share)) + SPREAD * NormalDist().inv_cdf(chance("case", seed, case))
    return 1 / (1 + exp(-logit))


def true_loss(prompt: str, temperature: float) -> float:
    """The mean over all difficulties there are."""
    share = rate(prompt, temperature)
    logit = log(share / (1 - share))
    places = ((n + 0.5) / 200 for n in range(200))
    return 1 - fmean(1 / (1 + exp(-logit - SPREAD * NormalDist().inv_cdf(p))) for p in places)


def chance(*what: object) -> float:
    """A number between 0 and 1 that depends on its arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2**48


def criticise(request: ModelRequest) -> str:
    """What the critic says: nothing that the applier goes by, and now and then without faith."""
    unsure = chance("critic", *_drawn(request)) < UNSURE
    return json.dumps(
        {
            "failing_pattern": "answers are not one of the two words",
            "root_cause_hypothesis": "nothing says which words there are",
            "suggested_change_direction": "say more",
            "confidence": 0.2 if unsure else 0.8,
            "citations": [],
            "avoid": [],
        }
    )


def apply(request: ModelRequest) -> str:
    """A line of the pool, any of them, behind what there is."""
    shown = request.messages[1].text
    line = POOL[int(chance("applier", *_drawn(request)) * len(POOL))]
    there = [one for one in POOL if one in shown and one != line]
    reply: Mapping[str, str] = {
        "edit_type": "insert",
        "rationale": f"added: {line}",
        "new_text": "\n".join([PROMPT, *there, line]) + "\n",
        "diff_summary": "a line more",
    }
    return json.dumps(reply)


def _drawn(request: ModelRequest) -> tuple[object, ...]:
    # one that is asked again, because its text was no use, says something else
    return request.seed, len(request.messages)
