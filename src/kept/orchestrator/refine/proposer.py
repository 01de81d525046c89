"""Proposer of refinement: it runs the task again with the findings of the last run.

A proposal costs as much as a whole agent run; all calls are journalled in the scope of the
proposal. It starts from the best so far or from the last. The manager's first turn contains a
brief of 10 to 40 lines, which is deterministic. Each iteration has a pair of models for each
tier, set by flags.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from kept.core.artifact import Candidate
from kept.core.budget import StopReason
from kept.core.case import Case
from kept.core.edit import Write
from kept.core.ports import Clock, Scope
from kept.core.proposal import Brief, ClosedStep, Proposal, ProposerReply, Skip
from kept.core.rollout import FREE, Failure, Job, Usage
from kept.core.schedules.refine import RERUN, TIERS, Tier, iteration_words, left_nothing
from kept.core.text import count, one_line
from kept.engine.budget import Halt
from kept.errors import SetupError
from kept.orchestrator.events import Hearer, Moment, record_of
from kept.orchestrator.loss import run_loss
from kept.orchestrator.record import AgentRun
from kept.orchestrator.refine.attempt import (
    Findings,
    Made,
    all_made,
    best_of,
    findings_in,
    first_alike,
    made_of,
    main_words,
)
from kept.orchestrator.runner import AgentRunner
from kept.orchestrator.state import Assignment

MOST_LINES = 40

_RANK = {
    **dict.fromkeys(("critical", "high"), 0),
    **dict.fromkeys(("warning", "medium"), 1),
}
_WIDTH = 300
"""Maximum characters of one line of a brief."""

_OPENING = (
    "## REFINEMENT CONTEXT",
    "",
    "This run goes on from the deliverable of an earlier one; it does not start from nothing.",
    "That deliverable is in `input/`, for you and for every worker.",
)
_CLOSING = (
    "",
    "Objective: leave what works as it is, and mend what is listed above.",
    "First have `input/` copied to `output/`, then change what has to change.",
    "Complete when every point above is settled and nothing else has become worse.",
)


def brief_text(findings: Findings, broke: Sequence[str] = ()) -> str:
    """Return the brief of a refinement, without empty sections.

    `broke` lists what the attempt before this one made worse than the start of this one.
    """
    head = [*_OPENING]
    if findings.loss is not None:
        head.append(f"Prior loss: {findings.loss:.3f} (lower is better)")
        head += [f"  {name}: {value:g}" for name, value in findings.signals.items()]
    worst_first = sorted(findings.defects, key=lambda one: _RANK.get(one.severity.lower(), 2))
    parts = [
        _section(
            "Defects that critics found:",
            [
                f"[{one.severity}] {one.summary}" + (f" ({one.evidence})" if one.evidence else "")
                for one in worst_first
            ],
        ),
        _section(
            "Completions that were refused:",
            [f"{one.gate}: {one.reason}" for one in findings.refusals],
        ),
        _section(
            "Metrics that fall short:",
            [f"{name}: +{gap:g} needed" for name, gap in findings.gaps.items()],
        ),
        _section("The attempt before this one was no better. It broke:", broke),
    ]
    room = MOST_LINES - len(head) - len(_CLOSING)
    return "\n".join([*head, *_fitted([one for one in parts if one], room), *_CLOSING])


def _section(title: str, rows: Sequence[str]) -> list[str]:
    return ["", title, *(f"  - {one_line(row, _WIDTH)}" for row in rows)] if rows else []


def _fitted(parts: list[list[str]], room: int) -> list[str]:
    """Shorten the longest sections until all fit; each shows how many rows it omits."""
    kept = [len(part) for part in parts]
    while sum(kept) > room:
        kept[kept.index(max(kept))] -= 1
    rows: list[str] = []
    for part, size in zip(parts, kept, strict=True):
        if size == len(part):
            rows += part
        else:
            rows += [*part[: size - 1], f"  - … and {len(part) - size + 1} more"]
    return rows


MIXED = "refinement.mixed_body: tier_* set; ignoring legacy model/worker_model"
"""Warning if both tiers and plain models are given."""


class ModelPair(NamedTuple):
    """Models of manager and worker; an empty name means the seed run's."""

    manager: str = ""
    worker: str = ""

    def over(self, seed: "ModelPair") -> "ModelPair":
        """Return this pair, with the seed's models for empty names."""
        return ModelPair(self.manager or seed.manager, self.worker or seed.worker)


SEEDS = ModelPair()
"""Pair that means the models of the seed run."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Pair of models for each tier."""

    low: ModelPair = SEEDS
    mid: ModelPair = SEEDS
    high: ModelPair = SEEDS

    @property
    def trivial(self) -> bool:
        """True if no tier names a model, so that every iteration uses the seed's."""
        return not any((*self.low, *self.mid, *self.high))

    def of(self, tier: Tier) -> ModelPair:
        """Return the pair of one tier."""
        return {"low": self.low, "mid": self.mid, "high": self.high}[tier]


def parse_pair(text: str, flag: str) -> ModelPair:
    """Parse a flag: `MANAGER:WORKER`, or `manager=...,worker=...` for names with colons.

    Raises `SetupError` if there are several colons at which the text could be split.
    """
    text = text.strip()
    if text.startswith(("manager=", "worker=")):
        return _named(text, flag)
    if ":" not in text:
        raise SetupError(
            f"`{flag} {text}` names one model: a pair is `MANAGER:WORKER`",
            hint=f"`{flag} {text}:` leaves the worker's as it is, `{flag} :{text}` the manager's",
        )
    manager, _, worker = text.partition(":")
    if ":" in worker:
        parts = text.split(":")
        # show every way to split it, since names of models may contain colons
        splits = ((":".join(parts[:n]), ":".join(parts[n:])) for n in range(1, len(parts)))
        ways = ", or ".join(f"`{one}` and `{two}`" for one, two in splits)
        raise SetupError(
            f"`{flag} {text}` can be read in several ways: {ways}",
            hint=f"write `{flag} manager=...,worker=...`, where names may hold colons",
        )
    return ModelPair(manager.strip(), worker.strip())


def _named(text: str, flag: str) -> ModelPair:
    found: dict[str, str] = {}
    for item in text.split(","):
        key, equals, value = item.partition("=")
        if not equals or key.strip() not in ("manager", "worker") or key.strip() in found:
            raise SetupError(
                f"`{flag} {text}`: `{item}` is neither `manager=...` nor `worker=...`",
                hint=f"write `{flag} manager=...,worker=...`; either may be left out",
            )
        found[key.strip()] = value.strip()
    return ModelPair(found.get("manager", ""), found.get("worker", ""))


RUN = "run"
"""Branch of a proposal's scope with the journal of its run."""

_ASKED = Job("refine", "task", 0, "feedback")
_CASE = Case("task")
_ALIKE = 120


@dataclass(frozen=True, slots=True)
class Named:
    """Journalled id of an iteration's run, so that a resume uses the same."""

    run_id: str
    usage: Usage = FREE


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterating:
    """An iteration that is about to run."""

    k: int
    run_id: str
    start: Made
    """Run whose deliverable it starts from."""
    brief: str
    broke: tuple[str, ...] = ()
    """Defects, refusals and worse loss parts of the previous attempt, compared with the start."""

    def document(self) -> dict[str, object]:
        """Return the data that explains the iteration, with the brief of its manager."""
        found = self.start.findings.document()
        return {"iteration": self.k, **found, "broke": list(self.broke), "prefix": self.brief}


class Places(Protocol):
    """Writer of the files of iterations; both methods may be repeated after a kill."""

    def prepared(self, about: Iterating) -> None:
        """Write input and findings of an iteration, before its first call."""
        ...

    def ended(self, about: Iterating, run: AgentRun, files: Mapping[str, bytes]) -> None:
        """Write the run of an iteration, after its end."""
        ...


RunnerFor = Callable[[ModelPair, Assignment, Mapping[str, bytes], Hearer], AgentRunner]
"""Factory of runners for models, assignment, input files and listener."""


def _be_silent(line: str) -> None:
    """Say nothing: the default of a session without a listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """Proposer of refinements; implements `kept.core.ports.Proposer`."""

    seed: Candidate
    task: str
    texts: Mapping[str, str]
    """Prompt artifacts of the runs."""
    runner_for: RunnerFor
    pair_for: Callable[[Tier | None], ModelPair]
    places: Places
    clock: Clock
    from_last: bool = False
    iterations: int = 1
    """Maximum iterations of the session."""
    say: Callable[[str], None] = _be_silent
    """Called with a line of text when an iteration begins."""
    raced: bool = False
    """True if a race decides: then the incumbent is the best so far, and changes only by a win."""
    name: str = RERUN
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Run the task once from the best (or last) deliverable, and propose the result."""
        found = all_made(self.seed, brief.history)
        # an iteration that ran but could not be evaluated is proposed again, not repeated
        number = brief.turn.number
        same = (step for step in brief.history.of(RERUN) if step.turn.number == number)
        before = next((one.candidate for one in same if one.proposal and one.candidate), None)
        if before is not None:
            return _proposed(found[before], brief)
        made = list(found.values())
        best = made_of(brief.incumbent.texts) if self.raced else best_of(made)
        start = made[-1] if self.from_last else best
        if not any(start.files.values()):
            return Skip("there is nothing to start from", ends="no_prior_deliverable")
        if start.findings.empty:
            return Skip("nothing is left to refine", ends="empty_gradient_midloop")
        broke = broke_by(start, made[-1], brief.history)
        about = await self._iterating(brief, start, broke, scope)
        self.places.prepared(about)
        found = count(len(start.findings.told()), "finding")
        of = iteration_words(about.k, self.iterations)
        self.say(f"{of} starts from run {start.run_id}, with {found}")
        run, files = await self._run(brief, about, scope)
        self.places.ended(about, run, files)
        tier = brief.turn.setting("tier", str)
        new = made_by(run, files, tier)
        if not any(files.values()):
            why = f"it left no deliverable: it ended {run.status} ({run.reason})"
            return Skip(why, about=new.about())
        return _proposed(new, brief)

    async def _iterating(
        self, brief: Brief, start: Made, broke: tuple[str, ...], scope: Scope
    ) -> Iterating:
        k = brief.turn.setting("k", int) or 0

        async def name() -> Named:
            # the time is only read in the journalled call, so a resume gets the same id
            t = self.clock.time()
            digest = hashlib.sha256(f"{self.seed.id} {k} {t}".encode()).hexdigest()[:8]
            when = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d_%H-%M-%S")
            return Named(f"{when}_{digest}")

        named = await scope.branch("name").call({"name": k}, Named, name, 0.0)
        assert isinstance(named, Named), "to write something down does not fail"
        return Iterating(
            k=k,
            run_id=named.run_id,
            start=start,
            brief=brief_text(start.findings, broke),
            broke=broke,
        )

    async def _run(
        self, brief: Brief, about: Iterating, scope: Scope
    ) -> tuple[AgentRun, Mapping[str, bytes]]:
        tier = TIERS.get(brief.turn.setting("tier", str) or "")
        assignment = Assignment(
            run_id=about.run_id,
            task=self.task,
            brief=about.brief,
            parent_run_id=about.start.run_id,
            tags=("refinement", f"iter_{about.k}"),
        )
        moments: list[Moment] = []
        pair = self.pair_for(tier)
        runner = self.runner_for(pair, assignment, about.start.files, moments.append)
        texts = Candidate(self.texts)
        ran = await runner.run(_ASKED, texts, _CASE, scope.branch(RUN))
        if isinstance(ran, Failure):
            # earlier improvements stay, and a resume continues from here
            raise Halt(StopReason("error", f"error:{ran.kind}: {ran.message}"))
        run = record_of(moments)
        assert run is not None, "a run that has ended has begun"
        return run, ran.files


def _proposed(new: Made, brief: Brief) -> Proposal:
    held = brief.incumbent.texts
    # files that the run deleted stay in the candidate, but are no longer listed on its page
    edits = [Write(path, text) for path, text in new.texts().items() if held.get(path) != text]
    why = f"run {new.run_id} ended {new.status} with a loss of {new.loss:.4f}"
    return Proposal(tuple(edits), why, about=new.about())


def made_by(run: AgentRun, files: Mapping[str, bytes], tier: str | None) -> Made:
    """Return the result of a run with its findings."""
    parts = run_loss(run).parts()
    return Made(
        run_id=run.run_id,
        status=run.status,
        seconds=run.budget.used.wall_seconds if run.budget else 0.0,
        parts=parts,
        findings=findings_in(run, parts["total"]),
        files=files,
        tier=tier,
        manager=run.models.manager,
        worker=run.models.worker,
        parent=run.parent_run_id or "",
    )


def broke_by(start: Made, last: Made, closed: Sequence[ClosedStep]) -> tuple[str, ...]:
    """Return what the last attempt made worse, and the reason if it left nothing."""
    step = closed[-1] if closed else None
    nothing = (step.skip.why,) if step is not None and step.skip and left_nothing(step) else ()
    return (*broken_since(start, last), *nothing)


def broken_since(start: Made, last: Made) -> tuple[str, ...]:
    """Return what the last attempt made worse than the start; empty if it is the start."""
    if last.run_id == start.run_id:
        return ()
    known = {one.summary[:_ALIKE]: main_words(one.summary) for one in start.findings.defects}
    new = [
        one
        for one in last.findings.defects
        if one.summary[:_ALIKE] not in known
        and first_alike(main_words(one.summary), known, ()) is None
    ]
    refused = [one for one in last.findings.refusals if one not in start.findings.refusals]
    worse = [
        f"{name} part of the loss: {start.parts[name]:.3f} became {value:.3f}"
        for name, value in last.parts.items()
        if name != "total" and value > start.parts.get(name, value)
    ]
    return (
        *(f"[{one.severity}] {one.summary}" for one in new),
        *(f"{one.gate} refused: {one.reason}" for one in refused),
        *worse,
    )
