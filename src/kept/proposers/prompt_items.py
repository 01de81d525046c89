"""Prompt items, fitted to the context window: least important items are dropped first.

Items are dropped whole, because half a trace or half a file would be taken for all of it. A brief
gives items for the texts, the objective, the failures and earlier attempts. Of a train case only
the named fields, the expected and the actual output are shown. A brief contains no holdout or
test cases. Pure.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from kept.core.case import IMPLICIT_CASE, Case
from kept.core.edit import Append, Delete, Edit, Fill, InsertAfter, Replace, SetValue, Write
from kept.core.llm import Image, Message
from kept.core.proposal import Brief, ClosedStep, strongest
from kept.core.rollout import Pair, TraceItem
from kept.core.score import Outcome
from kept.core.text import count, shortened
from kept.models.context_window import fences, picture_tokens, tokens_of

ROOM = 60_000
"""Tokens shown if the context window of the model is unknown."""


@dataclass(frozen=True, slots=True)
class Part:
    """One text to show, with its place in the order."""

    what: str
    """Name of its kind, for the list of omitted parts."""
    text: str
    rank: int = 0
    """Parts with a higher rank are dropped first; 0 is never dropped."""


def fitted(parts: Sequence[Part], room: int | None) -> str:
    """Parts that fit, in their order, followed by a list of omitted ones."""
    # of equal ranks the earliest is dropped first: what happened last matters most
    order = sorted((at for at, part in enumerate(parts) if part.rank), key=lambda n: -parts[n].rank)
    tokens = [tokens_of(part.text) for part in parts]
    gone = left_out(tokens, order, ROOM if room is None else min(room, ROOM))
    kept = [part.text for at, part in enumerate(parts) if at not in gone and part.text]
    if gone:
        words = _counted(parts[at].what for at in sorted(gone))
        kept.append(f"[left out, for there is no room: {words}]")
    return "\n\n".join(kept)


def left_out(tokens: Sequence[int], order: Iterable[int], room: int | None) -> set[int]:
    """Indices to drop so that the rest fits: as few as possible, in the given order.

    Items not in `order` stay. All items stay if the room is unknown.
    """
    used = sum(tokens)
    gone: set[int] = set()
    for at in order:
        if room is None or used <= room:
            break
        used -= tokens[at]
        gone.add(at)
    return gone


def _counted(kinds: Iterable[str]) -> str:
    return ", ".join(count(n, kind) for kind, n in Counter(kinds).items())


TAGS = 20
"""Tokens of the tags around an item, and of the lines between items."""

SPACE = "\n\n"


@dataclass(frozen=True, slots=True)
class Item:
    """One item to show to a model."""

    what: str
    """Name of its kind, for the list of omitted items: `trace`, `refused proposal`."""
    title: str
    text: str
    material: bool = True
    """True if shown as quoted material without authority; False for instructions."""
    needed: bool = False
    """True if the request is useless without it."""
    images: tuple[Image, ...] = ()
    """Images, attached after the text."""

    @property
    def tokens(self) -> int:
        """Estimated number of tokens."""
        pictures = sum(map(picture_tokens, self.images))
        return tokens_of(self.title) + tokens_of(self.text) + TAGS + pictures


@dataclass(frozen=True, slots=True)
class Fitted:
    """Items that are shown, and items that were dropped."""

    items: tuple[Item, ...]
    left_out: tuple[Item, ...] = ()

    @property
    def tokens(self) -> int:
        """Estimated number of tokens of all shown items."""
        return sum(item.tokens for item in self.items)

    @property
    def unseen(self) -> str:
        """List of the dropped items in words; empty if all are shown."""
        words = _counted(item.what for item in self.left_out)
        return f"not shown to the model, which has no room for it: {words}" if words else ""

    def message(self) -> Message:
        """All shown items as one message; images follow the text of their item."""
        material = [item for item in self.items if item.material]
        marked = iter(fences([(item.what.replace(" ", "-"), item.text) for item in material]))
        text = ""
        images: list[Image] = []
        for item in self.items:
            shown = next(marked) if item.material else item.text
            text += f"{SPACE if text else ''}{item.title}{SPACE}{shown}"
            images += [replace(image, at=len(text)) for image in item.images]
        return Message("user", text, tuple(images))


def fit(items: Sequence[Item], room: int | None) -> Fitted:
    """Keep as many items as fit, most important first; all if the room is unknown."""
    order = (at for at in reversed(range(len(items))) if not items[at].needed)
    gone = left_out([item.tokens for item in items], order, room)
    kept = tuple(item for at, item in enumerate(items) if at not in gone)
    return Fitted(kept, tuple(items[at] for at in sorted(gone)))


UNTOLD = ("stale", "indecisive", "unaffordable")
"""Verdict codes that say nothing about the proposal."""


OUTPUT_ROLES = ("assistant", "stdout")
"""Roles of trace items that hold a runner's answer."""

MAX_GOT_CHARS = 2000
"""Characters shown of an actual output beside the expected one; the trace has all of it."""

_Row = tuple[Case, Pair, Outcome]
"""A case with its rollout and outcome."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Amount of a run that a model is shown."""

    fields: tuple[str, ...] = ()
    """Fields of train cases that are shown."""
    cases: int = 8
    """Number of train cases on which the incumbent is run for the model."""
    traces: int = 3
    """Number of these shown with their full trace: the worst, and the best as the last."""
    refused: int = 5
    """Number of latest unsuccessful proposals."""


def items_of(brief: Brief, sight: Sight) -> list[Item]:
    """All items to show, most important first."""
    told = _worst_first(brief)
    titles = {"instruction": "# What is wanted", "rubric": "# What it is judged by"}
    return [
        Item("aim", "# The aim", _aim(brief), material=False, needed=True),
        *parent_item(brief),
        *_files(brief),
        *(
            Item("piece of guidance", titles.get(name, f"# {name}"), text.strip(), material=False)
            for name, text in brief.guidance.items()
        ),
        *(_result(brief, row, sight) for row in told),
        *_refused(brief, sight),
        *(
            Item("further file", f"# The file `{path}`, which stays as it is", text)
            for path, text in sorted(brief.incumbent.texts.items())
            if path not in brief.rules.artifacts
        ),
        # last, and so dropped first if the context window is too small: notes and traces
        *(Item("note", "# A note from an earlier step", note.text) for note in brief.memory),
        *(
            Item("trace", f"# What happened on {_named(case)}, from the beginning", text)
            for case, pair, _ in _traced(told, sight.traces)
            if (
                text := "\n\n".join(
                    f"[{item.role}]\n{item.text}" for item in _traces(brief).get(pair, ())
                )
            )
        ),
    ]


def facts_of(brief: Brief) -> Mapping[str, str]:
    """Values of a prompt's placeholders."""
    objective, rules = brief.objective, brief.rules
    bounds = objective.bounds
    return {
        "metric": objective.metric,
        "direction": objective.direction,
        "bounds": f"{bounds[0]:g} to {bounds[1]:g}" if bounds else "any",
        "files": ", ".join(sorted(rules.artifacts)),
        "max_files": str(rules.max_files or "any number"),
        "max_changed_lines": str(rules.max_changed_lines or "any number"),
    }


def _aim(brief: Brief) -> str:
    objective, rules = brief.objective, brief.rules
    bounds = f" ({objective.bounds[0]:g} to {objective.bounds[1]:g})" if objective.bounds else ""
    lines = [f"{objective.direction.capitalize()} `{objective.metric}`{bounds}."]
    lines += [f"Never break: {constraint}." for constraint in objective.constraints]
    if objective.tie_breakers:
        broken = ", then ".join(f"{tie.prefer} `{tie.metric}`" for tie in objective.tie_breakers)
        lines.append(f"Between texts that are as good, this decides: {broken}.")
    lines.append(f"You may edit: {', '.join(f'`{path}`' for path in sorted(rules.artifacts))}.")
    if rules.max_files is not None:
        lines.append(f"Change at most {count(rules.max_files, 'file')}.")
    if rules.max_changed_lines is not None:
        lines.append(f"At most {rules.max_changed_lines} lines may be removed or added in all.")
    protected = {str(one) for artifact in rules.artifacts.values() for one in artifact.protected}
    lines += [f"Leave as it is what stands {one}." for one in sorted(protected)]
    return "\n".join(lines)


def _files(brief: Brief) -> Iterator[Item]:
    texts = brief.incumbent.texts
    paths = sorted(path for path in brief.rules.artifacts if path in texts)
    # of a whole repository, as much as fits is better than nothing
    only = len(paths) == 1
    for path in paths:
        yield Item("file", f"# The file `{path}` as it is now", texts[path], needed=only)


def parent_item(brief: Brief) -> Iterator[Item]:
    """Explanation for texts that build on a promising step; none for the incumbent."""
    if brief.parent is None:
        return
    step = brief.parent.step.step
    words = (
        f"The texts that you are given are those that lead, with the edits of step {step} on top, "
        "which was nearly kept and is not proven yet. Propose what should change in them besides. "
        "Your edits are put on top of those, and all of them are judged as one change of the texts "
        "that lead: limits count them all."
    )
    yield Item("parent", "# What you are given to edit", words, material=False, needed=True)


def _worst_first(brief: Brief) -> list[_Row]:
    """Train cases that the incumbent ran on: its own failures first, then by loss."""
    cases = {case.id: case for case in brief.train}
    rows = [
        (cases[pair.case], pair, outcome)
        for answer in brief.answers
        for pair, outcome in answer.outcomes.items()
        if outcome.failure is None or outcome.failure.blame == "candidate"
    ]

    def rank(row: _Row) -> tuple[bool, float, str]:
        outcome = row[2]
        loss = 0.0 if outcome.failure else brief.objective.loss(outcome.metrics)
        return outcome.failure is None, -loss, row[0].id

    return sorted(rows, key=rank)


def _traced(told: list[_Row], most: int) -> list[_Row]:
    """Select the worst cases and the best one, so that the model sees what works."""
    if most < 2 or len(told) <= most or told[-1][2].failure is not None:
        return told[:most]
    return [*told[: most - 1], told[-1]]


def _result(brief: Brief, row: _Row, sight: Sight) -> Item:
    case, pair, outcome = row
    data = case.data
    known = cast("dict[str, object]", data) if isinstance(data, dict) else {}
    lines = [f"{name}: {as_text(known[name])}" for name in sight.fields if name in known]
    if outcome.failure is not None:
        title = f"# {_named(case).capitalize()} failed"
        lines.append(f"{outcome.failure.kind}: {outcome.failure.message}")
    else:
        value = brief.objective.value(brief.objective.loss(outcome.metrics))
        title = f"# {_named(case).capitalize()}: `{brief.objective.metric}` {value:g}"
    if miss := strongest(brief.pool).get(case.id):
        reached = brief.objective.value(dict(miss.losses)[case.id])
        lines.append(f"step {miss.step}, nearly kept, came to {reached:g} here")
    lines += _expected_and_got(brief, case, pair)
    severe = sorted(outcome.findings, key=lambda f: ("high", "medium", "low").index(f.severity))
    lines += [f"finding: {finding.text}" for finding in severe]
    return Item("result", title, "\n".join(lines) or "nothing was found")


def _expected_and_got(brief: Brief, case: Case, pair: Pair) -> Iterator[str]:
    """Expected output of a train case beside the output it got, where the task has labels."""
    expected = brief.labels.expected_of(case) if brief.labels.shown else ""
    if not expected:
        return
    yield f"expected: {expected}"
    trace = _traces(brief).get(pair, ())
    got = next((item.text for item in reversed(trace) if item.role in OUTPUT_ROLES), "").strip()
    if got:
        yield f"got: {shortened(got, MAX_GOT_CHARS)}"


def _named(case: Case) -> str:
    return "the run" if case.id == IMPLICIT_CASE.id else f"case `{case.id}`"


def as_text(value: object) -> str:
    """Format a value for a model: text as it is, else JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _refused(brief: Brief, sight: Sight) -> Iterator[Item]:
    """Promising steps, which must not be proposed again, and the last rejected ones."""
    pooled = {miss.step for miss in brief.pool}
    past = [
        step
        for step in brief.history
        if step.proposal is not None
        and not step.proposal.merges
        and step.verdict.outcome != "keep"
        and step.verdict.code not in UNTOLD
    ]
    last = [step for step in past if step.step not in pooled][::-1][: sight.refused]
    for step in sorted((s for s in past if s.step in pooled), key=lambda s: -s.step):
        title = f"# Step {step.step} was nearly kept, and waits to be put together with others"
        yield Item("near miss", title, _attempt(step))
    for step in last:
        yield Item("refused proposal", f"# Step {step.step} was not kept", _attempt(step))


def _attempt(step: ClosedStep) -> str:
    assert step.proposal is not None
    edits = "\n".join(_edit(edit) for edit in step.proposal.edits)
    return f"why: {step.proposal.why}\n{edits}\nverdict: {verdict_of(step)}"


def verdict_of(step: ClosedStep) -> str:
    """Outcome, code and reason of a step in one line."""
    return f"{step.verdict.outcome} ({step.verdict.code}): {step.verdict.reason}"


def _edit(edit: Edit) -> str:
    match edit:
        case Replace():
            return f"replace in {edit.path}:\n{edit.old}\nby:\n{edit.new}"
        case InsertAfter():
            return f"insert into {edit.path} after:\n{edit.anchor}\nthis:\n{edit.text}"
        case Delete():
            return f"delete from {edit.path}:\n{edit.text}"
        case Append():
            return f"append to {edit.path}:\n{edit.text}"
        case Write():
            return f"write {edit.path}:\n{edit.text}"
        case Fill():
            return f"write in {edit.path}, {edit.begin}:\n{edit.text}"
        case SetValue():
            return f"set {edit.key} in {edit.path} to {edit.value}"


def _traces(brief: Brief) -> Mapping[Pair, tuple[TraceItem, ...]]:
    return {pair: trace for answer in brief.answers for pair, trace in answer.traces.items()}
