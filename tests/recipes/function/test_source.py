"""What a resume knows an evaluator again by: its source, to the last line."""

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kept.recipes.function.compile import source_of

PLAIN = "def measure(candidate):\n    return len(candidate.text)\n"


def load(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(folder: Path, name: str, text: str) -> str:
    return source_of(load(folder, name, text).measure)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PLAIN, PLAIN.replace("len(", "2 * len(")),
        (
            "def measure(candidate):\n    def inner(n):\n        return n\n    return inner\n",
            "def measure(candidate):\n    def inner(n):\n        return n + 1\n    return inner\n",
        ),
        (
            "def measure(candidate):\n    return max(\n        1,\n        2,\n    )\n",
            "def measure(candidate):\n    return max(\n        1,\n        3,\n    )\n",
        ),
        (
            "measure = lambda candidate: (\n    1,\n    2,\n)\n",
            "measure = lambda candidate: (\n    1,\n    3,\n)\n",
        ),
        (
            "class Measure:\n    def it(self, c):\n        return 1\nmeasure = Measure().it\n",
            "class Measure:\n    def it(self, c):\n        return 2\nmeasure = Measure().it\n",
        ),
    ],
)
def test_another_line_of_a_function_is_another_source(tmp_path: Path, one: str, other: str):
    assert source(tmp_path, "one", one) == source(tmp_path, "same", one)
    assert source(tmp_path, "one_more", one) != source(tmp_path, "other", other)


def test_what_stands_around_a_function_is_not_its_source(tmp_path: Path):
    around = f"BEFORE = 1\n\n{PLAIN}\n\nAFTER = 2\n"
    assert source(tmp_path, "plain", PLAIN) == source(tmp_path, "around", around)


def test_a_function_in_a_wrapper_is_known_by_its_own_source(tmp_path: Path):
    first = load(tmp_path, "first", PLAIN).measure
    second = load(tmp_path, "second", PLAIN.replace("len(", "2 * len(")).measure

    def wrapped(function: Callable[[object], object]) -> Callable[[object], object]:
        @functools.wraps(function)
        def inner(candidate: object) -> object:
            return None

        return inner

    assert source_of(wrapped(first)) == source_of(first) != source_of(wrapped(second))
