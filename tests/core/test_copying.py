"""Text of the cases that finds its way into a candidate, and text that only looks like it."""

import json
import random
import time

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases, implicit_cases, split_cases
from kept.core.guards import CopyGuard, copy_guard

QUESTION = "Which of the two warehouses in Leeds shipped the broken kettle in March?"
ANSWER = "The northern warehouse shipped it on the ninth of March by night courier."
SEED = Candidate({"prompt.md": "Answer the question.\n"})


def cases(*, train: object = "t", holdout: object = "h", test: object = "e") -> Cases:
    return Cases((Case("t-1", train),), (Case("h-1", holdout),), (Case("e-1", test),))


def told(guard: CopyGuard, text: str, incumbent: Candidate = SEED) -> str | None:
    return guard.check(SEED, incumbent, Candidate({"prompt.md": text}))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"Answer the question.\n{ANSWER}\n", 2),
        (f"Answer.\n\n{ANSWER.upper()}", 3),
        ("the northern warehouse, shipped: it *on* the ninth -- of March", 1),
        (f"Q: {QUESTION[9:60]}", 1),
    ],
)
def test_the_gold_answer_of_a_holdout_case_is_refused_and_not_quoted(text: str, line: int):
    guard = copy_guard(cases(holdout={"question": QUESTION, "gold": [{"text": ANSWER}]}))
    reason = told(guard, text)
    assert reason == f"prompt.md:{line} holds text of the holdout case `h-1`"


@pytest.mark.parametrize(
    "text",
    [
        ANSWER.replace("o", "o\u200b"),
        ANSWER.replace("e", "e\u00ad"),
        ANSWER.replace("a", "a\u0301"),
        ANSWER.replace(" ", "_"),
        "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isalpha() else c for c in ANSWER),
    ],
    ids=["zero width", "soft hyphens", "accents", "underscores", "full width"],
)
def test_a_copy_in_disguise_is_a_copy(text: str):
    guard = copy_guard(cases(holdout=ANSWER))
    assert told(guard, f"Answer.\n{text}") == "prompt.md:2 holds text of the holdout case `h-1`"


def test_text_of_the_sealed_test_cases_is_refused():
    guard = copy_guard(cases(test=ANSWER))
    assert told(guard, ANSWER) == "prompt.md:1 holds text of the test case `e-1`"


def test_train_text_is_refused_unless_allowed():
    strict, free = (copy_guard(cases(train=ANSWER), allow_train=on) for on in (False, True))
    assert told(strict, ANSWER) == "prompt.md:1 holds text of the train case `t-1`"
    assert told(free, ANSWER) is None


def test_a_short_answer_is_no_proof_and_a_longer_one_is_taken_as_a_whole():
    guard = copy_guard(cases(holdout={"a": "Paris", "b": "Erzsébetváros district, Budapest"}))
    assert told(guard, "Paris") is None
    assert told(guard, "Budapest has a district.") is None
    assert told(guard, "say Erzsébetváros district, Budapest") is not None


def test_a_key_of_one_word_is_known_again():
    guard = copy_guard(cases(holdout={"token": "9f86d081884c7d659a2feaa0c55ad015"}))
    assert told(guard, "use 9f86d081884c7d659a2feaa0c55ad015") is not None
    assert told(guard, "use 9f86d081884c7d65") is None


def test_seven_words_in_a_row_may_be_an_accident():
    guard = copy_guard(cases(holdout=ANSWER))
    words = ANSWER.split()
    assert told(guard, " ".join(words[:7])) is None
    assert told(guard, " ".join(words[:8])) is not None


def test_what_the_seed_or_the_incumbent_has_is_not_copied():
    guard = copy_guard(cases(holdout=ANSWER))
    incumbent = Candidate({"prompt.md": f"Few words. {ANSWER}"})
    assert told(guard, f"Fewer. {ANSWER}", incumbent) is None
    assert guard.check(incumbent, SEED, incumbent) is None


def test_what_train_cases_hold_too_is_not_from_the_holdout():
    guard = copy_guard(cases(train=ANSWER, holdout=f"Note: {ANSWER}"), allow_train=True)
    assert told(guard, ANSWER) is None


def test_pieces_of_train_text_may_meet_as_they_do_in_a_holdout_case():
    one, two = "alpha beta gamma delta epsilon zeta", "eta theta iota kappa lambda mu"
    both = Cases((Case("t-1", one), Case("t-2", two)), (Case("h-1", f"{one} {two}"),))
    assert told(copy_guard(both, allow_train=True), f"{one} {two}") is None


def test_what_many_cases_say_is_boilerplate():
    many = tuple(Case(str(n), f"{ANSWER} Case {n}.") for n in range(30))
    assert told(copy_guard(Cases((), many)), ANSWER) is None
    few = tuple(Case(str(n), ANSWER if n < 5 else f"{n}") for n in range(30))
    assert told(copy_guard(Cases((), few)), ANSWER) is not None


def test_a_row_of_equal_words_is_nobodys():
    guard = copy_guard(cases(holdout="0 0 0 0 0 1 0 0 0 0 0 0"))
    assert told(guard, "0 " * 20) is None


def test_ids_and_keys_of_cases_are_no_text():
    data = {"id": ANSWER, ANSWER: 1, "n": 3}
    assert copy_guard(cases(holdout=data)).phrases == {}


def test_a_run_without_cases_has_nothing_to_copy():
    assert copy_guard(implicit_cases()).phrases == {}


def test_objects_of_the_python_api_are_left_alone():
    assert told(copy_guard(cases(holdout=object())), ANSWER) is None


@pytest.mark.slow
def test_of_very_much_text_long_copies_are_still_found():
    rng = random.Random(1)
    texts = [" ".join(f"w{rng.randrange(9**6)}" for _ in range(2000)) for _ in range(400)]
    guard = copy_guard(Cases((), tuple(Case(str(n), text) for n, text in enumerate(texts))))
    assert len(guard.phrases) < 400_000
    start = texts[7].index(" ", 5000)
    assert told(guard, texts[7][start : start + 200]) is not None


def test_a_check_against_a_thousand_cases_costs_little():
    rng = random.Random(1)
    vocabulary = [f"word{n}" for n in range(3000)]

    def text(size: int) -> str:
        return " ".join(rng.choices(vocabulary, k=size))

    many = tuple(Case(str(n), {"q": text(40), "a": text(5)}) for n in range(1000))
    guard = copy_guard(Cases(many[:300], many[300:800], many[800:]))
    candidate = Candidate({"prompt.md": text(400)})
    spent: list[float] = []
    for _ in range(20):
        began = time.process_time()
        assert guard.check(SEED, SEED, candidate) is None
        spent.append(time.process_time() - began)
    assert min(spent) < 0.004


@pytest.mark.parametrize("seed", range(4))
def test_a_dictionary_of_train_lines_is_not_taken_for_a_copy_of_other_lines(seed: int):
    # as in README.md: a proposer that puts ends of train lines one behind the other
    lines = [
        json.dumps({"service": "checkout", "order": n * 7919, "ms": n % 977}) for n in range(60)
    ]
    logs = split_cases([Case(f"{n:04}", line) for n, line in enumerate(lines)], (3, 5, 2), seed)
    guard = copy_guard(logs, allow_train=True)
    draw = random.Random(seed)
    text = " "
    for _ in range(40):
        line = str(draw.choice(logs.train).data)
        grown = text + line[draw.randrange(len(line)) :]
        candidate, incumbent = Candidate({"text": grown}), Candidate({"text": text})
        assert guard.check(Candidate({"text": " "}), incumbent, candidate) is None
        text = grown
    for case in (*logs.holdout, *logs.test):
        candidate = Candidate({"text": text + str(case.data)})
        reason = guard.check(Candidate({"text": " "}), Candidate({"text": text}), candidate)
        assert reason is not None
        assert f"`{case.id}`" in reason
