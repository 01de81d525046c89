"""Answers one case with the candidate's prompt: python run.py CASE OUTPUT."""

import json
import sys
from pathlib import Path


def answer(prompt: str, message: str) -> str:
    """Stands in for your model: takes the first label that the prompt lists a word of.

    Put a call to your model here; the rest may stay.
    """
    for line in prompt.splitlines():
        label, _, words = line.removeprefix("- ").partition(":")
        if line.startswith("- ") and any(word.strip() in message for word in words.split(",")):
            return label
    return "none"


def main() -> None:
    """From the case to a file that the scorer reads."""
    case, output = sys.argv[1:]
    message = json.loads(Path(case).read_bytes())["message"].lower()
    prompt = Path("prompt.md").read_text(encoding="utf-8")
    Path(output, "answer.txt").write_text(answer(prompt, message), encoding="utf-8")


main()
