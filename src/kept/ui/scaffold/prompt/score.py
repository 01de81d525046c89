"""Compares an answer with what was expected: python score.py CASE OUTPUT."""

import json
import sys
from pathlib import Path


def main() -> None:
    """Print one JSON object: the metrics, and what a proposer should know."""
    case, output = sys.argv[1:]
    expected = json.loads(Path(case).read_bytes())["label"]
    given = Path(output, "answer.txt").read_text(encoding="utf-8")
    score = {
        "right": given == expected,
        "words": len(Path("prompt.md").read_text(encoding="utf-8").split()),
        "findings": [] if given == expected else [f"`{given}`, where `{expected}` was right"],
    }
    sys.stdout.write(json.dumps(score) + "\n")


main()
