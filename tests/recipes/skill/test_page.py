"""The page for those who come from the original: each fault that it names has a test."""

import re
from pathlib import Path

from tests.docs_pages import check_named_tests

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "skillopt.md"
LIVE = {2, 3, 4, 9, 10, 12, 18, 19}
"""What was seen to happen in the original."""


def test_every_test_that_the_page_names_exists():
    assert check_named_tests(PAGE, ROOT) == {*range(1, 27)}
    live = re.findall(r"^\| (\d+) \| \*live\*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {int(number) for number in live} == LIVE
