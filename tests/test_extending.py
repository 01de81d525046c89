"""The package of docs/guide/extending.md: installed offline, tested by its suites, and used."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kept.settings import child_environment
from tests.docs_pages import read_blocks
from tests.test_wheel import UV

ROOT = Path(__file__).parent.parent
PAGE = "docs/guide/extending.md"
PUBLIC = ("kept", "kept.extend", "kept.testing")


def files(page: str = PAGE) -> dict[str, str]:
    """The files that a page shows, by their names."""
    blocks = read_blocks(page, (ROOT / page).read_text(encoding="utf-8"))
    noted = [(block.note, block.text) for block in blocks]
    return {note.value: text for note, text in noted if note and note.kind == "file"}


def imported(text: str) -> list[str]:
    """The modules of Kept that a piece of Python imports."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append(node.module or "")
    return [name for name in found if name == "kept" or name.startswith("kept.")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, with its package installed into `lib`."""
    made = tmp_path_factory.mktemp("extending")
    for name, text in files().items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if UV is None:
        pytest.skip("uv is not here: `./scripts/test` fetches it")
    options = ("--offline", "--no-deps", "--no-cache", "--target", "lib")
    run(made, UV, "pip", "install", "-q", *options, "./kept-words")
    return made


def run(folder: Path, *argv: str) -> str:
    own = {"PYTHONPATH": str(folder / "lib"), "KEPT_HOME": str(folder / ".kept")}
    env = {**child_environment({}), **own}
    done = subprocess.run(
        argv, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_package_of_the_guide_passes_the_suites(folder: Path):
    told = run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "kept-words")
    assert "22 passed" in told


@pytest.mark.slow
def test_a_task_names_the_components_of_the_package(folder: Path):
    assert "words 0 → 1" in run(folder, sys.executable, "-m", "kept", "optimize", "task", "-q")


@pytest.mark.slow
def test_what_is_wrong_with_such_a_component_is_told_with_its_line(folder: Path):
    spec = folder / "wrong" / "task.yaml"
    spec.parent.mkdir()
    (spec.parent / "prompt.md").write_text("x\n", encoding="utf-8")
    text = (folder / "task" / "task.yaml").read_text(encoding="utf-8")
    wrong = text.replace("[brief, kind]", "[be brief]").replace("file: prompt", "fil: prompt")
    spec.write_text(wrong.replace("primary_metric: words", "primary_metric: word"), "utf-8")
    program = f"""
import json
from pathlib import Path
from kept import SpecError
from kept.recipes.task.compile import compile_task
try:
    compile_task(Path({str(spec)!r}))
except SpecError as error:
    print(json.dumps([[p.where.rpartition(":")[2], p.path, p.message] for p in error.problems]))
"""
    rows = json.loads(run(folder, sys.executable, "-c", program))
    assert ["3", "scorer.words[0]", "`be brief` is more than one word"] in rows
    assert ["4", "objective.primary_metric", "the scorer `words` does not emit `word`"] in rows
    assert ["5", "proposers[0].file", "missing"] in rows
    assert ["5", "proposers[0].fil", "unknown key"] in rows


@pytest.mark.slow
def test_an_environment_of_the_package_is_found_by_its_name(folder: Path):
    program = """
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.registry import find_env
print(type(find_env(EnvSettings(name="roman"))).__module__)
"""
    assert "kept_words.environment" in run(folder, sys.executable, "-c", program)


def pages() -> list[str]:
    found = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    names = [path.relative_to(ROOT).as_posix() for path in found]
    return [name for name in names if not name.startswith("docs/decisions/")]


def private_imports(name: str, text: str) -> list[str]:
    return [
        f"{block.place} imports {module}"
        for block in read_blocks(name, text)
        if block.language == "python"
        for module in imported(block.text)
        if module not in PUBLIC and not module.startswith(("kept.adapters", "kept.testing."))
    ]


@pytest.mark.parametrize("name", pages())
def test_pages_import_public_modules_only(name: str):
    assert private_imports(name, (ROOT / name).read_text(encoding="utf-8")) == []


def test_a_page_that_imports_a_private_module_is_caught():
    text = "```python\nfrom kept.core.case import Case\n```\n"
    assert private_imports("page.md", text) == ["page.md:1 imports kept.core.case"]


def test_the_package_of_the_guide_imports_public_modules_only():
    shown = {name: text for name, text in files().items() if name.endswith(".py")}
    found = {module for text in shown.values() for module in imported(text)}
    assert found == set(PUBLIC)
