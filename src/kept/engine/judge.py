"""From a reply to a verdict: guards, then the dialogue with the gate.

The guards cost nothing and come first. Then the gate asks for what it needs until it has a verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from kept.core.artifact import Candidate
from kept.core.edit import (
    Applied,
    Edit,
    EditReport,
    Write,
    apply_edits,
    changed_lines,
    changed_paths,
    not_shorter,
    partly_applied,
)
from kept.core.event import OpenStep
from kept.core.near_misses import edits_without, finalists, kept_since
from kept.core.plan import Plan
from kept.core.ports import Claiming, Clock, Measuring, Proving
from kept.core.proposal import (
    Ask,
    Asked,
    Claim,
    Measure,
    Note,
    Proposal,
    ProposerFailed,
    Prove,
    Skip,
    note_asked,
)
from kept.core.rollout import Pair, Purpose
from kept.core.score import Answers, Evaluation, Outcome, blamed, losses_of, summarize, ties_of
from kept.core.state import State
from kept.core.text import count
from kept.core.verdict import Side, Verdict, View
from kept.engine.evaluate import Evaluator
from kept.engine.replay import Known
from kept.errors import RunError

NOTHING = Proposal(())
NO_TIMES: Mapping[str, float] = {}
"""Of a step that was closed before it was judged; a plain dict, which the journal can write."""


class Judged(NamedTuple):
    """A step that is ready to close."""

    candidate: str | None
    reports: tuple[EditReport, ...]
    verdict: Verdict
    evaluations: tuple[Evaluation, ...] = ()
    times: Mapping[str, float] = NO_TIMES
    """As `StepClosed.times`."""


class Judge:
    """Judges steps; holds nothing that a resume would need."""

    def __init__(self, plan: Plan, known: Known, evaluator: Evaluator, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._times: dict[int, dict[str, float]] = {}
        self._known = known
        self._evaluator = evaluator
        self._train = tuple(case.id for case in plan.cases.train)
        self._holdout = tuple(case.id for case in plan.cases.holdout)
        self._test = tuple(case.id for case in plan.cases.test)
        # tallies are all that most gates look at
        self._by_pair = isinstance(plan.gate, Claiming | Measuring)
        self._sums: dict[tuple[str, Purpose, tuple[Pair, ...]], Evaluation] = {}
        self._answers: dict[tuple[str, Purpose, tuple[Pair, ...]], Answers] = {}
        self._seed_ran = False
        """True once a block of the seed has been evaluated."""
        self.attempts: dict[int, list[str]] = {}
        """Candidates that each open step has put before the gate, one a rebase; the last counts."""

    async def judge(self, step: OpenStep, opened: State, state: State) -> Judged:
        """The verdict on the reply of a step, with the times of its stages.

        `opened` is the state that the step began with, `state` the present one.
        """
        # of an earlier try, before an earlier step was kept
        self._times.pop(step.step, None)
        judged = await self._judge(step, opened, state)
        decided = dict.fromkeys(("validate_constraints", "decide"), self._clock.time())
        return judged._replace(times={**self._times.pop(step.step, {}), **decided})

    async def _judge(self, step: OpenStep, opened: State, state: State) -> Judged:
        reply = step.reply
        assert reply is not None, "a step is judged once its proposer has answered"
        match reply:
            case Skip():
                return Judged(None, (), Verdict("skip", reply.why, code="nothing proposed"))
            case Note():
                return Judged(None, (), Verdict("skip", "a note was taken", code="note"))
            case ProposerFailed(failure=failure):
                reason = f"the proposer `{step.turn.proposer}` failed: {failure.message}"
                # an outage passes, and this turn is given again; a crash is a fault to be mended
                outcome = "skip" if failure.outage else "crash"
                return Judged(None, (), Verdict(outcome, reason, code="proposer failed"))
            case Proposal():
                return await self._judge_proposal(step, reply, opened, state)
            case Prove() | Claim() | Measure():
                return await self._measure(step, reply, state)

    async def _measure(
        self, step: OpenStep, reply: Prove | Claim | Measure, state: State
    ) -> Judged:
        """Compare what leads with the best, or the best with the seed, or measure the seed."""
        gate = self._plan.gate
        if isinstance(reply, Measure) and isinstance(gate, Measuring):
            found = await self._talk(step, gate.measure, (state.seed, state.seed), state)
            return Judged(state.seed, (), *found)
        if isinstance(reply, Prove) and isinstance(gate, Proving):
            sides = (step.incumbent, state.best)
            # where nothing was kept as better, what leads is simpler, and that is all it is to be
            what = Proposal((), simplifies=not state.bars)
            texts = (self._known.candidate(id_) for id_ in (state.best, step.incumbent))
            shorter = not not_shorter(*texts)
            found = await self._talk(step, gate.prove, sides, state, what, shorter=shorter)
            return Judged(step.incumbent, (), *found)
        if not (isinstance(reply, Claim) and isinstance(gate, Claiming)):
            raise RunError(f"the gate `{gate.name}` cannot {reply.kind}")
        found = await self._talk(step, gate.claim, (state.best, state.seed), state)
        return Judged(state.best, (), *found)

    async def _judge_proposal(
        self, step: OpenStep, proposal: Proposal, opened: State, state: State
    ) -> Judged:
        incumbent = self._known.candidate(step.incumbent)
        edits = proposal.edits[_edits_in_incumbent(step, proposal, opened, state) :]
        applied = self._apply(incumbent, edits)
        # None where the incumbent is still the one that the proposal was made for
        made_for = opened.incumbent if opened.incumbent != step.incumbent else None
        refused = self._guard(applied, incumbent, proposal, state, edits, made_for)
        if refused is not None:
            id_ = applied.candidate.id if applied.candidate.id != incumbent.id else None
            return Judged(id_, applied.reports, refused)
        self._known.save(applied.candidate)
        self.attempts.setdefault(step.step, []).append(applied.candidate.id)
        if proposal.ungated and step.turn.takes:
            # what is measured next is measured with it: nothing is known of this text yet
            taken = Verdict("keep", "taken as it is, and not yet measured", code="taken")
            return Judged(applied.candidate.id, applied.reports, taken)
        sides = (applied.candidate.id, step.incumbent)
        rivals = _rivals(step, proposal, opened)
        verdict, known = await self._talk(
            step, self._plan.gate.decide, sides, state, proposal, rivals=rivals
        )
        if partly := partly_applied(applied.reports):
            verdict = replace(verdict, reason=f"{partly}; {verdict.reason}")
        return Judged(applied.candidate.id, applied.reports, verdict, known)

    def _apply(self, incumbent: Candidate, edits: tuple[Edit, ...]) -> Applied:
        return apply_edits(incumbent, edits, self._plan.rules, self._plan.locate)

    def _guard(
        self,
        applied: Applied,
        incumbent: Candidate,
        proposal: Proposal,
        state: State,
        edits: tuple[Edit, ...],
        made_for: str | None,
    ) -> Verdict | None:
        """Verdict on a candidate that is not worth a rollout; None if it may be.

        `made_for` is the incumbent that the proposal was made for, if another one leads by now.
        """
        took = {n for n, report in enumerate(applied.reports) if report.fate == "applied"}
        rebased = made_for is not None
        held = _held(applied, changed=applied.candidate.id != incumbent.id)
        if held is not None:
            reason = f"protected in {held.edit.path}: {held.detail}"
            return Verdict("discard", reason, code="protected")
        if applied.candidate.id == incumbent.id:
            if rebased:
                return Verdict("skip", "stale: an earlier step made this change", code="stale")
            fates = "; ".join(
                f"{r.fate}: {r.detail}" if r.detail else r.fate for r in applied.reports
            )
            code = "no change" if took else "no edits"
            return Verdict("skip", f"nothing changes ({fates or 'no edits'})", code=code)
        if made_for is not None:
            first = self._apply(self._known.candidate(made_for), proposal.edits)
            tried = first.reports[len(proposal.edits) - len(edits) :]
            if _standing(applied.reports) < _standing(tried):
                reason = "stale: an earlier step was kept, and the edits no longer apply"
                return Verdict("skip", reason, code="stale")
        if proposal.simplifies and (longer := not_shorter(incumbent, applied.candidate)):
            # what was shorter than an earlier incumbent, too: it would be kept for being no worse
            code = "stale" if rebased else "over limit"
            return Verdict("skip" if rebased else "discard", f"not simpler: {longer}", code=code)
        # a merger of one is what its member was, and has not been raced
        if applied.candidate.id in state.judged and not proposal.merges:
            return duplicate()
        over = self._limits(incumbent, applied.candidate)
        return over or self._hack(incumbent, applied.candidate)

    def _limits(self, incumbent: Candidate, candidate: Candidate) -> Verdict | None:
        rules = self._plan.rules
        if rules.max_files is not None:
            files = len(changed_paths(incumbent, candidate))
            if files > rules.max_files:
                reason = f"changes {count(files, 'file')}, {rules.max_files} allowed"
                return Verdict("discard", reason, code="over limit")
        if rules.max_changed_lines is not None:
            lines = changed_lines(incumbent, candidate)
            if lines > rules.max_changed_lines:
                reason = f"changes {count(lines, 'line')}, {rules.max_changed_lines} allowed"
                return Verdict("discard", reason, code="over limit")
        return None

    def _hack(self, incumbent: Candidate, candidate: Candidate) -> Verdict | None:
        """The first guard's reason to refuse a candidate."""
        for guard in self._plan.guards:
            # each its own: a guard that tidies a text up for itself changes no candidate
            sides = (self._plan.seed, incumbent, candidate)
            reason = guard.check(*(side.copied() for side in sides))
            if reason is not None:
                return Verdict("discard", f"guard {guard.name}: {reason}", code="guard")
        return None

    async def _talk(
        self,
        step: OpenStep,
        decide: Callable[[View], Verdict | tuple[Ask, ...]],
        sides: tuple[str, str],
        state: State,
        proposal: Proposal = NOTHING,
        *,
        shorter: bool = True,
        rivals: tuple[str, ...] = (),
    ) -> tuple[Verdict, tuple[Evaluation, ...]]:
        """Ask the gate, have what it asks for rolled out, ask again: until there is a verdict."""
        asked: Asked = {}
        bars = tuple(dict.fromkeys((state.best, *state.bars)))
        ids = {*sides, *bars, *rivals}
        while True:
            known = {key: self._sum_up(*key, asked, sides[0]) for key in asked}
            shown = {id_: self._side(id_, known, asked, sides[0]) for id_ in ids}
            view = View(
                challenger=shown[sides[0]],
                incumbent=shown[sides[1]],
                best=shown[state.best],
                train=self._train,
                holdout=self._holdout,
                objective=self._plan.objective,
                simplifies=proposal.simplifies,
                shorter=shorter,
                bars=tuple(shown[id_] for id_ in bars),
                finalists=tuple(shown[id_] for id_ in rivals),
                cites=proposal.cites,
                merged=len(proposal.merges),
                pools=not step.turn.races,
                still=step.turn.still or self._plan.objective.deterministic,
                proves=step.turn.proves,
                passes=step.turn.passes,
                least=state.least,
                ledger=step.ledger,
                test=self._test,
            )
            answer = decide(view)
            if isinstance(answer, Verdict):
                return answer, tuple(known.values())
            if not note_asked(asked, answer):
                raise RunError(f"the gate `{self._plan.gate.name}` asked for nothing new")
            times = self._times.setdefault(step.step, {"run_candidate": self._clock.time()})
            await self._evaluator.answer(answer, step.step)
            times["score_candidate"] = self._clock.time()
            if not self._seed_ran:
                self._check_seed(answer)

    def _check_seed(self, asks: tuple[Ask, ...]) -> None:
        """Stop a run whose evaluator raises on every case of the seed's first block.

        That is a bug in the evaluator, and no candidate can fix it (decision 0150).
        """
        mine = [ask for ask in asks if ask.candidate == self._plan.seed.id]
        found = [outcome for ask in mine for outcome in self._evaluator.outcomes(ask)]
        failures = [(pair.case, o.failure) for pair, o in found if o.failure is not None]
        self._seed_ran = bool(found)
        if not found or any(f.kind != "exception" for _, f in failures):
            return
        if len(failures) == len(found):
            case, failure = failures[0]
            raise RunError(
                f"`evaluate` raised in every rollout of the seed ({count(len(found), 'rollout')}); "
                f"the first, on the case `{case}`: {failure.message}",
                hint="fix the function; where the text itself is at fault, have it return "
                'kept.Failure("crash", "candidate", why)',
            )

    def _side(
        self,
        id_: str,
        known: dict[tuple[str, Purpose], Evaluation],
        asked: Asked,
        challenger: str,
    ) -> Side:
        mine: dict[Purpose, Evaluation] = {
            purpose: e for (owner, purpose), e in known.items() if owner == id_
        }
        if not self._by_pair:
            return Side(id_, mine)
        losses: dict[Purpose, Mapping[Pair, float]] = {
            purpose: self._losses(found, asked, challenger if found.failed else "")
            for purpose, found in mine.items()
        }
        if not self._plan.objective.tie_breakers:
            return Side(id_, mine, losses)
        ties: dict[Purpose, tuple[Mapping[Pair, float], ...]] = {
            purpose: ties_of(self._outcomes(id_, purpose, asked), self._plan.objective)
            for purpose in mine
        }
        return Side(id_, mine, losses, ties)

    def _losses(self, found: Evaluation, asked: Asked, challenger: str) -> Answers:
        """Pair by pair; the incumbent's once, as its sums are, while all of it ran."""
        key = (found.candidate, found.purpose, asked[found.candidate, found.purpose])
        known = self._answers.get(key)
        if known is None:
            outcomes = self._outcomes(found.candidate, found.purpose, asked, challenger)
            known = losses_of(outcomes, self._plan.objective)
            if not found.missing and not found.failed:
                self._answers[key] = known
        return known

    def _sum_up(
        self, candidate: str, purpose: Purpose, asked: Asked, challenger: str
    ) -> Evaluation:
        # the incumbent's pairs are summed up once, not again for every challenger
        key = (candidate, purpose, asked[candidate, purpose])
        found = self._sums.get(key)
        if found is None:
            outcomes = self._outcomes(candidate, purpose, asked)
            found = summarize(candidate, purpose, outcomes, self._plan.objective)
            if not found.missing:
                self._sums[key] = found
            elif candidate == challenger:
                outcomes = self._outcomes(candidate, purpose, asked, challenger)
                found = summarize(candidate, purpose, outcomes, self._plan.objective)
        return found

    def _outcomes(
        self, id_: str, purpose: Purpose, asked: Asked, challenger: str = ""
    ) -> list[tuple[Pair, Outcome]]:
        """Outcomes of the asked pairs; a challenger's failures count as in `blamed`."""
        found = self._evaluator.outcomes(Ask(id_, asked[id_, purpose], purpose))
        if id_ != challenger:
            return found
        # what this dialogue asked for, and no more: what others know depends on who was quicker
        rivals = [Ask(o, pairs, p) for (o, p), pairs in asked.items() if p == purpose and o != id_]
        theirs = [outcome for ask in rivals for outcome in self._evaluator.outcomes(ask)]
        return blamed(found, {pair: one for pair, one in theirs if one.failure is None})

    def forget(self, alive: set[str]) -> None:
        """Drop sums of candidates that are no longer in play."""
        for kept in (self._sums, self._answers):
            for key in [key for key in kept if key[0] not in alive]:
                del kept[key]


def _edits_in_incumbent(step: OpenStep, proposal: Proposal, opened: State, state: State) -> int:
    """Number of a step's edits that an earlier step brought into the incumbent since it opened."""
    if not (proposal.builds_on and step.rebases):
        return 0
    there = kept_since(state.history, len(opened.history))
    return len(proposal.edits) - len(edits_without(state.history, proposal, there))


def _rivals(step: OpenStep, proposal: Proposal, opened: State) -> tuple[str, ...]:
    """Candidates of the final that a step takes up again; empty if it takes up none."""
    if not step.turn.proves:
        return ()
    found = finalists(opened.history, step.incumbent)
    mine = {member.step for member in found}.issuperset(proposal.merges)
    return tuple(str(member.candidate) for member in found) if mine else ()


def _standing(reports: Sequence[EditReport]) -> int:
    """Edits whose effect is there, made by them or, of a value that was set, there already."""
    return sum(report.fate in ("applied", "no change") for report in reports)


def _held(applied: Applied, *, changed: bool) -> EditReport | None:
    """The edit of what is protected that a proposal cannot do without.

    Whoever writes whole files means them together; of single edits the others may stand alone.
    """
    for report in applied.reports:
        if report.fate == "protected" and (isinstance(report.edit, Write) or not changed):
            return report
    return None


def duplicate() -> Verdict:
    """The verdict on a candidate that already had one."""
    return Verdict("skip", "a duplicate of a candidate already judged", code="duplicate")
