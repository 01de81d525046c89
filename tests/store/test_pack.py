"""The pack: no byte that was written is lost, and none is read that was changed."""

from contextlib import closing
from pathlib import Path

import pytest

from kept.errors import JournalError
from kept.store.pack import Pack

TEXTS = [f"entry number {n}, @entry and all\n".encode() * (n + 1) for n in range(8)]


def filled(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    with closing(Pack(folder, writable=True)) as pack:
        keys = [pack.put(text) for text in TEXTS]
        keys.append(pack.put(b"a manifest", "a-name-of-its-own"))
    return keys


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_entries_behind_a_damaged_header_are_found_again_and_nothing_is_cut(tmp_path: Path):
    keys = filled(tmp_path)
    path = tmp_path / "blobs.pack"
    # a killed run has no index; the header of the second entry
    (tmp_path / "blobs.idx").unlink()
    flip(path, path.read_bytes().index(keys[1].encode()))
    size = path.stat().st_size
    with closing(Pack(tmp_path, writable=True)) as pack:
        assert [pack.get(key) for key in keys[:-1]] == TEXTS
        assert pack.get(keys[-1]) == b"a manifest"
        assert pack.dropped == 0
    assert path.stat().st_size == size
    with closing(Pack(tmp_path, writable=False)) as pack:
        assert [pack.get(key) for key in keys[:-1]] == TEXTS


def test_a_torn_end_is_moved_aside_and_adding_goes_on(tmp_path: Path):
    keys = filled(tmp_path)
    path = tmp_path / "blobs.pack"
    (tmp_path / "blobs.idx").unlink()
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with closing(Pack(tmp_path, writable=True)) as pack:
        assert [pack.get(key) for key in keys[:-1]] == TEXTS
        assert keys[-1] not in pack
        pack.put(b"a manifest", keys[-1])
        assert pack.get(keys[-1]) == b"a manifest"
    aside = path.with_name("blobs.pack.torn").read_bytes()
    assert whole[:-7].endswith(aside) and aside.startswith(b"@entry a-name-of-its-own ")
    assert path.read_bytes() == whole


def test_bytes_that_were_changed_are_refused_and_can_be_added_again(tmp_path: Path):
    keys = filled(tmp_path)
    path = tmp_path / "blobs.pack"
    at = path.read_bytes().index(TEXTS[3])
    flip(path, at + 5)
    with closing(Pack(tmp_path, writable=False)) as pack:
        for key, text in zip(keys, TEXTS, strict=False):
            if text != TEXTS[3]:
                assert pack.get(key) == text
        with pytest.raises(JournalError, match=rf"blobs\.pack: the entry {keys[3]} at byte \d+"):
            pack.get(keys[3])
    with closing(Pack(tmp_path, writable=True)) as pack:
        assert pack.put(TEXTS[3]) == keys[3]
        assert pack.get(keys[3]) == TEXTS[3]
    (tmp_path / "blobs.idx").unlink()
    with closing(Pack(tmp_path, writable=False)) as pack:
        assert pack.get(keys[3]) == TEXTS[3]


@pytest.mark.parametrize("writable", [False, True])
def test_an_index_that_was_changed_is_never_believed(tmp_path: Path, writable: bool):
    keys = filled(tmp_path)
    index = tmp_path / "blobs.idx"
    right = index.read_bytes()
    for at in range(len(right)):
        index.write_bytes(right)
        flip(index, at, at % 8)
        with closing(Pack(tmp_path, writable=writable)) as pack:
            assert [pack.get(key) for key in keys[:-1]] == TEXTS, at
            assert pack.get(keys[-1]) == b"a manifest", at


def test_what_looks_like_an_entry_inside_another_is_none(tmp_path: Path):
    inner = tmp_path / "inner"
    filled(inner)
    hostile = (inner / "blobs.pack").read_bytes().replace(b"a manifest", b"a MANIFEST")
    with closing(Pack(tmp_path, writable=True)) as pack:
        outer = pack.put(hostile)
        pack.put(b"a manifest", "a-name-of-its-own")
    (tmp_path / "blobs.idx").unlink()
    path = tmp_path / "blobs.pack"
    flip(path, path.read_bytes().index(outer.encode()))
    with closing(Pack(tmp_path, writable=False)) as pack:
        assert pack.get("a-name-of-its-own") == b"a manifest"


def test_a_pack_of_a_later_version_is_refused(tmp_path: Path):
    filled(tmp_path)
    path = tmp_path / "blobs.pack"
    assert path.read_bytes().startswith(b"kept pack 2\n")
    path.write_bytes(path.read_bytes().replace(b"kept pack 2\n", b"kept pack 3\n", 1))
    for writable in (False, True):
        with pytest.raises(JournalError, match="written by a newer kept"):
            Pack(tmp_path, writable=writable)
