"""Pictures for tests of environments: drawn with Pillow, the same bytes for the same text."""

from io import BytesIO
from pathlib import Path

from PIL import Image as Canvas
from PIL import ImageDraw


def page(*lines: str, size: tuple[int, int] = (320, 160)) -> bytes:
    """A page with some lines of text, as PNG."""
    canvas = Canvas.new("RGB", size, "white")
    pen = ImageDraw.Draw(canvas)
    for n, line in enumerate(lines):
        pen.text((10, 10 + 20 * n), line, fill="black")
    data = BytesIO()
    canvas.save(data, "PNG")
    return data.getvalue()


def draw(path: Path, *lines: str) -> Path:
    """Draw a page into a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(page(*lines))
    return path
