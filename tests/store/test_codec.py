"""Lines that come back as what they were, and lines that are refused."""

import json

import pytest

from kept.core.event import SCHEMA, RunStarted, StepClosed, StepOpened
from kept.errors import JournalError
from kept.store import codec
from kept.testing.suites.journal import OUTCOMES, SAMPLES, job


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: event.kind)
def test_every_kind_of_event_comes_back_equal(event: codec.Event):
    line = codec.encode(event)
    assert b"\n" not in line
    back = codec.decode_event(line)
    assert back == event
    assert type(back) is type(event)
    assert codec.encode(back) == line


def test_the_samples_hold_every_kind_of_event_edit_and_reply():
    said = b"".join(codec.encode(event) for event in SAMPLES).decode()
    for tag, kinds in (("kind", codec._EVENTS), ("kind", codec._REPLIES), ("op", codec._EDITS)):
        for kind in kinds:
            assert f'"{tag}":"{kind}"' in said, f"no sample of {kind}"


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_kind_of_outcome_comes_back_equal(outcome: codec.Outcome):
    line = codec.decode_line(codec.encode_rollouts([(3, job("candidate"), outcome)]))
    assert isinstance(line, codec.RolloutLine)
    assert (line.step, *line.entry()) == (3, job("candidate"), outcome)


def test_what_a_recipe_puts_into_facts_is_written_somehow(tmp_path: object):
    event = RunStarted(
        run_id="r", recipe="r", seed="s", inputs={}, facts={"path": tmp_path}, version="0", t=0.0
    )
    back = codec.decode_event(codec.encode(event))
    assert isinstance(back, RunStarted)
    assert back.facts == {"path": str(tmp_path)}


def test_a_journal_of_an_older_version_is_refused_with_what_to_do():
    line = changed("run_started", schema=SCHEMA - 1)
    with pytest.raises(ValueError, match=r"older kept .* start it again"):
        codec.decode_event(line)


def changed(kind: str, **fields: object) -> bytes:
    """The line of a sample event with some fields changed."""
    event = next(event for event in SAMPLES if event.kind == kind)
    return json.dumps({**json.loads(codec.encode(event)), **fields}).encode()


def test_a_journal_of_a_newer_version_is_refused_and_left_alone():
    line = changed("run_started", schema=SCHEMA + 1, something_new=1)
    with pytest.raises(JournalError, match="newer kept") as caught:
        codec.decode_event(line)
    assert caught.value.hint is not None
    assert "untouched" in caught.value.hint


def test_a_closed_step_from_before_it_said_why_it_was_given_up_is_read():
    said = json.loads(changed("step_closed"))
    assert said.pop("given_up") is None
    back = codec.decode_event(json.dumps(said).encode())
    assert isinstance(back, StepClosed)
    assert back.given_up is None


def test_a_turn_from_before_it_said_what_it_takes_takes_nothing():
    said = json.loads(changed("step_opened"))
    said["turn"].pop("takes", None)
    back = codec.decode_event(json.dumps(said).encode())
    assert isinstance(back, StepOpened)
    assert not back.turn.takes


def test_a_field_of_a_later_version_is_no_error():
    assert codec.decode_event(changed("run_started", something_new=1)) == SAMPLES[0]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"{}",
        b'{"kind":"step_opened"}',
        b'{"kind":"nonsense","step":1}',
        b'{"kind":"step_opened","step":"one"}',
        b"\x00\x00\x00",
        b"\xff\xfe",
        b'{"kind":"\\ud83d"}',
        changed("proposed", reply={"kind": "nonsense"}),
        changed("proposed", reply={"kind": "proposal", "edits": [{"op": "nonsense"}]}),
        changed("proposed", reply={"kind": "proposal", "edits": [{"path": "a"}]}),
        changed("proposed", reply="text"),
        changed("step_closed", verdict={"outcome": "maybe", "reason": "x"}),
        changed("run_stopped", reason={"kind": "boredom", "message": "x"}),
    ],
)
def test_a_line_that_is_no_event_is_refused(line: bytes):
    with pytest.raises(ValueError, match=r".+"):
        codec.decode_event(line)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b'{"kind":"nonsense"}',
        b'{"kind":"rollout"}',
        b'{"kind":"rollout","step":0,"candidate":"a","purpose":"fun","case":"c","repeat":0}',
        b'{"kind":"call","scope":"s"}',
        b'{"kind":"call","scope":"\\ud83d"}',
        b'["\\ud83d"]',
        b'"\\ud83d',
        b"\x00" * 40,
    ],
)
def test_a_line_that_is_no_rollout_is_refused(line: bytes):
    with pytest.raises(ValueError, match=r".+"):
        codec.decode_line(line)
