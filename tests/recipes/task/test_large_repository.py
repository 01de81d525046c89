"""A repository of 5,000 files: what is not named is not looked at."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kept.spec.paths import glob
from tests.ui.cli.tasks import write_task

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

FILES = 5000
# every file that is opened and every folder that is listed, by this process; not by its commands
WATCHED = """
import json, os, sys
seen = []
def hook(event, args):
    if event in ("open", "os.scandir", "os.listdir") and isinstance(args[0], (str, os.PathLike)):
        seen.append(os.path.abspath(os.fspath(args[0])))
sys.addaudithook(hook)
from kept.ui.cli.main import main
sys.argv = ["kept", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, file=sys.stderr)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for place in ("src", "node_modules/lib", ".venv/lib", ".git/objects", "data"):
        for number in range(FILES // 5):
            path = folder / place / f"{number % 25:02}" / f"{number}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("good good good good\n")
    write_task(folder, walls=True)
    return folder


def touched(repository: Path, *words: str) -> set[str]:
    """The files and folders of the repository that a command of Kept itself looked at."""
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, words[0], str(repository / "task.yaml"), *words[1:]],
        # names that are relative, to some open folder, are not taken for those of the repository
        cwd=repository.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.endswith("0\n"), done.stderr
    paths = (Path(path) for path in json.loads(done.stdout.splitlines()[-1]))
    ours = (path.relative_to(repository) for path in paths if path.is_relative_to(repository))
    return {str(path) for path in ours if path.parts[:1] != (".kept",)}


NAMED = {"task.yaml", "prompt.md", "run.sh", "score.sh", "alternatives", "."}


def is_named(path: str) -> bool:
    """Folders down to the second level are listed once, to hide their `.env` files."""
    searched = path.split("/")[0] in ("src", "data") and path.count("/") <= 1
    return path in NAMED or path.startswith("alternatives/") or searched


def test_check_touches_only_what_the_globs_name(repository: Path):
    assert [path for path in touched(repository, "check") if not is_named(path)] == []


def test_a_step_touches_only_what_the_globs_name(repository: Path):
    looked = touched(repository, "optimize", "-q")
    assert [path for path in looked if not is_named(path)] == []


def test_the_largest_pattern_leaves_out_what_nobody_wrote(repository: Path):
    found = glob(repository, "**/*.md", ["data/**"])
    assert {path.relative_to(repository).parts[0] for path in found} == {
        "alternatives",
        "prompt.md",
        "src",
    }
