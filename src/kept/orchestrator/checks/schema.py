"""Whether outputs satisfy the JSON schemas that the plan gives for them.

A schema that is none is refused too: a check that cannot look must not pass.
"""

from collections.abc import Iterator, Mapping

from kept.core.parsing import parse_json
from kept.models.structured_output import problem_with
from kept.orchestrator.checks.base import CheckResult, Passed, Rejected, Submission
from kept.orchestrator.checks.naming import below_output
from kept.orchestrator.checks.texts import flaw, suffix_of, text_of, told
from kept.orchestrator.record import Finding


def schema(submission: Submission) -> CheckResult:
    """Each output that has a schema satisfies it."""
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
