"""Pictures of cases: a case holds path and content hash, a prompt holds the bytes.

The hash is part of the case, and so of the inputs of a run: a changed picture is detected.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Literal

from kept.core.llm import Image
from kept.core.untyped import is_dict
from kept.errors import SetupError
from kept.evaluators.environments.datasets import Fields, Row
from kept.evaluators.tools import documents
from kept.evaluators.tools.documents import Unreadable

ImageDetail = Literal["auto", "low", "high"]
"""Level of detail at which a model sees a picture; `auto` leaves it to the provider."""

Picture = Mapping[str, str]
"""A picture in the data of a case: `path` and `sha256`."""

AT_ROOT = "`env.data_root` names the folder that paths of pictures begin in"
_PATH, _HASH = "path", "sha256"
_SUFFIXES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


def find_picture(
    fields: Fields, row: Row, value: object, root: Path, others: Sequence[Path] = ()
) -> Picture | None:
    """Find the picture that a row names: below `root`, beside the row's file, or in `others`.

    Returns None and adds a problem if there is none. The path is relative to `root` if possible,
    so that moved data stays the same data. Rows of a generated split are accepted as well.
    """
    given = value.get(_PATH) if is_dict(value) else value
    if not isinstance(given, str) or not given.strip():
        fields.wrong(row, "it has no picture")
        return None
    folders = (root, row.path.parent, *others)
    places = [folder / Path(given).expanduser() for folder in folders]
    place = next((one for one in places if one.is_file()), None)
    if place is None:
        looked = ", ".join(dict.fromkeys(str(one.parent) for one in places))
        fields.wrong(row, f"there is no picture `{given}` in {looked}", AT_ROOT)
        return None
    try:
        data = place.read_bytes()
        documents.read_picture(data)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        fields.wrong(row, f"the picture {place} cannot be used: {why}")
        return None
    return {_PATH: path_from(root, place), _HASH: _hashed(data)}


def load_picture(picture: Picture, root: Path, detail: ImageDetail = "auto") -> Image:
    """Load a picture for a prompt; raises `SetupError` if it is gone or has changed."""
    path = root / picture[_PATH]
    try:
        data = path.read_bytes()
        image = documents.read_picture(data)
    except (OSError, Unreadable) as error:
        raise SetupError(f"cannot read the picture {path}: {error}") from error
    if _hashed(data) != picture[_HASH]:
        raise SetupError(
            f"the picture {path} has changed since its case was read",
            hint="put the picture back, or start another run",
        )
    return replace(image, detail=None if detail == "auto" else detail)


def path_from(root: Path, path: Path) -> str:
    """Path relative to a folder, for the data of a case; absolute if it is elsewhere."""
    whole, base = path.resolve(), root.resolve()
    return whole.relative_to(base).as_posix() if whole.is_relative_to(base) else str(whole)


def marked(text: str, images: Sequence[Image], names: Sequence[str] = ()) -> str:
    """Text with the name of each picture in its place, for readers of the text alone."""
    if not images:
        return text
    told = [f"[picture {n}]" for n in range(1, len(images) + 1)]
    told = [f"[picture: {name}]" for name in names] or told
    return "".join(_pieces(text, images, told))


def picture_files(images: Sequence[Image]) -> Mapping[str, bytes]:
    """Pictures as files for an agent CLI, in order, as in `images/01.png`."""
    return {
        f"images/{n:02}.{_SUFFIXES.get(image.media_type, 'img')}": image.data
        for n, image in enumerate(images, 1)
    }


def _pieces(text: str, images: Sequence[Image], told: Sequence[str]) -> Iterator[str]:
    # marks at their offsets in order, then those without a place
    placed = [(image.at, mark) for image, mark in zip(images, told, strict=True)]
    done = 0
    for at, mark in sorted((at, mark) for at, mark in placed if at is not None):
        yield text[done:at]
        yield mark
        done = at
    yield text[done:]
    yield from (f"\n\n{mark}" for at, mark in placed if at is None)


def _hashed(data: bytes) -> str:
    return sha256(data).hexdigest()[:16]
