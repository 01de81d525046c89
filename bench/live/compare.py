"""Every arm on every set, one after the other, and what each came to on questions nobody saw."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.harness import ROOT, ArmFailed, say
from bench.live.ledger import Ledger
from bench.live.meter import Metered, served
from bench.live.order import End, Order
from bench.live.sets import SEEDS, Question, Sample
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Model
from kept.settings import child_environment

SEARCH = 0.75
"""Share of the money that arms search with; the rest is for measuring what they found."""
WORKERS = 8
TRAIN = 0.3
"""Share of the cases that an arm may look at, as Kept splits by default."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What all arms are given alike."""

    rollouts: int
    max_tokens: int
    price: tuple[float, float, float]
    """Dollars for a million tokens: in, out, and in from a cache."""
    arms: tuple[tuple[str, str], ...]
    """By name, with the interpreter that each runs in."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A prompt on the fresh questions."""

    right: int
    of: int
    missing: int = 0
    """Questions without an answer that could be judged: outages, or no money left."""

    @property
    def score(self) -> float | None:
        return self.right / self.of if self.of else None


@dataclass(frozen=True, slots=True)
class Row:
    """What an arm came to on a set."""

    set: str
    arm: str
    seed: Measured
    best: Measured
    claimed: float
    changed: bool
    short: bool
    """Whether the money ended before the rollouts did."""
    calls: int
    usd: float
    minutes: float


class Comparison:
    """Where it is kept, what it asks, and what it pays with."""

    def __init__(self, folder: Path, model: Model, ledger: Ledger, terms: Terms) -> None:
        self._folder, self._model, self._ledger, self._terms = folder, model, ledger, terms

    async def run(self, samples: Sequence[Sample]) -> list[Row]:
        """Search on every set, then measure on every set."""
        terms, share = self._terms, self._ledger.cap / len(samples)
        found: dict[tuple[str, str], End] = {}
        for sample in samples:
            allowance = share * SEARCH / len(terms.arms)
            for arm, python in terms.arms:
                found[sample.set, arm] = await self._search(sample, arm, python, allowance)
        rows: list[Row] = []
        for sample in samples:
            truth = Metered(self._model, self._ledger, f"{sample.set}/truth", share)
            ends = {arm: found[sample.set, arm] for arm, _ in terms.arms}
            texts = dict.fromkeys([SEEDS[sample.set], *(end.prompt for end in ends.values())])
            measured = {text: await self._measure(truth, text, sample) for text in texts}
            rows += [self._row(sample.set, arm, ends[arm], measured) for arm in ends]
        return rows

    def _row(self, name: str, arm: str, end: End, measured: dict[str, Measured]) -> Row:
        used = self._ledger.spent(f"{name}/{arm}")
        seed = SEEDS[name]
        both = measured[seed], measured[end.prompt]
        cost = used.calls, used.usd, used.minutes
        return Row(name, arm, *both, end.claimed, end.prompt != seed, end.short, *cost)

    async def _search(self, sample: Sample, arm: str, python: str, allowance: float) -> End:
        """What an arm found, also in an earlier sitting."""
        file = self._folder / sample.set / f"{arm}.json"
        if file.exists():
            told = json.loads(file.read_text(encoding="utf-8"))
            if not (told["end"]["short"] and allowance > told["allowance"]):
                return End(**told["end"])
        # it begins anew, and has what it paid for from the ledger; not in the old folder, where the
        # arm of a sitting that was killed may still be writing
        file.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{arm}-", dir=file.parent))
        model = Metered(self._model, self._ledger, f"{sample.set}/{arm}", allowance)
        say(f"{arm} on {sample.set}, for up to ${allowance:.2f}")
        async with served(model) as url:
            end = await run_arm(arm, python, self._order(sample, url, allowance, folder))
        kept = {"end": asdict(end), "allowance": allowance}
        file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        return end

    def _order(self, sample: Sample, url: str, allowance: float, folder: Path) -> Order:
        terms = self._terms
        cases = self._folder / f"{sample.set}.jsonl"
        lines = [json.dumps(asdict(one)) for one in sample.cases]
        cases.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return Order(
            set=sample.set,
            seed=SEEDS[sample.set],
            cases=str(cases),
            train=round(TRAIN * len(sample.cases)),
            rollouts=terms.rollouts,
            url=url,
            model=self._model.name,
            max_tokens=terms.max_tokens,
            usd=allowance,
            price=terms.price,
            workers=WORKERS,
            folder=str(folder),
        )

    async def _measure(self, model: Metered, prompt: str, sample: Sample) -> Measured:
        """Every fresh question once."""
        say(f"measuring on {len(sample.fresh)} fresh questions of {sample.set}")
        gate = asyncio.Semaphore(WORKERS)

        async def one(question: Question) -> float | None:
            messages = (Message("system", prompt), Message("user", question.input))
            request = ModelRequest(messages, max_tokens=self._terms.max_tokens)
            async with gate:
                reply = await model.complete(request)
            if isinstance(reply, ModelReply):
                return question.grade(reply.text)[0]
            return 0.0 if reply.blame == "candidate" else None

        scores = await asyncio.gather(*map(one, sample.fresh))
        known = [score for score in scores if score is not None]
        return Measured(round(sum(known)), len(known), len(scores) - len(known))


async def run_arm(arm: str, python: str, order: Order) -> End:
    """In a process of its own, without the key."""
    argv = (python, "-m", f"bench.live.arms.{arm}", json.dumps(asdict(order)))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *argv, cwd=ROOT, env=child_environment({}), stdout=pipe, stderr=pipe
    )
    try:
        out, err = await process.communicate()
    except BaseException:
        process.kill()
        raise
    if process.returncode:
        raise ArmFailed(f"`{arm}` ended with {process.returncode}\n{err.decode()}")
    return End(**json.loads(out.splitlines()[-1]))


def arms(gepa: str | None) -> tuple[tuple[str, str], ...]:
    """All, or those that can be had."""
    ours = (("kept", sys.executable), ("best", sys.executable))
    return (ours[0], ("gepa", gepa), ours[1]) if gepa else ours
