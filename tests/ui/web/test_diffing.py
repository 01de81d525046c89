"""Two texts side by side."""

import time

from hypothesis import given
from hypothesis import strategies as st

from kept.ui.web.step_page import Row, side_by_side


def whole(rows: tuple[Row, ...], side: str) -> list[str]:
    found = (getattr(row, side) for row in rows)
    return ["".join(piece.text for piece in pieces) for pieces in found if pieces]


def test_only_the_words_that_differ_are_marked():
    (change,) = side_by_side({"a": "Be brief.\n"}, {"a": "Be very brief.\n"})
    (row,) = change.rows
    assert row.kind == "changed"
    assert row.old is not None and not any(piece.marked for piece in row.old)
    assert row.new is not None
    assert "".join(piece.text for piece in row.new if piece.marked).strip() == "very"


def test_a_file_that_is_new_or_gone_has_one_side():
    made, gone = side_by_side({"b": "old\n"}, {"a": "new\n"})
    assert [row.kind for row in made.rows] == ["added"]
    assert [row.kind for row in gone.rows] == ["gone"]


def test_unchanged_lines_far_from_a_change_are_left_out():
    old = "".join(f"{n}\n" for n in range(100))
    (change,) = side_by_side({"a": old}, {"a": old.replace("50\n", "fifty\n")})
    assert [row.kind for row in change.rows].count("same") == 6
    assert change.rows[0].kind == "skipped"


def test_lines_and_words_that_are_alike_are_compared_in_time():
    old, new = ([*("a" if n % k else f"{n}" for n in range(3000))] for k in (2, 3))
    began = time.process_time()
    for sign in ("\n", " "):
        (change,) = side_by_side({"a": sign.join(old)[:2000]}, {"a": sign.join(new)[:1900]})
        assert change.rows
    (change,) = side_by_side({"a": "\n".join(old)}, {"a": "\n".join(new)})
    assert change.rows
    assert time.process_time() - began < 10


def test_changes_that_are_near_are_shown_together():
    old = [f"{n}" for n in range(40)]
    for apart, groups in ((7, 1), (8, 2)):
        new = [*old]
        new[10] = new[10 + apart] = "x"
        (change,) = side_by_side({"a": "\n".join(old)}, {"a": "\n".join(new)})
        assert [row.kind for row in change.rows].count("skipped") == groups


LINES = st.lists(st.sampled_from(["a", "b c", "c d", ""]), max_size=6)


@given(LINES, LINES)
def test_what_is_shown_of_a_side_is_what_it_holds(old: list[str], new: list[str]):
    texts = ["".join(f"{line}\n" for line in lines) for lines in (old, new)]
    changes = side_by_side({"a": texts[0]}, {"a": texts[1]})
    assert bool(changes) == (texts[0] != texts[1])
    for change in changes:
        for side, lines in (("old", old), ("new", new)):
            shown = whole(change.rows, side)
            numbers = [row.at[side == "new"] for row in change.rows if getattr(row, side)]
            assert shown == [lines[number - 1] for number in numbers]
