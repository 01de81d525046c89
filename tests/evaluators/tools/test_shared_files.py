"""Files in memory: nothing leads out of them, and changes can be made again in any order."""

import random
import time
from collections.abc import Mapping
from itertools import permutations

import pytest

from kept.evaluators.tools.files import Changes, SharedFiles, changes_between, path_of


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


def _clash_by_definition(files: Mapping[str, bytes], changes: Changes) -> bool:
    left = {path for path, data in {**files, **changes}.items() if data is not None}
    return any(f"{one}/" == other[: len(one) + 1] for one in left for other in left)


def test_a_clash_is_found_as_by_looking_at_all_files() -> None:
    names = ("a", "b", "a/b", "a/b/c", "a/d", "b/c")
    draw = random.Random(1)
    refused = 0
    for _ in range(400):
        files = SharedFiles(most_bytes=10**6, most_files=5)
        for _ in range(4):
            picked = draw.sample(names, draw.randint(1, 3))
            changes = {name: draw.choice((None, b"1", b"22")) for name in picked}
            clash, before = _clash_by_definition(files.all(), changes), files.all()
            told = files.refusal(changes)
            after = {p: d for p, d in {**before, **changes}.items() if d is not None}
            assert (told is not None) == (clash or len(after) > 5), (before, changes, told)
            refused += told is not None
            if told is None:
                files.apply(changes, files.stamp())
                assert files.all() == dict(sorted(after.items()))
    assert refused > 100


def test_thousands_of_files_are_written_in_time_that_grows_with_their_number() -> None:
    files = SharedFiles()
    began = time.process_time()
    for n in range(5_000):
        change = {f"output/{n % 50}/page-{n}.md": b"x"}
        assert files.refusal(change) is None
        files.apply(change, files.stamp())
    # by looking at all files for each of them it took a minute and a half
    assert time.process_time() - began < 10
    assert files.refusal({"one more": b""}) == "the workspace holds at most 5000 files"


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
