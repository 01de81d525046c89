"""No reply and no log holds up the run that reads it; each text took minutes or hours once."""

import signal
from collections.abc import Callable

import pytest

from kept.evaluators.environments.answers import chosen, labelled
from kept.evaluators.environments.babyvision import boxed_answer
from kept.evaluators.environments.livemathematicianbench import boxed_label
from kept.evaluators.environments.mmrb import answer_of
from kept.evaluators.environments.swebench.logs import PARSERS

SECONDS = 20.0
"""What is linear takes hundredths of a second."""

TEXTS: list[tuple[str, Callable[[str], object], str]] = [
    (
        "a choice",
        lambda text: chosen(text, labelled(["x", "y"])),
        "answer" + "\n" * 20_000 + "x\ny",
    ),
    ("marks of a box", boxed_answer, "<|begin_of_box|>" * 40_000),
    ("a box with a letter", boxed_label, "\\boxed{" + "\t" * 100_000),
    ("an answer behind words", answer_of, "the answer is" + "\t" * 100_000 + "\n"),
    (
        "a log of Django",
        PARSERS["django"],
        "a ... Testing against Django installed in " * 10_000,
    ),
    ("a line in a log of SymPy", PARSERS["sympy"], "_" * 200_000),
    ("files in a log of SymPy", PARSERS["sympy"], "_ a.py:" * 30_000 + " _"),
]


@pytest.mark.parametrize(("read", "text"), [one[1:] for one in TEXTS], ids=[t[0] for t in TEXTS])
def test_a_hostile_text_is_read_in_time(read: Callable[[str], object], text: str):
    def raised(number: int, frame: object) -> None:
        raise TimeoutError(f"more than {SECONDS:g} s")

    before = signal.signal(signal.SIGVTALRM, raised)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        read(text)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
