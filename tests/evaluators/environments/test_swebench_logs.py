"""Results read from logs of test runners, by hand and beside the parsers of swebench."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kept.evaluators.environments.swebench.evaluation import report_of
from kept.evaluators.environments.swebench.logs import PARSERS, parser_name
from tests.conftest import needed_peer

PYTEST_LOG = """\
============================= test session starts ==============================
collected 9 items

tests/test_a.py .Fs.xE                                                   [100%]

=================================== FAILURES ===================================
E       AssertionError: PASSED is no status here
=========================== short test summary info ============================
PASSED tests/test_a.py::test_one
PASSED tests/test_a.py::test_two[a b]
PASSED tests/test_a.py::test_path[/tmp/pytest-1/x.txt]
PASSED tests/test_a.py::TestC::test_m[1-2]
SKIPPED [2] tests/test_a.py:12: needs a network
XFAIL tests/test_a.py::test_known - reason
XPASS tests/test_a.py::test_odd
ERROR tests/test_b.py - ImportError: no module
FAILED tests/test_a.py::test_bad - AssertionError: assert 1 == 2
FAILED tests/test_a.py::test_sum[1 - 2] - assert
==================== 2 failed, 4 passed, 2 skipped in 0.12s ====================
"""

A = "tests/test_a.py::"
PLAIN = {
    f"{A}test_one": "PASSED",
    f"{A}test_two[a": "PASSED",
    f"{A}test_path[/tmp/pytest-1/x.txt]": "PASSED",
    f"{A}TestC::test_m[1-2]": "PASSED",
    f"{A}test_known": "XFAIL",
    "tests/test_b.py": "ERROR",
    f"{A}test_bad": "FAILED",
    f"{A}test_sum[1": "FAILED",
}

UNITTEST_LOG = """\
test_one (pkg.tests.CaseTest) ... ok
test_two (pkg.tests.CaseTest)
Does a thing. ... FAIL
test_three (pkg.tests.CaseTest.test_three) ... skipped 'no network'
test_four (pkg.tests.CaseTest) ... expected failure
test_five (pkg.tests.CaseTest) ... unexpected success
test_six (pkg.tests.CaseTest) ... printed by the test
ok
test_seven (pkg.tests.CaseTest) ... ERROR

======================================================================
ERROR: test_ten (pkg.tests.CaseTest) (i=3)
----------------------------------------------------------------------
Traceback (most recent call last):
"""

C = "(pkg.tests.CaseTest)"
UNITTEST = {
    f"test_one {C}": "PASSED",
    f"test_two {C}": "FAILED",
    f"test_three {C}": "SKIPPED",
    f"test_four {C}": "XFAIL",
    f"test_five {C}": "FAILED",
    f"test_six {C}": "PASSED",
    f"test_seven {C}": "ERROR",
    f"test_ten {C}": "ERROR",
}

DJANGO_LOG = """\
Testing against Django installed in '/testbed/django' with up to 1 processes
test_a (auth_tests.test_validators.T) ... ok
test_b (auth_tests.test_validators.T)
Named by its docstring. ... ok
test_c (auth_tests.test_validators.T) ... skipped 'no db'
test_d (auth_tests.test_validators.T) ... FAIL
test_e (auth_tests.test_validators.T) ... ERROR
test_f (auth_tests.test_validators.T) ... something printed
ok
test_g (auth_tests.test_validators.T) ... System check identified no issues (0 silenced)
ok

FAIL: test_d (auth_tests.test_validators.T)
"""

T = "(auth_tests.test_validators.T)"
DJANGO = {
    f"test_a {T}": "PASSED",
    "Named by its docstring.": "PASSED",
    f"test_c {T}": "SKIPPED",
    f"test_d {T}": "FAILED",
    f"test_e {T}": "ERROR",
    f"test_f {T}": "PASSED",
    f"test_g {T}": "PASSED",
    "test_d": "FAILED",
}

SYMPY_LOG = """\
sympy/core/tests/test_basic.py[3]
test_structure ok
test_equality F
test_has E                                                        [FAIL]
test_slow f
test_more  E

________________________________________________________________________________
_________________ sympy/core/tests/test_basic.py:test_equality _________________
"""


@pytest.mark.parametrize(
    ("parser", "log", "found"),
    [
        ("pytest", PYTEST_LOG, PLAIN),
        ("unittest", UNITTEST_LOG, UNITTEST),
        ("django", DJANGO_LOG, DJANGO),
        (
            "sympy",
            SYMPY_LOG,
            {
                "sympy/core/tests/test_basic.py:test_equality": "FAILED",
                "test_structure": "PASSED",
                "test_equality": "FAILED",
                "test_more": "ERROR",
            },
        ),
        (
            "pytest_paths",
            "PASSED a::t[/tmp/x/y.txt]\nPASSED a::u[//h/p]\nPASSED a::v[/x/*.py]\n"
            "FAILED a::w - /z\n",
            {
                "a::t[/y.txt]": "PASSED",
                "a::u[//h/p]": "PASSED",
                "a::v[/x/*.py]": "PASSED",
                "a::w": "FAILED",
            },
        ),
        (
            "pytest_whole",
            "\x1b[32mPASSED\x1b[0m a::\x1b[1mt[x  y]\x1b[0m\n"
            "FAILED a::u[1 - 2] - no\na::v PASSED\n",
            {"a::t[x y]": "PASSED", "a::u[1": "FAILED", "a::v": "PASSED"},
        ),
        (
            "pytest_verbose",
            "tests/a.py::t PASSED [ 50%]\nFAILED tests/a.py::u - x\nPASSED tests/a.py::v\n",
            {"tests/a.py::t": "PASSED", "tests/a.py::u": "FAILED", "tests/a.py::v": "PASSED"},
        ),
        (
            "matplotlib",
            "PASSED a::t[MouseButton.LEFT-MouseButton.RIGHT]\n",
            {"a::t[1-3]": "PASSED"},
        ),
    ],
)
def test_a_log_is_read(parser: str, log: str, found: dict[str, str]):
    assert PARSERS[parser](log) == found


def test_a_parser_is_found_by_name_or_by_command():
    assert parser_name("parse_log_sphinx", "tox") == "pytest_whole"
    assert parser_name("parse_log_xarray", "pytest") == "pytest"
    assert parser_name("", "./tests/runtests.py --verbosity 2") == "django"
    assert parser_name("", "bin/test -C --verbose x") == "sympy"
    assert parser_name("", "python -m unittest -v") == "unittest"
    assert parser_name("unittest", "make check") == "unittest"
    assert parser_name("", "pytest -rA") == "pytest"


P, F, E, S, X = "PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL"
FULL, PARTIAL, NO = "RESOLVED_FULL", "RESOLVED_PARTIAL", "RESOLVED_NO"


@pytest.mark.parametrize(
    ("fix", "keep", "verdict"),
    [
        ([P], [], FULL),
        ([P], [P], FULL),
        ([P, P], [P, P, P], FULL),
        ([X], [P], FULL),
        ([P], [X], FULL),
        ([P], [S], FULL),
        ([P, X], [S, X, P], FULL),
        ([F], [P], NO),
        ([E], [P], NO),
        ([S], [P], NO),
        ([""], [P], NO),
        ([F, F], [], NO),
        ([P], [F], NO),
        ([P], [E], NO),
        ([P], [""], NO),
        ([P, P], [P, F], NO),
        ([P, F], [P], PARTIAL),
        ([P, E], [P, P], PARTIAL),
        ([P, S], [], PARTIAL),
        ([P, ""], [S], PARTIAL),
        ([P, F], [F], NO),
        ([F], [F], NO),
        ([""], [""], NO),
        ([X, F, F], [X], PARTIAL),
    ],
)
def test_the_verdict_by_hand(fix: list[Any], keep: list[Any], verdict: str):
    """Worked out from the published rule; an empty status is a test that did not run."""
    statuses = {f"fix{n}": one for n, one in enumerate(fix) if one}
    statuses |= {f"keep{n}": one for n, one in enumerate(keep) if one}
    names = [f"fix{n}" for n in range(len(fix))], [f"keep{n}" for n in range(len(keep))]
    assert report_of(statuses, *names).resolution == verdict


def test_a_cut_name_stands_for_all_that_begin_with_it_if_they_agree():
    cut = ["a::t[log(x"]
    assert report_of({"a::t[log(x y)]": "PASSED", "a::t[log(x z)]": "XFAIL"}, cut, []).fixed
    assert report_of({"a::t[log(x y)]": "PASSED", "a::t[log(x z)]": "FAILED"}, cut, []).not_fixed
    assert report_of({"a::t2": "PASSED"}, ["a::t"], []).not_fixed


PUBLISHED = ("pytest", "pytest_options", "pytest_v2", "seaborn", "matplotlib", "django", "sympy")


PAIRS = 200

THEIRS = """\
import json, sys, types, warnings
warnings.simplefilter("ignore")
sys.path.append(sys.argv[1])
from swebench.harness import grading
from swebench.harness.constants import TestStatus
from swebench.harness.log_parsers import python as parsers
asked = json.load(sys.stdin)
def verdict(statuses, fix, keep):
    gold = {"FAIL_TO_PASS": fix, "PASS_TO_PASS": keep}
    return grading.get_resolution_status(grading.get_eval_tests_report(statuses, gold))
told = {
    "statuses": sorted(one.value for one in TestStatus),
    "logs": {
        name: [getattr(parsers, f"parse_log_{name}")(log, types.SimpleNamespace()) for log in logs]
        for name, logs in asked["logs"].items()
    },
    "verdicts": [verdict(*one) for one in asked["verdicts"]],
}
print(json.dumps(told))
"""


def generated_logs() -> dict[str, list[str]]:
    chances = {name: random.Random(name) for name in PUBLISHED}
    return {name: [LOGS[name](chances[name]) for _ in range(PAIRS)] for name in PUBLISHED}


def generated_verdicts() -> list[tuple[dict[str, Any], list[str], list[str]]]:
    """Statuses of some tests, and the lists of an instance, some with ids that were cut."""
    chance = random.Random(7)
    found: list[tuple[dict[str, Any], list[str], list[str]]] = []
    for _ in range(2 * PAIRS):
        names = [f"a::t{n}[x {n % 3}]" for n in range(chance.randrange(1, 8))]
        mostly = chance.choice((P, P, F))
        ended = {one: chance.choice((mostly, mostly, P, F, E, S, X)) for one in names}
        statuses = {one: status for one, status in ended.items() if chance.random() < 0.9}
        asked = [one[: chance.choice((99, 99, 99, -2))] for one in names]
        cut = chance.randrange(1, len(asked) + 1)
        found.append((statuses, asked[:cut], asked[cut:]))
    return found


@pytest.fixture(scope="module")
def theirs() -> Any:
    """What swebench says, in a process of its own: it needs 60 packages that nothing else does."""
    folder = str(needed_peer("swebench"))
    asked = json.dumps({"logs": generated_logs(), "verdicts": generated_verdicts()})
    command = [sys.executable, "-c", THEIRS, folder]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.nightly
@pytest.mark.swebench
@pytest.mark.parametrize("name", PUBLISHED)
def test_parsers_agree_with_those_of_swebench(name: str, theirs: Any):
    """On generated logs, the whole mapping of each."""
    assert theirs["statuses"] == sorted((P, F, E, S, X))
    ours = PARSERS[parser_name(f"parse_log_{name}", "")]
    logs = generated_logs()[name]
    assert len(logs) == len(theirs["logs"][name]) == PAIRS
    for n, (log, found) in enumerate(zip(logs, theirs["logs"][name], strict=True)):
        assert ours(log) == found, (n, log)


@pytest.mark.nightly
@pytest.mark.swebench
def test_verdicts_agree_with_those_of_swebench(theirs: Any):
    given = generated_verdicts()
    found = [report_of(*one).resolution for one in given]
    assert set(found) == {FULL, PARTIAL, NO}, "there is something to agree on"
    assert min(map(found.count, (FULL, PARTIAL, NO))) > 20
    assert found == theirs["verdicts"]


WORDS = (
    *("alpha", "beta", "x.y", "1", "a-b", "[z]"),
    *("/tmp/q/r.txt", "//h/p", "*", "é", "MouseButton.LEFT"),
)


def pytest_id(chance: random.Random) -> str:
    file = f"tests/{chance.choice(WORDS[:3])}/test_{chance.randrange(9)}.py"
    name = f"{file}::test_{chance.randrange(99)}"
    if chance.random() < 0.5:
        parts = chance.choices(WORDS, k=chance.randrange(1, 4))
        name += f"[{chance.choice(('-', ' ', ', ')).join(parts)}]"
    return name


def pytest_lines(chance: random.Random) -> Iterator[str]:
    status, name = chance.choice((P, P, P, F, E, X, S)), pytest_id(chance)
    tail = chance.choice(("", " - AssertionError: a - b", " - x")) if status in (F, E, X) else ""
    if status == S:
        yield f"SKIPPED [{chance.randrange(1, 5)}] tests/a.py:3: why"
    else:
        yield f"{status} {name}{tail}"
    if chance.random() < 0.2:
        yield f"{name} {chance.choice((P, F, E))}"
    if chance.random() < 0.2:
        yield f"{name} PASSED [ {chance.randrange(9)}%]"
    if chance.random() < 0.1:
        yield chance.choice(("ERROR    root:app.py:12 failed", "  PASSED x", "XPASS a::b", ""))
    if chance.random() < 0.1:
        yield f"\x1b[31m{status}\x1b[0m {name}"


def pytest_log(chance: random.Random) -> str:
    lines = ["=== test session starts ===", "tests/a.py ..F [ 10%]", "PASSED", "FAILED"]
    for _ in range(chance.randrange(40)):
        lines += pytest_lines(chance)
    return "\n".join(lines)


DJANGO_ENDS = ("ok", "ok", "OK", " OK", "FAIL", "ERROR", "skipped 'x'", "expected failure")
DJANGO_LAST = ("", "--version is equivalent to version ... ok", "FAILED (errors=1)")


def django_lines(chance: random.Random, n: int) -> Iterator[str]:
    name, end = f"test_{n} (pkg.tests.Case{chance.randrange(3)})", chance.choice(DJANGO_ENDS)
    match chance.randrange(6):
        case 0:
            yield from (name, f"Docstring number {n}. ... {end}")
        case 1:
            yield from (f"{name} ... printed", chance.choice(("ok", "more")))
        case 2:
            yield from (f"{name} ... Internal Server Error: /a/b/", "ok")
        case 3:
            yield f"{name} ... Testing against Django installed in '/x' (0 silenced)."
            yield "ok"
        case _:
            yield f"{name} ... {end}"
    if end in ("FAIL", "ERROR") and chance.random() < 0.7:
        yield f"{end}: {name}"


def django_log(chance: random.Random) -> str:
    lines = ["Creating test database for alias 'default'..."]
    for n in range(chance.randrange(40)):
        lines += django_lines(chance, n)
    return "\n".join((*lines, chance.choice(DJANGO_LAST)))


def sympy_log(chance: random.Random) -> str:
    lines, failed = ["test process starts"], list[str]()
    for n in range(chance.randrange(40)):
        end = chance.choice(("ok", "ok", "F", "E", "f", "w", "s"))
        lines.append(f"test_{n} {end}")
        failed += [f"test_{n}"] if end in "FE" else []
    for name in failed:
        file = f"sympy/a/tests/test_{chance.randrange(3)}.py"
        lines += ["_" * 80, f"{'_' * 10} {file}:{name} {'_' * 10}", "Traceback"]
    return "\n".join(lines)


LOGS: dict[str, Callable[[random.Random], str]] = {
    **dict.fromkeys(PUBLISHED[:5], pytest_log),
    "django": django_log,
    "sympy": sympy_log,
}
