"""Splits that are disjoint and stable, and near-copies across them that are found."""

import time
from collections import Counter
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kept.core.case import (
    SPLITS,
    Case,
    Cases,
    case_text,
    find_overlaps,
    implicit_cases,
    split_cases,
    stratum,
)

SENTENCE = "the quick brown fox jumps over a lazy dog while nobody looks"


def numbered(count: int) -> list[Case]:
    return [Case(f"{n:04}", f"case number {n}") for n in range(count)]


def sizes(cases: Cases) -> tuple[int, int, int]:
    return len(cases.train), len(cases.holdout), len(cases.test)


def overlaps(train: list[object], holdout: list[object]) -> list[float]:
    cases = Cases(
        train=tuple(Case(f"t{n}", data) for n, data in enumerate(train)),
        holdout=tuple(Case(f"h{n}", data) for n, data in enumerate(holdout)),
    )
    return [overlap.likeness for overlap in find_overlaps(cases)]


@pytest.mark.parametrize(
    ("count", "ratio", "expected"),
    [
        (10, (3, 5, 2), (3, 5, 2)),
        (100, (3, 5, 2), (30, 50, 20)),
        (10, (2, 1, 7), (2, 1, 7)),
        (11, (3, 5, 2), (3, 6, 2)),
        (7, (1, 1, 1), (3, 2, 2)),
        (10, (1, 0, 0), (10, 0, 0)),
        (10, (1, 1, 0), (5, 5, 0)),
        (3, (3, 5, 2), (1, 1, 1)),
        (1, (3, 5, 2), (0, 1, 0)),
        (0, (3, 5, 2), (0, 0, 0)),
        (4, (100, 1, 1), (2, 1, 1)),
    ],
)
def test_the_ratio_says_how_many_cases_each_split_gets(
    count: int, ratio: tuple[int, ...], expected: tuple[int, ...]
):
    assert sizes(split_cases(numbered(count), ratio)) == expected


@pytest.mark.parametrize("ratio", [(), (1, 1), (1, 1, 1, 1), (0, 0, 0), (1, -1, 1)])
def test_a_ratio_that_is_none_is_refused(ratio: tuple[int, ...]):
    with pytest.raises(ValueError, match="train:holdout:test"):
        split_cases(numbered(3), ratio)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.integers(0, 40),
    st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)),
    st.integers(0, 9),
)
def test_every_case_belongs_to_exactly_one_split(count: int, ratio: tuple[int, ...], seed: int):
    cases = numbered(count)
    split = split_cases(cases, ratio, seed)
    ids = Counter(case.id for part in (split.train, split.holdout, split.test) for case in part)
    assert ids == Counter(case.id for case in cases)
    wanted = sum(part > 0 for part in ratio)
    if count >= 2 * wanted:
        assert all(bool(size) == bool(part) for size, part in zip(sizes(split), ratio, strict=True))


def test_a_split_depends_on_the_seed_and_on_nothing_else():
    cases = numbered(60)
    first = split_cases(cases, (3, 5, 2), seed=1)
    assert split_cases(cases, (3, 5, 2), seed=1) == first
    backwards = split_cases(cases[::-1], (3, 5, 2), seed=1)
    assert {case.id for case in backwards.train} == {case.id for case in first.train}
    assert split_cases(cases, (3, 5, 2), seed=2).train != first.train


def test_a_split_keeps_the_order_of_the_file():
    split = split_cases(numbered(50), (3, 5, 2))
    for part in (split.train, split.holdout, split.test):
        assert list(part) == sorted(part, key=lambda case: case.id)


def test_a_case_added_at_the_end_moves_few_others():
    before = split_cases(numbered(100), (3, 5, 2))
    after = split_cases(numbered(101), (3, 5, 2))
    home = {case.id: name for name in ("train", "holdout", "test") for case in before.of(name)}
    moved = [
        case.id
        for name in ("train", "holdout", "test")
        for case in after.of(name)
        if home.get(case.id, name) != name
    ]
    assert len(moved) <= 2


def test_the_same_text_in_two_splits_is_found():
    assert overlaps([SENTENCE], [SENTENCE, "something else entirely"]) == [1.0]
    assert overlaps([{"q": SENTENCE, "a": 1}], [{"a": 1, "q": SENTENCE}]) == [1.0]
    assert overlaps(["yes"], ["yes"]) == [1.0]
    assert overlaps([""], [""]) == [1.0]


def test_a_near_copy_in_another_split_is_found():
    assert overlaps([SENTENCE], [SENTENCE.upper() + "!"]) == [1.0]
    longer = " ".join(f"word{n}" for n in range(60))
    assert 0.8 <= overlaps([longer], [longer.replace("word30", "other")])[0] < 1.0


def test_what_is_not_alike_is_not_found():
    assert overlaps(["what is two and two"], ["who wrote this book"]) == []
    assert overlaps(["2 + 2"], ["2 - 2"]) == []
    assert overlaps([{"q": "2+2"}], [{"q": "2*2"}]) == []
    assert overlaps(["😀"], ["🙁"]) == []
    assert overlaps(["yes"], ["no"]) == []


def test_copies_within_one_split_are_no_overlap():
    assert overlaps(["same words here", "same words here"], ["other"]) == []


def test_a_text_that_stands_very_often_is_still_found():
    same = "the very same words"
    assert overlaps([same] * 100, [same] * 100) == [1.0] * 100


def test_of_values_that_are_no_json_nobody_says_that_they_are_alike():
    assert overlaps([object()], [object()]) == []
    assert overlaps([{"tags": {1}}], [{"tags": {2}}]) == []
    (likeness,) = overlaps([{"q": SENTENCE * 3, "tags": {1}}], [{"q": SENTENCE * 3, "tags": {1}}])
    assert likeness > 0.8, "what can be read of them tells"


def test_an_overlap_names_both_cases_and_their_splits():
    cases = Cases(train=(Case("a", "x y z"),), test=(Case("b", "x y z"),))
    (found,) = find_overlaps(cases)
    assert found == ("a", "train", "b", "test", 1.0)


def test_the_one_implicit_case_does_not_overlap_with_itself():
    assert implicit_cases().implicit
    assert find_overlaps(implicit_cases()) == []


def templated(count: int) -> list[Case]:
    templates = [" ".join(f"word{n}of{t}" for n in range(30)) for t in range(10)]
    return [Case(str(n), f"{templates[n % 10]} number {n}") for n in range(count)]


@pytest.mark.parametrize("made", [numbered, templated])
def test_thousands_of_cases_are_compared_quickly(made: Callable[[int], list[Case]]):
    split = split_cases(made(5000), (3, 5, 2))
    started = time.process_time()
    found = find_overlaps(split)
    assert time.process_time() - started < 10
    # what all cases have in common does not make them copies of one another
    assert found == []


def test_a_copy_is_found_among_thousands_with_the_same_boilerplate():
    boilerplate = "answer the following question"
    texts = [f"{boilerplate} item {n} lot {n * 7} part {n * 13}" for n in range(1000)]
    cases = Cases(
        train=tuple(Case(f"t{n}", text) for n, text in enumerate(texts[:500])),
        holdout=tuple(Case(f"h{n}", text) for n, text in enumerate([*texts[500:], texts[7]])),
    )
    assert [(o.first, o.second) for o in find_overlaps(cases)] == [("t7", "h500")]


def test_the_fingerprint_changes_with_ids_contents_and_splits():
    made = [
        Cases(train=(Case("a", 1),), holdout=(Case("b", 2),)),
        Cases(train=(Case("b", 2),), holdout=(Case("a", 1),)),
        Cases(train=(Case("a", 2),), holdout=(Case("b", 2),)),
        Cases(train=(Case("c", 1),), holdout=(Case("b", 2),)),
        Cases(train=(Case("a", 1),), test=(Case("b", 2),)),
        Cases(train=(Case("a", 1), Case("b", 2))),
        Cases(train=(Case("a", "half \ud83d"),)),
    ]
    for one, two in combinations(made, 2):
        assert one.fingerprint() != two.fingerprint()
    assert made[0].fingerprint() == Cases((Case("a", 1),), (Case("b", 2),)).fingerprint()


def test_the_text_of_a_case_does_not_depend_on_the_order_of_its_keys():
    assert case_text(Case("a", {"x": 1, "y": "ü"})) == case_text(Case("a", {"y": "ü", "x": 1}))
    assert case_text(Case("a", "as it is")) == "as it is"


def mixed_cases(**counts: int) -> list[Case]:
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    return [Case(f"c{n}", {"kind": kind, "n": n}) for n, kind in enumerate(kinds)]


@pytest.mark.parametrize("seed", range(5))
def test_a_stratified_split_shares_out_every_value_alike(seed: int):
    cases = mixed_cases(easy=60, hard=30, rare=10)
    found = split_cases(cases, (3, 5, 2), seed, strata="kind")
    assert [len(found.of(split)) for split in SPLITS] == [30, 50, 20]
    for kind, count in {"easy": 60, "hard": 30, "rare": 10}.items():
        for split, share in zip(SPLITS, (0.3, 0.5, 0.2), strict=True):
            mine = sum(stratum(case, "kind") == f'"{kind}"' for case in found.of(split))
            assert abs(mine - count * share) <= 1


def test_a_stratified_split_still_depends_on_the_seed_and_holds_every_case_once():
    cases = mixed_cases(a=20, b=20)
    one, two = (split_cases(cases, (1, 1, 1), seed, strata="kind") for seed in (1, 2))
    assert one != two
    assert {*one.by_id} == {case.id for case in cases}
    assert sum(len(one.of(split)) for split in SPLITS) == len(cases)


def test_cases_without_the_field_are_a_stratum_of_their_own():
    cases = [*mixed_cases(a=10), *(Case(f"x{n}", "a text") for n in range(10))]
    found = split_cases(cases, (0, 1, 1), strata="kind")
    assert sum(case.id.startswith("x") for case in found.holdout) == 5
