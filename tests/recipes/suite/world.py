"""A suite whose agents follow the rules they are told, and an optimizer that proposes such rules.

Workers write down the rules of their prompt, and of their manager's instructions, which are those
of the manager's prompt. Critics grade a report by the rules in it: some help, some do harm, most do
neither. What is said depends on what is asked, but for noise in grades where a test wants it.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from kept.core.plan import Plan
from kept.core.ports import Gate, Sink
from kept.models.scripted import ScriptedModel
from kept.orchestrator.prompt_registry import PromptRegistry
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import own_artifacts
from kept.orchestrator.workers import Stop
from kept.recipes.suite.compile import Making, compile_suite, measures_of
from kept.recipes.suite.request import Optimization
from kept.recipes.suite.spec import ReadSuite
from kept.run import Ended, Watch, resume, start
from kept.store.home import Home
from kept.testing.server import Fault
from tests.orchestrator.play import (
    Line,
    Play,
    Say,
    complete,
    delegate,
    done,
    kit_of,
    plan,
    say,
    write,
)

GOOD = ("name the source", "give the sum", "end with advice")
USELESS = ("use short words", "be polite", "think first")
HARMFUL = ("leave out figures", "write one line only")
RULES = (*GOOD, *USELESS, *HARMFUL)
BASE, HELPS, HARMS = 0.62, 0.1, 0.12

TASKS = ("may", "june", "july")

SUITE = """\
name: reports
tasks:
{tasks}
run: {{walls: off}}
optimizer: openai_compatible/m
"""


def rules_in(text: str) -> list[str]:
    """The rules that somebody is told."""
    return [rule for rule in RULES if rule in text]


def grade(texts: str) -> float:
    """What a report by such rules is worth in truth."""
    good = sum(rule in texts for rule in GOOD)
    bad = sum(rule in texts for rule in HARMFUL)
    return BASE + HELPS * good - HARMS * bad


def whole(texts: Mapping[str, str]) -> str:
    return "\n".join(texts.values())


Proposes = Callable[[str, str, Sequence[str]], str | None]
"""From an artifact, what its model is shown and what is missing, the rule to add; None for none."""


def in_order(*rules: str | None) -> Proposes:
    """Rules of `worker_pitfalls`, one an epoch: the number of tried ones says which is next."""

    def proposes(artifact: str, shown: str, missing: Sequence[str]) -> str | None:
        tried = shown.count("# An update that was tried")
        return rules[tried] if artifact == "worker_pitfalls" and tried < len(rules) else None

    return proposes


@dataclass
class Cast(Play):
    """Everybody, by what they are told."""

    manager: Sequence[Say | Sequence[Say]] = ()
    proposes: Proposes = field(default_factory=lambda: in_order(GOOD[0]))
    noise: random.Random | None = None
    briefs: list[str] = field(default_factory=list[str])
    """What the optimizer was shown."""
    prompts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Whom the system prompts were said to, and what they were."""
    left: int | None = None
    """Answers until nobody answers any more; None for ever."""

    def answer(self, lines: Sequence[Line]) -> Say:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                return Fault("status", 500)
        told = lines[0][1]
        user = "\n".join(text for role, text in lines if role == "user")
        if told.startswith("You improve one text"):
            return self._update(told, user)
        if told.startswith("You are the manager"):
            self.prompts.append(("manager", told))
            return self._manage(told, user)
        if told.startswith("You judge"):
            self.prompts.append(("critic", told))
            return self._judge(user)
        self.prompts.append(("worker", told))
        if sum(role == "assistant" for role, _ in lines):
            return done("ada")
        rules = dict.fromkeys([*rules_in(told), *rules_in(user)])
        body = "".join(f"We {rule} in this report, as told.\n" for rule in rules)
        return write(content=f"# Report\n\nSales are as follows.\n{body}")

    def _manage(self, told: str, user: str) -> Say:
        if "There is no plan yet." in user:
            return plan("report.md")
        if "## Worker ada" in user:
            return complete()
        rules = "; ".join(rules_in(told))
        return delegate("ada", instructions=f"write output/report.md; {rules}")

    def _judge(self, user: str) -> Say:
        chance = self.noise.uniform(-0.04, 0.04) if self.noise else 0.0
        missing = [rule for rule in GOOD if rule not in user]
        rows = [
            {
                "category": "incomplete",
                "location": "report.md",
                "description": f"it does not {rule}",
                "severity": "warning",
            }
            for rule in missing
        ]
        score = min(1.0, max(0.0, grade(user) + chance))
        return say({"score": score, "defects": rows, "summary": "so so"})

    def _update(self, told: str, user: str) -> str:
        self.briefs.append(user)
        artifact = re.findall(r"The text is `(\w+)`", told)[0]
        shown = re.findall(r"it does not ([\w ]+)", user)
        rule = self.proposes(artifact, user, shown)
        if rule is None:
            return said(None)
        text = re.findall(r"as it is now\n+<[^>]+>\n(.*?)\n</", user, re.DOTALL)[0]
        return said(f"{text}\n* Always {rule}.\n", f"to {rule}", 0.1, 0.5)


def said(content: str | None, why: str = "", expected: float = 0.0, confidence: float = 0.0) -> str:
    return json.dumps(
        {
            "change": content is not None,
            "content": content or "",
            "rationale": why,
            "expected_loss_reduction": expected,
            "confidence": confidence,
        }
    )


def write_suite(folder: Path, more: str = "", tasks: Sequence[str] = TASKS) -> Path:
    rows = "\n".join(
        f"  - name: {one}\n    task: Write a report on {one} to report.md" for one in tasks
    )
    path = folder / "suite.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(SUITE.format(tasks=rows) + more)
    return path


@dataclass
class World:
    """A suite with everybody in this process."""

    path: Path
    cast: Cast

    @property
    def registry(self) -> PromptRegistry:
        return PromptRegistry(self.path.parent / ".kept" / "artifacts.db", own_artifacts())

    def plan(self, gate: Gate | None = None, began: str = "", **asked: object) -> Plan:
        making = Making(runners=self._runners, optimizer=ScriptedModel(self.cast.of_request))
        optimization = Optimization(**asked)  # pyright: ignore[reportArgumentType] # by its names
        texts = own_artifacts()
        suite = partial(compile_suite, self.path, began=began, asked=optimization)
        made = suite(texts=texts, making=making).plan
        return made if gate is None else replace(made, gate=gate)

    def start(self, made: Plan, sinks: tuple[Sink, ...] = ()) -> Ended:
        return asyncio.run(start(made, Home(self.path.parent / ".kept"), Watch(sinks)))

    def resume(self, made: Plan, folder: Path) -> Ended:
        return asyncio.run(resume(made, folder))

    def _runners(self, read: ReadSuite, stop: Stop) -> Mapping[str, AgentRunner]:
        async def close() -> None:
            return None

        return {
            task.name: AgentRunner(
                kit=kit_of(self.cast),
                assignment_of=lambda case, task=task: Assignment(task=task.task),
                files_of=lambda case: {},
                measures=measures_of(task),
                closes=close,
                stop=stop,
            )
            for task in read.spec.tasks
        }


def world(folder: Path, cast: Cast, more: str = "", tasks: Sequence[str] = TASKS) -> World:
    return World(write_suite(folder, more, tasks), cast)


def texts_of(registry: PromptRegistry) -> str:
    """What the registry has runs told, as one text."""
    return whole(registry.texts())
