"""Tasks whose truth is known: a text of rules, a stream of further rules, and what each is worth.

A case has a difficulty in logits, every rule of a text adds to it, and a rollout passes with the
odds that come out. All follows from the task, the number of the run and the number of the proposal,
so that every arm meets the same cases and the same stream. Imports the standard library alone:
peers run it in environments of their own.
"""

import re
from dataclasses import dataclass
from math import exp, log
from random import Random

CASES, TRAIN = 50, 15
FRESH = 400
"""Cases that no arm meets, on which the truth is the mean of the odds."""
SEED = "Rules:\n"


@dataclass(frozen=True, slots=True)
class Task:
    """What proposals are worth, and how noisy the evaluator is."""

    name: str
    about: str
    better: float = 0.0
    """Share of proposals that are truly better."""
    worse: float = 0.35
    gain: float = 0.4
    """In logits, of a better rule; each has its own, from half to one and a half times this."""
    harm: float = 0.2
    jitter: float = 0.3
    """How a rule's effect differs from case to case, standard deviation."""
    reach: float = 1.0
    """Share of cases that a better rule touches, the one that it was made for among them."""
    rate: float = 0.45
    """Pass rate of the seed."""
    clean: bool = False
    """Whether the odds themselves are the score: no noise."""
    rivals: bool = False
    """Whether better rules are of two kinds, each of which undoes the other."""


TASKS = (
    Task("noisy", "pass or fail, 1 rule in 4 helps", 0.25),
    Task("clean", "the same without noise: graded, every repeat alike", 0.25, clean=True),
    Task("null", "pass or fail, no rule helps"),
    Task(
        "concentrated",
        "1 rule in 4 helps 1 case in 20 by a lot, one that its proposer saw among them",
        0.25,
        gain=3.0,
        jitter=0.0,
        reach=0.05,
        rate=0.35,
    ),
    Task(
        "rivals",
        "1 rule in 4 helps, of two kinds; a text with both is as good as one with neither",
        0.25,
        gain=0.8,
        rivals=True,
    ),
)
BY_NAME = {task.name: task for task in TASKS}

_RULE = re.compile(r"rule (\d+) for (\d+)")


class Trial:
    """One run's part of a task."""

    def __init__(self, task: Task, run: int) -> None:
        self._task, self._run = task, run
        self.draws = 0
        self._noise = Random(f"{task.name} {run} noise")
        self._base = self._difficulties("cases", CASES)
        self._odds: dict[str, list[float]] = {}
        self._effects: dict[tuple[int, int], list[float]] = {}

    def _difficulties(self, part: str, count: int) -> list[float]:
        chance, rate = Random(f"{self._task.name} {self._run} {part}"), self._task.rate
        return [log(rate / (1 - rate)) + chance.gauss(0, 0.5) for _ in range(count)]

    def rule(self, number: int, seen: list[int]) -> tuple[str, int]:
        """The text of a proposal, and the case among those seen that it was made for."""
        case = seen[Random(f"{number} case").randrange(len(seen))]
        return f"* rule {number} for {case}\n", case

    def roll_out(self, text: str, case: int) -> float:
        """One rollout: a pass or a fail by chance, or the odds where there is no noise."""
        self.draws += 1
        odds = self.odds(text)[case]
        return odds if self._task.clean else float(self._noise.random() < odds)

    def odds(self, text: str) -> list[float]:
        """Of every case of the run."""
        found = self._odds.get(text)
        if found is None:
            found = self._odds[text] = self._sum_up(text, self._base, fresh=False)
        return found

    def truth(self, text: str) -> float:
        """What a text is worth on cases that nobody met."""
        fresh = self._sum_up(text, self._difficulties("fresh", FRESH), fresh=True)
        return sum(fresh) / len(fresh)

    def _sum_up(self, text: str, base: list[float], *, fresh: bool) -> list[float]:
        logits = list(base)
        rules = {(int(n), int(case)) for n, case in _RULE.findall(text)}
        helping = {self._kind(n) for n, _ in rules} - {"", "worse"}
        for number, case in sorted(rules):
            kind = self._kind(number)
            if self._task.rivals and kind not in ("", "worse"):
                continue
            effects = self._effect(number, case, len(base), fresh=fresh)
            logits = [a + b for a, b in zip(logits, effects, strict=True)]
        if self._task.rivals and len(helping) == 1:
            logits = [logit + self._task.gain for logit in logits]
        return [1 / (1 + exp(-logit)) for logit in logits]

    def _kind(self, number: int) -> str:
        """`better` or, among rivals, which of the two; `worse`; nothing for what does nothing."""
        chance = Random(f"{self._task.name} {self._run} kind {number}")
        drawn = chance.random()
        if drawn < self._task.better:
            return chance.choice(("one", "other")) if self._task.rivals else "better"
        return "worse" if drawn > 1 - self._task.worse else ""

    def _effect(self, number: int, case: int, count: int, *, fresh: bool) -> list[float]:
        key = (number, case) if not fresh else (-1 - number, case)
        found = self._effects.get(key)
        if found is None:
            found = self._effects[key] = self._drawn(number, case, count, fresh=fresh)
        return found

    def _drawn(self, number: int, case: int, count: int, *, fresh: bool) -> list[float]:
        task, kind = self._task, self._kind(number)
        if not kind:
            return [0.0] * count
        part = "fresh" if fresh else "cases"
        chance = Random(f"{task.name} {self._run} effect {number} {part}")
        size = Random(f"{self._run} size {number}").uniform(0.5, 1.5)
        if kind == "worse":
            return [-task.harm * size + chance.gauss(0, task.jitter / 2) for _ in range(count)]
        touched = [chance.random() < task.reach for _ in range(count)]
        effects = [
            task.gain * size + chance.gauss(0, task.jitter) if hit else 0.0 for hit in touched
        ]
        if task.reach < 1 and not fresh:
            effects[case] = task.gain * size
        return effects
