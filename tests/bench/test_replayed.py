"""The replies that Kept and gepa are both given are what they say, and read in the same order."""

from collections import Counter
from collections.abc import Callable

import pytest

from bench.quality.arms import gepa_replayed, kept_replayed
from bench.quality.order import End, Order
from bench.quality.replaying import TEMPLATE, Reflection, Replayed, replies, shown_in
from bench.quality.tasks import BY_NAME, SEED, Trial
from kept.adapters import reflection


def text_in(reply: str) -> str:
    """The text of a reply that has one."""
    text = reflection.text_in(reply)
    assert text is not None
    return text


def prompt(text: str) -> str:
    return TEMPLATE.replace("<curr_param>", text).replace("<side_info>", "```\nno\n```")


def whole(said: str) -> str:
    """The text of a reply, which has one."""
    text = text_in(said)
    assert text is not None, said
    return text


def worth(task: str, text: str) -> float:
    trial = Replayed(BY_NAME[task], 0)
    return trial.truth(text) - trial.truth(SEED)


def test_a_reply_takes_over_the_text_that_it_was_shown_and_adds_a_rule():
    reflection = Reflection()
    told = [reflection(prompt(f"{SEED}* rule 1 for 2")) for _ in replies()]
    texts = [whole(one) for one in told]
    assert all(text.startswith(f"{SEED}* rule 1 for 2") for text in texts)
    assert Counter(text.count("rule") for text in texts)[2] > 350
    assert reflection(prompt("again")) == told[0].replace(f"{SEED}* rule 1 for 2", "again")
    with pytest.raises(ValueError, match="no text in the prompt"):
        shown_in("nothing")


def test_replies_are_worth_what_they_were_written_down_as():
    kinds = Counter(reply.kind for reply in replies())
    assert kinds == {"good": 90, "useless": 167, "harmful": 143}
    least: dict[str, list[float]] = {"good": [], "useless": [], "harmful": []}
    for reply in replies()[:60]:
        least[reply.kind].append(worth("noisy", whole(reply.reply.replace("<current>", SEED))))
        assert worth("null", whole(reply.reply.replace("<current>", SEED))) <= 0.005
    assert min(least["good"]) > 0.01
    assert set(least["useless"]) == {0.0}
    assert max(least["harmful"]) < 0


@pytest.mark.parametrize("act", [kept_replayed.act, gepa_replayed.act])
def test_both_are_improved_by_the_good_replies_on_a_task_without_noise(
    act: Callable[[Trial, Order], End],
):
    trial = Replayed(BY_NAME["clean"], 1)
    end = act(trial, Order("clean", 600, 1, 1))
    assert trial.draws <= 660
    assert trial.truth(end.text) - trial.truth(SEED) > 0.1
