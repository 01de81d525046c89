"""Files in memory: nothing leads out of them, and changes can be made again in any order."""

from itertools import permutations

import pytest

from kept.shared_files import SharedFiles, changes_between, path_of


def test_of_two_changes_of_one_file_the_later_holds_in_whatever_order_they_are_made_again() -> None:
    changes = [({"a": b"1", "b": b"1"}, 1), ({"a": None}, 2), ({"a": b"3", "b": b"3"}, 3)]
    for order in permutations(changes):
        files = SharedFiles()
        for change, stamp in order:
            files.apply(change, stamp)
        assert files.all() == {"a": b"3", "b": b"3"}


def test_a_file_that_was_removed_later_does_not_come_back() -> None:
    files = SharedFiles()
    files.apply({"a": None}, 2)
    files.apply({"a": b"1"}, 1)
    assert files.all() == {}


def test_a_new_stamp_comes_after_all_that_were_made_again() -> None:
    files = SharedFiles()
    files.apply({"a": b"1"}, 7)
    assert files.stamp() == 8


@pytest.mark.parametrize("path", ["../a", "/etc/passwd", "a/../../b", "", "a//b", "./../x"])
def test_no_path_leads_outside(path: str) -> None:
    assert path_of(path) is None
    assert SharedFiles().refusal({path: b""}) is not None


def test_a_path_may_be_the_whole_one_that_a_program_sees() -> None:
    assert path_of("/run/kept/output/output/a.md") == "output/a.md"
    assert path_of("./output/a.md") == "output/a.md"


def test_more_than_the_workspace_holds_is_refused() -> None:
    files = SharedFiles(most_bytes=4, most_files=2)
    assert files.refusal({"a": b"1234"}) is None
    assert "MiB" in (files.refusal({"a": b"12345"}) or "")
    assert "2 files" in (files.refusal({"a": b"", "b": b"", "c": b""}) or "")


def test_a_file_is_no_folder_at_the_same_time() -> None:
    files = SharedFiles()
    files.apply({"a": b"1", "d/e": b"2"}, files.stamp())
    assert files.refusal({"a/b": b""}) == "`a` is a file, and no folder"
    assert files.refusal({"d": b""}) == "`d` is a folder"
    assert files.refusal({"d/e": None, "d": b""}) is None


def test_changes_between_two_states_lead_from_one_to_the_other() -> None:
    before, after = {"a": b"1", "b": b"2"}, {"b": b"3", "c": b"4"}
    files = SharedFiles()
    files.apply(before, files.stamp())
    files.apply(changes_between(before, after), files.stamp())
    assert files.all() == after


def test_the_files_of_a_folder_are_named_from_there() -> None:
    files = SharedFiles()
    files.apply({"output/a": b"1", "outputs": b"2", "input/b": b"3"}, 1)
    assert files.below("output") == {"a": b"1"}
