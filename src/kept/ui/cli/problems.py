"""What is wrong, as JSON: `--json` promises a document also where a command cannot do its work."""

from typing import Any

from kept.errors import KeptError, Problem, SpecError
from kept.ui.cli import _output
from kept.ui.cli.fail import CutShortError


def tell_as_json(error: KeptError | CutShortError) -> None:
    """Print the problems on stdout; the error itself goes its way to stderr."""
    _output.document({"ok": False, "problems": _problems(error)})


def _problems(error: KeptError | CutShortError) -> list[dict[str, Any]]:
    cause = error.cause if isinstance(error, CutShortError) else error
    if isinstance(cause, SpecError):
        return [_row(problem) for problem in cause.problems]
    message = cause.message if isinstance(cause, KeptError) else f"{type(cause).__name__}: {cause}"
    return [_row(Problem("", "", message, cause.hint if isinstance(cause, KeptError) else None))]


def _row(problem: Problem) -> dict[str, Any]:
    file, line = problem.place or (None, None)
    return {
        "file": file,
        "line": line,
        "flag": problem.where if file is None and problem.where else None,
        "path": problem.path or None,
        "problem": problem.message,
        "hint": problem.hint,
    }
