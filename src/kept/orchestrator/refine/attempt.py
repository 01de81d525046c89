"""Refinement attempts: findings of a finished run, their ledger, and the candidate.

Findings need no model (rule R36). They are defects found by critics, the last refusals of a
completion, and metrics below target. Without findings there is nothing to refine.

The candidate holds the deliverable and a page about its origin, as an artifact among the files.
So everything that decides is in the candidate, and a resume needs nothing else. Binary files are
carried as bytes.

Defects are matched by their main words. Two descriptions match if those are equal, or one has a
few more, and both name the same numbers. Words for a lack do not count: "lacks a summary" equals
"the summary is missing". A replaced word makes two defects: "too long" and "too short".

The ledger follows each finding over the iterations of a session. Findings of the starting run are
later fixed or still open; others in the result are new. Findings match by their first words, and
defects also by main words. A defect in quite different words counts as fixed and as new.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from kept.core.artifact import Candidate
from kept.core.proposal import ClosedStep
from kept.core.rollout import Failure, Rollout
from kept.core.schedules.refine import Attempt
from kept.core.text import count, one_line
from kept.orchestrator.record import AgentRun
from kept.orchestrator.run_folder.read import FinishedRun, Refusal, SeedDefect

LAST = 3
"""Refusals that are told; earlier ones were dealt with."""

CRITICS = "critique"
"""The check that refuses what critics find too poor."""

SAME = 120
"""Characters by which two descriptions are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What is wrong with a run."""

    run_id: str
    loss: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    defects: tuple[SeedDefect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Oldest first."""
    gaps: Mapping[str, float] = field(default_factory=dict[str, float])
    """By metric, what it lacks; none that lacks nothing."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to refine."""
        return not (self.defects or self.refusals or self.gaps)

    def told(self) -> list[tuple[str, str]]:
        """Each in words, and how bad it is."""
        return [(words, severity) for _, words, severity in self.named()]

    def named(self) -> list[tuple[str, str, str]]:
        """The name of each in other runs, its words, and how bad it is."""
        return [
            *(
                (d.summary, f"{d.summary} ({d.evidence})" if d.evidence else d.summary, d.severity)
                for d in self.defects
            ),
            *(
                # the reason of a refusal by critics repeats defects, which are findings themselves
                (by if r.gate == CRITICS else f"{by}: {r.reason}", f"{by}: {r.reason}", "critical")
                for r in self.refusals
                for by in (f"a completion was refused by {r.gate}",)
            ),
            *(
                (f"`{name}` falls short", f"`{name}` falls short by {gap:g}", "warning")
                for name, gap in self.gaps.items()
            ),
        ]

    def document(self) -> dict[str, Any]:
        """As the source writes it to `gradient_input.json`."""
        return {
            "prior_run_id": self.run_id,
            "prior_loss_total": self.loss,
            "prior_raw_signals": dict(self.signals),
            "defects": [one._asdict() for one in self.defects],
            "rejected_gates": [one._asdict() for one in self.refusals],
            "eval_deltas": dict(self.gaps),
        }


def findings_of(run: FinishedRun) -> Findings:
    """What is wrong with a run that was read from its folder."""
    defects = distinct(run.defects)
    signals = run.loss.signals
    measured = {"eval_score": signals.eval_score, "critique_score": signals.critique_score}
    told = {name: value for name, value in measured.items() if value is not None}
    return Findings(
        run_id=run.run_id,
        loss=round(run.loss.total, 6),
        signals={**told, "critique_defect_count": float(len(defects))},
        defects=defects,
        refusals=run.refusals[-LAST:],
        gaps=gaps_of(run.per_metric, run.thresholds),
    )


def findings_in(run: AgentRun, loss: float) -> Findings:
    """What is wrong with a run of ours."""
    said = [
        SeedDefect(defect.description, defect.severity, defect.location)
        for iteration in run.iterations
        for one in iteration.delegations
        if one.critique is not None
        for defect in one.critique.defects
    ]
    if not said and run.critique is not None:
        said = [SeedDefect(d.description, d.severity, d.location) for d in run.critique.defects]
    refused = [Refusal(one.gate, one.reason) for one in run.rejections if one.completion]
    evaluation = run.evaluation
    defects = distinct(said)
    return Findings(
        run_id=run.run_id,
        loss=round(loss, 6),
        signals={"critique_defect_count": float(len(defects))},
        defects=defects,
        refusals=tuple(refused[-LAST:]),
        gaps=gaps_of(evaluation.per_metric, evaluation.thresholds) if evaluation else {},
    )


def distinct(defects: Sequence[SeedDefect]) -> tuple[SeedDefect, ...]:
    """Each defect once, the first time it was told; those without words are none."""
    found: dict[tuple[str, str], SeedDefect] = {}
    for one in defects:
        if one.summary.strip():
            found.setdefault((one.summary[:SAME], one.severity), one)
    return tuple(found.values())


def gaps_of(observed: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
    """By metric, how much it lacks; only what lacks something."""
    gaps = {name: round(wanted[name] - observed[name], 4) for name in wanted if name in observed}
    return {name: gap for name, gap in gaps.items() if gap > 0}


PAGE = "run.json"
"""The artifact that tells of the run."""

BELOW = "deliverable/"
"""Where the files of the deliverable are."""

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A finished run, as refinement knows it."""

    run_id: str
    status: str
    seconds: float
    parts: Mapping[str, float]
    """Of its loss, and the total."""
    findings: Findings
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tier: str | None = None
    manager: str = ""
    worker: str = ""
    parent: str = ""
    """The run whose deliverable it started from."""

    @property
    def loss(self) -> float:
        """The whole loss."""
        return self.parts["total"]

    def texts(self) -> dict[str, str]:
        """As the texts of a candidate."""
        page = {
            "run_id": self.run_id,
            "status": self.status,
            "seconds": self.seconds,
            "loss": dict(self.parts),
            "findings": asdict(self.findings),
            "files": sorted(self.files),
            "tier": self.tier,
            "manager": self.manager,
            "worker": self.worker,
            "parent_run_id": self.parent,
        }
        files = {
            f"{BELOW}{path}": data.decode("utf-8", "surrogateescape")
            for path, data in self.files.items()
        }
        return {PAGE: json.dumps(page, indent=1, ensure_ascii=False), **files}

    def about(self) -> dict[str, object]:
        """What a record of the step says of it."""
        return {
            "run_id": self.run_id,
            "status": self.status,
            "seconds": self.seconds,
            "loss": dict(self.parts),
            "tier": self.tier,
            "manager": self.manager,
            "worker": self.worker,
            "parent_run_id": self.parent,
        }


def made_of(texts: Mapping[str, str]) -> Made:
    """From the texts of a candidate; files that it no longer has are not listed on its page."""
    page: dict[str, Any] = json.loads(texts[PAGE])
    told: dict[str, Any] = page["findings"]
    findings = Findings(
        run_id=told["run_id"],
        loss=told["loss"],
        signals=told["signals"],
        defects=tuple(SeedDefect(*one) for one in told["defects"]),
        refusals=tuple(Refusal(*one) for one in told["refusals"]),
        gaps=told["gaps"],
    )
    files = {path: texts[f"{BELOW}{path}"] for path in page["files"]}
    return Made(
        run_id=page["run_id"],
        status=page["status"],
        seconds=page["seconds"],
        parts=page["loss"],
        findings=findings,
        files={path: text.encode("utf-8", "surrogateescape") for path, text in files.items()},
        tier=page["tier"],
        manager=page["manager"],
        worker=page["worker"],
        parent=page.get("parent_run_id", ""),
    )


def deliverable_of(candidate: Candidate) -> Candidate:
    """A candidate as people compare it: without its page, and without files that are gone."""
    listed = {f"{BELOW}{path}" for path in json.loads(candidate.texts[PAGE])["files"]}
    return Candidate({path: text for path, text in candidate.texts.items() if path in listed})


def measures_of(parts: Mapping[str, float]) -> dict[str, float]:
    """A loss and its parts, by the names that a journal has for them."""
    named = {f"{LOSS}_{name}": value for name, value in parts.items() if name != "total"}
    return {LOSS: parts["total"], **named}


def all_made(seed: Candidate, closed: Iterable[ClosedStep]) -> dict[str, Made]:
    """What the seed and every iteration made that left something, by candidate, oldest first."""
    known: dict[str, Mapping[str, str]] = {seed.id: seed.texts}
    found = {seed.id: made_of(seed.texts)}
    for step in closed:
        if step.candidate is None or step.proposal is None:
            continue
        changed = {edit.path: edit.text for edit in step.proposal.edits if edit.op == "write"}
        known[step.candidate] = {**known[step.incumbent], **changed}
        found[step.candidate] = made_of(known[step.candidate])
    return found


def best_of(made: Iterable[Made]) -> Made:
    """The first with the least loss."""
    return min(made, key=lambda one: one.loss)


class MadeRunner:
    """Measures what an iteration made: by its page. Implements `kept.core.ports.Runner`."""

    def __init__(self, closes: Callable[[], None] | None = None) -> None:
        self._closes = closes

    async def run(
        self, job: object, candidate: Candidate, case: object, scope: object
    ) -> Rollout | Failure:
        """Read the page; the run itself was the proposal."""
        return Rollout(metrics=measures_of(made_of(candidate.texts).parts))

    async def close(self) -> None:
        """Let go of what iterations were run with."""
        if self._closes is not None:
            self._closes()


_SHARED = 0.75
"""Share of the main words of the longer description that the shorter one has, at least."""

_GRAMMAR = """
a about also an and any are as at be been being but by can could did do does doesn't don't for from
had has have in is isn't it its more must needs no nor not of on or should so still than that the
their there these they this those to too was were which will with would yet
"""
_LACK = """
absent add added lack lacking lacks miss missed misses missing none omit omits omitted without
"""
_MINOR = frozenset((_GRAMMAR + _LACK).split())
_APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:'\w+)*")
_ENDINGS = ("ing", "ed", "es", "s", "e")
_STEM = 3
"""Characters that a word keeps at least when its ending is cut off."""


def main_words(text: str) -> frozenset[str]:
    """The words of a description that say what it is about, without their endings."""
    words = _WORD.findall(text.casefold().replace(_APOSTROPHE, "'"))
    return frozenset(_stem(word) for word in words if word not in _MINOR)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word.removesuffix(ending)
    return word


def are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """True if two descriptions with these main words are of one defect."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    if not few or len(few) < _SHARED * len(many) or not few <= many:
        return False
    return not any(word[0].isdecimal() for word in many - few)


def first_alike(
    words: frozenset[str], known: Mapping[str, frozenset[str]], taken: Collection[str]
) -> str | None:
    """The first known description of the same defect that is not taken; None without one."""
    found = (key for key, its in known.items() if key not in taken and are_alike(words, its))
    return next(found, None)


Fate = Literal["fixed", "still open", "new"]

FATES: tuple[Fate, ...] = ("fixed", "still open", "new")


class Entry(NamedTuple):
    """The effect of one iteration on one finding."""

    k: int
    given: bool
    """True where the iteration was told of it."""
    fate: Fate


@dataclass(frozen=True, slots=True)
class Line:
    """One finding over all iterations."""

    text: str
    severity: str
    entries: tuple[Entry, ...]
    open: bool
    """True where the best deliverable still has it."""

    def document(self) -> dict[str, Any]:
        """As a session has it."""
        return {
            "finding": self.text,
            "severity": self.severity,
            "iterations": [one._asdict() for one in self.entries],
            "open_in_best": self.open,
        }


def ledger_of(
    start: Made, best: Made, made: Iterable[Made], attempts: Sequence[Attempt]
) -> tuple[Line, ...]:
    """Every finding of a session, in the order in which they were met.

    `made` is what iterations left. An iteration that left nothing has fixed nothing.
    """
    known = _known((start, *made))
    lines: dict[str, tuple[str, str]] = dict(known[start.run_id])
    entries: dict[str, list[Entry]] = {key: [] for key in lines}
    for attempt in attempts:
        given = known.get(attempt.parent_run_id, known[start.run_id])
        after = known.get(attempt.run_id, given)
        for key in {**given, **after}:
            lines.setdefault(key, {**after, **given}[key])
            fate: Fate = "still open" if key in after else "fixed"
            entry = Entry(attempt.k, key in given, fate if key in given else "new")
            entries.setdefault(key, []).append(entry)
    left = known[best.run_id]
    return tuple(
        Line(text, severity, tuple(entries[key]), key in left)
        for key, (text, severity) in lines.items()
    )


def counted_words(lines: Iterable[Line], k: int) -> str:
    """`3 findings given: 2 fixed, 1 still open; 1 new`."""
    mine = [one for line in lines for one in line.entries if one.k == k]
    found = {fate: sum(one.fate == fate for one in mine) for fate in FATES}
    fates = f"{found['fixed']} fixed, {found['still open']} still open"
    given = count(sum(one.given for one in mine), "finding")
    return f"{given} given: {fates}; {found['new']} new"


def _known(made: Iterable[Made]) -> dict[str, dict[str, tuple[str, str]]]:
    """The findings of each run by what they are known by, which is the same in all of them."""
    words: dict[str, frozenset[str]] = {}
    known: dict[str, dict[str, tuple[str, str]]] = {}
    for one in made:
        found = dict[str, tuple[str, str]]()
        for name, text, severity in one.findings.named():
            found.setdefault(_key(name), (text, severity))
        defects = {_key(defect.summary) for defect in one.findings.defects}
        taken, names = set(found), dict[str, str]()
        for key in found:
            if key in defects and key not in words:
                mine = main_words(key)
                same = first_alike(mine, words, taken)
                if same is None:
                    words[key] = mine
                else:
                    names[key] = same
                    taken.add(same)
        known[one.run_id] = {names.get(key, key): told for key, told in found.items()}
    return known


def _key(name: str) -> str:
    return one_line(name).casefold()[:SAME]
