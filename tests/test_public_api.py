"""What `import kept` promises: the names of `__all__`, all of them, and no others."""

from pathlib import Path
from types import ModuleType

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
