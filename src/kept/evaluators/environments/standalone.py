"""Results in the files of the method's standalone evaluation scripts.

`eval_prompt_official` and `eval_prompt_custom` leave a folder with a row and a subfolder for each
case, `eval_livemathematicianbench_baseline` leaves one JSON document. File names and keys are those
of the scripts, so that what reads their results reads Kept's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from kept.core.case import Case
from kept.core.rollout import NO_FILES, Failure
from kept.evaluators.tools.python_code import Ran

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One evaluated case, as the journal has it."""

    case: Case
    reply: str
    """Last text of the student."""
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    why: str = ""
    """Reason why the case is not solved; empty if it is."""
    failure: Failure | None = None
    """Student's own failure, if it gave no answer."""
    seconds: float = 0.0
    left: Mapping[str, bytes] = field(default_factory=lambda: NO_FILES)
    """Files that an agent CLI made or changed."""
    programs: Mapping[str, Callable[[], Ran | None]] = field(
        default_factory=dict[str, Callable[[], Ran | None]]
    )
    """Programs that ran, by their scope below the episode, as `try-1/2`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedStudent:
    """Student of an evaluation, as the scripts record it."""

    model: str
    reasoning_effort: str | None = None
    max_completion_tokens: int = 0
    """Length limit of a reply; 0 for the provider's own."""


@runtime_checkable
class WritesDocument(Protocol):
    """An environment whose script writes one JSON document, to `--output_json`."""

    def document(self, results: Sequence[CaseResult], asked: AskedStudent) -> Json:
        """The whole document."""
        ...


@runtime_checkable
class WritesFolder(Protocol):
    """An environment whose script writes a folder, to `--out_root`."""

    def row(self, result: CaseResult) -> Json:
        """One line of `results.jsonl`."""
        ...

    def prediction(self, result: CaseResult) -> Mapping[str, bytes]:
        """Files of `predictions/ID/`."""
        ...

    def summary(self, rows: Sequence[Json], asked: AskedStudent) -> Json:
        """The content of `summary.json`."""
        ...
