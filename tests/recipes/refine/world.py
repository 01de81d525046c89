"""Refinements whose iterations are played: what each writes and how it is judged is given."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kept.core.llm import ModelRequest
from kept.core.plan import Plan
from kept.core.rollout import Usage
from kept.core.schedules.refine import Tier, halved
from kept.models.scripted import ScriptedModel
from kept.orchestrator.events import Hearer
from kept.orchestrator.record import Models
from kept.orchestrator.refine.proposer import ModelPair
from kept.orchestrator.refine.rescore import Reading
from kept.orchestrator.run_folder.read import read_run
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment
from kept.orchestrator.toolkit import own_artifacts
from kept.recipes.refine.compile import plan_refinement
from kept.recipes.refine.request import Refinement
from kept.run import Ended, resume, start
from kept.store.home import Home
from kept.testing.server import Fault
from tests.orchestrator.play import (
    Play,
    Say,
    complete,
    delegate,
    done,
    kit_of,
    plan,
    runner_of,
    say,
    write,
)
from tests.orchestrator.run_folder.made import synthetic_run

TASK = "Write a report to report.md"


@dataclass
class Attempted:
    """One iteration: what its worker writes, and what its critic thinks of that."""

    score: float = 0.8
    text: str | None = "# Report\n\nBetter.\n"
    """None: it writes nothing."""
    path: str = "report.md"
    defects: Sequence[str] = ("could be longer",)
    fault: bool = False
    """Whether nobody answers."""
    first: Sequence[Say] = ()
    """What its worker does before it writes."""

    def play(self) -> Play:
        rows = [
            {"category": "incomplete", "location": self.path, "description": d, "severity": "info"}
            for d in self.defects
        ]
        judged = say({"score": self.score, "defects": rows, "summary": "so so"})
        writes: list[Say] = [] if self.text is None else [write(f"output/{self.path}", self.text)]
        last = (
            complete() if self.text is not None else say({"decision": "fail", "reason": "cannot"})
        )
        manager: list[Say] = [plan(self.path), delegate("w1"), last]
        if self.fault:
            manager = [Fault("status", 500)]
        return Play(manager, {"w1": [*self.first, *writes, done("w1")]}, judged)


@dataclass
class World:
    """Stands for models and sandboxes. Implements `kept.recipes.refine.compile.Making`."""

    folder: Path
    attempts: Sequence[Attempted]
    asked: Refinement
    tiers: Mapping[str, ModelPair] = field(default_factory=dict[str, ModelPair])
    plays: dict[int, Play] = field(default_factory=dict[int, Play])
    watch: Callable[[int], None] | None = None
    """Told of each call of a manager, with the iteration."""
    look: Callable[[str, int], str] = lambda text, nth: say({"score": 0.8, "defects": []})
    """What the critic of a race says of a deliverable when it looks for the nth time."""
    looks: list[str] = field(default_factory=list[str])
    price: float = 0.0
    """Of a look, and the most that it may cost."""
    usd: float | None = None
    """What readings may cost."""
    calls: int = 0
    """Of all models."""
    said: list[str] = field(default_factory=list[str])
    """What a person hears when an iteration begins."""
    requests: list[ModelRequest] = field(default_factory=list[ModelRequest])

    @property
    def seed(self) -> Path:
        return Path(self.asked.run)

    @property
    def artifacts(self) -> Mapping[str, str]:
        return own_artifacts()

    def pair_for(self, tier: Tier | None) -> ModelPair:
        return ModelPair("m", "w") if tier is None else self.asked.tiers.of(tier)

    def runner_for(
        self,
        pair: ModelPair,
        assignment: Assignment,
        files: Mapping[str, bytes],
        hear: Hearer,
    ) -> AgentRunner:
        k = int(assignment.tags[-1].removeprefix("iter_"))
        play = self.plays[k] = self.attempts[min(k, len(self.attempts)) - 1].play()
        run = read_run(self.seed)
        caps = halved(run.caps, run.observed_seconds)
        kit = kit_of(play)
        limits = replace(
            kit.limits,
            loops=caps.loops,
            workers=caps.workers,
            tokens=caps.tokens,
            tool_calls=caps.tool_calls,
            wall_seconds=float(caps.wall_seconds),
            depth=caps.depth,
        )

        def answer(request: Any) -> Any:
            self.calls += 1
            self.requests.append(request)
            if self.watch is not None and request.messages[0].text.startswith("You are the man"):
                self.watch(k)
            return play.of_request(request)

        model = ScriptedModel(answer, name="scripted/play")
        kit = kit_of(play, limits)
        works = type(kit.works)(model, kit.tools)  # pyright: ignore
        models = Models(manager=pair.manager or "seed-m", worker=pair.worker or "seed-w")
        kit = replace(kit, manager=model, critic=model, works=works, models=models)
        return runner_of(kit, assignment, files, hear)

    def reading(self) -> Reading:
        """By a critic whose every look is told of, and who sees more in some than in others."""

        def answer(request: Any) -> Any:
            text = request.messages[-1].text
            self.looks.append(text)
            return self.look(text, len(self.looks))

        kit = kit_of(Play([]))
        paid = Usage(calls=1, tokens_in=10, tokens_out=5, usd=self.price)
        looker = ScriptedModel(answer, name="scripted/critic", usage=paid, worst=self.price)
        kit = replace(kit, critic=looker, limits=replace(kit.limits, usd=self.usd))
        return Reading(kit=kit, task=TASK, texts=self.artifacts, closes=self.close)

    def close(self) -> None:
        pass

    def say(self, line: str) -> None:
        self.said.append(line)

    def plan(self) -> Plan:
        return plan_refinement(self.asked, read_run(self.seed), self)

    def start(self, name: str = "home") -> Ended:
        return asyncio.run(start(self.plan(), Home(self.folder / name)))

    def resume(self, folder: Path) -> Ended:
        return asyncio.run(resume(self.plan(), folder))


def world(folder: Path, *attempts: Attempted, seed: Path | None = None, **more: Any) -> World:
    place = seed or synthetic_run(folder / "seed", task=TASK)
    asked = Refinement(run=str(place), folder=str(folder), session="refine_1", **more)
    return World(folder, attempts, asked)


def scores(*given: float) -> list[Attempted]:
    """An iteration for each, with a text of its own."""
    return [Attempted(one, f"# Report\n\nVersion {n}.\n") for n, one in enumerate(given, 1)]
