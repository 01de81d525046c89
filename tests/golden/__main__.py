"""Writes the golden files anew: `python -m tests.golden [--check] [NAME...]`.

Prints how each file differs from what it was; with `--check` it writes nothing, and ends with 1 if
any differs.
"""

import sys

from tests.golden.compare import FOLDER, differences, make
from tests.golden.scenarios import SCENARIOS
from tests.golden.stage import frozen_kept


def main(words: list[str]) -> int:
    """Make the golden files of these scenarios, or of all."""
    is_check = "--check" in words
    names = [word for word in words if word != "--check"] or [*SCENARIOS]
    if unknown := [name for name in names if name not in SCENARIOS]:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")  # noqa: T201
        return 2
    changed = 0
    with frozen_kept() as kept:
        for name in names:
            for file, text in make(kept, name).items():
                found = differences(file, text)
                changed += bool(found)
                print("\n".join([f"{file}: {'differs' if found else 'same'}", *found]))  # noqa: T201
                if not is_check:
                    (FOLDER / file).write_text(text, encoding="utf-8")
    return int(is_check and changed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
