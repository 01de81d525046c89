"""Compares a redacted message with what had to go and what had to stay."""

import json
import os
import re
import sys
from pathlib import Path


def leaks(text: str, secret: str) -> bool:
    """Whether a piece of a secret, three characters or more, is still there as a word."""
    pieces = re.findall(r"\w{3,}", secret)
    return any(re.search(rf"\b{re.escape(piece)}\b", text) for piece in pieces)


def main() -> None:
    """Print one JSON object: the share of all demands that are met, and what is not."""
    case = json.loads(Path(os.environ["KEPT_CASE"]).read_bytes())
    text = Path(os.environ["KEPT_OUTPUT"], "redacted.txt").read_text(encoding="utf-8")
    leaked = [secret for secret in case["private"] if leaks(text, secret)]
    lost = [word for word in case["keep"] if word not in text]
    demands = len(case["private"]) + len(case["keep"])
    findings = [f"still there: {secret}" for secret in leaked]
    findings += [f"taken out for nothing: {word}" for word in lost]
    score = {
        "score": (demands - len(findings)) / demands,
        "metrics": {"leaks": len(leaked), "over_redacted": len(lost)},
        "findings": findings,
    }
    sys.stdout.write(json.dumps(score) + "\n")


main()
