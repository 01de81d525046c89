"""An agent with a block `optimizer:` and the files that it names."""

from collections.abc import Iterable
from pathlib import Path
from textwrap import indent

from kept.recipes.agent_config.spec.optimizer import OptimizerSpec, optimizer_of
from kept.recipes.agent_config.spec.read import ReadAgent
from tests.recipes.agent_config.spec.agents import AGENT, write

HEAD, _, _ = AGENT.partition("evaluations:")


def rows(names: Iterable[str], key: str = "name") -> str:
    """Cases of one turn, each asking something else."""
    return "".join(
        f"- {{{key}: {name}, input: what is {name}?, ground_truth: '{n}'}}\n"
        for n, name in enumerate(names)
    )


OWN = "test_cases:\n" + rows(f"own{n}" for n in range(20))


def agent_with(block: str | None, *, head: str = HEAD, own: str = OWN) -> str:
    """The text of an agent.yaml."""
    text = f"{head}evaluations:\n"
    if block is not None:
        text += "  optimizer:\n" + indent(block, "    ")
    return text + "  metrics: [{metric: equality}, {name: near, criteria: It is near.}]\n" + own


def write_optimized(folder: Path, block: str | None, **others: str) -> Path:
    """An agent with all that it names; `head` and `own` are parts of its agent.yaml."""
    parts = {name: others.pop(name) for name in ("head", "own") if name in others}
    named = {name.replace("__", "/").replace("_dot_", "."): said for name, said in others.items()}
    files = {
        "agent.yaml": agent_with(block, **parts),
        "tools.py": "def add(a, b):\n    return a + b\n",
        "docs/a.md": "# One\n\nText.\n",
        "data/train.yaml": rows(f"t{n}" for n in range(8)),
        "data/holdout.yaml": rows(f"h{n}" for n in range(8)),
        "data/test.yaml": rows(f"z{n}" for n in range(4)),
        **named,
    }
    return write(folder, files)


def read_optimizer(read: ReadAgent) -> OptimizerSpec:
    """The block of an agent; raises `SpecError` with all that is wrong with it."""
    spec = optimizer_of(read)
    read.source.check()
    assert spec is not None
    return spec
