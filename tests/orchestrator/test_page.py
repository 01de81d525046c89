"""The page of what holds in an agent run: all tests that it names are there."""

import re
from pathlib import Path

from kept.orchestrator.budget import REASONS
from kept.orchestrator.checks.chain import chain

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "agent-run.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def test_every_test_that_the_page_names_exists() -> None:
    rows = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 40
    for file, name in rows:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


def test_every_row_of_the_page_names_a_test() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.endswith("| test |")]
    assert [row for row in rows if not NAMED.search(row)] == []


def test_the_page_has_every_rule_axis_status_and_check() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rules = set(re.findall(r"^\| (R\d\d) \|", text, re.MULTILINE))
    assert rules == {"R17", "R31", "R33", "R34", "R35"}
    numbers = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)]
    for reason in (*REASONS.values(), "partial", "failed", "aborted"):
        assert f"`{reason}`" in text, reason
    assert ", ".join(check.name for check in chain()) in text


def test_every_named_test_of_a_rule_is_on_the_page_or_beside_one_that_is() -> None:
    """A rule whose tests lie in a file that the page does not name would go unread."""
    named = {file for file, _ in NAMED.findall(PAGE.read_text(encoding="utf-8"))}
    for path in sorted((ROOT / "tests" / "agents").rglob("test_*.py")):
        if re.search(r"^def test_r(17|31|33|34|35)_", path.read_text(), re.MULTILINE):
            assert str(path.relative_to(ROOT)) in named, path
