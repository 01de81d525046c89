"""Guards: what a candidate is refused for before anything is spent on it.

Each looks for one way to please a scorer without being better. A guard is a pure function of the
seed, the incumbent and the candidate, and answers with a reason that a person can read. The guard
against copied text is in `kept.core.copying`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from kept.core.artifact import Candidate
from kept.core.text import Section, all_text, count_tokens, density, repetition, sections, title_key


@dataclass(frozen=True, slots=True)
class LengthGuard:
    """Refuses what says more rather than better."""

    max_growth: float | None = 3.0
    """Times the tokens of the seed."""
    max_tokens: int | None = None
    max_chars: int | None = None
    name: str = "length"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Too long by any of the limits, and longer than the incumbent."""
        text, before = all_text(candidate.texts), all_text(incumbent.texts)
        # from a text that is too long already, the way back is open
        if len(text) <= len(before):
            return None
        if self.max_chars is not None and len(text) > self.max_chars:
            return f"{len(text)} characters, {self.max_chars} allowed"
        tokens = count_tokens(text)
        if self.max_tokens is not None and tokens > self.max_tokens:
            return f"{tokens} tokens, {self.max_tokens} allowed"
        first = count_tokens(all_text(seed.texts))
        if self.max_growth is not None and tokens > self.max_growth * max(1, first):
            times = f"{tokens / max(1, first):.1f} times the seed's {first}"
            return f"{tokens} tokens, {times}, {self.max_growth:g} times allowed"
        return None


SLACK = 1.25
"""How much more of a fault than the seed itself has is still no hack."""


@dataclass(frozen=True, slots=True)
class StuffingGuard:
    """Refuses what says the same words again and again.

    A seed that repeats itself, as code and tables do, sets the bar for its candidates.
    """

    max_density: float = 0.25
    """Share of the content words that the three most repeated ones may take."""
    max_repetition: float = 0.3
    """Share of the five-word phrases that may have stood in the text before."""
    name: str = "stuffing"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """Any changed text that is stuffed."""
        for path in _changed(incumbent, candidate):
            reason = self._stuffed(candidate[path], seed.texts.get(path, ""))
            if reason is not None:
                return f"{path}: {reason}"
        return None

    def _stuffed(self, text: str, first: str) -> str | None:
        share, words = density(text)
        allowed = max(self.max_density, SLACK * density(first)[0])
        if share > allowed:
            named = ", ".join(f"`{word}`" for word in words)
            take = "takes" if len(words) == 1 else "take"
            return f"{named} {take} {share:.0%} of the content words, {allowed:.0%} allowed"
        repeated = repetition(text)
        allowed = max(self.max_repetition, SLACK * repetition(first))
        if repeated > allowed:
            return f"{repeated:.0%} of its phrases stood in it before, {allowed:.0%} allowed"
        return None


@dataclass(frozen=True, slots=True)
class SectionsGuard:
    """Refuses what drops or empties a section that the seed has."""

    keep: tuple[str, ...] | None = None
    """Titles of the sections that must stay; None for all."""
    max_level: int = 6
    """Deepest heading that counts."""
    name: str = "sections"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """A section of the seed that is gone or empty now."""
        for path in sorted(seed.texts):
            if candidate.texts.get(path) == incumbent.texts.get(path, ""):
                continue
            now = sections(candidate.texts.get(path, ""))
            have = Counter((section.level, section.key) for section in now)
            filled = {(section.level, section.key) for section in now if not section.empty}
            for section in self._kept(sections(seed[path])):
                place = (section.level, section.key)
                have[place] -= 1
                if have[place] < 0:
                    return f"{path} lost its section `{section.title}`"
                if not section.empty and place not in filled:
                    return f"{path}: the section `{section.title}` is empty"
        return None

    def _kept(self, found: Iterable[Section]) -> Iterable[Section]:
        names = None if self.keep is None else {title_key(name) for name in self.keep}
        for section in found:
            if section.level <= self.max_level and (names is None or section.key in names):
                yield section


@dataclass(frozen=True, slots=True)
class EmptyGuard:
    """Refuses what leaves nothing of a text."""

    name: str = "empty"

    def check(self, seed: Candidate, incumbent: Candidate, candidate: Candidate) -> str | None:
        """A text that has nothing but space in it, and had something."""
        for path in _changed(incumbent, candidate):
            if not candidate[path].strip() and incumbent.texts.get(path, "").strip():
                return f"nothing would be left of {path}"
        return None


def _changed(before: Candidate, after: Candidate) -> list[str]:
    return sorted(path for path, text in after.texts.items() if before.texts.get(path) != text)
