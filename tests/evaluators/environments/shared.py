"""The samples of real data, which are no part of the repository."""

from pathlib import Path

import pytest

_PLACES = (Path(__file__).parents[3] / "shared" / "data", Path("/work/shared/data"))


def shared(*names: str) -> Path:
    """A file or folder of the samples; skips the test where it is not there."""
    for place in _PLACES:
        if place.joinpath(*names).exists():
            return place.joinpath(*names)
    pytest.skip(f"../shared/data/{'/'.join(names)} is not there")
