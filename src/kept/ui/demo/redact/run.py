"""Redacts the message of one case by the candidate's rules."""

import json
import os
import re
import sys
from pathlib import Path


def read_rules(path: Path) -> list[tuple[str, re.Pattern[str]]]:
    """Label and pattern of every line that is not a comment."""
    rules: list[tuple[str, re.Pattern[str]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        label, _, pattern = line.partition(" ")
        try:
            rules.append((label, re.compile(pattern)))
        except re.error as error:
            sys.exit(f"{path.name}:{number}: not a pattern: {error}")
    return rules


def main() -> None:
    """From $KEPT_CANDIDATE and $KEPT_CASE to $KEPT_OUTPUT."""
    rules = read_rules(Path(os.environ["KEPT_CANDIDATE"], "redact.txt"))
    text = json.loads(Path(os.environ["KEPT_CASE"]).read_bytes())["message"]
    for label, pattern in rules:
        text = pattern.sub(f"[{label}]", text)
    Path(os.environ["KEPT_OUTPUT"], "redacted.txt").write_text(text, encoding="utf-8")


main()
