"""What `import kept` promises: the names of `__all__`, all of them, and no others."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import kept

EXPORTED: list[str] = [name for name in kept.__all__ if name != "__version__"]


def is_submodule(value: object) -> bool:
    return isinstance(value, ModuleType) and value.__name__.startswith("kept.")


def test_all_names_exactly_what_the_package_shows():
    shown = {name for name in dir(kept) if not name.startswith("_")}
    # A submodule that some test imported shows up too; it is reached by its own path, not promised.
    shown = {name for name in shown if not is_submodule(getattr(kept, name))}
    assert shown == set(EXPORTED)


def test_every_promised_name_can_be_had():
    absent = [name for name in kept.__all__ if not hasattr(kept, name)]
    assert absent == []


def test_all_is_sorted_and_says_nothing_twice():
    assert list(kept.__all__) == sorted(set(kept.__all__))


def test_no_promised_name_is_also_a_submodule():
    # Importing `kept.x` sets the attribute `x` of kept, over a function of that name.
    folder = Path(kept.__file__ or "").parent
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert modules.intersection(EXPORTED) == set()


def test_the_version_is_told():
    assert kept.__version__.count(".") == 2


UNUSED = (
    *("kept.sandbox", "kept.spec", "kept.ui"),
    *("kept.gates.race", "kept.recipes.race_choice"),
    *(
        "kept.models.client",
        "kept.models.endpoint",
        "aiohttp",
        "genai_prices",
        "jsonschema_rs",
        "json_repair",
    ),
    *("pydantic", "ruamel", "click", "rich", "optuna", "numpy"),
    *("kept.adapters", "gepa", "dspy", "inspect_ai"),
    *("kept.evaluators.tools", "mcp", "anyio", "pypdf", "docx", "pptx", "openpyxl"),
)
"""What only tasks with commands, cases, races or a terminal need."""

RUN = "optimize('a', lambda c: len(c.text), proposers=['aa'], home='.')"


@pytest.mark.slow
@pytest.mark.parametrize("then", ["", RUN])
def test_optimizing_by_a_function_loads_nothing_that_it_does_not_need(then: str, tmp_path: Path):
    script = (
        "import sys\n"
        "from kept import optimize\n"
        f"{then}\n"
        f"print([name for name in {UNUSED!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
