"""Cases and the splits they belong to.

`train` cases may be shown to a proposer, `holdout` cases decide, `test` cases are read once at the
end. A case never belongs to two splits, and near-copies across splits are named.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Split = Literal["train", "holdout", "test"]
SPLITS: tuple[Split, ...] = ("train", "holdout", "test")


@dataclass(frozen=True, slots=True)
class Case:
    """One input with what is expected of it."""

    id: str
    data: object = None
    """What the evaluator gets: any JSON value, or any object from the Python API."""


IMPLICIT_CASE = Case("all")
"""The one case of a run that has no case file."""


@dataclass(frozen=True, slots=True)
class Cases:
    """The cases of a run by split."""

    train: tuple[Case, ...] = ()
    holdout: tuple[Case, ...] = ()
    test: tuple[Case, ...] = ()
    by_id: Mapping[str, Case] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        all_cases = {case.id: case for case in (*self.train, *self.holdout, *self.test)}
        object.__setattr__(self, "by_id", all_cases)

    @property
    def implicit(self) -> bool:
        """Whether the run has no cases of its own."""
        return self.holdout == (IMPLICIT_CASE,)

    def of(self, split: Split) -> tuple[Case, ...]:
        """The cases of one split."""
        return {"train": self.train, "holdout": self.holdout, "test": self.test}[split]

    def fingerprint(self) -> str:
        """A hash of ids, contents and splits."""
        digest = hashlib.sha256()
        for split in SPLITS:
            for case in self.of(split):
                digest.update(f"{split}\0{case.id}\0{case_text(case)}\0".encode())
        return digest.hexdigest()[:16]


def implicit_cases() -> Cases:
    """The case set of a run without cases: the same single case feeds and decides."""
    return Cases(train=(IMPLICIT_CASE,), holdout=(IMPLICIT_CASE,))


def case_text(case: Case) -> str:
    """The content of a case as one canonical string."""
    if isinstance(case.data, str):
        return case.data
    return json.dumps(case.data, sort_keys=True, ensure_ascii=False, default=repr)


def split_cases(cases: Sequence[Case], ratio: Sequence[int], seed: int = 0) -> Cases:
    """Share cases among train, holdout and test by ratio.

    A case's place depends on its own content and the seed, not on its neighbours, so adding a case
    at the end of the file moves few others.
    """
    total = sum(ratio)
    if len(ratio) != len(SPLITS) or total <= 0 or min(ratio) < 0:
        raise ValueError("a split needs three parts train:holdout:test, none negative")
    shuffled = sorted(cases, key=lambda c: hashlib.sha256(f"{seed}\0{c.id}".encode()).digest())
    exact = [len(cases) * part / total for part in ratio]
    counts = [int(share) for share in exact]
    # largest remainder gets what rounding down left over
    spare = len(cases) - sum(counts)
    for at in sorted(range(3), key=lambda i: (counts[i] - exact[i], i))[:spare]:
        counts[at] += 1
    # a part that was asked for is not left empty while another has cases to give
    for at in range(3):
        richest = max(range(3), key=lambda i: counts[i])
        if ratio[at] and not counts[at] and counts[richest] > 1:
            counts[at] += 1
            counts[richest] -= 1
    chosen: list[tuple[Case, ...]] = []
    at = 0
    order = {case.id: n for n, case in enumerate(cases)}
    for count in counts:
        part = sorted(shuffled[at : at + count], key=lambda c: order[c.id])
        chosen.append(tuple(part))
        at += count
    return Cases(*chosen)


class Overlap(NamedTuple):
    """Two cases of different splits that are the same, or nearly."""

    first: str
    first_split: Split
    second: str
    second_split: Split
    likeness: float
    """1.0 for the same text; otherwise the share of word triples they have in common."""


def find_overlaps(cases: Cases, threshold: float = 0.8) -> list[Overlap]:
    """Cases that stand, exactly or nearly, in more than one split.

    Likeness is the Jaccard index of word triples; candidates are found through shared triples, so
    the cost follows the number of shared triples rather than the number of pairs.
    """
    if cases.implicit:
        return []
    placed: list[tuple[Case, Split]] = [
        (case, split) for split in SPLITS for case in cases.of(split)
    ]
    shingles = [_shingles(case_text(case)) for case, _ in placed]
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for at, mine in enumerate(shingles):
        for shingle in mine:
            holders[shingle].append(at)
    shared: defaultdict[tuple[int, int], int] = defaultdict(int)
    common = max(50, len(placed) // 10)
    for hits in holders.values():
        # a triple that many cases hold is boilerplate: it tells no pair apart, and costs n² here
        if 1 < len(hits) <= common:
            for pair in _across(hits, placed):
                shared[pair] += 1
    found: list[Overlap] = []
    for (a, b), _count in sorted(shared.items()):
        both = len(shingles[a] & shingles[b])
        likeness = both / len(shingles[a] | shingles[b])
        if likeness >= threshold:
            (one, one_split), (two, two_split) = placed[a], placed[b]
            found.append(Overlap(one.id, one_split, two.id, two_split, likeness))
    return found


def _across(hits: Sequence[int], placed: Sequence[tuple[Case, Split]]) -> Iterable[tuple[int, int]]:
    for n, a in enumerate(hits):
        for b in hits[n + 1 :]:
            if placed[a][1] != placed[b][1]:
                yield a, b


def _shingles(text: str) -> frozenset[str]:
    words = re.findall(r"\w+", text.casefold())
    whole = " ".join(words)
    if len(words) < 3:
        return frozenset([whole])
    triples = {" ".join(words[at : at + 3]) for at in range(len(words) - 2)}
    # the whole text counts as one more, so that identical cases meet even when every triple of
    # theirs is boilerplate
    return frozenset(triples | {whole})
