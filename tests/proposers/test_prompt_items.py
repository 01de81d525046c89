from hypothesis import given
from hypothesis import strategies as st

from kept.proposers.prompt_items import Item, fit

ITEMS = st.lists(
    st.builds(
        Item,
        st.sampled_from(["trace", "result"]),
        st.text(max_size=5),
        st.text(max_size=400),
        needed=st.booleans(),
    )
)


@given(ITEMS, st.integers(0, 1000))
def test_items_are_whole_in_their_order_and_the_least_important_go_first(
    items: list[Item], room: int
):
    fitted = fit(items, room)
    assert sorted([*fitted.items, *fitted.left_out], key=repr) == sorted(items, key=repr)
    assert not any(item.needed for item in fitted.left_out)
    spare = [item for item in items if not item.needed]
    shown = [item for item in fitted.items if not item.needed]
    assert shown == spare[: len(shown)], "what goes, goes from the end"
    assert fitted.tokens <= room or not shown, "nothing stays that does not fit"
    if fitted.left_out:
        assert fitted.tokens + fitted.left_out[0].tokens > room, "nothing goes that would fit"


def test_where_the_window_is_not_known_all_is_shown():
    items = [Item("trace", "t", "x" * 10_000)] * 3
    assert fit(items, None).items == tuple(items)
    assert fit(items, None).unseen == ""


def test_what_is_left_out_is_counted_by_kind():
    items = [Item("aim", "t", "x", needed=True), *[Item("trace", "t", "x" * 90)] * 2]
    items.append(Item("note", "t", "x" * 90))
    assert fit(items, 40).unseen == (
        "not shown to the model, which has no room for it: 2 traces, 1 note"
    )
