"""Shell command as scorer: it reads the runner's output and prints one JSON object.

The object may stand among other output. The command has the same variables as the runner's, in a
fresh folder. A scorer is part of the harness: when it fails, no candidate is blamed.
"""

import json
import re
from dataclasses import dataclass
from math import inf
from typing import Literal, NamedTuple, cast, get_args

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.objective import countable, no_value
from kept.core.parsing import DuplicateKey, ParseLimit, parse_json, parse_json_at
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout
from kept.core.score import Finding, Score, Severity, usable
from kept.core.text import count
from kept.sandbox.command import MAX_TEXT, MIB, TIMEOUT, Command
from kept.sandbox.workspace import Scratch
from kept.spec.components import BuildContext, Component, Needs
from kept.spec.validate import Seconds, SpecModel, Text

_START = re.compile(r'\{\s*["}]')
"""Beginning of an object; most braces in text begin none."""

_REST = re.compile(r"[ \t\r]*(\n|$)")

TRIES = 200
"""Maximum number of unclosed beginnings: each costs a pass over the text."""


class Found(NamedTuple):
    """An object in a text."""

    value: dict[str, object]
    alone: bool
    """True if nothing else is on its lines, so it was printed as a result."""
    twice: DuplicateKey | None = None
    """Error about a duplicate key: which value is meant is not guessed."""


def printed_objects(text: str, *, cut: bool = False) -> list[dict[str, object]]:
    """Find the JSON objects that were printed as results.

    These are objects on lines of their own; if there are none, objects inside lines. Objects inside
    an incomplete object are ignored: a part of a score is no score. For the same reason, if the
    beginning of a text was cut off, only objects at the start of a line count.

    Raises `DuplicateKey` if one of them has a key twice, and `ParseLimit` if the last line is an
    object beyond a parser limit.
    """
    if cut:
        # drop the note about the cut and the partial first line
        text = "".join(text.split("\n", 2)[2:])
    # fast path: the last line is nearly always the result
    before, _, line = text.rstrip().rpartition("\n")
    last = _whole(line)
    if last is not None:
        found = [one for one in _search(before, lines_only=True) if one.alone]
        return [*_values(found), last]
    found = _search(text, lines_only=cut)
    return _values([one for one in found if one.alone] or found)


def _values(found: list[Found]) -> list[dict[str, object]]:
    for one in found:
        if one.twice is not None:
            raise one.twice
    return [one.value for one in found]


def _whole(line: str) -> dict[str, object] | None:
    if not line.startswith("{") or not line.endswith("}"):
        return None
    try:
        return cast("dict[str, object]", parse_json(line, unique_keys=True))
    except (DuplicateKey, ParseLimit):
        raise
    except ValueError:
        return None


def _search(text: str, *, lines_only: bool) -> list[Found]:
    found: list[Found] = []
    tries = 0
    start = _START.search(text)
    while start and tries < TRIES:
        at = end = start.start()
        first = text[at - 1 : at] in ("", "\n")
        if first or not lines_only:
            try:
                twice = None
                try:
                    value, end = parse_json_at(text, at, unique_keys=True)
                except DuplicateKey as error:
                    twice = error
                    value, end = parse_json_at(text, at)
                found.append(Found(value, first and _REST.match(text, end) is not None, twice))
            except json.JSONDecodeError as error:
                tries += 1
                end = error.pos
            except ParseLimit:
                # the end of the object is not known
                return []
        start = _START.search(text, max(end, at + 1))
    return found if tries < TRIES else []


_SEVERITIES: tuple[str, ...] = get_args(Severity)


@dataclass(frozen=True, slots=True)
class Fields:
    """Paths of the metrics in a scorer's output."""

    score: str | None = None
    """Path of the primary metric; None if the field has the metric's name."""
    metrics: str = "metrics"
    """Path of an object with further metrics."""
    metric: str = "score"
    """Name of the primary metric."""


class CommandScorer:
    """Scorer that runs a command for every rollout."""

    def __init__(self, command: Command, scratch: Scratch, fields: Fields | None = None) -> None:
        self._command = command
        self._scratch = scratch
        self._fields = fields or Fields()

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        """Run the command once and read what it prints."""
        try:
            with self._scratch.workspace(candidate, case, rollout.files) as workspace:
                ended = await workspace.run(self._command)
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if isinstance(ended, Failure):
            return ended
        if ended.timed_out:
            message = f"the scorer did not end within {count(self._command.timeout, 'second')}"
            return Failure("harness", "infrastructure", message, ended.detail())
        if not ended.ok:
            message = f"the scorer failed: {ended}"
            return Failure("harness", "infrastructure", message, ended.detail())
        try:
            printed = printed_objects(ended.stdout, cut=ended.cut)
        except (DuplicateKey, ParseLimit) as error:
            message = f"the scorer printed JSON that cannot be used: {error}"
            return Failure("harness", "infrastructure", message, ended.detail())
        if len(printed) > 1:
            message = f"the scorer printed {len(printed)} JSON objects, where one was expected"
            return Failure("harness", "infrastructure", message, ended.detail())
        if not printed:
            much = f", the end of more than {MAX_TEXT // MIB} MiB" if ended.cut else ""
            said = f"{ended.stdout.strip()[-200:]!r}{much}"
            message = f"the scorer printed no JSON object but {said}"
            return Failure("harness", "infrastructure", message, ended.detail())
        return read_score(printed[0], rollout, self._fields)

    async def close(self) -> None:
        """Do nothing: the owner of the scratch folder removes it."""


def read_score(
    printed: dict[str, object], rollout: Rollout, fields: Fields | None = None
) -> Score | Failure:
    """Read metrics and findings from a scorer's output.

    Numbers are at the top level or in an object `metrics`; the top level takes precedence.
    """
    fields = fields or Fields()
    nested = _at(printed, fields.metrics, {})
    if not isinstance(nested, dict):
        return _strange(f"`{fields.metrics}` is {nested!r:.80}, not an object")
    flat = {name: value for name, value in printed.items() if isinstance(value, int | float)}
    inner = cast("dict[str, object]", nested)
    found = {**inner, **flat}
    if fields.score is None and fields.metric in printed:
        # other texts at the top are remarks; a primary metric that is none is reported below
        found[fields.metric] = printed[fields.metric]
    if fields.score is not None:
        found[fields.metric] = _at(printed, fields.score, None)
        if found[fields.metric] is None:
            return _strange(f"there is no `{fields.score}` in {json.dumps(printed)[:200]}")
    metrics = dict(rollout.metrics)
    for name, value in found.items():
        if not isinstance(value, int | float):
            place = f"{fields.metrics}.{name}" if name in inner and inner[name] is value else name
            return _strange(f"`{place}` is {value!r:.80}, not a number")
        try:
            metrics[name] = float(value)
        except OverflowError:
            metrics[name] = inf
        if name == fields.metric and not countable(metrics[name]):
            # a diverged loss, for example: the scorer works, but the value is not usable
            return Failure("parse", "candidate", no_value(name, value))
    findings = _findings(printed.get("findings", []))
    return findings if isinstance(findings, Failure) else usable(Score(metrics, findings))


def _at(printed: dict[str, object], path: str, otherwise: object) -> object:
    """Value at a dotted path."""
    first, _, rest = path.partition(".")
    value = printed.get(first, otherwise)
    if not rest:
        return value
    return (
        _at(cast("dict[str, object]", value), rest, otherwise)
        if isinstance(value, dict)
        else otherwise
    )


def _findings(given: object) -> tuple[Finding, ...] | Failure:
    if not isinstance(given, list):
        return _strange(f"`findings` is {given!r:.80}, not a list")
    found: list[Finding] = []
    for item in cast("list[object]", given):
        finding = _finding(item)
        if finding is None:
            wanted = f"a text, or text and severity ({', '.join(_SEVERITIES)})"
            return _strange(f"a finding is {item!r:.80}, not {wanted}")
        found.append(finding)
    return tuple(found)


def _finding(item: object) -> Finding | None:
    if isinstance(item, str):
        return Finding(item)
    if not isinstance(item, dict):
        return None
    row = cast("dict[str, object]", item)
    text, severity = row.get("text"), row.get("severity", "medium")
    if not isinstance(text, str) or severity not in _SEVERITIES:
        return None
    return Finding(text, cast("Severity", severity))


def _strange(what: str) -> Failure:
    return Failure("harness", "infrastructure", f"the scorer printed something strange: {what}")


class ParseSpec(SpecModel):
    """Paths of the score in a scorer's output."""

    format: Literal["json"] = "json"
    score_field: Text | None = None
    """Path of the primary metric, `result.score` for a nested one; by default the field with
    the metric's name."""
    metrics_field: Text = "metrics"
    """Path of an object with the other metrics."""


class CommandScorerSpec(SpecModel):
    """The command that prints the score."""

    type: Literal["command"] = "command"
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    parse: ParseSpec = ParseSpec()


class CommandScorerComponent(Component[CommandScorerSpec, CommandScorer]):
    """The command that prints the score."""

    Spec = CommandScorerSpec

    def build(self, spec: CommandScorerSpec, context: BuildContext) -> CommandScorer:
        """Build the scorer with its command in the sandbox."""
        command = Command(spec.command, context.folder / spec.cwd, spec.timeout_seconds)
        fields = Fields(spec.parse.score_field, spec.parse.metrics_field, context.metric)
        return CommandScorer(context.sandbox.scorer(command), context.scratch, fields)

    def needs(self, spec: CommandScorerSpec) -> Needs:
        """Return the command and its time limit."""
        return Needs(
            commands=(spec.command,), folders=(spec.cwd,), worst_seconds=spec.timeout_seconds
        )
