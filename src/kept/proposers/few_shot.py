"""Few-shot proposers: examples from train cases, in a marked region of an artifact.

The region is always rewritten as a whole, and no set of examples is tried twice while the rest of
the text is unchanged.

One proposer chooses number, selection and order of examples. Half of its proposals are neighbours
of the current set, half are random. The other appends conversations of the incumbent on train
cases that pass, so that the examples are in its own words.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from string import Formatter
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from kept.core.artifact import NoSpan
from kept.core.case import Case
from kept.core.edit import Replace
from kept.core.llm import exchanges_of
from kept.core.ports import Scope
from kept.core.proposal import Ask, Brief, Proposal, ProposerReply, Skip
from kept.core.rollout import Pair
from kept.core.text import count
from kept.proposers.failing_cases import Row, look
from kept.proposers.numeric.search import UNTRIED
from kept.proposers.prompt_items import as_text
from kept.proposers.registry import ProposerComponent
from kept.proposers.text_units import TextAxis
from kept.spec.components import BuildContext, CheckContext
from kept.spec.validate import Count, SpecModel, Text, Whole

BEGIN = "<!-- demos:start -->"
END = "<!-- demos:end -->"

TRIES = 200
"""Random attempts before all sets are enumerated."""

MANY = 10_000
"""Largest number of sets that is still enumerated."""

Demos = tuple[str, ...]
"""Ids of cases, in the order shown."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Markers and format of the examples region in a text."""

    template: str
    """Format of one example, with fields of the case in braces."""
    begin: str = BEGIN
    end: str = END
    between: str = "\n\n"

    def region(self, text: str) -> str | None:
        """Marked region with its markers; None unless there is exactly one."""
        start, stop = text.find(self.begin), text.find(self.end)
        if text.count(self.begin) != 1 or text.count(self.end) != 1 or stop < start:
            return None
        return text[start : stop + len(self.end)]

    def marks(self, text: str) -> bool:
        """True if a text contains one of the markers."""
        return self.begin in text or self.end in text

    def render(self, shown: Sequence[str], line_end: str = "\n") -> str:
        """Render the marked region with these examples in it."""
        inner = self.between.join(shown)
        new = f"{self.begin}\n{inner}\n{self.end}" if inner else f"{self.begin}\n{self.end}"
        return new if line_end == "\n" else new.replace("\r\n", "\n").replace("\n", line_end)


def example(template: str, case: Case) -> str:
    """Case formatted by the template; raises `KeyError` for a field that it lacks."""
    return template.format_map({name: as_text(value) for name, value in fields(case).items()})


def fields(case: Case) -> Mapping[str, object]:
    """Fields that a template may name: the id, and those of the case, or `case`."""
    data: Any = case.data
    own = cast("dict[str, object]", data) if isinstance(data, dict) else {"case": data}
    return {"id": case.id, **own}


@dataclass(frozen=True, slots=True)
class Sets:
    """Sets of examples allowed by their size."""

    least: int
    most: int

    def draws(self, now: Demos, ids: Demos, chance: random.Random) -> Iterator[Demos]:
        """Yield sets to try: random ones and neighbours of `now`, then all if they are few."""
        most = min(self.most, len(ids))
        least = min(self.least, most)
        for _ in range(TRIES):
            if now and chance.random() < 0.5:
                demos = _neighbour(now, ids, chance)
                if least <= len(demos) <= most:
                    yield demos
            else:
                yield tuple(chance.sample(ids, chance.randint(least, most)))
        if self.count(len(ids)) <= MANY:
            for size in range(least, most + 1):
                yield from permutations(ids, size)

    def count(self, cases: int) -> int:
        """Number of ordered sets; counted only until it exceeds `MANY`."""
        total = 0
        most = min(self.most, cases)
        ways = 1
        for size in range(most + 1):
            if size >= min(self.least, most):
                total += ways
            # permutations of `size` cases, capped: the exact number may be huge
            ways = min(ways * (cases - size), MANY + 1)
        return total


@dataclass(frozen=True, slots=True)
class DemoSets:
    """Implements `kept.core.ports.Proposer`."""

    file: str
    layout: Layout
    least: int = 1
    most: int = 4
    name: str = "demos"
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose a new set of examples."""
        region = self.layout.region(brief.incumbent.texts.get(self.file, ""))
        if region is None:
            marks = f"`{self.layout.begin}` … `{self.layout.end}`"
            return Skip(f"{self.file} has not got {marks} just once")
        examples = ((case.id, example(self.layout.template, case)) for case in brief.train)
        # an example that contains a marker would make the end of the region unclear
        shown = {id_: text for id_, text in examples if not self.layout.marks(text)}
        seen = {region, *self._seen(brief)}
        line_end = "\r\n" if "\r\n" in region else "\n"
        now = self._read(region.replace("\r\n", "\n"), shown)
        sets = Sets(self.least, self.most)
        for demos in sets.draws(now, tuple(shown), random.Random(brief.seed)):
            new = self.layout.render([shown[id_] for id_ in demos], line_end)
            if new not in seen:
                named = f"{count(len(demos), 'example')}: {', '.join(demos)}"
                why = named if demos else "no examples"
                return Proposal((Replace(self.file, region, new),), why=why)
        # an open proposal may go stale, and then its set may be tried again
        used_up = sets.count(len(shown)) <= MANY and not brief.open
        return Skip("every set of examples was tried", exhausted=used_up)

    def _seen(self, brief: Brief) -> Iterator[str]:
        past = (
            s.proposal
            for s in brief.history.of(self.name)
            if s.verdict.code not in ("stale", "indecisive")
        )
        for proposal in (*past, *brief.open):
            for edit in proposal.edits if proposal else ():
                if isinstance(edit, Replace) and edit.path == self.file:
                    yield edit.new
                    # the old set was measured too, at the latest as the incumbent
                    yield edit.old

    def _read(self, region: str, shown: Mapping[str, str]) -> Demos:
        """Ids of the examples in a region; empty if it holds anything else."""
        rest = region[len(self.layout.begin) : -len(self.layout.end)].strip("\n")
        found: list[str] = []
        # longest first: one example may begin with another
        by_length = sorted(shown, key=lambda id_: -len(shown[id_]))
        while rest:
            # an example must end at a line end, or it is another text
            lines = f"{rest}\n"
            left = (i for i in by_length if i not in found and shown[i])
            id_ = next((i for i in left if lines.startswith(f"{shown[i]}\n")), None)
            if id_ is None:
                return ()
            found.append(id_)
            rest = rest[len(shown[id_]) :].removeprefix(self.layout.between)
        return tuple(found)


def _neighbour(now: Demos, ids: Demos, chance: random.Random) -> Demos:
    """Return a set with one example swapped, dropped, added or moved."""
    others = [id_ for id_ in ids if id_ not in now]
    demos = list(now)
    at = chance.randrange(len(demos))
    match chance.choice(("swap", "drop", "add", "move")):
        case "swap" if others:
            demos[at] = chance.choice(others)
        case "drop":
            del demos[at]
        case "add" if others:
            demos.insert(chance.randint(0, len(demos)), chance.choice(others))
        case _:
            demos.insert(chance.randrange(len(demos)), demos.pop(at))
    return tuple(demos)


LAYOUT = Layout("")
"""Markers of examples made from conversations, which need no template."""


@dataclass(frozen=True, slots=True)
class Shots:
    """Implements `kept.core.ports.Proposer`."""

    axis: TextAxis
    most: int = 4
    name: str = "demos"
    serial: bool = True

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose a new set of examples."""
        text = self.axis.read(brief.incumbent.texts)
        if isinstance(text, NoSpan):
            return Skip(f"`{self.axis.path}` is not there: {text.detail}")
        region = LAYOUT.region(text)
        if region is None and LAYOUT.marks(text):
            marks = f"`{LAYOUT.begin}` … `{LAYOUT.end}`"
            return Skip(f"`{self.axis.path}` has not got {marks} just once", ends="exhausted")
        if brief.train and not brief.answers:
            pairs = tuple(Pair(case.id, 0) for case in brief.train)
            return Ask(brief.incumbent.id, pairs, "feedback")
        looked = look(brief)
        shown = {row.case.id: example for row in looked.passing if (example := _example(row))}
        if not shown:
            over = "" if looked.missing else "exhausted"
            return Skip("no train case passes that could be an example", ends=over)
        return self._drawn(brief, text, shown)

    def most_asked(self, train: tuple[Case, ...]) -> int:
        """Number of rollouts per incumbent: every case that examples may come from."""
        return len(train)

    def _drawn(self, brief: Brief, text: str, shown: dict[str, str]) -> Proposal | Skip:
        region = LAYOUT.region(text)
        stands, tried = self._past(brief)
        now = tuple(case for case in stands if case in shown) if region else ()
        sets = Sets(1, self.most)
        for demos in sets.draws(now, tuple(shown), random.Random(brief.seed)):
            new = _with(text, region, [shown[case] for case in demos])
            if demos not in tried and new != text and len(new) <= self.axis.max_chars:
                why = f"{count(len(demos), 'example')}: {', '.join(demos)}"
                edits = self.axis.edits(brief.incumbent.texts, new)
                return Proposal(edits, why=why, about=self._about(demos))
        # an open proposal may go stale, and then its set may be tried again
        over = "" if brief.open else "exhausted"
        return Skip("every set of examples that fits was tried", ends=over)

    def _about(self, demos: Demos) -> dict[str, object]:
        return {"kind": "demos", "axis": self.axis.path, "demos": list(demos)}

    def _past(self, brief: Brief) -> tuple[Demos, set[Demos]]:
        """Set that was kept last, and sets tried since another proposer's change was kept."""
        stands: Demos = ()
        tried = {_demos(proposal) for proposal in brief.open}
        same = True
        for step in reversed(brief.history):
            own, kept = step.turn.proposer == self.name, step.verdict.outcome == "keep"
            if own and kept and not stands:
                stands = _demos(step.proposal)
            if own and same and step.verdict.code not in UNTRIED:
                tried.add(_demos(step.proposal))
            same = same and (own or not kept)
        return stands, tried


def _demos(proposal: Proposal | None) -> Demos:
    said = proposal.about.get("demos", ()) if proposal else ()
    return tuple(cast("Sequence[str]", said))


def _example(row: Row) -> str:
    """Conversation as an example; empty if it is incomplete or holds a marker."""
    exchanges = exchanges_of(row.trace)
    said = (f"Input: {one.input}\nAnswer: {one.response}" for one in exchanges)
    example = "\n".join(("Example", *said))
    # an example that contains a marker would make the end of the region unclear
    whole = exchanges and all(one.answered for one in exchanges)
    return example if whole and not LAYOUT.marks(example) else ""


def _with(text: str, region: str | None, shown: Sequence[str]) -> str:
    line_end = "\r\n" if "\r\n" in text else "\n"
    new = LAYOUT.render(shown, line_end)
    if region is not None:
        return text.replace(region, new)
    head = text.rstrip()
    return f"{head}{line_end * 2}{new}{text[len(head) :]}"


class DemosSpec(SpecModel):
    """Examples in a prompt, chosen from the train cases."""

    kind: Literal["demos"]
    file: Text
    template: Text
    """Format of one example, with fields of the case in braces."""
    begin: Text = BEGIN
    end: Text = END
    between: str = "\n\n"
    count: Annotated[tuple[Whole, Count], Field(strict=False)] = (1, 4)
    """Smallest and largest number of examples."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a reversed count, and identical markers."""
        count = said.get("count")
        if count is not None and count[0] > count[1]:
            yield "`count` is reversed: write the least number, then the greatest"
        if "begin" in said and said["begin"] == said.get("end"):
            yield "`begin` and `end` are the same mark"

    @property
    def layout(self) -> Layout:
        """Markers and format of the examples region."""
        return Layout(self.template, self.begin, self.end, self.between)


class DemosComponent(ProposerComponent[DemosSpec]):
    """Examples in a prompt, chosen from the train cases."""

    Spec = DemosSpec

    def check(self, spec: DemosSpec, context: CheckContext) -> None:
        """Report missing markers, and a template that names unknown fields."""
        texts, cases = context.texts, context.cases
        if spec.file in texts and spec.layout.region(texts[spec.file]) is None:
            message = f"`{spec.file}` has not got `{spec.begin}` … `{spec.end}` just once"
            context.report("file", message, "put these two marks where examples are to stand")
        elif spec.file not in texts and texts:
            context.report("file", f"`{spec.file}` is no artifact")
        if cases is None:
            pass
        elif cases.implicit or not cases.train:
            context.report((), "there are no train cases to show as examples", "give `cases`")
        else:
            _check_template(context, spec.template, cases.train)

    def build(self, spec: DemosSpec, context: BuildContext) -> DemoSets:
        """Build the proposer of sets of examples."""
        return DemoSets(spec.file, spec.layout, *spec.count, context.name)


def _check_template(context: CheckContext, template: str, train: tuple[Case, ...]) -> None:
    try:
        named = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        hint = "write a brace that is meant as such twice"
        context.report("template", f"not a template: {error}", hint)
        return
    if not named:
        context.report("template", "names no field of the case", "write it as in `{input}`")
    for name in dict.fromkeys(named):
        # only the top-level field is checked, not what a dot or bracket reaches into
        without = next((case for case in train if name not in fields(case)), None)
        if without is not None:
            known = ", ".join(f"`{field}`" for field in fields(without))
            context.report(
                "template", f"case `{without.id}` has no field `{name}`", f"it has {known}"
            )
