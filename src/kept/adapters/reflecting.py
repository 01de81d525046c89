"""A proposer that looks at a few train cases and has the text of a component written anew."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from kept.adapters.authors import Author, Work, Written
from kept.adapters.records import Record, records_in
from kept.core.case import Case
from kept.core.edit import Write
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Failure, Pair, TraceItem
from kept.core.score import Outcome


@dataclass(frozen=True, slots=True)
class Reflecting:
    """Implements `kept.core.ports.Proposer`."""

    author: Author
    components: tuple[str, ...]
    size: int = 3
    """Train cases that it looks at, others in every step."""
    whole: bool = False
    """Whether it has all components written anew at once, and not one after the other."""
    perfect: float | None = None
    """A metric at which a case needs no mending."""
    name: str = "reflect"
    serial: bool = False
    builds: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """New texts, after a look at what the incumbent does."""
        if not brief.answers:
            drawn = random.Random(brief.seed).sample(brief.train, self.most_asked(brief.train))
            pairs = tuple(Pair(case.id, 0) for case in drawn)
            return Ask(brief.incumbent.id, pairs, "feedback")
        outcomes, traces = brief.answers[0].outcomes, brief.answers[0].traces
        if outage := _outage(outcomes):
            return outage
        wrong = [pair.case for pair, outcome in outcomes.items() if not self._well(brief, outcome)]
        if not wrong:
            # a near miss that is perfect on its train cases is not yet what leads
            everything = len(outcomes) == len(brief.train) and brief.parent is None
            return Skip("each case that was looked at has the perfect score", exhausted=everything)
        work = Work(brief, self._turn(brief), _records(brief, outcomes, traces))
        if not any(work.records[component] for component in work.components):
            return Skip(f"nothing was recorded of {', '.join(work.components)}")
        written = await self.author.write(work, scope)
        return written if isinstance(written, Failure) else _proposal(brief, written, wrong)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """For each step, what it looks at first."""
        return min(self.size, len(train))

    def _turn(self, brief: Brief) -> tuple[str, ...]:
        if self.whole:
            return self.components
        return (self.components[brief.turn.number % len(self.components)],)

    def _well(self, brief: Brief, outcome: Outcome) -> bool:
        if self.perfect is None or outcome.failure is not None:
            return False
        return outcome.metrics.get(brief.objective.metric, self.perfect - 1) >= self.perfect


def _outage(outcomes: Mapping[Pair, Outcome]) -> Failure | None:
    """What kept everything that was looked at from being measured; None where something was."""
    failures = [outcome.failure for outcome in outcomes.values()]
    if any(failure is None or failure.blame == "candidate" for failure in failures):
        return None
    return next(iter(failures), None)


def _records(
    brief: Brief,
    outcomes: Mapping[Pair, Outcome],
    traces: Mapping[Pair, tuple[TraceItem, ...]],
) -> dict[str, list[Record]]:
    """What is known of each component; a failure of the candidate's own belongs to all of them."""
    found: dict[str, list[Record]] = {name: [] for name in brief.incumbent.texts}
    for pair, outcome in outcomes.items():
        for name, rows in found.items():
            rows += records_in(traces.get(pair, ()), name)
            if outcome.failure is not None and outcome.failure.blame == "candidate":
                rows.append({"case": pair.case, "failed": outcome.failure.message})
    return found


def _proposal(brief: Brief, written: Written, wrong: list[str]) -> ProposerReply:
    before = brief.incumbent.texts
    new = {n: text for n, text in written.texts.items() if text.strip() != before[n].strip()}
    empty = [name for name, text in new.items() if not text.strip()]
    if empty:
        return Failure("empty", "infrastructure", f"the new text of `{empty[0]}` is empty")
    if not new:
        return Skip("nothing would change")
    edits = tuple(Write(name, _ended(text, before[name])) for name, text in new.items())
    why = f"{', '.join(new)} written anew after a look at {', '.join(wrong)}"
    return Proposal(edits, why, tuple(wrong), unseen=written.unseen)


def _ended(text: str, before: str) -> str:
    """A text whose last line ends as it did before: who wrote it anew was not asked about that."""
    return f"{text}\n" if before.endswith("\n") and not text.endswith("\n") else text
