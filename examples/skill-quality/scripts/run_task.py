"""Loads SKILL.md as an agent would: python scripts/run_task.py OUTPUT."""

import json
import re
import sys
from pathlib import Path


def main() -> None:
    """Leave the outline of the skill for the scorer; a skill that cannot be loaded is a crash."""
    text = Path("SKILL.md").read_text(encoding="utf-8")
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if match is None:
        sys.exit("SKILL.md has no front matter")
    fields = dict(line.split(": ", 1) for line in match[1].splitlines() if ": " in line)
    outline = {
        "fields": fields,
        "sections": re.findall(r"^## (.+)$", text, re.MULTILINE),
        "body": text[match.end() :],
    }
    Path(sys.argv[1], "outline.json").write_text(json.dumps(outline), encoding="utf-8")


main()
