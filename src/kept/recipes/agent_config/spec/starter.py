"""A block `optimizer:` for an agent that has none: what could well be tuned, and a loss."""

import json
import re
from collections.abc import Iterator

from kept.core.words import count
from kept.recipes.agent_config.spec.agent import AgentSpec
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.agent_config.spec.tools import (
    HierarchicalDocumentToolSpec,
    McpToolSpec,
    VectorstoreToolSpec,
)
from kept.spec.load import said
from kept.spec.source import shown

SPLIT = "3:5:2"
"""How an agent's own cases are shared out, where nobody says."""

ENOUGH, FEWEST = 16, 6
"""Cases of which half are enough for a race, and of which any split leaves enough to decide by."""

_PLAIN = r"[A-Za-z_][\w-]*"
"""Keys that need no quotes."""


PATIENCE = 10
"""Trials of numbers without a keep, behind the first ten, which are drawn at random."""


def starter_block(read: ReadAgent) -> str:
    """The block for this very agent, as it stands below `evaluations:`."""
    lines = ["evaluations:"]
    if lacking := missing_cases(read):
        lines += [f"  # {lacking}"]
    if not read.agent.spec.metrics:
        lines += ["  metrics:", "    - {type: standard, metric: equality}"]
    lines += ["  optimizer:", "    loss:", *(f"      {row}" for row in _loss(read.agent.spec))]
    lines += [
        f'    split: "{_split(len(read.cases))}"  # shares of your cases: train, holdout, test',
        *(f"    {line}" for line in suggest_axes(read).splitlines()),
        "    budget:",
        "      global: {max_cycles: 4, max_rollouts: 5000}",
        f"      numeric_phase: {{max_trials: {3 * PATIENCE}, patience: {PATIENCE}}}",
        # each text has its turn before a phase may be called dry
        f"      textual_phase: {{max_trials: {max(10, len([*_texts(read)]) + 4)}, patience: 4}}",
    ]
    return "\n".join(lines)


def missing_cases(read: ReadAgent) -> str | None:
    """How many cases an agent lacks to be tuned; None where it has enough."""
    there = len(read.cases)
    if there >= FEWEST:
        return None
    return (
        f"the agent has {count(there, 'case')}, and tuning needs {FEWEST}: 1 to learn from and "
        f"{FEWEST - 1} to decide by; add {FEWEST - there} ({ENOUGH} are enough for `gate: race`)"
    )


def where_it_goes(read: ReadAgent) -> str:
    """Where the block is to be put, in words."""
    there = read.source.where(("evaluations",))
    if said(read.source, ("evaluations", "optimizer")) is not None:
        at = read.source.where(("evaluations", "optimizer"))
        return f"{at} has an `optimizer:` already: give it what it lacks of this one"
    if said(read.source, ("evaluations",)) is not None:
        return f"put what stands below `evaluations:` below the one of {there}, as deep as here"
    return f"put it into {shown(read.source.path)}, beginning at the left edge"


def _split(cases: int) -> str:
    """Shares that leave enough to decide by: 8 for a race, else the 5 that are needed at least."""
    if cases >= ENOUGH:
        return SPLIT
    cases = max(cases, FEWEST)  # as many as `missing_cases` asks for
    deciding = 8 if cases > 8 else 5
    return f"{cases - deciding}:{deciding}:0"


def suggest_axes(read: ReadAgent) -> str:
    """The axes that could well be tuned, as YAML; each is worth a look before it is used."""
    spec = read.agent.spec
    lines = ["axes:", "  numeric:"]
    for path, ends in _numbers(spec):
        lines += [f"    - path: {path}", f"      range: {ends}"]
    lines.append("  textual:")
    for path, text, usual in _texts(read):
        room = max(usual, 2 * len(text))
        lines += [f"    - path: {path}", f"      max_chars: {room}"]
    lines += ["  demos:", "    path: instructions", "    max_demos: 4"]
    return "\n".join(lines)


def _loss(spec: AgentSpec) -> Iterator[str]:
    keys = dict.fromkeys(metric.key for metric in spec.metrics if metric.enabled)
    for key in keys or ("equality",):
        yield f"{key if re.fullmatch(_PLAIN, key) else json.dumps(key, ensure_ascii=False)}: 1.0"


def _numbers(spec: AgentSpec) -> Iterator[tuple[str, str]]:
    model = spec.model
    if model.temperature is not None:
        yield "model.temperature", _around(model.temperature, 0.0, 1.0)
    yield "model.top_p", _around(model.top_p, 0.5, 1.0)
    for tool in spec.tools:
        at = f"tools[name={tool.name}]"
        if isinstance(tool, VectorstoreToolSpec | HierarchicalDocumentToolSpec):
            yield f"{at}.top_k", f"[{min(tool.top_k, 3)}, {max(tool.top_k, 20)}]"
        if isinstance(tool, HierarchicalDocumentToolSpec) and _weighs(tool):
            yield f"{at}.semantic_weight", _around(tool.semantic_weight, 0.2, 0.8)


def _weighs(tool: HierarchicalDocumentToolSpec) -> bool:
    """Whether a weight of its can change, the others with it."""
    return tool.search_mode == "hybrid" and tool.keyword_weight + tool.exact_weight > 0


def _around(value: float | None, low: float, high: float) -> str:
    """A range that has the present value in it."""
    here = high if value is None else value
    return f"[{min(low, here):g}, {max(high, here):g}]"


def _texts(read: ReadAgent) -> Iterator[tuple[str, str, int]]:
    """Texts that the model reads, each with the characters that one of its kind may well have."""
    yield "instructions", read.agent.instructions.text, 4000
    for tool in read.agent.spec.tools:
        # a server describes its tools itself
        if not isinstance(tool, McpToolSpec):
            yield f"tools[name={tool.name}].description", tool.description, 400
