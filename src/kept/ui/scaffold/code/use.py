"""Uses the candidate: python use.py INPUTS prints a slug for each line."""

import sys
from pathlib import Path

from slug import slug  # pyright: ignore[reportMissingImports, reportUnknownVariableType] # beside this file

for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
    sys.stdout.write(f"{slug(line)}\n")
