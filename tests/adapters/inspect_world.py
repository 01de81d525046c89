"""A help desk as an Inspect task: orders that a tool looks up, and answers that two scorers read.

The model is the server of `kept.testing`. It looks the order up and then answers by chance, rightly
more often where its prompt says what is needed; chance is a function of all that it is told and how
often that came.
"""

import json
import random
from collections import Counter
from importlib import import_module
from typing import Any

from kept.core.llm import ModelReply, ToolCall
from kept.testing.server import Seen

SEED = "You work at a help desk. Look the order up, then answer with its status."
RULE = "Name the order and end with its status in capitals."
USELESS = ("Be friendly.", "Use short words.", "Never apologise.")
HARMFUL = "Do not trust the tool."
STATES = ("SHIPPED", "LOST", "PAID", "RETURNED")
KEY = "sk-inspect-0123456789"


def status(order: int) -> str:
    return STATES[order * 7 % 4]


def pool(*ideas: str) -> list[str]:
    return [f"{SEED} {idea}" for idea in ideas]


class Desk:
    """The model, as what answers the server of `kept.testing`."""

    def __init__(self, low: float = 0.35, high: float = 0.9, bad: float = 0.1) -> None:
        self.low, self.high, self.bad = low, high, bad
        self.asked: Counter[tuple[str, str]] = Counter()

    def __call__(self, seen: Seen) -> ModelReply:
        told, order = seen.lines[0].text, order_in(seen.text)
        if not seen.tool_results and "lookup" in seen.tools:
            call = ToolCall(f"call-{order}", "lookup", json.dumps({"order": int(order)}))
            return ModelReply("", tool_calls=(call,), finish="tool_calls")
        return ModelReply(self.say(told, order))

    def say(self, told: str, order: str) -> str:
        self.asked[told, order] += 1
        draw = random.Random(f"4|{told}|{order}|{self.asked[told, order]}").random()
        chance = self.high if RULE in told else self.bad if HARMFUL in told else self.low
        right = status(int(order))
        said = right if draw < chance else STATES[(STATES.index(right) + 1) % 4]
        return f"Order {order} is {said}"

    def model(self, **more: Any) -> Any:
        """The same without a server: Inspect's own stand-in."""
        theirs: Any = import_module("inspect_ai.model")

        def outputs(messages: list[Any], *_: Any) -> Any:
            said = self.say(messages[0].text, order_in(messages[-1].text))
            output = theirs.ModelOutput.from_content("mockllm/model", said)
            # else it would fetch a tokenizer to count them
            output.usage = theirs.ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
            return output

        return theirs.get_model("mockllm/model", custom_outputs=outputs, memoize=False, **more)


def order_in(text: str) -> str:
    return text.split("#")[1].split()[0].rstrip("?.")


def plain(prompt: str, orders: int = 60) -> Any:
    """A task without tools: a question, an answer, a scorer."""
    dataset, solver, scorer = (_part(name) for name in ("dataset", "solver", "scorer"))
    samples = [
        dataset.Sample(id=f"order-{n}", input=f"Where is my order #{n}?", target=status(n))
        for n in range(100, 100 + orders)
    ]
    steps = [solver.system_message(prompt), solver.generate()]
    return import_module("inspect_ai").Task(dataset=samples, solver=steps, scorer=scorer.match())


def desk(prompt: str, orders: int = 64) -> Any:
    """The task: a tool, messages before the question, two scorers."""
    dataset, solver, scorer = (_part(name) for name in ("dataset", "solver", "scorer"))
    says: Any = _part("model")
    samples = [
        dataset.Sample(
            id=f"order-{n}",
            input=[
                says.ChatMessageUser(content="I have a question."),
                says.ChatMessageAssistant(content="Go ahead."),
                says.ChatMessageUser(content=f"Where is my order #{n}?"),
            ],
            target=status(n),
            metadata={"order": n},
        )
        for n in range(100, 100 + orders)
    ]
    tools = solver.use_tools(_part("tool").tool(name="lookup")(lambda: lookup)())
    made = scorer.scorer(metrics={"*": [scorer.accuracy()]}, name="manners")(lambda: manners)
    return import_module("inspect_ai").Task(
        dataset=samples,
        solver=[solver.system_message(prompt), tools, solver.generate()],
        scorer=[scorer.match(), made()],
        message_limit=12,
    )


async def lookup(order: int) -> str:
    """Look an order up.

    Args:
        order: its number.
    """
    return f"order {order}: {status(order)}"


async def manners(state: Any, target: Any) -> Any:
    """A scorer of two things at once."""
    said, number = state.output.completion, str(state.metadata["order"])
    values = {"names_order": number in said, "short": len(said) < 40}
    why = "" if values["names_order"] else f"it does not name order {number}"
    return _part("scorer").Score(value=values, explanation=why)


def _part(name: str) -> Any:
    return import_module(f"inspect_ai.{name}")
