"""A refinement as it is told at its end, and whenever somebody looks at it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.plan import REFINE
from kept.core.schedules.refine import Attempt, reruns, unpaid, unread
from kept.core.state import State
from kept.core.words import count
from kept.errors import SetupError
from kept.orchestrator.refine.best import BEST, FOLLOW, Held
from kept.orchestrator.refine.folder import Told, stop_name
from kept.orchestrator.refine.ledger import counted_words
from kept.orchestrator.refine.made import all_made
from kept.orchestrator.refine.session import SESSIONS
from kept.orchestrator.refining import SESSION
from kept.orchestrator.tasks import chosen
from kept.recipes.refine.refine_asked import Refinement
from kept.recipes.refine.refine_gate import MAX_USD
from kept.store.reader import Run
from kept.ui.cli import _output
from kept.ui.cli._output import pairs
from kept.ui.cli.names import command_for, path_from_here

UNMEASURED = "not measured: each loss is of one run; `--gate race` measures it"
UNREAD = "not measured: no deliverable was read twice"


def told_of(run: Run, state: State) -> Told:
    """What a state of a run says of its refinement."""
    return Told(state, all_made(run.candidate(state.seed), reruns(state)))


def refined_of(run: Run) -> "Refined | None":
    """The refinement that a run is; None for others, and for one whose task is gone."""
    if run.recipe != REFINE:
        return None
    asked = Refinement.of(run.fact(REFINE))
    try:
        asked.refined  # noqa: B018 # raises where its experiment was deleted
    except SetupError:
        return None
    return Refined(told_of(run, run.state), asked, run.folder)


@dataclass(frozen=True, slots=True)
class Refined:
    """What a refinement has come to."""

    told: Told
    asked: Refinement
    folder: Path
    """Of the run that it is."""

    @property
    def attempts(self) -> list[Attempt]:
        """Those that ran."""
        return self.told.attempts

    @property
    def unread(self) -> list[int]:
        """The attempts that ran, and that nobody judged."""
        return [*unread(reruns(self.told.state)), *unpaid(self.told.state)]

    def document(self) -> dict[str, Any]:
        """For programs."""
        told, state = self.told, self.told.state
        seed, best = told.parts(state.seed), told.parts(told.best_id)
        stopped = state.stopped
        return {
            "seed_loss": seed["total"],
            "seed_loss_breakdown": dict(seed),
            "started_from": "BEST" if self.asked.start else "seed",
            "start_run_id": told.made[state.seed].run_id,
            "best_loss": best["total"],
            "best_iter": told.best_iter,
            "stop_reason": stop_name(stopped.kind, stopped.message) if stopped else "",
            "iterations": [{"k": a.k, "run_id": a.run_id, "loss": a.loss} for a in told.attempts],
            "unread": self.unread,
            "gate": "race" if told.raced else "follow",
            "measure": told.measure,
            "noise": asdict(told.noise) if told.noise else None,
            "findings": [one.document() for one in told.ledger],
            **self._places(),
        }

    def text(self) -> str:
        """For a person."""
        if self.told.state.stopped and self._stop == "empty_gradient":
            where = " in BEST" if self.asked.start else ""
            return f"nothing to refine{where}: no defects, no refusals, no metric that falls short"
        return f"{_output.style(self.title, bold=True)}\n\n{pairs(self.rows())}"

    @property
    def title(self) -> str:
        """What came of it, in a line."""
        told, k = self.told, self.told.best_iter
        seed, best = (told.parts(id_)["total"] for id_ in (told.state.seed, told.best_id))
        so_far = "" if told.state.stopped else "so far, "
        if k:
            by = ", each the mean of its readings" if told.raced else ""
            return f"{so_far}better: loss {best:.4f} (iteration {k}), down from {seed:.4f}{by}"
        if not told.attempts:
            return f"{so_far}no attempt came to its end: {self._whose} loss of {seed:.4f} stands"
        if told.raced:
            words = f"nothing was shown to be better than {self._whose} loss of {seed:.4f}"
        else:
            words = f"{self._whose} loss of {seed:.4f} is still the least"
        return f"{so_far}no gain: {words}"

    @property
    def _whose(self) -> str:
        return "BEST's" if self.asked.start else "the seed's"

    @property
    def moved(self) -> bool:
        """True where BEST holds what this session made."""
        held = self.asked.shelf.holds()
        return self.told.best_iter > 0 and held is not None and held.run_id == self.told.best.run_id

    @property
    def unmoved(self) -> str:
        """The sentence on why BEST did not move."""
        left = self._places()["best_left"]
        if left is not None:
            return f"BEST did not move: {left}"
        return f"BEST did not move: {self.title.removeprefix('no gain: ')}"

    def rows(self) -> list[tuple[str, str]]:
        """All there is to say besides."""
        told, asked, places = self.told, self.asked, self._places()
        name = "BEST" if asked.start else "seed"
        rows = [(name, f"{_parts(told.parts(told.state.seed))}{_by(told)}"), *self._attempts()]
        if self.unread:
            which = ", ".join(map(str, self.unread))
            short = "the money for readings is used up" if unpaid(told.state) else ""
            rows.append(("not judged", f"attempt {which}: {short or 'the readings had no answer'}"))
        rows += [("go on", self._more)] if self._more else []
        rows.append(("noise", told.noise.words if told.noise else _unmeasured(told)))
        rows += [("stopped", _stopped(self._stop, told.state))] if self._stop else []
        if places["best"] is not None:
            rows.append(("best", path_from_here(places["best"])))
        if places["best_left"] is not None:
            rows.append(("", f"BEST is left as it is: {places['best_left']}"))
        if asked.target and told.best_iter and chosen(asked.task):
            choose = f"`kept experiment task set-best {asked.target} --auto` has the loss choose"
            rows.append(("", choose))
        rows.append(("session", path_from_here(str(places["session"]))))
        return [*rows, ("iterations", path_from_here(asked.root))]

    @property
    def measure(self) -> str:
        """What its losses are, for a person."""
        if self.told.measure == FOLLOW:
            return f"loss of one run each (`{FOLLOW}`)"
        return f"mean loss of readings (`{self.told.measure}`)"

    @property
    def _stop(self) -> str:
        stopped = self.told.state.stopped
        return stop_name(stopped.kind, stopped.message) if stopped else ""

    @property
    def _more(self) -> str:
        """The command that goes on with twice the money for readings, where that is used up."""
        state, usd = self.told.state, readings_usd(self.told.state)
        if not usd or not state.stopped or state.stopped.kind != "usd":
            return ""
        return command_for("resume", self.folder, (f"{MAX_USD}={2 * usd:.10g}",))

    def _attempts(self) -> list[tuple[str, str]]:
        told, rows = self.told, list[tuple[str, str]]()
        verdicts = {step.step: step.verdict for step in reruns(told.state)}
        for one in told.attempts:
            status = f"{one.status}, by its own run" if told.raced else one.status
            rows.append((f"attempt {one.k}", f"{_parts(one.loss_breakdown)} ({status})"))
            rows.append(("", counted_words(told.ledger, one.k)))
            verdict = verdicts[one.step]
            if told.raced or verdict.outcome not in ("keep", "discard"):
                rows.append(("", verdict.reason))
        return rows

    def _places(self) -> dict[str, str | None]:
        """Where the best lies, if there is one, why BEST does not hold it, and the session."""
        told, asked = self.told, self.asked
        if asked.target:
            place, session = asked.task.best, asked.root / SESSION
        else:
            place = Path(asked.run) / BEST
            session = Path(asked.run) / SESSIONS / f"{asked.session}.json"
        held = asked.shelf.holds()
        best, left = (None if held is None else place), None
        if told.best_iter and (held is None or held.run_id != told.best.run_id):
            best = asked.root / f"iter_{told.best_iter}" / "output" / told.best.run_id
            left = "it could not be written" if held is None else self._stays(held)
            if asked.target and chosen(asked.task):
                left = "a person chose what it holds"
        return {"best": str(best) if best else None, "best_left": left, "session": str(session)}

    def _stays(self, held: Held) -> str:
        told = self.told
        if not told.final and held.beaten_by(told.parts(told.best_id)["total"], told.measure):
            return f"it holds run {held.run_id} until this race has come to its end"
        return held.stays(told.measure)


def readings_usd(state: State) -> float | None:
    """What all readings of a refinement may cost together; None without a limit, or a race."""
    limits = state.started.facts.get("budget") if state.started else None
    return cast("Mapping[str, float | None]", limits or {}).get("max_rollouts_usd")


def _unmeasured(told: Told) -> str:
    return UNREAD if told.raced else UNMEASURED


def _stopped(reason: str, state: State) -> str:
    """The seed's word; of an error, that there was one: what it was is told beside the answer."""
    if state.stopped is not None and state.stopped.kind == "usd":
        return f"{reason}: of `budget.max_usd`, {state.stopped.message}"
    return "after an error" if reason.startswith("error:") else reason


def _by(told: Told) -> str:
    """Whose the seed's loss is, where a race has more than one kind of them."""
    if not told.raced:
        return ""
    read = told.readings(told.state.seed)
    words = f"mean of {count(read.count, 'reading')}" if read else "by its own run"
    return f" ({words})"


def _parts(parts: Mapping[str, float]) -> str:
    shown = " + ".join(f"{name} {value:.4f}" for name, value in parts.items() if name != "total")
    return f"{parts['total']:.4f} = {shown}"
