"""Folders that outlive runs: built once, whoever asks, and anew where the building was cut off."""

import asyncio
from pathlib import Path

import pytest

from kept.evaluators.environments.swebench.testbed import cached_folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_is_built_once_for_all_who_ask(cache: Path):
    built: list[Path] = []

    async def build(folder: Path) -> None:
        built.append(folder)
        await asyncio.sleep(0.05)
        (folder / "x").write_text("made")

    async def ask() -> list[Path]:
        return await asyncio.gather(*(cached_folder("e", "one", build) for _ in range(4)))

    found = asyncio.run(ask())
    assert set(found) == {cache / "envs" / "e" / "one"} and len(built) == 1
    assert asyncio.run(cached_folder("e", "one", build)) == found[0] and len(built) == 1
    assert (found[0] / "x").read_text() == "made"


def test_a_folder_whose_building_was_cut_off_is_built_anew(cache: Path):
    async def half(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("no compiler")

    async def whole(folder: Path) -> None:
        (folder / "whole").write_text("")

    with pytest.raises(ValueError, match="no compiler"):
        asyncio.run(cached_folder("e", "one", half))
    folder = asyncio.run(cached_folder("e", "one", whole))
    assert sorted(one.name for one in folder.iterdir()) == [".complete", "whole"]


@pytest.mark.parametrize("name", ["../x", "/x", ""])
def test_a_name_that_leads_elsewhere_is_refused(name: str):
    async def build(folder: Path) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="no name of a folder"):
        asyncio.run(cached_folder("e", name, build))


def test_those_who_wait_leave_the_builder_its_threads():
    """A builder that needs a thread waited for ever where forty others waited for it in theirs."""

    async def build(folder: Path) -> None:
        await asyncio.sleep(0.2)
        await asyncio.to_thread((folder / "x").touch)

    async def ask() -> None:
        async with asyncio.timeout(20):
            await asyncio.gather(*(cached_folder("e", "one", build) for _ in range(40)))

    asyncio.run(ask())
