"""DocVQA's formats with pages drawn here: the prepared CSV split, and the official JSON."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from tests.evaluators.environments.drawing import draw

HEAD = (
    *("questionId", "question", "answer", "image_path", "topic"),
    *("docId", "ucsf_document_id", "ucsf_document_page_no", "source_split"),
)


def amount(n: int) -> str:
    """What stands on page n."""
    return f"{n * 37 + 100} dollars"


def csv_row(n: int) -> dict[str, str]:
    """One row; the page of every third stands in its question, as some rows have it."""
    path = f"data/docvqa_images/q{n}.png"
    third = n % 3 == 2
    question = f"What is the total of invoice {n}?" + (f" document_path: {path}" if third else "")
    answers = [amount(n), f"${n * 37 + 100}"]
    return {
        "questionId": str(50_000 + n),
        "question": question,
        "answer": str(answers) if n % 2 else answers[0],
        "image_path": "" if third else path,
        "topic": "form" if n % 2 else "handwritten|form",
        "docId": str(n),
        "ucsf_document_id": f"ghlw{n:04}",
        "ucsf_document_page_no": "1",
        "source_split": "validation",
    }


def write_split(folder: Path, sizes: Sequence[int] = (8, 6, 4)) -> Path:
    """A prepared split with its pages, as the config of Kept looks for them."""
    n = 0
    for name, size in zip(("train", "val", "test"), sizes, strict=True):
        place = folder / "data" / "docvqa_split" / name
        place.mkdir(parents=True, exist_ok=True)
        with (place / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, HEAD)
            writer.writeheader()
            for _ in range(size):
                writer.writerow(csv_row(n))
                draw(folder / f"data/docvqa_images/q{n}.png", f"Invoice {n}", f"Total {amount(n)}")
                n += 1
    return folder / "data" / "docvqa_split"


def write_official(folder: Path, size: int = 10) -> Path:
    """A file of DocVQA 1.0, its pictures beside it."""
    rows = [
        {
            "questionId": 49_153 + n,
            "question": f"What is the total of invoice {n}?",
            "question_types": ["form"],
            "image": f"documents/pybv{n:04}_1.png",
            "docId": 14_465 + n,
            "ucsf_document_id": f"pybv{n:04}",
            "ucsf_document_page_no": "1",
            "answers": [amount(n)],
            "data_split": "val",
        }
        for n in range(size)
    ]
    for n, row in enumerate(rows):
        draw(folder / str(row["image"]), f"Invoice {n}", f"Total {amount(n)}")
    path = folder / "val_v1.0.json"
    head = {"dataset_name": "docvqa", "dataset_version": "1.0", "dataset_split": "val"}
    path.write_text(json.dumps({**head, "data": rows}))
    return path
