"""SealQA's format with questions written here: the CSV split, and pages as wget stores them."""

import csv
from collections.abc import Sequence
from pathlib import Path

HEAD: tuple[str, ...] = (
    *("question", "answer", "urls", "search_results", "freshness"),
    *("question_types", "topic", "canary", "question_id"),
)


def founded(n: int) -> str:
    """When town n was founded."""
    return f"in {1_200 + n * 7}"


def page(n: int) -> str:
    """A page about town n."""
    return (
        f"<html><head><title>Town {n}</title><script>let a = 'no text';</script></head><body>"
        f"<h1>Town {n}</h1><p>It was <b>founded</b>\n{founded(n)}.</p></body></html>"
    )


def csv_row(n: int) -> dict[str, str]:
    """One row; lists stand in it as Python writes them."""
    return {
        "question": f"When was town {n} founded?",
        "answer": founded(n),
        "urls": str([f"https://towns.example/wiki/Town_{n}#History"]),
        "search_results": f"1. Town {n} was founded {founded(n)}.\n2. Town {n} is new.",
        "freshness": "never-changing",
        "question_types": "['advanced reasoning', 'temporal tracking']",
        "topic": "History" if n % 2 else "Others",
        "canary": "sealqa:0000",
        "question_id": f"q{n}",
    }


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """A CSV file of the published columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_split(folder: Path, sizes: Sequence[int] = (8, 6, 4)) -> Path:
    """A prepared split, as the config of Kept looks for it, and pages in `pages`."""
    split, n = folder / "data" / "sealqa_split", 0
    place = folder / "pages" / "towns.example" / "wiki"
    place.mkdir(parents=True, exist_ok=True)
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        write_rows(split / name / f"{name}.csv", [csv_row(n + k) for k in range(size)])
        for k in range(n, n + size):
            (place / f"Town_{k}.html").write_text(page(k))
        n += size
    return split
