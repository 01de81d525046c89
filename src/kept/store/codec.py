"""JSON line codec of records with checksums, and redaction of secrets.

Events are the frozen dataclasses of the core. Rollout and call lines are separate structs,
because there may be a million of them. Every line begins with a checksum and its offset:

    {"crc":"1a2b3c4d","at":4711,"step":0, ...}

The CRC-32 covers everything behind it up to the newline. `at` is the offset at which the line was
written, so missing, repeated or moved lines are detected.

Secrets of the environment are redacted in free text only: failures, findings, messages. Numbers,
identifiers and proposed edits stay unchanged, because a resumed run must use the same values as
the first session.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar, cast, get_args
from zlib import crc32

import msgspec

from kept.core import edit as edits
from kept.core import proposal as replies
from kept.core.event import (
    SCHEMA,
    Document,
    Event,
    Proposed,
    RunResumed,
    RunStarted,
    RunStopped,
    StepClosed,
    StepOpened,
)
from kept.core.rollout import FREE, Failure, Job, Purpose, Usage
from kept.core.score import Finding, Outcome
from kept.errors import JournalError
from kept.store.schema import check_time

T = TypeVar("T")

_EDITS = {
    "replace": edits.Replace,
    "insert_after": edits.InsertAfter,
    "delete": edits.Delete,
    "append": edits.Append,
    "fill": edits.Fill,
    "write": edits.Write,
    "set_value": edits.SetValue,
}
_REPLIES = {
    "proposal": replies.Proposal,
    "note": replies.Note,
    "skip": replies.Skip,
    "failed": replies.ProposerFailed,
    "prove": replies.Prove,
    "claim": replies.Claim,
    "measure": replies.Measure,
}
_EVENTS: dict[str, type[Event]] = {
    get_args(cls.__annotations__["kind"])[0]: cls
    for cls in (RunStarted, RunResumed, StepOpened, Proposed, StepClosed, RunStopped)
}
_KIND = b'"kind":"'
_PLAIN = {kind.encode(): cls for kind, cls in _EVENTS.items() if cls is not RunStarted}
"""Events without a journal version."""


class RolloutLine(msgspec.Struct, tag="rollout", tag_field="kind", omit_defaults=True):
    """One finished rollout."""

    step: int
    candidate: str
    purpose: Purpose
    case: str
    repeat: int
    metrics: dict[str, float] = {}
    seconds: float = 0.0
    failure: Failure | None = None
    findings: tuple[Finding, ...] = ()
    usage: Usage = FREE
    tries: int = 1
    trace: str = ""

    def entry(self) -> tuple[Job, Outcome]:
        """Convert to the engine's job and outcome."""
        job = Job(self.candidate, self.case, self.repeat, self.purpose)
        outcome = Outcome(
            self.metrics,
            self.failure,
            self.findings,
            self.usage,
            self.seconds,
            self.tries,
            self.trace,
        )
        return job, outcome


class CallLine(msgspec.Struct, tag="call", tag_field="kind", omit_defaults=True):
    """One reply to a call inside a rollout or a proposal."""

    scope: str
    key: str
    reply: msgspec.Raw
    """The reply itself or, with `stored`, its address in the pack."""
    failed: bool = False
    stored: bool = False
    unpriced: bool = False
    """True if its maximum cost was unknown in advance."""


class CancelledLine(msgspec.Struct, tag="cancelled", tag_field="kind", omit_defaults=True):
    """One rollout that was stopped in flight, with its usage until then."""

    step: int
    candidate: str
    case: str
    repeat: int
    purpose: Purpose
    usage: Usage = FREE

    @property
    def job(self) -> Job:
        """Candidate, case, repeat and purpose of the rollout."""
        return Job(self.candidate, self.case, self.repeat, self.purpose)


class HeaderLine(msgspec.Struct, tag="rollouts", tag_field="kind"):
    """The first line of the rollout file: the version of its format."""

    version: int = SCHEMA


Line = RolloutLine | CallLine | CancelledLine | HeaderLine


class _Used(msgspec.Struct):
    """Part of a reply that has its usage."""

    usage: Usage = FREE


def usage_of(reply: bytes | msgspec.Raw) -> Usage:
    """Usage of a reply; `FREE` if the reply has none."""
    try:
        return msgspec.json.decode(reply, type=_Used).usage
    except msgspec.MsgspecError:
        return FREE  # a reply of another shape


class _Head(msgspec.Struct):
    kind: str
    schema: int = 0


def _decode_hook(kind: type, value: Any) -> Any:  # noqa: ANN401 # msgspec's own signature
    if kind is object:
        return value
    table, tag = (_EDITS, "op") if kind is edits.Edit else (_REPLIES, "kind")
    if not isinstance(value, dict) or value.get(tag) not in table:  # pyright: ignore[reportUnknownMemberType] # raw JSON
        raise ValueError(f"unknown {tag} in {value!r}")
    return msgspec.convert(value, table[value[tag]], dec_hook=_decode_hook)


def _encode_hook(value: object) -> object:
    # `settings` of a turn come from users: paths, sets and the like
    return str(value)


_encoder = msgspec.json.Encoder(enc_hook=_encode_hook)
_lines = msgspec.json.Decoder(Line)
_decoders: dict[type, Callable[[bytes], object]] = {}
_LONE = b"\\ud"
"""Start of an escaped surrogate."""


def encode(value: object) -> bytes:
    """Encode a value as JSON."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # lone surrogates, from a cut reply or from bytes read with surrogateescape: `json` escapes
        # them, msgspec cannot
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_encode_hook)
        return json.dumps(plain, separators=(",", ":")).encode()


def document_of(value: object) -> Document:
    """Convert a dataclass to its JSON object in the journal; empty for None."""
    if value is None:
        return {}
    return decode(encode(value), dict[str, object])


def decode(raw: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode JSON as a value of this type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = msgspec.json.Decoder(kind, dec_hook=_decode_hook).decode
        _decoders[kind] = decoder
    try:
        return decoder(raw)  # pyright: ignore[reportReturnType] # the decoder was made for `kind`
    except msgspec.DecodeError:
        if _LONE not in bytes(raw):
            raise
        plain = json.loads(bytes(raw))
        return msgspec.convert(plain, kind, str_keys=True, dec_hook=_decode_hook)


def decode_event(line: bytes) -> Event:
    """Decode the line of an event; raises `ValueError` for anything else."""
    event = _decode_event(line)
    check_time(event.t)
    if isinstance(event, RunStarted) and event.schema < SCHEMA:
        raise ValueError(
            f"this run was written by an older kept (journal version {event.schema}, this one reads"
            f" {SCHEMA}); start it again"
        )
    return event


def _decode_event(line: bytes) -> Event:
    # Kept writes `kind` last, so most lines need to be decoded only once
    quick = _PLAIN.get(line[line.rfind(_KIND) + len(_KIND) :].partition(b'"')[0])
    if quick is not None:
        try:
            return decode(line, quick)
        except ValueError:
            pass  # rewritten by another program, or broken: decided below
    head = decode(line, _Head)
    check_version(head.schema)
    cls = _EVENTS.get(head.kind)
    if cls is None:
        raise ValueError(f"unknown record `{head.kind}`")
    return decode(line, cls)


def decode_line(line: bytes) -> Line:
    """Decode a line of the rollout file; raises `ValueError` for anything else."""
    try:
        row = _lines.decode(line)
        if isinstance(row, HeaderLine):
            check_version(row.version)
        return row
    except msgspec.DecodeError:
        if _LONE not in line:
            raise
    plain = json.loads(line)
    if isinstance(plain, dict) and "reply" in plain:
        plain["reply"] = msgspec.Raw(json.dumps(plain["reply"]).encode())
    return msgspec.convert(plain, Line)


def check_version(version: int) -> None:
    """Raise for a file of a newer format."""
    if version > SCHEMA:
        raise JournalError(
            f"this run was written by a newer kept (journal version {version}, "
            f"this one reads up to {SCHEMA})",
            hint="upgrade kept; the run is untouched",
        )


_CRC_END = len(b'{"crc":"00000000",')


def seal(record: bytes, at: int) -> bytes:
    """Make the line of a JSON object at an offset: checksum, offset, fields, newline."""
    # the offset is put first in the object, and the checksum before it
    body = b'"at":%d,%b' % (at, record[1:])
    return b'{"crc":"%08x",%b\n' % (crc32(body), body)


def unseal(line: bytes) -> int:
    """Verify the checksum of a line and return the offset it was written at.

    Raises `ValueError` for a line that was changed. The newline may be missing.
    """
    body = line[_CRC_END:-1] if line[-1:] == b"\n" else line[_CRC_END:]
    if line[:_CRC_END] != b'{"crc":"%08x",' % crc32(body):
        raise ValueError("it does not match its checksum")
    return int(body[len(b'"at":') : body.index(b",")])


def encode_rollouts(rows: Iterable[tuple[int, Job, Outcome]]) -> bytes:
    """Encode finished rollouts as lines, each with its newline."""
    lines = [_rollout_line(step, job, outcome) for step, job, outcome in rows]
    try:
        return _encoder.encode_lines(lines)
    except UnicodeEncodeError:
        return b"".join([encode(line) + b"\n" for line in lines])


def _rollout_line(step: int, job: Job, outcome: Outcome) -> RolloutLine:
    return RolloutLine(
        step,
        job.candidate_id,
        job.purpose,
        job.case_id,
        job.repeat,
        outcome.metrics,  # pyright: ignore[reportArgumentType] # any mapping encodes alike
        outcome.seconds,
        outcome.failure,
        outcome.findings,
        outcome.usage,
        outcome.tries,
        outcome.trace,
    )


AS_IT_IS = frozenset(
    ("kind", "candidate", "incumbent", "case", "purpose", "trace", "edits", "scope", "key", "seed")
)
"""Fields that are never redacted: keys of lookups, and contents of candidates."""

MARK = "[secret]"


class Scrub:
    """Redacts secrets in lines of JSON."""

    def __init__(self, secrets: Sequence[str]) -> None:
        # also in their escaped forms, for texts that are themselves JSON
        forms = {*secrets}
        for value in secrets:
            forms |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
        self._forms = sorted(forms, key=len, reverse=True)
        # encoded in both styles of JSON, for a quick test of lines without decoding them
        needles = {encode(form)[1:-1] for form in forms}
        needles |= {json.dumps(form)[1:-1].encode() for form in forms}
        self._needles = tuple(needles)

    def clean(self, data: bytes) -> bytes:
        """Redact one line."""
        if not any(needle in data for needle in self._needles):
            return data
        before: object = json.loads(data)
        after = self._plain(before)
        if after == before:
            return data  # the match was in a number or in a field that stays
        return json.dumps(after, separators=(",", ":"), ensure_ascii=True).encode()

    def clean_lines(self, data: bytes) -> bytes:
        """Redact several lines."""
        if not any(needle in data for needle in self._needles):
            return data
        return b"".join([self.clean(line) + b"\n" for line in data.splitlines()])

    def _plain(self, value: object) -> object:
        if isinstance(value, str):
            for form in self._forms:
                value = value.replace(form, MARK)
            return value
        if isinstance(value, list):
            return [self._plain(one) for one in cast("list[object]", value)]
        if isinstance(value, dict):
            rows = cast("dict[str, object]", value).items()
            return {key: one if key in AS_IT_IS else self._plain(one) for key, one in rows}
        return value
