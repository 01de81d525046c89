"""Proposer that updates one prompt artifact: it requests an update of each and tries the best.

Each artifact has its own model call, which is shown the problems found in runs of the tasks. Code
limits the share of the text that an update may change, and checks placeholders and length. Only
the update with the largest product of expected gain and confidence is proposed. So the result of
an update is not mixed with others.
"""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from kept.core.case import Case
from kept.core.edit import Write
from kept.core.llm import Message
from kept.core.ports import Scope
from kept.core.proposal import (
    USELESS,
    Ask,
    Brief,
    ClosedStep,
    Proposal,
    ProposerReply,
    Skip,
)
from kept.core.rollout import Failure, Pair
from kept.core.score import Outcome
from kept.core.text import changes, count
from kept.models.prompts import ABOUT, ARTIFACTS, PLACEHOLDERS, RunPrompt, filled
from kept.proposers.failing_cases import outage_of
from kept.proposers.llm import Asked, ask_fitted
from kept.proposers.prompt_items import UNTOLD, Item, verdict_of

UPDATE = "update"

LONGEST = 20_000
"""Maximum characters of a text."""

SMALLEST = 60
"""Minimum word count when computing a share, so that short texts can change at all."""

TRIED = 5
"""Maximum number of earlier updates shown to the model."""

DEFECTS = 20
"""Maximum number of problems shown per task."""

_TEXT: Mapping[str, object] = {"type": "string"}
_SHARE: Mapping[str, object] = {"type": "number", "minimum": 0, "maximum": 1}
SCHEMA: Mapping[str, object] = {
    "type": "object",
    "required": ["change", "content", "rationale", "expected_loss_reduction", "confidence"],
    "properties": {
        "change": {"type": "boolean"},
        "content": _TEXT,
        "rationale": _TEXT,
        "expected_loss_reduction": _SHARE,
        "confidence": _SHARE,
    },
    "additionalProperties": False,
}


class Offer(NamedTuple):
    """Update proposed for one artifact."""

    name: str
    content: str
    rationale: str
    expected: float
    confidence: float

    @property
    def promise(self) -> float:
        """Expected gain times confidence, both estimated by the model."""
        return self.expected * self.confidence

    def told(self) -> dict[str, object]:
        """Return the offer without its text, for the record of the step."""
        return {
            "artifact": self.name,
            "rationale": self.rationale,
            "expected_loss_reduction": self.expected,
            "confidence": self.confidence,
        }


def best_offer(offers: list[Offer]) -> Offer:
    """Return the offer with the largest promise, then confidence, then the first by name."""
    return min(offers, key=lambda one: (-one.promise, -one.confidence, one.name))


def changed_share(before: str, after: str) -> float:
    """Return the changed share of a text: words removed and added, of the words of both."""
    was, now = before.split(), after.split()
    moved = sum(c.end - c.start + c.new_end - c.new_start for c in changes(was, now))
    return moved / max(len(was) + len(now), SMALLEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Proposer of prompt updates; implements `kept.core.ports.Proposer`."""

    asked: Asked
    told: str
    """Prompt text, with its placeholders."""
    step: float = 0.5
    """Share of a text that an update may change."""
    halves: bool = False
    """True if every rolled-back update halves the step."""
    name: str = UPDATE
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Request an update of every artifact, and propose the best."""
        # first request rollouts of the incumbent on all train cases
        if not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        outcomes = _outcomes(brief)
        if not outcomes:
            why = "no task could be run, so there is nothing to go by"
            return outage_of(brief) or Skip(why)
        if not any(outcome.findings for _, outcome in outcomes):
            return Skip("nothing is wrong with any run", exhausted=True)
        share = self.share(brief.history)
        names: list[RunPrompt] = [name for name in ARTIFACTS if name in brief.incumbent.texts]
        replies = await asyncio.gather(
            *(self._ask(brief, outcomes, name, share, scope.branch(name)) for name in names)
        )
        broken = [reply for reply in replies if isinstance(reply, Failure)]
        for failure in broken:
            if failure.blame == "infrastructure":
                return failure  # else the choice would depend on which call failed
        offers = [reply for reply in replies if isinstance(reply, Offer)]
        about: dict[str, object] = {
            "step": round(share, 6),
            "considered": [one.told() for one in offers],
            "unusable": len(broken),
        }
        if broken and len(broken) == len(replies):
            why = f"the optimizer gave no answer of use for any text: {broken[0].message}"
            return Skip(why, about={**about, USELESS: "optimizer"})
        if not offers:
            lost = f"; of {count(len(broken), 'text')} there is no answer of use" if broken else ""
            return Skip(f"no text is to be changed{lost}", about=about)
        chosen = best_offer(offers)
        return Proposal(
            (Write(chosen.name, chosen.content),),
            why=f"{chosen.name}: {chosen.rationale}",
            about={**about, "artifact": chosen.name},
        )

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Return the number of rollouts requested per incumbent: one per train case."""
        return len(train)

    def share(self, closed: Iterable[ClosedStep]) -> float:
        """Share of a text that an update may change now."""
        if not self.halves:
            return self.step
        own = (one for one in closed if one.turn.proposer == self.name)
        mine = (one for one in own if one.candidate is not None)
        verdicts = ((one.verdict.outcome, one.verdict.code) for one in mine)
        # each update that was rolled back halves the share
        return self.step / 2 ** sum(one == ("discard", "judged") for one in verdicts)

    async def _ask(
        self,
        brief: Brief,
        outcomes: list[tuple[Case, Outcome]],
        name: RunPrompt,
        share: float,
        scope: Scope,
    ) -> Offer | Failure | None:
        """Request an update of one artifact; None if the model leaves it unchanged."""
        text = brief.incumbent.texts[name]

        def check(said: Any) -> str:  # noqa: ANN401 # JSON that satisfies the schema
            return fault_in(name, text, said, share)

        values = {"artifact": name, "about": ABOUT[name], "share": f"{100 * share:.3g}"}
        asked = replace(
            self.asked,
            request=replace(
                self.asked.request,
                messages=(Message("system", filled(self.told, values)),),
                schema=SCHEMA,
                seed=brief.seed >> 17,
            ),
            rules=replace(self.asked.rules, check=check),
        )
        heard = await ask_fitted(asked, [*_items(brief, outcomes, name, self.name)], scope)
        if isinstance(heard, Failure):
            return heard
        said = cast("dict[str, Any]", json.loads(heard.reply.text))
        if not said["change"]:
            return None
        return Offer(
            name,
            _ended(text, said["content"]),
            said["rationale"].strip(),
            float(said["expected_loss_reduction"]),
            float(said["confidence"]),
        )


def fault_in(name: RunPrompt, before: str, said: Mapping[str, Any], share: float) -> str:
    """Return the problem with a reply; empty if it is usable."""
    if not said["change"]:
        return ""
    after = _ended(before, str(said["content"]))
    if not after.strip():
        return "the new text is empty: to leave the text as it is, set `change` to false"
    if after == before:
        return "the new text is the present one: to leave it as it is, set `change` to false"
    if len(after) > LONGEST:
        return f"the new text has {len(after)} characters, {LONGEST} allowed"
    for place in PLACEHOLDERS[name]:
        mark = f"{{{{kept.{place}}}}}"
        if mark in before and mark not in after:
            return f"the placeholder `{mark}` is gone"
    part = changed_share(before, after)
    if part > share:
        return f"{100 * part:.0f} percent of the text changes, {100 * share:.3g} allowed"
    return ""


def _ended(before: str, after: str) -> str:
    """Return a new text with the trailing white space of the old one."""
    return after.rstrip() + before[len(before.rstrip()) :]


def _outcomes(brief: Brief) -> list[tuple[Case, Outcome]]:
    """Return the outcomes of the tasks, worst (highest metric) first."""
    cases = {case.id: case for case in brief.train}
    found = [
        (cases[pair.case], outcome)
        for answer in brief.answers
        for pair, outcome in answer.outcomes.items()
        if outcome.failure is None
    ]
    metric = brief.objective.metric
    return sorted(found, key=lambda row: (-row[1].metrics.get(metric, 0.0), row[0].id))


def _items(
    brief: Brief, outcomes: list[tuple[Case, Outcome]], name: str, proposer: str
) -> Iterator[Item]:
    text = brief.incumbent.texts[name]
    yield Item("text", f"# The text `{name}` as it is now", text, needed=True)
    for case, outcome in outcomes:
        yield Item("task", f"# What was found wrong with `{case.id}`", _found(case, outcome, brief))
    yield from _tried(brief, proposer)
    for other, content in sorted(brief.incumbent.texts.items()):
        if other != name:
            yield Item("further text", f"# The text `{other}`, which is not yours", content)


def _found(case: Case, outcome: Outcome, brief: Brief) -> str:
    metric = brief.objective.metric
    # the parts of the loss are metrics named `loss_eval`, `loss_critique` …
    parts = {k: v for k, v in outcome.metrics.items() if k.startswith(f"{metric}_")}
    shown = ", ".join(f"{k.removeprefix(f'{metric}_')} {v:.3f}" for k, v in parts.items())
    data = case.data
    task = cast("Mapping[str, object]", data).get("task") if isinstance(data, Mapping) else data
    lines = [f"task: {task}", f"{metric} {outcome.metrics.get(metric, 0.0):.3f}: {shown}"]
    lines += [f"* [{one.severity}] {one.text}" for one in outcome.findings[:DEFECTS]]
    return "\n".join(lines)


def _tried(brief: Brief, proposer: str) -> Iterator[Item]:
    """Yield the last updates and their verdicts, latest first."""
    told = [
        step
        for step in reversed(brief.history.of(proposer))
        if step.proposal is not None and step.verdict.code not in UNTOLD
    ]
    for step in told[:TRIED]:
        assert step.proposal is not None, "else it is not among these"
        edit = step.proposal.edits[0]
        now = edit.text if isinstance(edit, Write) else ""
        text = f"{step.proposal.why}\nverdict: {verdict_of(step)}\n\n{now}"
        yield Item("tried update", f"# An update that was tried, in step {step.step}", text)
