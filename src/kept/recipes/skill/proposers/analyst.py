"""Analyst input: skill, edit budget, earlier attempts, and rollouts fitted to a size limit.

Each rollout shows its task, failure reason, conversation and actions. Traces have the roles of
`evaluators/environments/base.py` and are cut by whole turns, with a note. The expected answer is
shown only if the config allows it.

Step memory, the observations and attempts of the epoch, is rebuilt from closed steps each time.
So a resume has the same memory. Pure.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from kept.core.artifact import uncommented
from kept.core.case import Case
from kept.core.llm import Image
from kept.core.objective import Objective
from kept.core.proposal import Brief, ClosedStep, Note
from kept.core.rollout import Pair, Purpose, TraceItem
from kept.core.schedules.epochs import closed_in
from kept.core.score import Outcome
from kept.core.text import count, one_line, shortened
from kept.errors import KeptError
from kept.models.context_window import BYTES, picture_tokens, tokens_of
from kept.proposers.prompt_items import TAGS, Item
from kept.recipes.skill.document import SKILL
from kept.recipes.skill.proposers.teacher import Update

VERIFICATION, SESSION, STEP = "verification", "session", "step"

SILENT = ("system", SESSION, "expected")
"""Roles that are not turns: the prompt is shown separately, the others never."""


HIDDEN = "[the expected answer]"

SAID = 60
"""Characters reserved for the note that a turn was shortened."""

STEP_LINE = 160
"""Most characters of a step in the list of steps; its turn shows all of it."""


class Shown(NamedTuple):
    """Turns of a trace that fit the room."""

    text: str
    cut: int = 0
    """Number of turns left out or shortened for want of room."""


def summary_of(trace: Sequence[TraceItem]) -> str:
    """Return the summary of an agent CLI's work; empty if there is none."""
    said = (item.data.get("summary") for item in trace if item.role == "info")
    return next((str(text) for text in said if text), "")


def steps_of(trace: Sequence[TraceItem]) -> str:
    """Return the numbered steps of an agent CLI; a probe names one to continue from."""
    numbered = [item for item in trace if item.role == "tool" and "step" in item.data]
    lines = [f"{item.data['step']}. {one_line(_call(item.data), STEP_LINE)}" for item in numbered]
    return "\n".join(lines)


def redacted(text: str, hidden: Sequence[str]) -> str:
    """Replace expected answers in a text: whole words, in any case and spacing."""
    # longest first, or a short answer would break up a longer one that has it
    longest_first = sorted({*hidden}, key=lambda one: (-len(one), one))
    answers = [r"\s+".join(map(re.escape, one.split())) for one in longest_first if one.strip()]
    if not answers:
        return text
    # an answer 5 must not match in 0.5 or 5.2
    whole = rf"(?<!\w)(?<!\d[.,])(?:{'|'.join(answers)})(?!\w|[.,]\d)"
    return re.sub(whole, HIDDEN, text, flags=re.IGNORECASE)


def turns_of(trace: Sequence[TraceItem], hidden: Sequence[str] = ()) -> list[str]:
    """Return every turn as text, without the first question, which is shown separately."""
    found: list[str] = []
    asked = False
    for item in trace:
        if item.role == "user" and not asked:
            asked = True
            continue
        if item.role not in SILENT and (text := "\n".join(_lines(item, hidden))):
            found.append(text)
    return found


def size_of(turns: Sequence[str]) -> int:
    """Count the tokens of turns, each on its own lines."""
    return sum(tokens_of(f"{turn}\n") for turn in turns)


def fitted(turns: Sequence[str], room: int | None) -> Shown:
    """Fit turns into the room: middle turns are dropped first, the last turn is dropped last."""
    if room is None or size_of(turns) <= room:
        return Shown("\n".join(turns))
    left = room - size_of([_gone(len(turns))])
    waiting, head, tail, cut = list(turns), list[str](), list[str](), 0
    # the end, which shows the failure, takes room first, then the beginning
    if size_of(waiting[-1:]) > left:
        tail.append(_shortened(waiting.pop(), left // 2 if waiting else left))
        left, cut = left - size_of(tail), 1
    ends = {-1: tail, 0: head}
    while waiting and ends:
        at = -1 if -1 in ends and (0 not in ends or len(tail) <= len(head)) else 0
        if size_of([waiting[at]]) > left:
            del ends[at]
            continue
        left -= size_of([waiting[at]])
        ends[at].append(waiting.pop(at))
    gone = [_gone(len(waiting))] if waiting else []
    return Shown("\n".join([*head, *gone, *tail[::-1]]), len(waiting) + cut)


def _gone(turns: int) -> str:
    return f"[{count(turns, 'turn')} not shown, for want of room]"


def _shortened(turn: str, room: int) -> str:
    """Return the beginning and the end of a turn that is longer than the whole room."""
    share = room * BYTES / len(turn.encode("utf-8", "surrogatepass"))
    return shortened(turn, max(2, int(len(turn) * share) - SAID))


def _lines(item: TraceItem, hidden: Sequence[str]) -> Iterator[str]:
    match item.role:
        case "tool":
            yield f"[action] {_call(item.data)}"
            yield f"[obs] {item.text}"
        case "step":
            n = item.data.get("step", "?")
            if thought := str(item.data.get("reasoning") or ""):
                yield f"[step {n} think] {thought}"
            yield f"[step {n} action] {item.data.get('action', '')}"
            yield f"[step {n} obs] {item.text}"
        case "info":
            if not item.data.get("summary"):
                yield f"[info] {item.text}"
        case "user" | "assistant":
            # the student's own turns are not redacted: the marks would show which words are right
            yield f"[{item.role}] {item.text}"
        case _:
            yield f"[{item.role}] {redacted(item.text, hidden)}"


def _call(data: Mapping[str, object]) -> str:
    if command := data.get("command"):
        return str(command)
    arguments: Any = data.get("arguments")
    told = json.dumps(arguments, ensure_ascii=False, default=str) if arguments else ""
    return f"{cast('str', data.get('name', ''))}({told})"


LEAST_ROOM = 400
"""Least room of a trace in tokens, however many other traces there are."""

ELIDED = {
    "skill": "[the skill that is shown above]",
    "further file": "[the file that is shown above]",
}
"""Replacements in a student's prompt for texts that the analyst has read already."""


class About(Protocol):
    """Description of a case by its environment; see `kept.evaluators.environments.base`."""

    @property
    def task(self) -> str:
        """Task of the case."""
        ...

    @property
    def type(self) -> str:
        """Kind of the task."""
        ...

    @property
    def reference(self) -> str:
        """Expected answer."""
        ...

    @property
    def preview(self) -> str:
        """Preview of the files of the case."""
        ...

    @property
    def golds(self) -> tuple[str, ...]:
        """All answers that are right."""
        ...


@dataclass(frozen=True, slots=True)
class Sight:
    """Parts of a case that analysts are shown."""

    about: Callable[[Case], About]
    gold: bool = True
    """True if they see the expected answer."""
    agent_traces: bool = True
    """True if they see the summary and the steps of an agent CLI."""
    pictures: Callable[[Case], Sequence[Image]] | None = None
    """Function that returns the pictures of a case for analysts; None for no pictures."""

    def images(self, case: Case) -> tuple[Image, ...]:
        """Return the pictures of a case; none if one is missing, as the rollout had all of them."""
        if self.pictures is None:
            return ()
        try:
            return tuple(self.pictures(case))
        except KeptError:
            return ()

    def hidden(self, case: Case, trace: Sequence[TraceItem] = ()) -> tuple[str, ...]:
        """Return the texts to redact in what a judge says of a case: its expected answers."""
        if self.gold:
            return ()
        about = self.about(case)
        # expected answers that a scorer recorded in the trace
        told = (item.data.get("reference") for item in trace if item.role == VERIFICATION)
        return (about.reference, *about.golds, *(str(one) for one in told if one))


class Row(NamedTuple):
    """Result of one case of the batch."""

    case: Case
    outcome: Outcome
    trace: tuple[TraceItem, ...]
    hard: float
    soft: float

    @property
    def failed(self) -> bool:
        """True if it was not solved completely."""
        return self.hard < 1.0


def rows_of(brief: Brief, pairs: Sequence[Pair], purpose: Purpose = "feedback") -> list[Row]:
    """Return the results of these pairs in order, without those lost to an outage."""
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
            # a crash of the candidate counts as unsolved; other failures say nothing of it
            elif outcome.failure.blame == "candidate":
                found.append(Row(cases[pair.case], outcome, trace, 0.0, 0.0))
            break
    return found


class Pages(NamedTuple):
    """Items that an analyst is shown, and the number of turns cut from traces."""

    items: list[Item]
    cut: int


def analyst_items(
    rows: Sequence[Row], sight: Sight, front: Sequence[Item], room: int | None
) -> Pages:
    """Return the front matter, then each rollout; `room` is the most tokens of all of it."""
    heads = [head_of(row, n, sight, front) for n, row in enumerate(rows, 1)]
    turns = [turns_of(row.trace, sight.hidden(row.case, row.trace)) for row in rows]
    seen = [sight.images(row.case) for row in rows]
    items = [*front, _total(rows)]
    if room is not None:
        room -= sum(picture_tokens(image) for images in seen for image in images)
    rooms = _rooms(room, items, heads, [*map(size_of, turns)])
    cut = 0
    for at, (title, head) in enumerate(heads):
        shown = fitted(turns[at], rooms[at])
        cut += shown.cut
        text = f"{head}\n\n{shown.text}".strip()
        items.append(Item("trajectory", title, text, needed=not at, images=seen[at]))
    return Pages(items, cut)


def _total(rows: Sequence[Row]) -> Item:
    """Return the number of rollouts; rollouts of a probe are both failed and successful."""
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
    """Share the room among rollouts: those with short traces leave more to the others."""
    if room is None:
        return [None] * len(wanted)
    left = room - sum(item.tokens for item in before)
    left -= sum(tokens_of(title) + tokens_of(f"{head}\n\n") + TAGS for title, head in heads)
    found: dict[int, int | None] = {}
    # the shortest first: what it does not use is shared by the rest
    for at in sorted(range(len(wanted)), key=lambda at: wanted[at]):
        share = max(LEAST_ROOM, left // (len(wanted) - len(found)))
        found[at] = min(wanted[at], share)
        left -= min(wanted[at], share)
    return [found[at] for at in range(len(wanted))]


def head_of(row: Row, n: int, sight: Sight, front: Sequence[Item]) -> tuple[str, str]:
    """Return the title and the front matter of one rollout."""
    about, trace = sight.about(row.case), row.trace
    lines = [f"Task: {about.task}", f"Task type: {about.type}" if about.type else ""]
    if reason := fail_reason(row, sight):
        lines.append(f"Failure reason: {reason}")
    # turns of the student: steps, or else tool calls and answers
    turns = sum(item.role == STEP for item in trace)
    turns = turns or sum(item.role in ("assistant", "tool") for item in trace)
    lines.append(f"Steps: {turns}")
    system = next((item.text for item in trace if item.role == "system"), "")
    user = next((item.text for item in trace if item.role == "user"), "")
    parts = [
        ("Hidden Reference", about.reference if sight.gold else ""),
        ("Target System Prompt", _elided(system, front)),
        ("Target User Prompt", user),
        ("Trace Summary", summary_of(trace) if sight.agent_traces else ""),
        ("Trace Steps", steps_of(trace) if sight.agent_traces else ""),
        ("Preview", about.preview),
    ]
    told = [f"#### {title}\n{text.strip()}" for title, text in parts if text.strip()]
    head = "\n".join(filter(None, lines))
    return f"### Trajectory {n} (id={row.case.id})", "\n\n".join([head, *told])


def _elided(system: str, front: Sequence[Item]) -> str:
    """Return the student's prompt without the skill, which is long and always the same."""
    for item in front:
        instead = ELIDED.get(item.what, "")
        # a student does not see the comments of Markdown
        for read in (item.text.strip(), uncommented(item.text)):
            if instead and len(read) > len(instead):
                system = system.replace(read, instead)
    return system


def fail_reason(row: Row, sight: Sight) -> str:
    """Return the known reason why a case was not solved, redacted; empty if it was solved."""
    hidden = sight.hidden(row.case, row.trace)
    failure = row.outcome.failure
    if failure is not None:
        return redacted(f"{failure.kind}: {failure.message}", hidden)
    if not row.failed:
        return ""
    # a judge knows the expected answer, and quotes it
    return redacted("; ".join(finding.text for finding in row.outcome.findings), hidden)


def front_items(
    brief: Brief, update: Update, most: int, *, previous: str = "", memory: str = ""
) -> list[Item]:
    """Return the items before the rollouts, the same for every analyst of a step."""
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
    """Yield the current skill, SKILL.md first."""
    texts = brief.incumbent.texts
    yield Item("skill", title, texts[SKILL], needed=True)
    for path in sorted(texts):
        if path != SKILL:
            yield Item("further file", f"## Its file `{path}`", texts[path])


META_SKILL = "meta_skill"
"""Topic of notes with the teacher's memory from epoch to epoch."""

UNTOLD = ("stale", "indecisive", "unaffordable", "proposer failed")
"""Codes of verdicts that say nothing about the edits of a step."""

LONGEST = 600
"""Most characters of one edit in a prompt."""


def about_of(step: ClosedStep) -> Mapping[str, Any]:
    """Return what a step recorded about itself, with or without a proposal."""
    if step.proposal is not None:
        return step.proposal.about
    return step.skip.about if step.skip is not None else {}


def step_buffer(brief: Brief) -> str:
    """Describe the earlier steps of this epoch, oldest first; empty for the first step."""
    epoch = brief.turn.setting("epoch", int) or 0
    steps = closed_in(brief.history, epoch)
    return "\n\n".join("\n".join(_told(step, brief.objective)) for step in steps)


def memory_of(notes: Sequence[Note]) -> str:
    """Return the latest memory of the teacher; empty if there is none yet."""
    return next((note.text for note in reversed(notes) if note.topic == META_SKILL), "")


def _told(step: ClosedStep, objective: Objective) -> Iterator[str]:
    about = about_of(step)
    digest = cast("Mapping[str, Any]", about.get("digest") or {})
    number = step.turn.settings.get("step", "?")
    seen = f"{digest.get('n_fail', 0)} of {digest.get('n_total', 0)} cases failed"
    yield f"Step {number}: {seen}; {outcome_of(step, objective)}"
    for pattern in digest.get("failure_patterns", ()):
        yield f"- failure pattern ({pattern['count']} of its minibatch): {pattern['pattern']}"
    if step.verdict.outcome == "keep" or step.verdict.code in UNTOLD:
        return
    for item in about.get("items", ()):
        yield f"- edit that was not kept: {item_line(item)}"


def outcome_of(step: ClosedStep, objective: Objective) -> str:
    """Describe the result of a step, with its gain if it was measured."""
    if step.proposal is None:
        return f"nothing was proposed: {step.verdict.reason}"
    gain = step.verdict.gain
    score = ""
    if gain is not None:
        # a step that was screened out was only measured on train cases
        where = "" if "gain" in step.verdict.numbers else " on train cases"
        score = f", `{objective.metric}` {gain:+.4f}{where}"
    verb = "kept" if step.verdict.outcome == "keep" else f"not kept ({step.verdict.code})"
    return f"its edits were {verb}{score}"


def item_line(item: Mapping[str, Any]) -> str:
    """Return an edit or a suggestion in one line."""
    if "op" in item:
        parts = [str(item["op"]), f"at `{item['target']}`" if item.get("target") else ""]
        parts.append(f"with `{item['content']}`" if item.get("content") else "")
    elif "instruction" in item:
        parts = [str(item["type"]), f"{item['title']}: {item['instruction']}"]
    else:
        parts = ["a whole skill", "; ".join(map(str, item.get("change_summary", ())))]
    line = " ".join(" ".join(filter(None, parts)).split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} …"
