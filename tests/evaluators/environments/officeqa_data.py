"""OfficeQA's formats with bulletins written here: the CSV split, and its documents."""

import csv
from collections.abc import Sequence
from pathlib import Path

HEAD: tuple[str, ...] = ("uid", "question", "answer", "source_docs", "source_files", "difficulty")

BULLETINS = ("treasury_bulletin_1941_01.txt", "treasury_bulletin_1942_01.txt", "other_1943.txt")

FIRST = 1_901


def spent(year: int) -> str:
    """What was spent in a year, in millions."""
    return f"{(year - 1_900) * 1_037 + 500:,}"


def bulletin(which: int, years: int = 40) -> str:
    """One document; the years are shared out among the three."""
    lines = [f"TREASURY BULLETIN, number {which}", "", "Expenditures, in millions of dollars", ""]
    lines += [
        f"| {year} | national defense | {spent(year)} |"
        for year in range(FIRST, FIRST + years)
        if year % 3 == which
    ]
    return "\n".join([*lines, "", "Figures are rounded.", ""])


def csv_row(n: int) -> dict[str, str]:
    """One row; every third names two documents, as rows do, with a line each."""
    year = FIRST + n
    names = [BULLETINS[year % 3]]
    names += [BULLETINS[(year + 1) % 3]] if n % 3 == 0 else []
    place = "https://fraser.stlouisfed.org/title/treasury-bulletin-407"
    return {
        "uid": f"UID{n:04}",
        "question": f"What was spent for national defense in {year}, in millions of dollars?",
        "answer": spent(year),
        "source_docs": "\n".join(f"{place}/{name[:-4]}?page=15" for name in names),
        "source_files": "\n".join(names),
        "difficulty": "hard" if n % 2 else "easy",
    }


def write_rows(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """A CSV file of the published columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, HEAD)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_documents(folder: Path) -> Path:
    """The three bulletins, where the config of Kept looks for them."""
    place = folder / "data" / "officeqa_docs_official"
    place.mkdir(parents=True, exist_ok=True)
    for which, name in enumerate(BULLETINS):
        (place / name).write_text(bulletin(which))
    return place


def write_split(folder: Path, sizes: Sequence[int] = (8, 6, 4)) -> Path:
    """A prepared split with its documents, as the config of Kept looks for them."""
    write_documents(folder)
    split = folder / "data" / "officeqa_split"
    n = 0
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        write_rows(split / name / f"{name}.csv", [csv_row(n + k) for k in range(size)])
        n += size
    return split
