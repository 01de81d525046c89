"""The split of SWE-bench, by hand and on the sizes of the published Lite set."""

from collections import Counter

import pytest

from kept.core.case import Case
from kept.evaluators.environments.swebench.testbed import split_by_repo

LITE = {
    "astropy/astropy": 6,
    "django/django": 114,
    "matplotlib/matplotlib": 23,
    "mwaskom/seaborn": 4,
    "pallets/flask": 3,
    "psf/requests": 6,
    "pydata/xarray": 5,
    "pylint-dev/pylint": 6,
    "pytest-dev/pytest": 17,
    "scikit-learn/scikit-learn": 23,
    "sphinx-doc/sphinx": 16,
    "sympy/sympy": 77,
}


def cases(**sizes: int) -> list[Case]:
    return [
        Case(f"{repo}-{n}", {"repo": repo}) for repo, size in sizes.items() for n in range(size)
    ]


def test_lite_is_shared_out_as_published():
    made = [Case(f"{repo}-{n}", {"repo": repo}) for repo, k in LITE.items() for n in range(k)]
    split = split_by_repo(made, (2, 1, 7), 42)
    assert (len(split.train), len(split.holdout), len(split.test)) == (60, 33, 207)
    for part in (split.train, split.holdout, split.test):
        assert len({case.id.rpartition("-")[0] for case in part}) == len(LITE)
    assert split == split_by_repo(made[::-1], (2, 1, 7), 42), "whatever order they are read in"
    assert split != split_by_repo(made, (2, 1, 7), 43)


@pytest.mark.parametrize(
    ("size", "ratio", "parts"),
    [
        (1, (2, 1, 7), (0, 0, 1)),
        (2, (2, 1, 7), (1, 0, 1)),
        (3, (2, 1, 7), (1, 1, 1)),
        (4, (2, 1, 7), (1, 1, 2)),
        (5, (2, 1, 7), (1, 1, 3)),
        (10, (2, 1, 7), (2, 1, 7)),
        (15, (2, 1, 7), (3, 2, 10)),
        (23, (2, 1, 7), (5, 2, 16)),
        (3, (4, 4, 2), (1, 1, 1)),
        (12, (4, 8, 0), (4, 8, 0)),
        (2, (1, 1, 0), (1, 1, 0)),
        (1, (1, 1, 0), (1, 0, 0)),
    ],
)
def test_a_repository_is_shared_out(
    size: int, ratio: tuple[int, int, int], parts: tuple[int, int, int]
):
    split = split_by_repo(cases(one=size), ratio, 7)
    assert (len(split.train), len(split.holdout), len(split.test)) == parts
    told = Counter(case.id for case in (*split.train, *split.holdout, *split.test))
    assert len(told) == size and set(told.values()) == {1}
