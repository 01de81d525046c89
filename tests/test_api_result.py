"""What `kept.optimize` says of a run when it is over: its claim, and what its figures hide."""

import random
from pathlib import Path
from typing import cast

import kept

WORDS = ["kind", "brief", "cite", "steps", "limits", "json", "quote", "date", "tone", "title"]


def has_word(candidate: kept.Candidate, case: dict[str, str]) -> float:
    return float(case["wish"] in candidate.text.split())


def add_word(brief: kept.Brief) -> str:
    case = cast("dict[str, str]", random.Random(brief.seed).choice(brief.train).data)
    return f"{brief.incumbent.text} {case['wish']}"


def numbered(brief: kept.Brief) -> str:
    return str(brief.step)


def wishes(count: int) -> list[dict[str, str]]:
    return [{"id": f"case-{n}", "from": f"guest {n}", "wish": WORDS[n % 10]} for n in range(count)]


def test_the_claim_is_there_with_its_ends_and_is_printed(tmp_path: Path):
    found = kept.optimize(
        "a reply",
        has_word,
        wishes(60),
        proposers=[add_word],
        bounds=(0, 1),
        budget=8,
        home=tmp_path,
    )
    assert found.claim is not None and found.claim.low is not None and found.claim.high is not None
    assert found.seed_value is not None and found.best_value is not None
    assert abs(found.claim.gain - (found.best_value - found.seed_value)) < 1e-9
    assert 0 < found.claim.low < found.claim.gain < found.claim.high <= 1
    assert f"\nclaim on 12 cases that nothing was tuned on: {found.claim.gain:+.3f} (" in str(found)
    assert found.warnings == ()


def test_without_a_race_there_is_no_claim_and_a_warning_that_gains_may_be_noise(tmp_path: Path):
    chance = random.Random(1)

    def noise(candidate: kept.Candidate, case: object) -> float:
        return chance.random()

    found = kept.optimize("a", noise, range(14), proposers=[numbered], home=tmp_path)
    assert found.improved and found.claim is None
    (words,) = found.warnings
    assert words.startswith("no race was held (") and words.endswith("may be noise")
    again = kept.optimize("a", noise, range(14), proposers=[numbered], gate="strict", home=tmp_path)
    assert again.warnings == (), "who asked for it knows"


def test_copies_of_a_case_in_two_splits_are_told_also_where_each_has_an_id(tmp_path: Path):
    cases = [{"id": f"c{n}", "wish": WORDS[n % 10]} for n in range(60)]
    found = kept.optimize("a reply", has_word, cases, proposers=[add_word], home=tmp_path)
    told = [words for words in found.warnings if "are the same across splits" in words]
    assert len(told) == 1 and told[0].endswith("what is kept may only fit those")


def test_candidates_that_all_fail_are_told_with_the_reason(tmp_path: Path):
    def broken(candidate: kept.Candidate, case: object) -> float:
        if candidate.text != "a":
            raise ValueError("no such template")
        return 0.5

    found = kept.optimize(
        "a", broken, range(40), proposers=["b", "c", "d"], bounds=(0, 1), home=tmp_path
    )
    (words,) = found.warnings
    assert words.startswith("every candidate failed, the first so: ")
    assert "no such template" in words


def test_a_budget_too_small_for_anything_is_said_to_be(tmp_path: Path):
    found = kept.optimize(
        "a",
        has_word,
        wishes(60),
        proposers=["b"],
        budget=kept.Budget(max_rollouts=5),
        home=tmp_path,
    )
    assert str(found).startswith("nothing was judged (")
    assert "do not fit: 5 of 5 are left" in str(found)


class Undecided:
    """An array, say: it has no truth of its own."""

    def __bool__(self) -> bool:
        raise ValueError("the truth of this is ambiguous")


def test_cases_that_refuse_to_be_true_or_false_are_cases(tmp_path: Path):
    def size(candidate: kept.Candidate, case: object) -> float:
        return float(len(candidate.text))

    cases = [Undecided() for _ in range(20)]
    found = kept.optimize("a", size, cases, proposers=["bb"], home=tmp_path)
    assert found.improved
