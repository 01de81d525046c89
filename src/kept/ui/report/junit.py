"""Report of `kept eval` as JUnit XML, which CI servers read."""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from kept.core.words import one_line
from kept.ui.report.eval_results import Sweep, Tested, called
from kept.ui.report.test_report import WORST, min_score_words


def junit(sweep: Sweep) -> Iterator[str]:
    """Yield the lines of the report.

    With `--min-score` one test case more says whether the mean meets it. Cases below `pass_at` are
    no failures then, so that the report agrees with the exit code.
    """
    by_mean = sweep.meets_min_score is not None
    failures = int(not sweep.meets_min_score) if by_mean else sweep.count("failed")
    numbers = _attributes(
        tests=len(sweep.cases) + by_mean, failures=failures, errors=sweep.count("errored")
    )
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f"<testsuites {numbers}>"
    name = quoteattr(_plain(sweep.name))
    yield f'<testsuite name={name} {numbers} time="{sweep.elapsed:.3f}">'
    if by_mean:
        yield from _mean_testcase(sweep)
    for one in sweep.cases:
        yield from _testcase(sweep, one, fails=not by_mean)
    yield "</testsuite>"
    yield "</testsuites>"


def _mean_testcase(sweep: Sweep) -> Iterator[str]:
    names = f"name={quoteattr(f'mean {sweep.metric}')} classname={quoteattr(_plain(sweep.name))}"
    yield f"<testcase {names}>"
    if not sweep.meets_min_score:
        words = quoteattr(_plain(min_score_words(sweep)))
        worst = "\n".join(_worst_line(sweep, one) for one in sweep.worst_first()[:WORST])
        yield f"<failure message={words}>{escape(_plain(worst))}</failure>"
    yield "</testcase>"


def _worst_line(sweep: Sweep, one: Tested) -> str:
    value = one.metrics.get(sweep.metric)
    score = "failed" if value is None else f"{value:.3g}"
    expected = f", expected {one_line(one.truth, 200)}" if one.truth else ""
    got = f", got {one_line(one.got, 200)}" if one.got else ""
    return f"{called(one)}: {score}{expected}{got}"


def _testcase(sweep: Sweep, one: Tested, *, fails: bool) -> Iterator[str]:
    names = f"name={quoteattr(_plain(called(one)))} classname={quoteattr(_plain(sweep.name))}"
    yield f'<testcase {names} time="{one.seconds:.3f}">'
    if one.status == "errored" or (one.status == "failed" and fails):
        tag = "failure" if one.status == "failed" else "error"
        why = quoteattr(_plain(one_line(one.why or _below(sweep, one), 300)))
        yield f"<{tag} message={why}>{escape(_plain(_story(one)))}</{tag}>"
    yield "</testcase>"


def _below(sweep: Sweep, one: Tested) -> str:
    """Why a case without findings failed."""
    if sweep.pass_at is None or sweep.metric not in one.metrics:
        return ""
    return f"{sweep.metric} {one.metrics[sweep.metric]:.3g}, pass_at {sweep.pass_at:g}"


def _story(one: Tested) -> str:
    lines: list[str] = []
    for exchange in one.exchanges:
        lines += [f"> {exchange.input}", f"< {exchange.response}"]
    if one.described and one.truth:
        lines.append(f"expected: {one.truth}")
    return "\n".join([*lines, *one.findings])


def _attributes(**numbers: int) -> str:
    return " ".join(f'{name}="{value}"' for name, value in numbers.items())


def _plain(text: str) -> str:
    """Leave out characters that XML must not hold."""
    return "".join(c for c in text if c in "\t\n" or (ord(c) >= 32 and c not in "\ufffe\uffff"))
