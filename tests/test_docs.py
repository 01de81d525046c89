"""Every code block of README.md and docs/ does what the page says, except the decision records."""

from pathlib import Path

import pytest

from tests import warm
from tests.conftest import peer_folder
from tests.docs_pages import DocsError, Scratch, matches, read_blocks, read_commands

ROOT = Path(__file__).parent.parent
# What a page may show without running it, with the test that runs it instead.
COVERED_ELSEWHERE = {
    "./scripts/test": "this very run",
    "./scripts/demo": "tests/test_wheel.py runs the demo",
    "kept view": "tests/web runs it",
    "pip install ./kept-words": "tests/test_extending.py installs it",
    "python -m pytest -q kept-words": "tests/test_extending.py runs it",
    "kept optimize task -q": "tests/test_extending.py runs it",
    "kept models pull": "scripts/test fetches the weights so, for tests/models",
}
MAX_NOT_RUN = 5
NEEDING = {
    "docs/guide/agent-tests.md": pytest.mark.model,
    "docs/guide/from-dspy.md": pytest.mark.dspy,
    "docs/guide/from-inspect.md": pytest.mark.inspect,
    "docs/reference/environments.md": pytest.mark.sandbox,
}

pytestmark = pytest.mark.docs


def pages() -> list[str]:
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return [name for name in names if not name.startswith("docs/decisions/")]


def marked_pages() -> list[object]:
    """Each page, with the mark of what it needs besides."""
    return [pytest.param(page, marks=NEEDING.get(page, ())) for page in pages()]


@pytest.mark.parametrize("page", marked_pages())
def test_every_block_of_the_page_does_what_it_says(
    tmp_path: Path, page: str, request: pytest.FixtureRequest
):
    needed = NEEDING[page].name if page in NEEDING else ""
    needed = "" if needed == "sandbox" else needed  # no folder of its own
    weights = request.getfixturevalue("smollm2") if needed == "model" else None
    packages = peer_folder(needed) if needed and weights is None else None
    if needed and not (weights or packages):
        pytest.skip(f"{needed} is not here: `./scripts/test` fetches it")
    scratch = Scratch(tmp_path, ROOT / "examples", packages, weights)
    if page != "README.md" and packages is None:
        warm.put_command(scratch.bin)
    scratch.run_page(page, (ROOT / page).read_text(encoding="utf-8"))


def test_few_blocks_are_left_out_and_each_runs_elsewhere():
    left_out = [
        block
        for page in pages()
        for block in read_blocks(page, (ROOT / page).read_text(encoding="utf-8"))
        if block.note is not None and block.note.kind == "not run"
    ]
    for block in left_out:
        for line, _ in read_commands(block.text):
            covered = any(line.startswith(known) for known in COVERED_ELSEWHERE)
            assert covered, f"{block.place}: `{line}` must be run"
    assert len(left_out) <= MAX_NOT_RUN


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n1 / 0\n```", "ZeroDivisionError"),
        ("```python\nimport sys\nsys.exit(3)\n```", "exit 3, not 0"),
        ("```bash\n$ false\n```", "exit 1, not 0"),
        ("```bash\nfalse\ntrue\n```", "exit 1, not 0"),
        ("<!-- exit: 2 -->\n```bash\n$ true\n```", "exit 0, not 2"),
        ("```console\n$ echo one\ntwo\n```", "printed something else"),
        ("```console\n$ printf 'one\\ntwo\\n'\none\n```", "printed something else"),
        ("```yaml\na: [1\n```", "expected"),
        ("```json\n{\n```", "Expecting"),
        ("```\nkept demo\n```", "language ``"),
        ("```pyhton\n1\n```", "language `pyhton`"),
        ("```bash\n$ true", "the block never ends"),
        ("<!-- not run: -->\n```bash\n$ true\n```", "without a reason"),
        ("<!-- not run -->\n```bash\n$ true\n```", "without a reason"),
        ("<!-- file: ../up.txt -->\n```text\nx\n```", "outside the scratch folder"),
    ],
)
def test_a_page_that_lies_is_caught(tmp_path: Path, text: str, problem: str):
    with pytest.raises(DocsError) as caught:
        Scratch(tmp_path).run_page("page.md", f"# A page\n\n{text}\n")
    assert str(caught.value).startswith("page.md:")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint('hello')\n```",
        "```console\n$ echo one\none\n$ echo two\ntwo\n```",
        "```console\n$ echo one \\\n>   two\none two\n```",
        "<!-- exit: 3 -->\n```console\n$ echo no >&2; exit 3\nno\n```",
        "<!-- file: a/b.py -->\n```python\nN = 7\n```\n\n```bash\n$ cd a\n```\n\n"
        "```python\nfrom b import N\nassert N == 7\n```",
        "```yaml\na: 1\n---\nb: 2\n```",
        "<!-- not run: the tests run it -->\n```bash\n$ ./scripts/test\n```",
        "* a list\n\n  ```console\n  $ echo in it\n  in it\n  ```",
        "````markdown\n```bash\n$ false\n```\n````",
        '```console\n$ test "$HOME" != /root && kept_is=$(command -v python) && echo ok\nok\n```',
    ],
)
def test_a_page_that_tells_the_truth_passes(tmp_path: Path, text: str):
    Scratch(tmp_path).run_page("page.md", f"# A page\n\n{text}\n")


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("done in 0.2 s", "done in 11.74 s"),
        ("done in 4s", "done in 1m 03s"),
        ("run 20260101-120000-deadbeef", "run 20261115-203311-0a1b2c3d"),
        ("at 2026-01-01 10:00", "at 2026-11-15 20:33"),
        ("see /tmp/x/report.md", "see /tmp/pytest-of-root/pytest-3/work/report.md"),
        ("a   1 s  b", "a  10 s  b"),
        ("one\n...\nfour", "one\ntwo\nthree\nfour"),
        ("one\n...\nfour", "one\nfour"),
        ("kept ... of 9", "kept 3 of 9"),
        ("───── x", "─── x"),
    ],
)
def test_output_may_differ_where_it_always_does(expected: str, actual: str):
    assert matches(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("loss 0.25", "loss 0.5"),
        ("one\nthree", "one\ntwo\nthree"),
        ("kept ... of 9", "kept 3\nof 9"),
        ("3 steps", "4 steps"),
        ("a...b", "a b c"),
    ],
)
def test_output_may_not_differ_elsewhere(expected: str, actual: str):
    assert not matches(expected, actual)
