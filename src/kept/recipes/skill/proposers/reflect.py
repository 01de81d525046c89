"""Reflect: analysts of minibatches, deep reflection by probes, and skill-aware reminders.

Analysts look at failures and successes separately and in parallel. An unusable reply, or an
outage, loses only its minibatch and is reported. An outage of all is a failure. Code records the
author of each patch and the number of supporting cases.

Deep reflect: a few rollouts are repeated with a diagnostic question by the teacher. It may name
one rollout and the step to continue from; the environment supports this. The results are for
analysts only and are never judged.

Skill-aware reflection: a defect of the skill is an edit, a lapse of its reader a reminder.
Reminders stand in a protected appendix that only code writes. Those that differ only in case or
punctuation are one.
"""

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from kept.core.artifact import Candidate
from kept.core.proposal import Ask, Brief
from kept.core.rollout import Failure, Pair
from kept.models.context_window import tokens_of
from kept.proposers.prompt_items import Item
from kept.recipes.skill.document import APPENDIX, region_text, without_markers
from kept.recipes.skill.proposers.analyst import Row, Sight, analyst_items
from kept.recipes.skill.proposers.teacher import (
    COUNT,
    SOURCES,
    TEXT,
    Desk,
    Said,
    Source,
    Update,
    Wanted,
    analyst_schema,
    is_broken,
    rewriting,
    shape,
    without_text,
    words_of,
)

PROBE = shape(reasoning=TEXT, probe_instruction=TEXT, probe_target_id=TEXT, probe_after_step=COUNT)


@dataclass(frozen=True, slots=True)
class Deep:
    """Deep reflection: repeats a few rollouts with a diagnostic question."""

    probe: Callable[..., Mapping[str, str]]
    """Function that returns the texts of the candidate with the question; see
    `kept.evaluators.environments.base`."""
    sight: Sight
    failures: int = 4
    successes: int = 2

    def most_asked(self, rows: int) -> int:
        """Return the most rollouts that are repeated, of this many."""
        return min(rows, self.failures + self.successes)

    def chosen(self, rows: Sequence[Row]) -> list[Row]:
        """Choose a few rollouts of as many kinds of tasks as possible."""
        failed = [row for row in rows if row.failed]
        solved = [row for row in rows if not row.failed]
        return [*self._varied(failed, self.failures), *self._varied(solved, self.successes)]

    def _varied(self, rows: Sequence[Row], most: int) -> list[Row]:
        # one of each kind in turn, until there are enough
        by_kind: dict[str, list[Row]] = {}
        for row in rows:
            by_kind.setdefault(self.sight.about(row.case).type, []).append(row)
        found: list[Row] = []
        while len(found) < min(most, len(rows)):
            found += [kind.pop(0) for kind in by_kind.values() if kind]
        return found[:most]

    async def ask(
        self, desk: Desk, rows: Sequence[Row], pairs: Sequence[Pair], front: Sequence[Item]
    ) -> tuple[Ask, dict[str, Any]] | dict[str, Any] | Failure:
        """Return the rollouts to repeat with the record of them, or a record of why not."""
        mine = self.chosen(rows)
        if not mine:
            return {"error": "no rollout of a kind that is looked at again"}
        system = desk.prompt("deep_probe")
        wanted = Wanted(PROBE)
        room = desk.teacher.room(wanted)
        room = None if room is None else room - tokens_of(system) - tokens_of(json.dumps(PROBE))
        pages = analyst_items(mine, self.sight, front, room)
        said = await desk.ask("probe", system, pages.items, wanted)
        if isinstance(said, Failure):
            if is_broken(said):
                return said
            await desk.do_without("probe", said)
            return {"error": words_of(said)}
        told = dict(said.data)
        if not told["probe_instruction"].strip():
            return {**told, "error": "the teacher asks nothing"}
        named = [row for row in mine if row.case.id == told["probe_target_id"]]
        # an unknown target means all chosen rollouts
        ids = {row.case.id for row in named or mine}
        again = tuple(pair for pair in pairs if pair.case in ids)
        made = self._candidate(desk.brief, told, named)
        return Ask(made.id, again, "probe", made), told

    def _candidate(self, brief: Brief, told: Mapping[str, Any], named: Sequence[Row]) -> Candidate:
        texts, instruction = brief.incumbent.texts, told["probe_instruction"]
        step = told["probe_after_step"]
        # without a named rollout or step, the probe starts from the beginning
        if not named or not step:
            return Candidate(dict(self.probe(texts, instruction)))
        return Candidate(dict(self.probe(texts, instruction, named[0].trace, step)))


Sources = Literal["failure_only", "both"]

TITLE = "## Reminders"

_SIGNS = re.compile(r"[^\w\s]+")


@dataclass(frozen=True, slots=True)
class Lapses:
    """Skill-aware reflection: tells lapses of the reader from defects of the skill."""

    sources: Sources = "both"
    threshold: int = 0
    """Most reminders before they are consolidated; 0 for any number."""

    def asks(self, source: Source) -> bool:
        """True if analysts of this kind are asked for reminders."""
        return source == "failure" or self.sources == "both"


def key_of(note: str) -> str:
    """Return a reminder in a normal form: without case, punctuation and extra spaces."""
    return " ".join(_SIGNS.sub(" ", note.casefold()).split())


def fresh_notes(notes: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the new reminders in order, each in one line."""
    seen = {key_of(note) for note in known}
    found: list[str] = []
    for note in notes:
        line = " ".join(without_markers(note).split()).lstrip("-* ")
        key = key_of(line)
        if key and key not in seen:
            seen.add(key)
            found.append(line)
    return found


def notes_in(skill: str) -> list[str]:
    """Return the reminders in the appendix of a skill."""
    lines = region_text(skill, APPENDIX).splitlines()
    return [line.removeprefix("- ").strip() for line in lines if line.startswith("- ")]


def appendix_text(notes: Sequence[str]) -> str:
    """Return the text of the appendix."""
    return "\n".join([TITLE, *(f"- {note}" for note in notes)])


def noted(patches: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the reminders of a step, each once."""
    return fresh_notes((n for patch in patches for n in patch.get("appendix_notes", ())), ())


_PROMPTS: dict[Source, str] = {"failure": "analyst_error", "success": "analyst_success"}
_SHORT: dict[Source, str] = {"failure": "fail", "success": "succ"}


class Minibatch(NamedTuple):
    """Rollouts for one analyst."""

    name: str
    source: Source
    rows: list[Row]


@dataclass(frozen=True, slots=True)
class Analysts:
    """Settings of the analysts of a batch."""

    sight: Sight
    update: Update
    size: int = 8
    """Most rollouts for one analyst."""
    failure_only: bool = False
    lapses: Lapses | None = None
    """Settings of skill-aware reflection; None without it."""


def minibatches(
    parts: Sequence[Sequence[Row]], size: int, seed: int, *, failure_only: bool
) -> list[Minibatch]:
    """Divide the rollouts of a step into minibatches; the same seed gives the same ones."""
    found: list[Minibatch] = []
    for more, source in enumerate(SOURCES):
        if source == "success" and failure_only:
            continue
        number = 0
        for at, part in enumerate(parts):
            mine = [row for row in part if row.failed == (source == "failure")]
            # seeded, so that a resume forms the same minibatches
            random.Random(f"{seed}/{at}/{more}").shuffle(mine)
            for start in range(0, len(mine), size):
                name = f"minibatch_{_SHORT[source]}_{number:03}"
                found.append(Minibatch(name, source, mine[start : start + size]))
                number += 1
    return found


Patch = dict[str, Any]
"""Reply of one analyst with fields added by code; `error` if the reply is unusable."""


async def reflect(
    desk: Desk, analysts: Analysts, groups: Sequence[Minibatch], front: Sequence[Item], most: int
) -> list[Patch] | Failure:
    """Return a patch for each minibatch; a failure if an outage lost all of them."""
    asked = [_analyse(desk, analysts, group, front, most) for group in groups]
    found = await asyncio.gather(*asked)
    failures = [one for one in found if isinstance(one, Failure)]
    all_lost = len(failures) == len(found)
    for one in failures:
        if is_broken(one) or (all_lost and one.outage):
            return one
    patches: list[Patch] = []
    for group, one in zip(groups, found, strict=True):
        cases = [row.case.id for row in group.rows]
        patch: Patch = {"name": group.name, "source_type": group.source, "batch_size": len(cases)}
        patch["cases"] = cases
        if isinstance(one, Failure):
            await desk.do_without(_place(group), one)
            patches.append({**patch, "error": words_of(one)})
        else:
            patches.append(patch | one)
    return patches


def _place(group: Minibatch) -> str:
    return f"reflect/{group.name}"


async def _analyse(
    desk: Desk, analysts: Analysts, group: Minibatch, front: Sequence[Item], most: int
) -> Patch | Failure:
    update, lapses = analysts.update, analysts.lapses
    notes = lapses is not None and lapses.asks(group.source) and update.capped
    system = desk.prompt(_PROMPTS[group.source], update.suffix)
    if notes:
        system = f"{system}\n\n{desk.prompt(f'lapses_{group.source}')}"
    files = sorted(desk.brief.rules.artifacts)
    schema = analyst_schema(update, group.source, files, notes=notes)
    wanted = Wanted(schema)
    if not update.capped:
        wanted = rewriting(desk, schema, lambda data: without_text(data["patch"][update.key]))
    room = desk.teacher.room(wanted)
    if room is not None:
        room -= tokens_of(system) + tokens_of(json.dumps(schema))
    pages = analyst_items(group.rows, analysts.sight, front, room)
    said = await desk.ask(_place(group), system, pages.items, wanted)
    if isinstance(said, Failure) and said.kind == "context":
        # its window was not known, and half of the items was too much: a quarter of the tokens now
        room = sum(item.tokens for item in pages.items) // 4
        pages = analyst_items(group.rows, analysts.sight, front, room)
        said = await desk.ask(f"{_place(group)}/shorter", system, pages.items, wanted)
    if isinstance(said, Failure):
        return said
    about: Patch = {"cut_turns": pages.cut} if pages.cut else {}
    if said.unseen:
        # rollouts that were left out do not support its reply
        shown = {id(item) for item in said.shown}
        told = zip(group.rows, pages.items[-len(group.rows) :], strict=True)
        about["cases"] = [row.case.id for row, item in told if id(item) in shown]
    return about | _read(said, update, most, notes=notes)


def _read(said: Said, update: Update, most: int, *, notes: bool) -> Patch:
    """Read a reply: at most as many items as the budget allows; the rest is counted."""
    data = said.data
    found: Patch = {k: data[k] for k in ("failure_summary", "success_patterns") if k in data}
    patch: Patch = data.get("patch") or {}
    items: list[Patch] = list(patch.get(update.key) or ())
    kept = items[: most if update.capped else 1]
    found["patch"] = {"reasoning": patch.get("reasoning", ""), update.key: kept}
    if len(kept) < len(items):
        found["over_budget"] = len(items) - len(kept)
    if said.unseen:
        found["unseen"] = said.unseen
    if notes:
        given = data.get("appendix_notes") or ()
        found["appendix_notes"] = [note for note in given if note.strip()]
    return found


def digest(patches: Sequence[Patch], rows: Sequence[Row], missing: int) -> dict[str, Any]:
    """Summarize a step for later ones: its patterns, with the cases that their analyst saw."""
    patterns = [
        {
            "pattern": f"{one['failure_type']}: {one['description']}",
            # a model may claim more cases than it was shown
            "count": min(one["count"], len(patch["cases"])),
            "task_ids": patch["cases"],
        }
        for patch in patches
        for one in patch.get("failure_summary", ())
    ]
    failed = sum(row.failed for row in rows)
    found: dict[str, Any] = {"n_total": len(rows), "n_fail": failed}
    found["failure_patterns"] = patterns
    return found | ({"missing": missing} if missing else {})
