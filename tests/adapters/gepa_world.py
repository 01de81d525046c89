"""gepa's shortest tutorial, written anew: a prompt, questions with answers, two models.

The models are functions. The one that answers is right by chance, and more often where its prompt
says what is needed; chance is a function of the prompt, the question and how often both came.
"""

import random
import time
from collections import Counter
from types import SimpleNamespace
from typing import Any

SEED = "You are a helpful assistant. Answer the question."
RULE = "End with ### and the number."
IDEAS = ("Think step by step.", RULE, "Be friendly.", "Never explain.", "Use short words.")


def questions(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "input": f"What is {n} times {n + 7}?",
            "additional_context": {},
            "answer": f"### {n * (n + 7)}",
        }
        for n in range(start, start + count)
    ]


class Task:
    """The model that answers: right in `low` of all cases, in `high` where it is told the rule."""

    def __init__(self, low: float = 0.3, high: float = 0.9, world: int = 0) -> None:
        self.low, self.high, self.world = low, high, world
        self.asked: Counter[tuple[str, str]] = Counter()

    def __call__(self, messages: list[dict[str, str]]) -> str:
        told, question = messages[0]["content"], messages[-1]["content"]
        self.asked[told, question] += 1
        nth = self.asked[told, question]
        draw = random.Random(f"{self.world}|{told}|{question}|{nth}").random()
        n = int(question.split()[2])
        right = draw < (self.high if RULE in told else self.low)
        return f"It is so: ### {n * (n + 7)}" if right else "I do not know."

    @property
    def calls(self) -> int:
        return self.asked.total()


class Reflection:
    """The model that writes prompts: the seed with one idea more, by turns."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        idea = IDEAS[len(self.prompts) % len(IDEAS)]
        return f"The prompt is not clear enough.\n```\n{SEED} {idea}\n```\n"


class AtOnce:
    """An adapter, and how many of its calls were under way at once at most."""

    def __init__(self, adapter: Any, pause: float = 0.0) -> None:
        self._adapter, self._pause = adapter, pause
        self._inside = self.most = 0

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        self._inside += 1
        self.most = max(self.most, self._inside)
        time.sleep(self._pause)
        told = self._adapter.evaluate(batch, candidate, capture_traces)
        self._inside -= 1
        return told

    def make_reflective_dataset(self, *given: Any) -> Any:
        return self._adapter.make_reflective_dataset(*given)


def tutorial(gepa: Any, task: Task, reflection: Any, **more: Any) -> Any:
    """The call, with whichever `gepa` was imported."""
    return gepa.optimize(
        seed_candidate={"system_prompt": SEED},
        trainset=questions(20),
        valset=questions(40, start=100),
        task_lm=task,
        reflection_lm=reflection,
        max_metric_calls=more.pop("max_metric_calls", 1200),
        **more,
    )
