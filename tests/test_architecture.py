"""Layers, import cycles, name clashes and sizes of src/kept, checked without importing it.

`check` takes any tree laid out like src/kept, so that the tests below can plant a violation and see
it reported.
"""

import ast
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kept"


@dataclass(frozen=True, kw_only=True)
class Layer:
    modules: tuple[str, ...]
    """Modules or packages, by their names below `kept`."""
    third_party: tuple[str, ...] | None = None
    """What may be imported from outside the standard library; None is anything."""


# Bottom first: a module imports its own layer and those before it.
LAYERS = (
    Layer(modules=("errors", "settings", "_version"), third_party=()),
    Layer(modules=("core",), third_party=()),
    Layer(modules=("gates",), third_party=("numpy",)),
    Layer(modules=("engine",)),
    Layer(modules=("store", "spec", "models", "sandbox")),
    Layer(modules=("evaluators", "proposers")),
    Layer(modules=("orchestrator", "results")),
    Layer(modules=("recipes", "run")),
    Layer(modules=("ui", "testing")),
    # an adapter is a call of `kept.optimize` with the arguments of another tool
    Layer(modules=("", "api", "extend", "run_sync", "adapters", "__main__")),
)
# Packages that never import each other, in either direction.
STRANGERS = (("ui.cli", "ui.web"),)
# Standard modules that would give `core` a clock, chance, I/O, threads or a log.
IMPURE = {
    *("asyncio", "concurrent", "datetime", "glob", "http", "io", "logging", "multiprocessing"),
    *("os", "pathlib", "random", "secrets", "shutil", "signal", "socket", "sqlite3", "subprocess"),
    *("tempfile", "threading", "time", "urllib", "uuid"),
}
PURE = ("core", "gates")
MAX_LINES = 700
LONG_LINES = 600
MAX_STATEMENTS = 60
MAX_PARAMETERS = 8
MANY_PARAMETERS = {(module, name) for module in ("api", "") for name in ("optimize", "compare")}


@dataclass(frozen=True)
class Module:
    name: str
    """Below `kept`: "core.edit", and "" for `kept/__init__.py`."""
    path: Path
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


def read_modules(source: Path) -> list[Module]:
    modules: list[Module] = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        text = path.read_text(encoding="utf-8")
        modules.append(Module(name, path, text, ast.parse(text, str(path))))
    return modules


def check(source: Path) -> list[str]:
    """Every violation in the tree, as `path:line: what`."""
    modules = read_modules(source)
    names = {module.name for module in modules}
    problems = [
        f"{module.path.relative_to(source)}:{problem}"
        for module in modules
        for problem in (*check_imports(module, names), *check_names(module), *check_sizes(module))
    ]
    problems += check_cycles(modules, names)
    # `from kept.x import a, b` breaks a rule once.
    return list(dict.fromkeys(problems))


def check_imports(module: Module, names: set[str]) -> Iterator[str]:
    place = layer_of(module.name)
    if place is None:
        yield f"1: {dotted(module.name)} is in no layer of tests/test_architecture.py"
        return
    for line, target in imports(module, names):
        top, _, below = target.partition(".")
        problem = (
            inward_problem(module.name, place, below)
            if top == "kept"
            else outside_problem(module.name, place, top)
        )
        if problem:
            yield f"{line}: {problem}"


def inward_problem(name: str, place: int, target: str) -> str | None:
    goal = layer_of(target)
    imported = f"imports {dotted(target)}"
    if goal is None:
        return f"{imported}, which is in no layer"
    if goal > place:
        return f"{imported}, which is to the right of {dotted(name)}"
    for one, other in (*STRANGERS, *((b, a) for a, b in STRANGERS)):
        if f"{name}.".startswith(f"{one}.") and f"{target}.".startswith(f"{other}."):
            return f"{imported}; the two never import each other"
    return None


def check_cycles(modules: list[Module], names: set[str]) -> list[str]:
    """Modules that import each other when they are loaded, directly or by way of others."""
    graph: dict[str, set[str]] = {}
    for module in modules:
        loaded = ast.Module(body=list(statements_at_import(module.tree.body)), type_ignores=[])
        top = Module(module.name, module.path, module.text, loaded)
        targets = {target.removeprefix("kept").lstrip(".") for _, target in imports(top, names)}
        graph[module.name] = targets & names - {module.name, ""}
    found: list[str] = []
    seen: set[str] = set()
    for start in sorted(graph):
        cycle = cycle_from(start, graph) if start not in seen else []
        if cycle:
            seen.update(cycle)
            found.append(f"{' -> '.join(map(dotted, [*cycle, start]))}: a cycle of imports")
    return found


def cycle_from(start: str, graph: dict[str, set[str]]) -> list[str]:
    """The shortest way from a module back to itself; empty where there is none."""
    ways = [[start]]
    visited: set[str] = set()
    for way in ways:
        for target in sorted(graph[way[-1]]):
            if target == start:
                return way
            if target not in visited:
                visited.add(target)
                ways.append([*way, target])
    return []


def statements_at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The import statements that run when a module is loaded, not those of type checkers."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            yield from statements_at_import([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [inner for handler in node.handlers for inner in handler.body]
            yield from statements_at_import([*node.body, *handlers, *node.orelse, *node.finalbody])


def check_names(module: Module) -> Iterator[str]:
    """Top-level names that two definitions or imports of one module give to different things."""
    places: dict[str, list[ast.stmt]] = defaultdict(list)
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if "overload" not in {ast.unparse(decorator) for decorator in node.decorator_list}:
                places[node.name].append(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                places[alias.asname or alias.name.partition(".")[0]].append(node)
    for name, nodes in places.items():
        if len(nodes) > 1 and len({ast.unparse(node) for node in nodes}) > 1:
            plain = all(isinstance(node, ast.Import) for node in nodes)
            if not plain:  # `import a.b` and `import a.c` both bind `a`
                yield f"{nodes[1].lineno}: {name} is defined or imported twice"


def outside_problem(name: str, place: int, top: str) -> str | None:
    if name.partition(".")[0] in PURE and top in IMPURE:
        return f"imports {top}, and this layer has no I/O, clock, chance, threads or log"
    allowed = LAYERS[place].third_party
    if allowed is None or top in sys.stdlib_module_names or top in allowed:
        return None
    return f"imports {top}; this layer has the standard library, {', '.join(allowed) or 'no more'}"


def dotted(name: str) -> str:
    return f"kept.{name}" if name else "kept"


def layer_of(name: str) -> int | None:
    first = name.partition(".")[0]
    return next((n for n, layer in enumerate(LAYERS) if first in layer.modules), None)


def imports(module: Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """Line and full dotted target of each import, wherever in the module it stands."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = from_base(module, node)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                is_module = full.removeprefix("kept.") in names
                if base == "kept" and layer_of(alias.name) is not None:
                    is_module = True
                yield node.lineno, full if is_module else base
        elif isinstance(node, ast.Call) and called_name(node) in {"import_module", "__import__"}:
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield node.lineno, argument.value


def from_base(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = ["kept", *filter(None, module.package.split("."))]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *filter(None, [node.module])])


def called_name(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def check_sizes(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MAX_LINES:
        yield f"{lines}: {lines} lines, over {MAX_LINES}"
    methods = {
        id(child)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield f"{node.lineno}: global {', '.join(node.names)}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            here = f"{node.lineno}: {node.name} has"
            statements = count_statements(node)
            if statements > MAX_STATEMENTS:
                yield f"{here} {statements} statements, over {MAX_STATEMENTS}"
            parameters = count_parameters(node, is_method=id(node) in methods)
            if parameters > MAX_PARAMETERS and not may_have_many_parameters(module, node):
                yield f"{here} {parameters} parameters, over {MAX_PARAMETERS}"


Function = ast.FunctionDef | ast.AsyncFunctionDef


def count_statements(function: Function) -> int:
    """Statements at any depth, those of inner functions too; the docstring is none."""
    inside = sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1
    return inside - (ast.get_docstring(function, clean=False) is not None)


def count_parameters(function: Function, *, is_method: bool) -> int:
    """Named parameters as a caller sees them, so without the `self` of a method."""
    arguments = function.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    decorators = {ast.unparse(decorator) for decorator in function.decorator_list}
    return count - (is_method and "staticmethod" not in decorators)


def may_have_many_parameters(module: Module, function: Function) -> bool:
    """A click command has one per option, and `kept.optimize` one per slot of a plan."""
    decorated = (ast.unparse(decorator) for decorator in function.decorator_list)
    is_command = any(decorator.startswith("click.") for decorator in decorated)
    return is_command or (module.name, function.name) in MANY_PARAMETERS


def plant(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return check(folder)


def body(statements: int) -> str:
    return "".join(f"    x{n} = {n}\n" for n in range(statements))


def test_the_package_keeps_its_layers_and_its_sizes():
    problems = check(SOURCE)
    assert not problems, "\n".join(problems)


@pytest.mark.filterwarnings("default")
def test_modules_are_warned_about_before_they_are_too_long():
    for module in read_modules(SOURCE):
        lines = len(module.text.splitlines())
        if lines > LONG_LINES:
            warnings.warn(f"{dotted(module.name)} has {lines} lines", stacklevel=1)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"core/a.py": "import kept.engine"}, "core/a.py:1: imports kept.engine"),
        ({"core/a.py": "def f():\n    from kept import ui"}, "core/a.py:2: imports kept.ui"),
        ({"core/a.py": "from kept import optimize"}, "core/a.py:1: imports kept,"),
        (
            {"core/a.py": "import typing as t\nif t.TYPE_CHECKING:\n    import kept.ui"},
            "core/a.py:3: imports kept.ui",
        ),
        ({"core/a.py": "from ..store import Journal"}, "core/a.py:1: imports kept.store"),
        ({"core/__init__.py": "from ..spec import load"}, "core/__init__.py:1: imports kept.spec"),
        ({"core/a.py": "from pathlib import Path"}, "core/a.py:1: imports pathlib"),
        ({"gates/a.py": "import datetime as dt"}, "gates/a.py:1: imports datetime"),
        (
            {"gates/a.py": "import importlib\nimportlib.import_module('kept.results')"},
            "gates/a.py:2: imports kept.results",
        ),
        ({"core/a.py": "import numpy as np"}, "core/a.py:1: imports numpy"),
        ({"core/a.py": "import pydantic.fields"}, "core/a.py:1: imports pydantic"),
        ({"core/a.py": "from time import monotonic"}, "core/a.py:1: imports time"),
        ({"gates/a.py": "from scipy import stats"}, "gates/a.py:1: imports scipy"),
        ({"errors.py": "from kept.core import edit"}, "errors.py:1: imports kept.core"),
        ({"errors.py": "import msgspec"}, "errors.py:1: imports msgspec"),
        ({"results/a.py": "from kept.recipes import b"}, "results/a.py:1: imports kept.recipes"),
        (
            {"ui/cli/a.py": "from kept.ui.web.b import f", "ui/web/b.py": ""},
            "ui/cli/a.py:1: imports kept.ui.web.b; the two",
        ),
        (
            {"ui/web/a.py": "def f():\n    import kept.ui.cli.main"},
            "ui/web/a.py:2: imports kept.ui.cli.main; the two",
        ),
        ({"misc.py": ""}, "misc.py:1: kept.misc is in no layer"),
        ({"ui/a.py": "import kept.misc"}, "ui/a.py:1: imports kept.misc, which is in no layer"),
        (
            {"core/a.py": "from kept.core.b import f", "core/b.py": "import kept.core.a"},
            "kept.core.a -> kept.core.b -> kept.core.a: a cycle",
        ),
        (
            {
                "core/a.py": "from kept.core import b",
                "core/b.py": "from kept.core.c import f",
                "core/c.py": "try:\n    from kept.core.a import g\nexcept ImportError:\n    g = 1",
            },
            "kept.core.a -> kept.core.b -> kept.core.c -> kept.core.a: a cycle",
        ),
        (
            {"core/a.py": "def f(): ...\ndef f(): pass"},
            "core/a.py:2: f is defined or imported twice",
        ),
        (
            {"core/a.py": "from math import sqrt\nclass sqrt: ..."},
            "core/a.py:2: sqrt is defined or imported twice",
        ),
        ({"engine.py": "\n" * 701}, "engine.py:701: 701 lines, over 700"),
        ({"engine.py": f"def f():\n{body(61)}"}, "engine.py:1: f has 61 statements, over 60"),
        (
            {"engine.py": f"def f():\n    if 1:\n        def g():\n            pass\n{body(58)}"},
            "engine.py:1: f has 61 statements, over 60",
        ),
        (
            {"engine.py": "async def f(a, b, c, d, *, e, g, h, i, j): ..."},
            "engine.py:1: f has 9 parameters",
        ),
        (
            {"engine.py": "def optimize(a, b, c, d, e, f, g, h, i): ..."},
            "engine.py:1: optimize has 9",
        ),
        ({"engine.py": "n = 0\ndef f():\n    global n\n    n = 1"}, "engine.py:3: global n"),
    ],
)
def test_a_planted_violation_is_reported(tmp_path: Path, files: dict[str, str], problem: str):
    found = plant(tmp_path, files)
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    "files",
    [
        {"core/a.py": "from . import b\nfrom kept.errors import KeptError", "core/b.py": ""},
        {"gates/a.py": "import numpy as np\nfrom kept.core.case import Case"},
        {"sandbox/a.py": "from kept.store import Journal\nfrom kept import errors"},
        {"models/a.py": "from .b import f\nfrom kept.spec import yaml", "models/b.py": ""},
        {"run.py": "import kept.recipes.task", "recipes/task.py": ""},
        {"__init__.py": "from kept.api import optimize", "api.py": "import kept.ui.cli.main"},
        {
            "core/a.py": "import typing as t\nif t.TYPE_CHECKING:\n    import kept.core.b",
            "core/b.py": "from kept.core.a import f",
        },
        {"core/a.py": "def f():\n    import kept.core.b", "core/b.py": "import kept.core.a"},
        {"engine.py": f'def f():\n    """Words."""\n{body(60)}'},
        {"engine.py": "class A:\n    def f(self, a, b, c, d, e, g): ..."},
        {"api.py": "def optimize(a, b, c, d, e, f, g, h, i): ..."},
        {"ui/cli/a.py": "import click\n@click.command()\ndef f(a, b, c, d, e, g, h, i, j): ..."},
    ],
)
def test_what_the_layers_allow_is_not_reported(tmp_path: Path, files: dict[str, str]):
    assert plant(tmp_path, files) == []
