"""Cases, their splits, and their input and expected-output fields.

Proposers may see `train` cases, `holdout` cases decide, and `test` cases are read once at the
end. A case never belongs to two splits, and near-copies across splits are reported by name.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import combinations
from operator import itemgetter
from typing import Any, Literal, NamedTuple, cast

Split = Literal["train", "holdout", "test"]
SPLITS: tuple[Split, ...] = ("train", "holdout", "test")


NAMED = 3
"""Copies among the cases that a warning names; the others it counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input with what is expected of it."""

    id: str
    data: object = None
    """Input of the evaluator: any JSON value, or any object from the Python API."""


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
        """True if the run has no cases of its own."""
        return self.holdout == (IMPLICIT_CASE,)

    def of(self, split: Split) -> tuple[Case, ...]:
        """The cases of one split."""
        return {"train": self.train, "holdout": self.holdout, "test": self.test}[split]

    def fingerprint(self) -> str:
        """A hash of ids, contents and splits."""
        return self._hashed(case_text)

    def former_fingerprint(self) -> str:
        """The same as it was before what dataclasses hold was part of it; empty for none."""
        try:
            return self._hashed(_kinds_text)
        except (TypeError, ValueError, RecursionError):
            return ""

    def _hashed(self, text_of: Callable[[Case], str]) -> str:
        digest = hashlib.sha256()
        for split in SPLITS:
            for case in self.of(split):
                line = f"{split}\0{case.id}\0{text_of(case)}\0"
                # half a character, cut out of its emoji, is data like any other
                digest.update(line.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]


def fault_in(cases: Cases) -> str | None:
    """Reason why a run cannot use these cases; None if it can."""
    if not cases.holdout:
        return "there are no holdout cases, and nothing can be decided without them"
    if cases.implicit:
        return None
    seen: dict[str, Split] = {}
    for split in SPLITS:
        for case in cases.of(split):
            if case.id in seen:
                return f"the case `{case.id}` stands in {seen[case.id]} and again in {split}"
            seen[case.id] = split
    return None


def too_few(cases: Cases) -> str | None:
    """Warning about cases that leave a single deciding one; None if there are more."""
    if cases.implicit or len(cases.holdout) != 1:
        return None
    one, others = cases.holdout[0].id, len(cases.train) + len(cases.test)
    left = f" of {others + 1}" if others else ""
    return f"one case{left} decides, `{one}`: what is kept may fit that case and no other"


def implicit_cases() -> Cases:
    """The case set of a run without cases: the same single case feeds and decides."""
    return Cases(train=(IMPLICIT_CASE,), holdout=(IMPLICIT_CASE,))


def case_text(case: Case) -> str:
    """The content of a case as one canonical string."""
    if isinstance(case.data, str):
        return case.data
    return canonical(case.data, _name_of)


def _kinds_text(case: Case) -> str:
    """The same where of an object nothing but its kind is told."""
    if isinstance(case.data, str):
        return case.data
    return by_kinds(case.data, _name_of)


def own_text(case: Case) -> str:
    """The same for finding copies: of what is no JSON, nobody knows whether two are alike."""
    if isinstance(case.data, str):
        return case.data

    def named(value: object) -> str:
        return f"{_name_of(value)} {case.id}"

    return canonical(case.data, named)


def bare(case: Case, name: str = "id") -> Case:
    """A case without its id, or its name, which tells even copies apart."""
    data: Any = case.data
    if not isinstance(data, dict):
        return case
    fields = cast("dict[str, object]", data)
    return Case(case.id, {key: value for key, value in fields.items() if key != name})


def _content(case: Case) -> Case:
    """A case without its id, unless that is all there is of it."""
    found = bare(case)
    data: Any = found.data
    # by its truth only where it is a dict: some objects refuse to tell theirs
    return case if isinstance(data, dict) and not data else found


def _name_of(value: object) -> str:
    # of an object that is no JSON, its type is all that is the same in every process
    return type(value).__qualname__


def split_cases(
    cases: Sequence[Case], ratio: Sequence[int], seed: int = 0, strata: str | None = None
) -> Cases:
    """Share cases among train, holdout and test by ratio.

    A case's place depends on its own id and the seed, not on its neighbours, so adding a case
    at the end of the file moves few others. With `strata`, a field of the cases, each split gets
    its share of every value of that field, as nearly as whole cases allow.
    """
    total = sum(ratio)
    if len(ratio) != len(SPLITS) or total <= 0 or min(ratio) < 0:
        raise ValueError("a split needs three parts train:holdout:test, none negative")
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
    shuffled = sorted(
        cases,
        key=lambda case: hashlib.sha256(
            f"{seed}\0{case.id}".encode("utf-8", "surrogatepass")
        ).digest(),
    )
    where = _in_turn(counts) if strata else [at for at in range(3) for _ in range(counts[at])]
    if strata:
        shuffled.sort(key=lambda case: stratum(case, strata))
    split_of = {case.id: at for case, at in zip(shuffled, where, strict=True)}
    return Cases(*(tuple(case for case in cases if split_of[case.id] == at) for at in range(3)))


def stratum(case: Case, field: str) -> str:
    """The value of a field by which cases are shared out; those without it are one stratum."""
    data = case.data
    value = cast("Mapping[str, object]", data).get(field) if isinstance(data, Mapping) else None
    return "" if value is None else json.dumps(value, sort_keys=True, default=_name_of)


def _in_turn(counts: Sequence[int]) -> list[int]:
    """Parts by turns, so that any run of cases in a row is shared out as all of them are."""
    total = sum(counts)
    given = [0] * len(counts)
    turns: list[int] = []
    for nth in range(1, total + 1):
        at = max(range(len(counts)), key=lambda i: (counts[i] * nth / total - given[i], counts[i]))
        given[at] += 1
        turns.append(at)
    return turns


# Marks of punctuation, and of JSON, tell no two cases apart; other signs do: 2+2 is not 2-2.
_WORDS = re.compile(r"\w+|[^\w\s\"'`.,:;!?()\[\]{}]")


class Overlap(NamedTuple):
    """Two cases of different splits that are the same, or nearly."""

    first: str
    first_split: Split
    second: str
    second_split: Split
    likeness: float
    """1.0 for the same text; otherwise the share of word triples they have in common."""


COMMON = 50
"""A triple that more cases hold is boilerplate: it tells no two apart, and would cost n² to try."""


def find_overlaps(cases: Cases, threshold: float = 0.8) -> list[Overlap]:
    """Cases that stand, exactly or nearly, in more than one split.

    Likeness is the Jaccard index of word triples; candidates are found through shared triples, so
    the cost follows the number of shared triples rather than the number of pairs. Of many copies,
    each is named beside the first.
    """
    if cases.implicit:
        return []
    placed: list[tuple[Case, Split]] = [
        (case, split) for split in SPLITS for case in cases.of(split)
    ]
    words = [_WORDS.findall(own_text(_content(case)).casefold()) for case, _ in placed]
    # fewer than three words are one shingle
    shingles = [
        frozenset(" ".join(mine[at : at + 3]) for at in range(max(1, len(mine) - 2)))
        for mine in words
    ]
    likely: set[tuple[int, int]] = set()
    for hits in _holders([{" ".join(mine)} for mine in words]):
        likely.update((hits[0], at) for at in hits if placed[at][1] != placed[hits[0]][1])
    for hits in _holders(shingles):
        if len(hits) <= COMMON:
            pairs = combinations(hits, 2)
            likely.update((a, b) for a, b in pairs if placed[a][1] != placed[b][1])
    found: list[Overlap] = []
    for a, b in sorted(likely):
        both = len(shingles[a] & shingles[b])
        likeness = both / len(shingles[a] | shingles[b])
        if likeness >= threshold:
            (one, one_split), (two, two_split) = placed[a], placed[b]
            found.append(Overlap(one.id, one_split, two.id, two_split, likeness))
    return found


def overlap_words(found: Sequence[Overlap]) -> str:
    """All of them in one line: it is one thing to know, however many there are."""
    if len(found) == 1:
        one = found[0]
        how = "the same" if one.likeness == 1 else f"{one.likeness:.0%} alike"
        first = f"case `{one.first}` ({one.first_split})"
        return f"{first} and case `{one.second}` ({one.second_split}) are {how}"
    how = "the same" if all(one.likeness == 1 for one in found) else "the same, or nearly,"
    pairs = "; ".join(
        f"`{one.first}` ({one.first_split}) and `{one.second}` ({one.second_split})"
        + ("" if one.likeness == 1 else f", {one.likeness:.0%} alike")
        for one in found[:NAMED]
    )
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return f"{len(found)} pairs of cases are {how} across splits: {pairs}{more}"


def _holders(marks: Sequence[Set[str]]) -> Iterable[list[int]]:
    """For every mark that several cases bear, who bears it."""
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for at, mine in enumerate(marks):
        for mark in mine:
            holders[mark].append(at)
    return (hits for hits in holders.values() if len(hits) > 1)


ANSWER_NAMES = ("expected", "expected_output", "answer", "label", "target", "ideal", "gold")
"""Field names that hold the expected output in any data set, most common first."""

POSSIBLE_ANSWER_NAMES = (
    *ANSWER_NAMES[:5],
    "output",
    *ANSWER_NAMES[5:],
    *("completion", "response", "reference", "category", "class"),
)
"""`ANSWER_NAMES`, and names that hold it where only one field can be meant."""


def answer_field(names: Iterable[str], known: Sequence[str] = ANSWER_NAMES) -> str | None:
    """Find the field that holds the expected output, whatever its case; None where none does."""
    by_lower = {name.lower(): name for name in reversed([*names])}
    return next((by_lower[name] for name in known if name in by_lower), None)


@dataclass(frozen=True, slots=True)
class Labels:
    """Fields with the input and the expected output of a case."""

    inputs: tuple[str, ...] = ()
    """Fields that the runner is given; empty where that is not known."""
    expected: str = ""
    """The field with the expected output; empty where there is none."""
    assertions: str = ""
    """The field with assertions in promptfoo's format; empty where there is none."""
    shown: bool = True
    """True if proposers see the expected output of train cases."""

    def input_of(self, case: Case) -> str:
        """Text of the input: the named fields, or all that hold no answer."""
        fields = fields_of(case)
        if not fields:
            return _text(case.data) if case.data is not None else ""
        answers = ("id", self.expected, self.assertions)
        names = self.inputs or tuple(name for name in fields if name not in answers)
        given = {name: fields[name] for name in names if name in fields}
        return _text(next(iter(given.values())) if len(given) == 1 else given)

    def expected_of(self, case: Case) -> str:
        """Text of the expected output; empty where the case has none."""
        fields = fields_of(case)
        parts: list[str] = []
        if self.expected and fields.get(self.expected) is not None:
            parts.append(_text(fields[self.expected]))
        if self.assertions:
            parts += assertion_texts(fields.get(self.assertions))
        return "; ".join(parts)


def labels_of(cases: Cases, inputs: tuple[str, ...] = ()) -> Labels:
    """Labels of cases without a description, by the names of their fields."""
    first = next(iter(cases.by_id.values()), None)
    names = [name for name in (fields_of(first) if first else ()) if name not in inputs]
    return Labels(inputs, answer_field(names) or "")


def assertion_texts(given: object) -> Iterator[str]:
    """Each assertion of a case as `type: value`, without sets around them."""
    rows = cast("list[object]", given) if isinstance(given, list) else []
    for row in rows:
        if not isinstance(row, dict):
            continue
        one = cast("dict[str, Any]", row)
        if one.get("assert") is not None:
            yield from assertion_texts(one["assert"])
            continue
        value, threshold = one.get("value"), one.get("threshold")
        limit = f" (threshold {threshold:g})" if isinstance(threshold, int | float) else ""
        kind = str(one.get("type", "")) + limit
        yield kind if value is None else f"{kind}: {_text(value)}"


def fields_of(case: Case) -> Mapping[str, object]:
    """The fields of a case; none where it is no mapping."""
    data = case.data
    return cast("dict[str, object]", data) if isinstance(data, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


MAX_OBJECTS = 10_000
"""Objects that are looked into, each as often as a way leads to it."""

Named = Callable[[object], str]
"""Maps a value that is no JSON to a name."""


def canonical(data: object, named: Named) -> str:
    """Data as JSON, in one order of its keys, with what dataclasses hold."""

    def told(value: object) -> str:
        if _has_fields(value):
            raise TypeError("what it holds is told as well")
        return named(value)

    try:
        return by_kinds(data, told)
    except TypeError:
        # objects with fields, or keys that have no order among them, or are no keys in JSON
        pass
    try:
        return json.dumps(_Teller(named).plain(data), ensure_ascii=False)
    except RecursionError:
        # objects that lead on and on: of what kind they are must do
        return by_kinds(data, named)


def by_kinds(data: object, named: Named) -> str:
    """The same where of any object nothing but its name is told."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, default=named)


class _Teller:
    """Makes plain values of objects with fields, and lists of pairs of mappings."""

    def __init__(self, named: Named) -> None:
        self._named = named
        self._above: set[int] = set()
        """Identities of the containers around the present value, to find cycles."""
        self._objects = 0
        self._depth = 0
        """Objects with fields among what we are in."""

    def plain(self, value: object) -> object:
        """A value as JSON has it; in an object, what leads back to itself is its name."""
        if value is None or isinstance(value, str | int | float):
            return value
        if not _holds(value):
            return self._named(value)
        if id(value) in self._above:
            if not self._depth:
                raise ValueError("Circular reference detected")
            return self._named(value)
        self._above.add(id(value))
        told = self._fields(value) if _has_fields(value) else self._items(value)
        self._above.discard(id(value))
        return told

    def _fields(self, value: object) -> list[object]:
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            raise RecursionError("too many ways lead through these objects")
        self._depth += 1
        # a field that is set later may not be there yet
        names = [one.name for one in fields(value)]  # pyright: ignore[reportArgumentType] # it has fields
        held = [self.plain(getattr(value, name, None)) for name in names]
        self._depth -= 1
        return [self._named(value), *held]

    def _items(self, value: object) -> list[object]:
        if not isinstance(value, Mapping):
            return [self.plain(one) for one in cast("Sequence[object]", value)]
        items = cast("Mapping[object, object]", value).items()
        pairs = sorted(((self._key(key), one) for key, one in items), key=itemgetter(0))
        return [(key, self.plain(one)) for key, one in pairs]

    def _key(self, key: object) -> str:
        told = repr(key)
        # an address is another one in every process
        return self._named(key) if " at 0x" in told else told


def _has_fields(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _holds(value: object) -> bool:
    return _has_fields(value) or isinstance(value, Mapping | list | tuple)
