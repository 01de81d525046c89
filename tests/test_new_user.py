"""What a new user sees on the first day: the play of `tests/new_user.py`, item by item."""

import re
from pathlib import Path

import pytest

from tests.new_user import ITEMS, play

pytestmark = [pytest.mark.nightly, pytest.mark.sandbox]

SEEN = {
    1: (
        r"0.25 → 1 on 12 test cases",
        r"the model was sent 'Sort the ticket\.'",
        r"two texts: the candidate has 2 texts \(system\.md, user\.md\): name one",
    ),
    2: (
        r"RunError: `evaluate` raised in every rollout of the seed",
        r"on the case `\d+`: TypeError: object of type 'Candidate' has no len\(\) \(raising.py:6\)",
    ),
    3: (
        r"sorter: 60 of 60 cases scored, mean score 0\.25\n(?s:.*)\(exit code 0\)",
        r"mean score 0\.25 is below --min-score 0\.8\n(?s:.*)\(exit code 1\)",
        r'tests="61" failures="1"',
        r"sorter: 15 of 60 cases pass, 45 fail",
        r"case +input +expected +got +score\n0000 +failed +#0 about billing.* billing +\w+ +0",
    ),
    4: (
        r"ticket: #\d+ about (\w+), .*\n(?:step .*\n)?expected: \1\ngot: (?!\1)\w+",
        r"ticket: #\d+ about (\w+), .*\n(?:step .*\n)?expected: icontains: \1\ngot: (?!\1)\w+",
    ),
    5: (
        r"proposals  19 and 1 merge: 1 kept, 16 discarded, 3 skipped; 1 turn proposed nothing",
        r"19 proposals and 1 merge: 1 kept, 16 discarded, 3 skipped; 1 turn proposed nothing",
        r"\nBetter on the 30 holdout cases, and by .* on 12 test cases that nothing was tuned on\.",
        r"`score` on the 30 holdout cases",
    ),
    6: (r"pip install (--\S+ \S+ )?'fastapi>=\S+' 'jinja2>=\S+' 'uvicorn>=\S+'",),
    7: (
        r"Sort the ticket\.\n\n<!-- demos:start -->\n<!-- demos:end -->\n\n\{\{ticket\}\}",
        r"the server was asked 8 times at once",
        r"scorer: \{type: python",
        r"had been made before: show the model more train cases",
        r"12 proposals and 1 merge, 1 kept",
    ),
    8: (
        r"spend      5 rollouts(?s:.*)spend      2 rollouts",
        r"score 0\.1 → 0\.3\n",
    ),
    9: (
        r"1 of 2 edits applied: `scripts/score\.py` is outside the artifacts; strictly better",
        r"`notes\.txt` is not of a type that `allowed_file_types` lists \(\.md\); strictly better",
        r"decide: keep: 1 of 2 edits applied",
    ),
    10: (
        r"proposers  reflect",
        r"proposers  rewrite",
        r"no item whose `kind` is `nothing`; there are `edit`",
        r"database=\{provider: in-memory\}'\n(?:(?!error)[^$])*\(exit code 0\)",
        r"tools\[0\]\.database: there is no vectorstore `postgres`",
    ),
}  # fmt: skip
UNSEEN = r"Traceback|Candidate\(texts|kept\[|passed|brief\.seed|outside scope"


@pytest.mark.parametrize("number", range(1, len(ITEMS) + 1))
def test_a_new_user_sees_what_the_docs_promise(number: int, tmp_path: Path):
    shown: list[str] = []
    play(number, tmp_path, shown.append)
    text = "\n".join(shown)
    for words in SEEN[number]:
        assert re.search(words, text), f"{words}\n\n{text}"
    assert not re.search(UNSEEN, text), text


def test_all_figures_of_a_headline_are_one_pair(tmp_path: Path):
    shown: list[str] = []
    play(5, tmp_path, shown.append)
    pairs = re.findall(r"score (\S+ → \S+)", "\n".join(shown))
    assert len(pairs) == 3, "terminal, report and list"
    assert len(set(pairs)) == 1


def test_the_stages_of_an_iteration_have_times_that_ascend(tmp_path: Path):
    shown: list[str] = []
    play(9, tmp_path, shown.append)
    times = [float(t) for t in re.findall(r"(?m)^(\d+\.\d+)  \w+: ", "\n".join(shown))]
    assert len(times) == 8
    assert times == sorted(times)
    assert times[-1] - times[0] > 0.1, "real times, not one time for all"
