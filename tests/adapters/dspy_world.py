"""dspy's shortest tutorial, written anew: a predictor, questions with answers, a model.

The model is an engine of dspy's own kind. It is right by chance, and more often where its
instructions say what is needed, or its prompt shows how it is done; chance is a function of all
that it is told and how often that came.
"""

import random
import re
from collections import Counter
from importlib import import_module
from typing import Any

RULE = "Count twice."
IDEAS = ("Think step by step.", RULE, "Be friendly.", "Never explain.")


class Engine:
    """Answers questions, and writes instructions where it is asked for a new text."""

    def __init__(self, low: float = 0.3, high: float = 0.9, shown: float = 0.0) -> None:
        self.low, self.high, self.shown = low, high, shown
        self.world = 0
        self.asked: Counter[str] = Counter()
        self.written: list[str] = []
        self.error: Exception | None = None

    def complete(self, request: Any) -> Any:
        lm15 = import_module("dspy").lm15
        told = "\n".join(message.text or "" for message in request.messages)
        system = request.system if isinstance(request.system, str) else ""
        if "<new-text>" in told:
            text = self.write(told)
        elif self.error is not None:
            raise self.error
        else:
            text = self.answer(f"{system}\n{told}")
        return lm15.Response(
            id=None,
            model="stub",
            message=lm15.Message.assistant([lm15.TextPart(text)]),
            finish_reason="stop",
            usage=lm15.Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        )

    def write(self, prompt: str) -> str:
        self.written.append(prompt)
        idea = IDEAS[len(self.written) % len(IDEAS)]
        return f"<new-text>\nAnswer the question. {idea}\n</new-text>"

    def answer(self, told: str) -> str:
        self.asked[told] += 1
        draw = random.Random(f"{self.world}|{told}|{self.asked[told]}").random()
        *demos, question = re.findall(r"How many letters has (\w+)\?", told)
        chance = self.high if RULE in told else self.low
        right = draw < max(chance, self.shown if demos else 0.0)
        number = len(question) + (0 if right else 1)
        return f"[[ ## answer ## ]]\n{number}\n\n[[ ## completed ## ]]"

    def stream(self, request: Any) -> Any:
        return import_module("dspy").lm15.response_to_events(self.complete(request))

    def close(self) -> None:
        pass


def lm(engine: Engine, **more: Any) -> Any:
    return import_module("dspy").LM("stub/model", engine=engine, cache=False, **more)


def examples(count: int, letter: str = "a") -> list[Any]:
    dspy: Any = import_module("dspy")
    return [
        dspy.Example(
            question=f"How many letters has {letter}{'bcd'[n % 3] * n}?", answer=str(n + 1)
        ).with_inputs("question")
        for n in range(count)
    ]


def metric(example: Any, prediction: Any, trace: Any = None) -> bool:
    return example.answer == prediction.answer
