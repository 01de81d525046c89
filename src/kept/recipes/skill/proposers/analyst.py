"""What an analyst is shown: the skill, the budget, what was tried before, and a few rollouts.

Pure. Every rollout is told with its task, its failure reason, what the student saw and what it did,
fitted by whole turns. The expected answer is told only where the config allows it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kept.core.case import Case
from kept.core.model import Image
from kept.core.proposal import Brief
from kept.core.protect import uncommented
from kept.core.rollout import Pair, Purpose, TraceItem
from kept.core.score import Outcome
from kept.core.words import count
from kept.errors import KeptError
from kept.models.window import picture_tokens, tokens_of
from kept.proposers.proposers_fitting import TAGS, Item
from kept.recipes.skill.document import SKILL
from kept.recipes.skill.proposers import traces
from kept.recipes.skill.proposers.modes import Update

LEAST_ROOM = 400
"""Tokens of a trace that are shown, however many there are beside it."""

ELIDED = {
    "skill": "[the skill that is shown above]",
    "further file": "[the file that is shown above]",
}
"""What stands in a student's prompt for what an analyst has read already."""


class About(Protocol):
    """What an environment says of a case; see `kept.evaluators.environments.opened`."""

    @property
    def task(self) -> str:
        """What is to be done."""
        ...

    @property
    def type(self) -> str:
        """Which kind of task it is."""
        ...

    @property
    def reference(self) -> str:
        """What is expected."""
        ...

    @property
    def preview(self) -> str:
        """What the files of the case look like."""
        ...

    @property
    def golds(self) -> tuple[str, ...]:
        """All answers that are right."""
        ...


@dataclass(frozen=True, slots=True)
class Sight:
    """How much of a case analysts are shown."""

    about: Callable[[Case], About]
    gold: bool = True
    """Whether they are told the expected answer."""
    agent_traces: bool = True
    """Whether they are told the summary and the steps of an agent CLI."""
    pictures: Callable[[Case], Sequence[Image]] | None = None
    """Pictures of a case that analysts see; None for none."""

    def images(self, case: Case) -> tuple[Image, ...]:
        """Pictures of a case; none where one is gone, for the rollout was made with it."""
        if self.pictures is None:
            return ()
        try:
            return tuple(self.pictures(case))
        except KeptError:
            return ()

    def hidden(self, case: Case, trace: Sequence[TraceItem] = ()) -> tuple[str, ...]:
        """What may not be told of a case by whoever knows the expected answer."""
        if self.gold:
            return ()
        about = self.about(case)
        return (about.reference, *about.golds, *traces.references_of(trace))


class Row(NamedTuple):
    """What came of a case of the batch."""

    case: Case
    outcome: Outcome
    trace: tuple[TraceItem, ...]
    hard: float
    soft: float

    @property
    def failed(self) -> bool:
        """Whether it was not solved, or not wholly."""
        return self.hard < 1.0


def rows_of(brief: Brief, pairs: Sequence[Pair], purpose: Purpose = "feedback") -> list[Row]:
    """What is known of these pairs, in their order; not what an outage left without an answer."""
    cases = {case.id: case for case in brief.train}
    found: list[Row] = []
    for pair in pairs:
        for answer in brief.answers:
            outcome = answer.outcomes.get(pair)
            if answer.ask.purpose != purpose or outcome is None:
                continue
            trace = answer.traces.get(pair, ())
            if outcome.failure is None:
                hard = outcome.metrics.get("hard", 0.0)
                soft = outcome.metrics.get("soft", hard)
                found.append(Row(cases[pair.case], outcome, trace, hard, soft))
            elif outcome.failure.blame == "candidate":
                found.append(Row(cases[pair.case], outcome, trace, 0.0, 0.0))
            break
    return found


class Pages(NamedTuple):
    """What an analyst is shown, and how many turns of traces are not among it."""

    items: list[Item]
    cut: int


def analyst_items(
    rows: Sequence[Row], sight: Sight, front: Sequence[Item], room: int | None
) -> Pages:
    """The front matter, then each rollout; `room` is what all of it may take."""
    heads = [head_of(row, n, sight, front) for n, row in enumerate(rows, 1)]
    turns = [traces.turns_of(row.trace, sight.hidden(row.case, row.trace)) for row in rows]
    seen = [sight.images(row.case) for row in rows]
    items = [*front, _total(rows)]
    if room is not None:
        room -= sum(picture_tokens(image) for images in seen for image in images)
    rooms = _rooms(room, items, heads, [*map(traces.size_of, turns)])
    cut = 0
    for at, (title, head) in enumerate(heads):
        shown = traces.fitted(turns[at], rooms[at])
        cut += shown.cut
        text = f"{head}\n\n{shown.text}".strip()
        items.append(Item("trajectory", title, text, needed=not at, images=seen[at]))
    return Pages(items, cut)


def _total(rows: Sequence[Row]) -> Item:
    """How many there are; those that are looked at again are of both kinds."""
    solved = sum(not row.failed for row in rows)
    kind, share = "", str(solved)
    if not solved:
        kind, share = "Failed ", "none"
    elif solved == len(rows):
        kind, share = "Successful ", "all"
    title = f"## {kind}Trajectories ({len(rows)} total)"
    text = f"{count(len(rows), 'case')}, {share} of which solved."
    return Item("aim", title, text, material=False, needed=True)


def _rooms(
    room: int | None,
    before: Sequence[Item],
    heads: Sequence[tuple[str, str]],
    wanted: Sequence[int],
) -> list[int | None]:
    """Tokens that the turns of each rollout may take: who needs less leaves more to the others."""
    if room is None:
        return [None] * len(wanted)
    left = room - sum(item.tokens for item in before)
    left -= sum(tokens_of(title) + tokens_of(f"{head}\n\n") + TAGS for title, head in heads)
    found: dict[int, int | None] = {}
    for at in sorted(range(len(wanted)), key=lambda at: wanted[at]):
        share = max(LEAST_ROOM, left // (len(wanted) - len(found)))
        found[at] = min(wanted[at], share)
        left -= min(wanted[at], share)
    return [found[at] for at in range(len(wanted))]


def head_of(row: Row, n: int, sight: Sight, front: Sequence[Item]) -> tuple[str, str]:
    """Title and front matter of one rollout."""
    about, trace = sight.about(row.case), row.trace
    lines = [f"Task: {about.task}", f"Task type: {about.type}" if about.type else ""]
    if reason := fail_reason(row, sight):
        lines.append(f"Failure reason: {reason}")
    lines.append(f"Steps: {traces.length_of(trace)}")
    parts = [
        ("Hidden Reference", about.reference if sight.gold else ""),
        ("Target System Prompt", _elided(traces.system_prompt(trace), front)),
        ("Target User Prompt", traces.user_prompt(trace)),
        ("Trace Summary", traces.summary_of(trace) if sight.agent_traces else ""),
        ("Trace Steps", traces.steps_of(trace) if sight.agent_traces else ""),
        ("Preview", about.preview),
    ]
    told = [f"#### {title}\n{text.strip()}" for title, text in parts if text.strip()]
    head = "\n".join(filter(None, lines))
    return f"### Trajectory {n} (id={row.case.id})", "\n\n".join([head, *told])


def _elided(system: str, front: Sequence[Item]) -> str:
    """What a student was told, without the skill: it is long, and the same in every rollout."""
    for item in front:
        instead = ELIDED.get(item.what, "")
        # of Markdown a student is shown no comments
        for read in (item.text.strip(), uncommented(item.text)):
            if instead and len(read) > len(instead):
                system = system.replace(read, instead)
    return system


def fail_reason(row: Row, sight: Sight) -> str:
    """Why a case was not solved, as far as anybody says, and as far as that may be told."""
    hidden = sight.hidden(row.case, row.trace)
    failure = row.outcome.failure
    if failure is not None:
        return traces.redacted(f"{failure.kind}: {failure.message}", hidden)
    if not row.failed:
        return ""
    # a judge knows the expected answer, and quotes it
    return traces.redacted("; ".join(finding.text for finding in row.outcome.findings), hidden)


def front_items(
    brief: Brief, update: Update, most: int, *, previous: str = "", memory: str = ""
) -> list[Item]:
    """What comes before the rollouts, the same for every analyst of a step."""
    return [*_front(brief, update, most, previous, memory)]


def _front(brief: Brief, update: Update, most: int, previous: str, memory: str) -> Iterator[Item]:
    yield from skill_items(brief)
    if update.capped:
        title = f"## {update.label[:-1].capitalize()} Budget"
        yield Item("aim", title, f"At most {most} {update.label}.", material=False, needed=True)
    else:
        text = "One complete skill that takes the place of the current one; no single edits."
        yield Item("aim", "## Update Format", text, material=False, needed=True)
    if previous:
        yield Item("step buffer", "## Previous Steps in This Epoch", previous)
    if memory:
        yield Item("meta skill", "## Optimizer Meta Skill", memory)


def skill_items(brief: Brief, title: str = "## Current Skill") -> Iterator[Item]:
    """The skill as it is now, SKILL.md first."""
    texts = brief.incumbent.texts
    yield Item("skill", title, texts[SKILL], needed=True)
    for path in sorted(texts):
        if path != SKILL:
            yield Item("further file", f"## Its file `{path}`", texts[path])
