"""Examples in a prompt, chosen from the train cases: which, how many, in what order.

They stand in a marked stretch of an artifact, which the proposer rewrites as a whole. Half of its
proposals are neighbours of what stands there, half are drawn afresh; no set is tried twice.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, cast

from kept.core.case import Case
from kept.core.edit import Replace
from kept.core.ports import Scope
from kept.core.proposal import Brief, Proposal, ProposerReply, Skip
from kept.core.words import count
from kept.proposers.showing import as_text

BEGIN = "<!-- demos:start -->"
END = "<!-- demos:end -->"

TRIES = 200
"""Draws before a set that is new is looked for one by one."""

MANY = 10_000
"""Sets that are still looked at one by one."""

Demos = tuple[str, ...]
"""Ids of cases, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where examples stand in a text, and what they look like."""

    template: str
    """Of one example, with fields of the case in braces."""
    begin: str = BEGIN
    end: str = END
    between: str = "\n\n"

    def region(self, text: str) -> str | None:
        """The marked stretch, markers included; None where there is not just one."""
        start, stop = text.find(self.begin), text.find(self.end)
        if text.count(self.begin) != 1 or text.count(self.end) != 1 or stop < start:
            return None
        return text[start : stop + len(self.end)]

    def marks(self, text: str) -> bool:
        """Whether a text holds one of the markers."""
        return self.begin in text or self.end in text

    def render(self, shown: Sequence[str], line_end: str = "\n") -> str:
        """The marked stretch with these examples in it."""
        inner = self.between.join(shown)
        new = f"{self.begin}\n{inner}\n{self.end}" if inner else f"{self.begin}\n{self.end}"
        return new if line_end == "\n" else new.replace("\r\n", "\n").replace("\n", line_end)


def example(template: str, case: Case) -> str:
    """A case as the template shows it; raises `KeyError` for a field that it has not."""
    return template.format_map({name: as_text(value) for name, value in fields(case).items()})


def fields(case: Case) -> Mapping[str, object]:
    """What a template may name: the case's own fields, or `case` where it has none; and its id."""
    data: Any = case.data
    own = cast("dict[str, object]", data) if isinstance(data, dict) else {"case": data}
    return {"id": case.id, **own}


@dataclass(frozen=True, slots=True)
class Sets:
    """Which sets of examples there may be, by their sizes."""

    least: int
    most: int

    def draws(self, now: Demos, ids: Demos, chance: random.Random) -> Iterator[Demos]:
        """Sets to look at, neighbours of what stands there among them; at last one by one."""
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
        """How many sets there are, in every order; counted no further than matters."""
        total = 0
        most = min(self.most, cases)
        ways = 1
        for size in range(most + 1):
            if size >= min(self.least, most):
                total += ways
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
        """Another set of examples."""
        region = self.layout.region(brief.incumbent.texts.get(self.file, ""))
        if region is None:
            marks = f"`{self.layout.begin}` … `{self.layout.end}`"
            return Skip(f"{self.file} has not got {marks} just once")
        examples = ((case.id, example(self.layout.template, case)) for case in brief.train)
        # one that holds a mark itself would make it unclear where the examples end
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
        # an open one may yet go stale, and then its set is free again
        used_up = sets.count(len(shown)) <= MANY and not brief.open
        return Skip("every set of examples was tried", exhausted=used_up)

    def _seen(self, brief: Brief) -> Iterator[str]:
        steps = (step for step in brief.closed if step.turn.proposer == self.name)
        past = (s.proposal for s in steps if s.verdict.code not in ("stale", "indecisive"))
        for proposal in (*past, *brief.open):
            for edit in proposal.edits if proposal else ():
                if isinstance(edit, Replace) and edit.path == self.file:
                    yield edit.new
                    # what stood there before was measured too, at the latest as the incumbent
                    yield edit.old

    def _read(self, region: str, shown: Mapping[str, str]) -> Demos:
        """The examples that stand in a region; none where it holds anything else."""
        rest = region[len(self.layout.begin) : -len(self.layout.end)].strip("\n")
        found: list[str] = []
        # the longest first: one example may begin as another does
        by_length = sorted(shown, key=lambda id_: -len(shown[id_]))
        while rest:
            fits = (i for i in by_length if i not in found and shown[i] and _heads(rest, shown[i]))
            id_ = next(fits, None)
            if id_ is None:
                return ()
            found.append(id_)
            rest = rest[len(shown[id_]) :].removeprefix(self.layout.between)
        return tuple(found)


def _heads(text: str, part: str) -> bool:
    return text.startswith(part) and text[len(part) : len(part) + 1] in ("", "\n")


def _neighbour(now: Demos, ids: Demos, chance: random.Random) -> Demos:
    """One example swapped, dropped, added or moved."""
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
