"""Syntax checks: Python, JSON, YAML, Markdown, CSV, and JSON schemas from the plan.

An invalid schema is refused too: a check that cannot run must not pass.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from kept.core.parsing import ParseLimit, parse_json, parse_python
from kept.models.structured_output import problem_with
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.files import below_output
from kept.orchestrator.checks.text import flaw, open_fence, suffix_of, text_of, told
from kept.orchestrator.record import Finding


def schema(submission: Submission) -> CheckResult:
    """Require that each output with a schema satisfies it."""
    found = [
        problem
        for part in submission.plan
        for path, wanted in part.schemas.items()
        for problem in _problems(below_output(path), wanted, submission.files)
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"outputs do not satisfy their schemas: {words}", findings=tuple(found))


def _problems(
    path: str, wanted: Mapping[str, object], files: Mapping[str, bytes]
) -> Iterator[Finding]:
    data = files.get(path)
    text = None if data is None else text_of(path, data)
    if text is None:
        yield flaw(
            path, "has a schema and is not there" if data is None else "is no text", "schema"
        )
        return
    rows = text.splitlines() if suffix_of(path) == ".jsonl" else [text]
    for number, row in enumerate(rows, 1):
        if not row.strip() and len(rows) > 1:
            continue
        line = number if len(rows) > 1 else None
        try:
            value = parse_json(row)
        except ValueError as error:
            yield flaw(path, f"no JSON: {getattr(error, 'msg', error)}", "schema", line)
            return
        try:
            problem = problem_with(value, dict(wanted))
        except ValueError as error:
            yield flaw(path, f"its schema is none: {error}", "schema")
            return
        if problem is not None:
            yield flaw(path, problem, "schema", line)
            return


def syntax(submission: Submission) -> CheckResult:
    """Require that every file of a known kind can be parsed."""
    found = [
        problem
        for path in sorted(submission.files)
        if (problem := syntax_problem(path, submission.files[path])) is not None
    ]
    if not found:
        return Passed()
    words = "; ".join(map(told, found))
    return Rejected(reason=f"files cannot be read: {words}", findings=tuple(found))


def syntax_problem(path: str, data: bytes) -> Finding | None:
    """Return the syntax problem of a file; None if it has none or its kind is unknown."""
    reader = _READERS.get(suffix_of(path))
    if reader is None or (not data and path.endswith("__init__.py")):
        return None
    text = text_of(path, data)
    if text is None:
        return flaw(path, "is not UTF-8 text", "text")
    return reader(path, text)


def _python(path: str, text: str) -> Finding | None:
    try:
        parse_python(text, path)
    except SyntaxError as error:
        return flaw(path, f"no Python: {error.msg}", "py", error.lineno)
    except ValueError as error:
        return flaw(path, f"no Python that can be read: {error}", "py")
    return None


def _json(path: str, text: str) -> Finding | None:
    try:
        parse_json(text)
    except json.JSONDecodeError as error:
        return flaw(path, f"no JSON: {error.msg}", "json", error.lineno)
    except ValueError as error:
        return flaw(path, f"no JSON that can be read: {error}", "json")
    return None


def _yaml(path: str, text: str) -> Finding | None:
    # imported here: a run without YAML files need not load it
    import yaml

    from kept.spec.yaml import compose_all

    try:
        compose_all(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it cannot be taken apart"
        return flaw(path, f"no YAML: {problem}", "yaml", mark.line + 1 if mark else None)
    except ParseLimit as limit:
        return flaw(path, f"no YAML that can be read: {limit}", "yaml", limit.line)
    return None


def _markdown(path: str, text: str) -> Finding | None:
    if not text.strip():
        return flaw(path, "there is nothing in it", "md")
    line = open_fence(text)
    return None if line is None else flaw(path, "a fence is not closed", "md", line)


def _csv(path: str, text: str) -> Finding | None:
    try:
        read = enumerate(csv.reader(io.StringIO(text, newline="")), 1)
        rows = [(n, row) for n, row in read if row]
    except csv.Error as error:
        return flaw(path, f"no CSV: {error}", "csv")
    widths = Counter(len(row) for _, row in rows)
    if len(widths) < 2:
        return None
    # report the first row that differs from the header
    width = len(rows[0][1])
    line, row = next((n, row) for n, row in rows if len(row) != width)
    return flaw(path, f"a row has {len(row)} fields, the first has {width}", "csv", line)


_READERS: Mapping[str, Callable[[str, str], Finding | None]] = {
    ".py": _python,
    ".json": _json,
    ".yaml": _yaml,
    ".yml": _yaml,
    ".md": _markdown,
    ".markdown": _markdown,
    ".csv": _csv,
}
