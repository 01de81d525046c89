"""What was measured as JUnit's XML, which CI servers read."""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from kept.core.words import one_line
from kept.report.tested import Sweep, Tested, called


def junit(sweep: Sweep) -> Iterator[str]:
    """The lines of the report."""
    numbers = _attributes(
        tests=len(sweep.cases), failures=sweep.count("failed"), errors=sweep.count("errored")
    )
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f"<testsuites {numbers}>"
    name = quoteattr(_plain(sweep.name))
    yield f'<testsuite name={name} {numbers} time="{sweep.elapsed:.3f}">'
    for one in sweep.cases:
        yield from _testcase(sweep, one)
    yield "</testsuite>"
    yield "</testsuites>"


def _testcase(sweep: Sweep, one: Tested) -> Iterator[str]:
    names = f"name={quoteattr(_plain(called(one)))} classname={quoteattr(_plain(sweep.name))}"
    yield f'<testcase {names} time="{one.seconds:.3f}">'
    if one.status != "passed":
        tag = "failure" if one.status == "failed" else "error"
        why = quoteattr(_plain(one_line(one.why, 300)))
        yield f"<{tag} message={why}>{escape(_plain(_story(one)))}</{tag}>"
    yield "</testcase>"


def _story(one: Tested) -> str:
    lines: list[str] = []
    for exchange in one.exchanges:
        lines += [f"> {exchange.input}", f"< {exchange.response}"]
    return "\n".join([*lines, *one.findings])


def _attributes(**numbers: int) -> str:
    return " ".join(f'{name}="{value}"' for name, value in numbers.items())


def _plain(text: str) -> str:
    """Without what no XML may hold."""
    return "".join(c for c in text if c in "\t\n" or (ord(c) >= 32 and c not in "\ufffe\uffff"))
