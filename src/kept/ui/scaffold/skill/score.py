"""Checks SKILL.md against rubric.md."""

import json
import re
import sys
from pathlib import Path

PRAISE = ("excellent", "perfect", "best skill")


def main() -> None:
    """Print one JSON object: the share of the rubric that is met, and what breaks it."""
    text = Path("SKILL.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (\w+)", text, re.MULTILINE)
    met = {
        "when": "When" in sections,
        "steps": len(re.findall(r"^\d+\. ", text, re.MULTILINE)) >= 3,
        "example": "Example" in sections,
    }
    praise = sum(word in text.lower() for word in PRAISE)
    score = {
        "score": sum(met.values()) / len(met),
        "metrics": {
            "violation_count": praise + len(sections) - len(set(sections)),
            "length_tokens": len(text.split()),
        },
        "findings": [f"the rubric's `{name}` is not met" for name, ok in met.items() if not ok],
    }
    sys.stdout.write(json.dumps(score) + "\n")


main()
