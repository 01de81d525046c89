"""Conversations to be scored, and judges that say what they are told to."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Message, ModelRequest, ToolAnswer, answered, said, used
from kept.core.ports import Model
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.evaluators.metrics.config import read_metrics
from kept.evaluators.metrics.evaluate import Means
from kept.evaluators.metrics.scorer import DialogueScorer
from kept.models.scripted import ScriptedModel
from kept.testing import MemoryJournal

FENCED = re.compile(r"<([\w-]+)-([0-9a-f]{8})>\n(.*?)\n</\1-\2>", re.DOTALL)
CANDIDATE = Candidate({"agent.yaml": "name: a\n"})

Row = Mapping[str, Any]
Tool = tuple[str, dict[str, object], str] | tuple[str, dict[str, object], str, tuple[str, ...]]


def talk(*exchanges: str | tuple[str, Sequence[Tool]]) -> Rollout:
    """A conversation: answers, each alone or with the tools that were used before it."""
    trace: list[TraceItem] = [TraceItem("system", "Be an agent.")]
    last = ""
    for n, exchange in enumerate(exchanges):
        last, tools = exchange if isinstance(exchange, tuple) else (exchange, ())
        trace.append(said(Message("user", f"question {n}")))
        for name, arguments, result, *context in tools:
            found = context[0] if context else ()
            answer = ToolAnswer(result, context=found, seconds=0.25)
            trace.append(used(name, arguments, answer))
        trace.append(answered(last, 0.5))
    return Rollout(output=last, trace=tuple(trace))


def shown(request: ModelRequest) -> dict[str, str]:
    """What a judge is shown, by its name."""
    return {name: text for name, _, text in FENCED.findall(request.messages[-1].text)}


def judge(say: Callable[[dict[str, str]], Mapping[str, Any]]) -> ScriptedModel:
    """A judge that answers by what it is shown."""
    return ScriptedModel(lambda request: json.dumps(say(shown(request))), name="judge")


def no_judge(_: Mapping[str, object] | None) -> Model | None:
    raise AssertionError("nobody needs a judge here")


def scorer(
    metrics: Sequence[Row], model: Model | None = None, folder: Path = Path(), **given: Any
) -> DialogueScorer:
    judge_of = given.pop("judge_of", (lambda _: model) if model else no_judge)  # pyright: ignore[reportUnknownLambdaType] # a mapping
    means = Means(judge_of, folder, **given)
    return DialogueScorer(read_metrics(metrics), means)


def score(one: DialogueScorer, rollout: Rollout, data: Row, case_id: str = "c") -> Score:
    """What it says, whole."""
    found = score_or_failure(one, rollout, data, case_id)
    assert isinstance(found, Score), found
    return found


def score_or_failure(
    one: DialogueScorer, rollout: Rollout, data: Row, case_id: str = "c"
) -> Score | Failure:
    job = Job(CANDIDATE.id, case_id, 0, "decide")
    scope = JournalScope(MemoryJournal(), job)

    async def do() -> Score | Failure:
        try:
            return await one.score(job, rollout, CANDIDATE, Case(case_id, data), scope)
        finally:
            await one.close()

    return asyncio.run(do())


def measured(found: Score) -> list[TraceItem]:
    """What is written down of metrics."""
    return [item for item in found.details if item.role == "metric"]


def told(found: Score, metric: str, exchange: int = 0) -> dict[str, Any]:
    """What is written down of one metric of one exchange."""
    (row,) = [
        dict(item.data)
        for item in measured(found)
        if item.data["metric"] == metric and item.data["exchange"] == exchange
    ]
    return row
