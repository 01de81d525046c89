"""What an analyst is shown where not everything fits: by whole turns, and what was cut is said."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kept.core.artifact import Artifact, Candidate, Rules
from kept.core.llm import Image, ModelRequest
from kept.core.proposal import Brief, Proposal
from kept.core.rollout import Failure, TraceItem
from kept.evaluators.environments.chat_student import system_prompt
from kept.models.context_window import tokens_of
from kept.recipes.skill.document import APPENDIX, REGIONS
from kept.recipes.skill.proposers.analyst import Sight, analyst_items, fitted, rows_of, size_of
from kept.recipes.skill.proposers.teacher import (
    MAX_TOKENS,
    REWRITE,
    REWRITE_TOKENS,
    SUGGEST,
    Rewriting,
)
from tests.recipes.skill.proposers.scenes import (
    SKILL,
    about,
    analysis,
    by_side,
    edit,
    make_brief,
    propose,
    rewriting,
    shown,
    suggesting,
    wants,
)

Trace = tuple[TraceItem, ...]


def said(turns: int, letters: int = 600) -> Trace:
    told = (TraceItem("assistant", f"turn {n} " + "x" * letters) for n in range(turns))
    return (TraceItem("user", "go"), *told)


def test_a_trace_is_fitted_by_whole_turns_and_what_was_cut_is_said():
    reply, requests = propose(by_side, make_brief({"a": (0.0, said(40))}), window=12_000)
    text = shown(next(one for one in requests if "failure_summary" in wants(one)))
    assert "turn 0 " in text and "turn 39 " in text, "the beginning and the end are there"
    assert re.search(r"\[\d+ turns not shown, for want of room\]", text)
    assert all(line.endswith("x" * 600) for line in text.splitlines() if "] turn " in line)
    assert isinstance(reply, Proposal) and "turns of traces" in reply.unseen


@pytest.mark.parametrize("seed", range(40))
def test_what_is_shown_of_a_trace_takes_no_more_than_its_room(seed: int):
    chance = random.Random(seed)
    sizes = [chance.choice([0, 1, 20, 200, 4000]) for _ in range(chance.randint(1, 25))]
    turns = [f"{n}:" + "y" * size for n, size in enumerate(sizes)]
    room = chance.randint(60, 2500)
    found = fitted(turns, room)
    assert size_of([found.text]) <= room
    whole = [line for line in found.text.splitlines() if line in turns]
    assert len(turns) - len(whole) == found.cut
    assert f"{len(turns) - 1}:" in found.text, "the last is there, where it failed"


def test_a_turn_that_is_too_long_by_itself_has_its_middle_left_out():
    """It was sent whole, and no reply came: the window was full."""
    found = fitted(["begin", "[obs] first " + "z" * 90_000 + " last"], 500)
    assert found.text.startswith("begin\n[obs] first z") and found.text.endswith("z last")
    assert re.search(r"… \d+ characters left out …", found.text) and found.cut == 1


def test_a_long_turn_in_the_middle_takes_no_others_with_it():
    turns = ["a", "z" * 9000, *(f"t{n}" for n in range(20))]
    assert fitted(turns, 200).text.splitlines() == [
        "a",
        "[1 turn not shown, for want of room]",
        *turns[2:],
    ]


def pages(rows: dict[str, Trace], room: int, pictures: Sequence[Image] = ()) -> Any:
    brief = make_brief({name: (0.0, trace) for name, trace in rows.items()})
    (answer,) = brief.answers
    sight = Sight(about, pictures=lambda _: pictures)
    return analyst_items(rows_of(brief, [*answer.outcomes]), sight, [], room)


def test_pictures_take_their_part_of_the_room():
    """Two of each case; those at low detail take less."""
    rows = {f"r{n}": said(40) for n in range(3)}
    shown = [Image("image/png", b"a"), Image("image/png", b"b")]
    coarse = [Image(one.media_type, one.data, "low") for one in shown]
    room = 20_000
    without, low, full = (pages(rows, room, given) for given in ((), coarse, shown))
    assert 0 < without.cut < low.cut < full.cut
    for found, pictures in ((without, 0), (low, 6 * 300), (full, 6 * 2_000)):
        texts = sum(tokens_of(item.text) for item in found.items)
        assert texts + pictures <= sum(item.tokens for item in found.items) <= room


def test_what_short_traces_leave_goes_to_the_long_ones():
    """Each had an equal part: the long one was cut, for want of a room that nobody used."""
    rows = {f"s{n}": said(1, 10) for n in range(7)} | {"long": said(40)}
    assert pages(rows, 12_000).cut == 0
    assert pages(rows, 6_000).cut > 0


@pytest.mark.parametrize("letters", [1, 7, 30, 400])
def test_long_traces_are_cut_and_none_is_left_out_for_it(letters: int):
    """The words on what was cut had no room of their own: the last rollout went for them."""
    rows = {f"r{n}": said(2000, letters) for n in range(6)}
    room = 9_000
    found = pages(rows, room)
    assert found.cut > 0
    assert sum(item.tokens for item in found.items) <= room


@pytest.mark.parametrize(
    ("update", "window", "config", "asked"),
    [
        ("patch", None, None, MAX_TOKENS),
        ("patch", 200_000, None, MAX_TOKENS),
        ("patch", 8_000, None, 4_000),
        ("patch", 8_000, 1_000, 1_000),
        ("rewrite", 200_000, None, REWRITE_TOKENS),
        ("rewrite", 32_000, None, 16_000),
    ],
)
def test_a_request_leaves_room_for_its_reply(
    update: str, window: int | None, config: int | None, asked: int
):
    """Room was left for 4,096 tokens, and 16,384 or 64,000 were asked for."""
    more: dict[str, Any] = {"update": REWRITE} if update == "rewrite" else {}

    def say(request: ModelRequest) -> Any:
        return rewriting(request, []) if more else by_side(request)

    rows = {f"q{n}": (0.0, said(500)) for n in range(3)}
    _, requests = propose(
        say, make_brief(rows), window=window, request=ModelRequest((), max_tokens=config), **more
    )
    first = requests[0]
    assert first.max_tokens == asked
    if window is not None:
        used = sum(tokens_of(message.text) for message in first.messages)
        assert used + tokens_of(str(first.schema)) + asked <= window
        assert "turns not shown" in shown(first)


@pytest.mark.parametrize("traces", [1, 4])
def test_a_window_that_nobody_knows_of_is_met_by_turns_too(traces: int):
    """Only whole rollouts were left out: one that was too long by itself was lost."""
    tokens = 6_000

    def say(request: ModelRequest) -> Any:
        if sum(tokens_of(message.text) for message in request.messages) > tokens:
            return Failure("context", "candidate", "too long", tried=True)
        return by_side(request)

    rows = {f"q{n}": (0.0, said(60)) for n in range(traces)}
    reply, requests = propose(say, make_brief(rows), failure_only=True)
    assert isinstance(reply, Proposal), reply
    patches: Any = reply.about["patches"]
    assert patches[0]["cut_turns"] > 0 and "turns not shown" in shown(requests[-1])
    assert len(requests) == (2 if traces == 1 else 4), "all, half, a quarter, an eighth"


def test_a_rollout_that_was_not_shown_stands_behind_nothing():
    """An edit had all cases of its minibatch behind it, also those that were left out."""

    def say(request: ModelRequest) -> Any:
        if shown(request).count("### Trajectory") > 2:
            return Failure("context", "candidate", "too long", tried=True)
        return by_side(request)

    rows = {f"q{n}": (0.0, said(6)) for n in range(4)}
    reply, requests = propose(say, make_brief(rows), failure_only=True)
    assert isinstance(reply, Proposal), reply
    patches: Any = reply.about["patches"]
    (patch,) = patches
    seen = shown(requests[-1]).count("### Trajectory")
    assert "unseen" in patch and 0 < seen == len(patch["cases"]) < 4 == patch["batch_size"]


@pytest.mark.parametrize("update", [SUGGEST, REWRITE], ids=lambda one: one.mode)
def test_whoever_writes_a_whole_skill_thinks_as_long_as_the_config_says(update: Any):
    """In `full_rewrite_minibatch` the two keys did nothing."""

    def say(request: Any) -> Any:
        if "new_skill" in wants(request):
            return {"reasoning": "", "change_summary": [], "new_skill": "# New"}
        return rewriting(request, []) if update is REWRITE else suggesting(request)

    how = Rewriting("high", 777)
    _, requests = propose(say, update=update, failure_only=True, rewriting=how)
    writing = [one for one in requests if "new_skill" in str(one.schema)]
    assert writing and {(one.effort, one.max_tokens) for one in writing} == {("high", 777)}


def folder_brief(texts: dict[str, str]) -> Brief:
    """Rollouts of a student that was told the skill as the runner tells it."""
    trace = (TraceItem("system", system_prompt("Answer.", texts)), TraceItem("user", "What?"))
    brief = make_brief({"a": (0.0, (*trace, TraceItem("assistant", "no idea")))})
    rules = Rules({path: Artifact(path, REGIONS if path == "SKILL.md" else ()) for path in texts})
    return replace(brief, incumbent=Candidate(texts), rules=rules)


def test_a_skill_with_regions_and_files_is_shown_once_and_not_in_every_rollout():
    """Markers are not told to a student: the skill was not known again, and sent with each."""
    body = "Mind the first rule, whatever happens.\n" * 3
    texts = {
        "SKILL.md": f"{body}\n{APPENDIX.begin}\n- Mind the gap.\n{APPENDIX.end}\n",
        "references/units.md": "Metres, and never feet, unless somebody asks for feet.\n",
        "assets/form.html": "<form>\n<!-- a field for each of the names -->\n</form>\n",
    }

    def say(request: Any) -> Any:
        return analysis(request, {**edit("- x."), "file": "SKILL.md"})

    _, requests = propose(say, folder_brief(texts), failure_only=True)
    told = shown(requests[0])
    for text in ("whatever happens.", "Mind the gap.", "and never feet", "each of the names"):
        assert told.count(text) == sum(one.count(text) for one in texts.values()), text
    assert "[the skill that is shown above]" in told and "[the file that is shown above]" in told


def test_a_skill_of_nothing_but_space_leaves_the_prompt_as_it_is():
    """Between any two letters of it stood that the skill is shown above."""
    _, requests = propose(by_side, folder_brief({"SKILL.md": " \n"}), failure_only=True)
    assert "#### Target System Prompt\nAnswer.\n" in shown(requests[0])


def test_a_list_of_steps_has_a_line_for_each():
    script = "cat > run.py <<'END'\n" + "print(1)\n" * 500 + "END"
    trace = (
        TraceItem("user", "Count."),
        TraceItem("tool", "done", {"command": script, "step": 1}),
        TraceItem("tool", "3", {"command": "ls", "step": 2}),
    )
    _, requests = propose(by_side, make_brief({"a": (0.0, trace)}))
    steps = shown(requests[0]).partition("#### Trace Steps\n")[2].splitlines()[:2]
    assert steps[0].startswith("1. cat > run.py <<'END' print(1)") and len(steps[0]) < 200
    assert steps[1] == "2. ls"
    assert script in shown(requests[0]), "the turn itself has all of it"
    assert SKILL.splitlines()[0] in shown(requests[0])
