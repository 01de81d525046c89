"""The page for those who come from AWP: every test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "awp.md"
NAMED = re.compile(r"^\| (?:(\d+) \| )?.*\| `(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def test_every_test_that_the_page_names_exists():
    rows = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == PAGE.read_text(encoding="utf-8").count("`tests/")
    assert {int(number) for number, *_ in rows if number} >= {*range(1, 11)}
    for _, file, name in rows:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)
