"""A help desk as an Inspect task: orders that a tool looks up, and answers that two scorers read.

The model is the server of `kept.testing`. It looks the order up and then answers by chance, rightly
more often where its prompt says what is needed; chance is a function of all that it is told and how
often that came.
"""

import json
import random
from collections import Counter
from typing import Any

from kept.core.model import ModelReply, ToolCall
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
        from inspect_ai.model import ModelOutput, ModelUsage, get_model

        def outputs(messages: list[Any], *_: Any) -> Any:
            output = ModelOutput.from_content(
                "mockllm/model", self.say(messages[0].text, order_in(messages[-1].text))
            )
            # else it would fetch a tokenizer to count them
            output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
            return output

        return get_model("mockllm/model", custom_outputs=outputs, memoize=False, **more)


def order_in(text: str) -> str:
    return text.split("#")[1].split()[0].rstrip("?.")


def plain(prompt: str, orders: int = 60) -> Any:
    """A task without tools: a question, an answer, a scorer."""
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate, system_message

    samples = [
        Sample(id=f"order-{n}", input=f"Where is my order #{n}?", target=status(n))
        for n in range(100, 100 + orders)
    ]
    return Task(dataset=samples, solver=[system_message(prompt), generate()], scorer=match())


def desk(prompt: str, orders: int = 64) -> Any:
    """The task: a tool, messages before the question, two scorers."""
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageUser
    from inspect_ai.scorer import Score, Target, accuracy, match, scorer
    from inspect_ai.solver import TaskState, generate, system_message, use_tools
    from inspect_ai.tool import Tool, tool

    @tool
    def lookup() -> Tool:
        async def execute(order: int) -> str:
            """Look an order up.

            Args:
                order: its number.
            """
            return f"order {order}: {status(order)}"

        return execute

    @scorer(metrics={"names_order": [accuracy()], "short": [accuracy()]}, name="manners")
    def manners() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            said = state.output.completion
            number = str(state.metadata["order"])
            values = {"names_order": number in said, "short": len(said) < 40}
            why = "" if values["names_order"] else f"it does not name order {number}"
            return Score(value=values, explanation=why)

        return score

    samples = [
        Sample(
            id=f"order-{n}",
            input=[
                ChatMessageUser(content="I have a question."),
                ChatMessageAssistant(content="Go ahead."),
                ChatMessageUser(content=f"Where is my order #{n}?"),
            ],
            target=status(n),
            metadata={"order": n},
        )
        for n in range(100, 100 + orders)
    ]
    return Task(
        dataset=samples,
        solver=[system_message(prompt), use_tools(lookup()), generate()],
        scorer=[match(), manners()],
        message_limit=12,
    )
