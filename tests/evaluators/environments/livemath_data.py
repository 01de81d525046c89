"""Twelve multiple-choice questions of our own, in the format of LiveMathematicianBench."""

import json
from pathlib import Path
from typing import Any

MONTHS = ("202511", "202512", "202601")

# question, right choice, wrong choices, kind
QUESTIONS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    (
        "Let $G$ be a finite group of prime order $p$. Which statement holds?",
        "$G$ is cyclic.",
        ("$G$ is never abelian.", "$G$ has a subgroup of order $2$.", "$G$ has $p-1$ subgroups."),
        "Existence",
    ),
    (
        "A continuous function maps $[0,1]$ into itself. What follows?",
        "It has a fixed point.",
        ("It is a bijection.", "It has two fixed points.", "It is differentiable."),
        "Existence",
    ),
    (
        "Let $A$ be a real symmetric matrix. Which claim is true?",
        "All eigenvalues of $A$ are real.",
        (
            "$A$ is invertible.",
            "All eigenvalues of $A$ are positive.",
            "$A$ has distinct eigenvalues.",
        ),
        "Characterization",
    ),
    (
        "Which integers $n > 1$ make $\\mathbb{Z}/n$ a field?",
        "Exactly the primes.",
        ("Exactly the odd integers.", "All prime powers.", "All square-free integers."),
        "Characterization",
    ),
    (
        "A tree has $n \\ge 1$ vertices. How many edges has it?",
        "$n - 1$",
        ("$n$", "$n + 1$", "$\\lfloor n/2 \\rfloor$"),
        "Counting",
    ),
    (
        "Let $X$ be a compact metric space. Which property does it have?",
        "Every sequence has a convergent subsequence.",
        ("It is connected.", "It is countable.", "It has an isolated point."),
        "Characterization",
    ),
    (
        "How many subsets has a set of $n$ elements?",
        "$2^n$",
        ("$n^2$", "$n!$", "$2^n - 1$"),
        "Counting",
    ),
    (
        "A sequence of reals is monotone and bounded. What can be said?",
        "It converges.",
        ("It is constant in the end.", "It has no maximum.", "Its limit is rational."),
        "Existence",
    ),
    (
        "Which bound holds for the chromatic number of a planar graph?",
        "It is at most $4$.",
        ("It is at most $3$.", "It equals the maximum degree.", "It is at least $4$."),
        "Bound",
    ),
    (
        "Let $f$ be entire and bounded. What follows?",
        "$f$ is constant.",
        ("$f$ has a zero.", "$f$ is a polynomial of degree $1$.", "$f$ is injective."),
        "Rigidity",
    ),
    (
        "Which statement on the harmonic series is right?",
        "It diverges.",
        ("It converges to $\\pi^2/6$.", "It converges to $e$.", "Its terms are bounded below."),
        "Convergence",
    ),
    (
        "Let $V$ have dimension $n$. How many vectors has a basis?",
        "$n$",
        ("At least $n + 1$", "$n^2$", "Any number up to $n$"),
        "Counting",
    ),
)


def row(n: int) -> dict[str, Any]:
    """Question n as the published files have it: the right choice is not among the choices."""
    question, right, wrong, kind = QUESTIONS[n % len(QUESTIONS)]
    place = n % (len(wrong) + 1)
    texts = [*wrong[:place], right, *wrong[place:]]
    labelled = [{"label": "ABCDEFG"[k], "text": text} for k, text in enumerate(texts)]
    again = n // len(QUESTIONS)
    if again:
        question = f"{question} (Form {again + 1}.)"
    return {
        "month": MONTHS[n % len(MONTHS)],
        "no": n,
        "paper_link": f"http://arxiv.org/abs/0000.{n:05}v1",
        "theorem": f"Theorem {n}.",
        "sketch": f"Sketch {n}.",
        "theorem_type": [kind],
        "mcq": {
            "question": question,
            "choices": [one for k, one in enumerate(labelled) if k != place],
            "correct_choice": labelled[place],
        },
    }


def right_text(text: str) -> str:
    """The right choice for the question that a prompt holds."""
    return next(right for question, right, _, _ in QUESTIONS if question in text)


def write_months(folder: Path, size: int = 12) -> Path:
    """Monthly files as they are published."""
    for month in MONTHS:
        rows = [row(n) for n in range(size) if row(n)["month"] == month]
        place = folder / "data" / "LiveMathematicianBench" / "data" / month
        place.mkdir(parents=True, exist_ok=True)
        (place / f"qa_{month}_final.json").write_text(json.dumps(rows, indent=1))
    return folder / "data" / "LiveMathematicianBench"
