"""Checks the filled prompt against the house rules for prompts, and prints one JSON object."""

import json
import os
import re
from pathlib import Path

RULES = {
    "holds the notes": r"payment provider is late",
    "says who reads the answer": r"\bfor (?:someone|people|a reader|colleagues)\b",
    "limits the length": r"\b(?:at most|no more than) \w+ (?:words|sentences|lines|points)\b",
    "asks for dates and names": r"(?s)\bdates?\b.*\bnames?\b|\bnames?\b.*\bdates?\b",
    "says what to do with gaps": r"\bnot (?:decided|discussed|stated)\b.*\bsay so\b",
}

prompt = Path(os.environ["KEPT_CANDIDATE"], "prompt.md").read_text(encoding="utf-8")
filled = Path(os.environ["KEPT_OUTPUT"], "filled.txt").read_text(encoding="utf-8")
broken = [rule for rule, pattern in RULES.items() if not re.search(pattern, filled)]
print(
    json.dumps(
        {
            "score": (len(RULES) - len(broken)) / len(RULES),
            "metrics": {"words": len(prompt.split())},
            "findings": [f"the prompt does not do this: it {rule}" for rule in broken],
        }
    )
)
