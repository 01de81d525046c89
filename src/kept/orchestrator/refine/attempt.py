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
"""Number of latest refusals that count as findings; earlier ones were dealt with."""

CRITICS = "critique"
"""Name of the check of the critics' mean score."""

SAME = 120
"""Characters of a description that are compared for equality."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Problems of a run that a refinement can fix."""

    run_id: str
    loss: float | None = None
    signals: Mapping[str, float] = field(default_factory=dict[str, float])
    defects: tuple[SeedDefect, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Refusals of completions, oldest first."""
    gaps: Mapping[str, float] = field(default_factory=dict[str, float])
    """Distance to the threshold by metric; only metrics below it."""

    @property
    def empty(self) -> bool:
        """True if there is nothing to refine."""
        return not (self.defects or self.refusals or self.gaps)

    def told(self) -> list[tuple[str, str]]:
        """Return text and severity of each finding."""
        return [(words, severity) for _, words, severity in self.named()]

    def named(self) -> list[tuple[str, str, str]]:
        """Return name, text and severity of each finding; the name identifies it in other runs."""
        return [
            *(
                (d.summary, f"{d.summary} ({d.evidence})" if d.evidence else d.summary, d.severity)
                for d in self.defects
            ),
            *(
                # the reason of a refusal by critics repeats defects, which are findings already
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
        """Return the data of `gradient_input.json`, as the source writes it."""
        return {
            "prior_run_id": self.run_id,
            "prior_loss_total": self.loss,
            "prior_raw_signals": dict(self.signals),
            "defects": [one._asdict() for one in self.defects],
            "rejected_gates": [one._asdict() for one in self.refusals],
            "eval_deltas": dict(self.gaps),
        }


def findings_of(run: FinishedRun) -> Findings:
    """Return the findings of a run that was read from its folder."""
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
    """Return the findings of a run of Kept."""
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
    """Return each defect once, at its first mention; drops defects without a summary."""
    found: dict[tuple[str, str], SeedDefect] = {}
    for one in defects:
        if one.summary.strip():
            found.setdefault((one.summary[:SAME], one.severity), one)
    return tuple(found.values())


def gaps_of(observed: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
    """Return the distance to the wanted value by metric; only metrics below it."""
    gaps = {name: round(wanted[name] - observed[name], 4) for name in wanted if name in observed}
    return {name: gap for name, gap in gaps.items() if gap > 0}


PAGE = "run.json"
"""Name of the artifact that describes the run."""

BELOW = "deliverable/"
"""Path prefix of the deliverable's files in a candidate."""

LOSS = "loss"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A finished run, reduced to the data that refinement needs."""

    run_id: str
    status: str
    seconds: float
    parts: Mapping[str, float]
    """Parts of its loss, and the total."""
    findings: Findings
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    tier: str | None = None
    manager: str = ""
    worker: str = ""
    parent: str = ""
    """Run whose deliverable it started from."""

    @property
    def loss(self) -> float:
        """Total loss."""
        return self.parts["total"]

    def texts(self) -> dict[str, str]:
        """Return the texts of a candidate that holds this run."""
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
        # surrogateescape keeps binary files intact in the texts of a candidate
        files = {
            f"{BELOW}{path}": data.decode("utf-8", "surrogateescape")
            for path, data in self.files.items()
        }
        return {PAGE: json.dumps(page, indent=1, ensure_ascii=False), **files}

    def about(self) -> dict[str, object]:
        """Return the data about it for the record of its step."""
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
    """Read a run from the texts of a candidate; only files listed on its page count."""
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
    """Return a candidate for comparison: only the files listed on its page."""
    listed = {f"{BELOW}{path}" for path in json.loads(candidate.texts[PAGE])["files"]}
    return Candidate({path: text for path, text in candidate.texts.items() if path in listed})


def measures_of(parts: Mapping[str, float]) -> dict[str, float]:
    """Return a loss and its parts, by their metric names in the journal."""
    named = {f"{LOSS}_{name}": value for name, value in parts.items() if name != "total"}
    return {LOSS: parts["total"], **named}


def all_made(seed: Candidate, closed: Iterable[ClosedStep]) -> dict[str, Made]:
    """Return the runs of the seed and of all iterations with a candidate, oldest first."""
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
    """Return the first run with the least loss."""
    return min(made, key=lambda one: one.loss)


class MadeRunner:
    """Runner that reads the loss of an iteration from its page.

    Implements `kept.core.ports.Runner`.
    """

    def __init__(self, closes: Callable[[], None] | None = None) -> None:
        self._closes = closes

    async def run(
        self, job: object, candidate: Candidate, case: object, scope: object
    ) -> Rollout | Failure:
        """Read the page; the run itself was the proposal."""
        return Rollout(metrics=measures_of(made_of(candidate.texts).parts))

    async def close(self) -> None:
        """Release the resources of the iterations."""
        if self._closes is not None:
            self._closes()


_SHARED = 0.75
"""Minimum share of the longer description's main words in the shorter one."""

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
"""Minimum characters of a word after its ending is cut off."""


def main_words(text: str) -> frozenset[str]:
    """Return the main words of a description, without their endings."""
    words = _WORD.findall(text.casefold().replace(_APOSTROPHE, "'"))
    return frozenset(_stem(word) for word in words if word not in _MINOR)


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM:
            return word.removesuffix(ending)
    return word


def are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """True if two descriptions with these main words describe one defect."""
    # the shorter must be contained in the longer, and extra words must not be numbers
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    if not few or len(few) < _SHARED * len(many) or not few <= many:
        return False
    return not any(word[0].isdecimal() for word in many - few)


def first_alike(
    words: frozenset[str], known: Mapping[str, frozenset[str]], taken: Collection[str]
) -> str | None:
    """Return the first known description of the same defect that is not taken; else None."""
    found = (key for key, its in known.items() if key not in taken and are_alike(words, its))
    return next(found, None)


Fate = Literal["fixed", "still open", "new"]

FATES: tuple[Fate, ...] = ("fixed", "still open", "new")


class Entry(NamedTuple):
    """The effect of one iteration on one finding."""

    k: int
    given: bool
    """True if the iteration was given this finding."""
    fate: Fate


@dataclass(frozen=True, slots=True)
class Line:
    """One finding over all iterations."""

    text: str
    severity: str
    entries: tuple[Entry, ...]
    open: bool
    """True if the best deliverable still has it."""

    def document(self) -> dict[str, Any]:
        """Return the entry of this finding in a session file."""
        return {
            "finding": self.text,
            "severity": self.severity,
            "iterations": [one._asdict() for one in self.entries],
            "open_in_best": self.open,
        }


def ledger_of(
    start: Made, best: Made, made: Iterable[Made], attempts: Sequence[Attempt]
) -> tuple[Line, ...]:
    """Return every finding of a session, in the order of first occurrence.

    `made` holds the runs of the iterations that left a deliverable. The others have fixed nothing.
    """
    known = _known((start, *made))
    lines: dict[str, tuple[str, str]] = dict(known[start.run_id])
    entries: dict[str, list[Entry]] = {key: [] for key in lines}
    for attempt in attempts:
        # an iteration is compared with the run it started from, not with the previous one
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
    """Return counts like `3 findings given: 2 fixed, 1 still open; 1 new`."""
    mine = [one for line in lines for one in line.entries if one.k == k]
    found = {fate: sum(one.fate == fate for one in mine) for fate in FATES}
    fates = f"{found['fixed']} fixed, {found['still open']} still open"
    given = count(sum(one.given for one in mine), "finding")
    return f"{given} given: {fates}; {found['new']} new"


def _known(made: Iterable[Made]) -> dict[str, dict[str, tuple[str, str]]]:
    """Return the findings of each run by a key that is the same in all runs."""
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
                # a reworded defect takes the key of its first description
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
