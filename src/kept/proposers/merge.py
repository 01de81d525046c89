"""Merging of promising edits: small gains that together may be large enough to confirm.

The best is taken first; edits that conflict with those before are left out this time. Whole
texts that share new sentences are alternatives, of which one at a time is raced.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kept.core.artifact import Locator
from kept.core.edit import Edit, Write, apply_edits, changed_lines, changed_paths, edits_between
from kept.core.near_misses import edits_without, kept_since, line_of
from kept.core.ports import Scope
from kept.core.proposal import MERGE, Brief, ClosedStep, Proposal, ProposerReply, Skip


@dataclass(frozen=True, slots=True)
class Merge:
    """One proposal out of the pool."""

    locate: Locator
    single: bool = False
    """True if only one is taken up at a time: all are alternatives."""
    name: str = MERGE
    serial: bool = False

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Merge as many promising steps as fit together."""
        edits: tuple[Edit, ...] = ()
        members: list[int] = []
        taken: list[tuple[Edit, ...]] = []
        said: set[str] = set()
        alone = [miss for miss in brief.pool if miss.alone][:1]
        made = (brief.history[miss.step].proposal for miss in brief.pool)
        built_on = any(one.builds_on for one in made if one is not None)
        # steps that others build on, and whose edits the incumbent already has
        there = kept_since(brief.history, 0) if built_on else set[int]()
        best_first = sorted(alone or brief.pool, key=lambda miss: (-miss.estimate, miss.step))
        for miss in best_first[: 1 if self.single else None]:
            more = tuple(_edits(brief, brief.history[miss.step], there))
            news = _news(brief, brief.history[miss.step])
            # skip a step that is already in, changes nothing, repeats or conflicts with
            # earlier ones, or exceeds the limits together with them
            if (
                miss.step not in there
                and more
                and more not in taken
                and not said & news
                and not _overwrites(edits, more)
                and self._apply(brief, (*edits, *more))
            ):
                taken.append(more)
                said |= news
                edits = (*edits, *more)
                members.append(miss.step)
                # with a step come all steps that it builds on
                there |= {*line_of(brief.history, miss.step)}
        if not members:
            return next(
                (one for miss in best_first if (one := self._alternative(brief, miss.step))),
                Skip("nothing in the pool applies any more"),
            )
        steps = ", ".join(map(str, members))
        words = f"puts together what steps {steps} proposed"
        if len(members) == 1:
            words = f"takes up what step {steps} proposed"
        return Proposal(edits, words, merges=tuple(members))

    def _alternative(self, brief: Brief, step: int) -> Proposal | None:
        """Whole text for another incumbent, if it promised more than was kept since.

        It replaces what was kept, so it is raced by itself: the gate compares the two.
        """
        closed = brief.history[step]
        edits = closed.proposal.edits if closed.proposal else ()
        kept = sum(
            later.verdict.numbers.get("gain", 0.0)
            for later in brief.history[step + 1 :]
            if later.verdict.outcome == "keep"
        )
        if closed.verdict.numbers.get("screen_gain", 0.0) <= kept or not self._apply(brief, edits):
            return None
        return Proposal(edits, f"takes up what step {step} proposed", merges=(step,))

    def _apply(self, brief: Brief, edits: tuple[Edit, ...]) -> bool:
        """True if every edit takes effect, and all together are within the limits."""
        applied = apply_edits(brief.incumbent, edits, brief.rules, self.locate)
        pair, rules = (brief.incumbent, applied.candidate), brief.rules
        if rules.max_files is not None and len(changed_paths(*pair)) > rules.max_files:
            return False
        lines = rules.max_changed_lines
        return applied.complete and (lines is None or changed_lines(*pair) <= lines)


def _edits(brief: Brief, step: ClosedStep, there: Collection[int]) -> Iterator[Edit]:
    """Edits of a step, without those that are already in the incumbent.

    A whole text becomes the changes that it makes, if it was written for the incumbent.
    """
    made = edits_without(brief.history, step.proposal, there) if step.proposal else ()
    for at, edit in enumerate(made):
        if any(isinstance(later, Write) and later.path == edit.path for later in made[at + 1 :]):
            continue  # a later whole text overwrites this edit
        text = brief.incumbent.texts.get(edit.path)
        if not isinstance(edit, Write) or not text:
            yield edit
        elif step.incumbent == brief.incumbent.id:
            yield from edits_between(edit.path, text, edit.text)
        # else it was written for another text, and would undo changes kept since


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n")


def _news(brief: Brief, step: ClosedStep) -> set[str]:
    """Sentences that a step's whole texts add."""
    found: set[str] = set()
    for edit in step.proposal.edits if step.proposal else ():
        if isinstance(edit, Write):
            before = _SENTENCE.split(brief.incumbent.texts.get(edit.path, ""))
            found |= {one.strip() for one in _SENTENCE.split(edit.text)} - {*before, ""}
    return found


def _overwrites(edits: tuple[Edit, ...], more: tuple[Edit, ...]) -> bool:
    """True if a whole text would overwrite a file that another edit changes."""
    touched = {edit.path for edit in edits}
    written = {edit.path for edit in (*edits, *more) if isinstance(edit, Write)}
    return any(edit.path in touched and edit.path in written for edit in more)
