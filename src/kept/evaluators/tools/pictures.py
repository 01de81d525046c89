"""Pictures: known by how they begin, whatever their name says."""

from kept.core.model import Image
from kept.evaluators.tools.unreadable import Unreadable

MOST = 20 * 1024 * 1024
"""Bytes; no provider takes a larger one."""

_BEGIN = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def read(data: bytes) -> Image:
    """A picture for a message."""
    if len(data) > MOST:
        raise Unreadable(f"it has more than {MOST // 1024**2} MiB")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Image("image/webp", data)
    for begin, media_type in _BEGIN:
        if data.startswith(begin):
            return Image(media_type, data)
    raise Unreadable("it is no PNG, JPEG, GIF or WebP picture")
