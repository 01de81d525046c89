"""Three small repositories with a bug each, in the format of SWE-bench; made with real git."""

import base64
import hashlib
import json
import os
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

PYTEST = ("pytest", "pluggy", "iniconfig", "packaging", "pygments")
"""What a venv needs to run pytest."""

BACKEND = '''\
"""A build backend that knows only editable installs, so that none has to be fetched."""

import os
import zipfile

INFO = "shapes-1.0.dist-info"


def _wheel(folder, files):
    name = "shapes-1.0-py3-none-any.whl"
    record = "".join(f"{path},,\\n" for path in [*files, f"{INFO}/RECORD"])
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, text in {**files, f"{INFO}/RECORD": record}.items():
            wheel.writestr(path, text)
    return name


def build_editable(folder, config_settings=None, metadata_directory=None):
    return _wheel(folder, {
        f"{INFO}/METADATA": "Metadata-Version: 2.1\\nName: shapes\\nVersion: 1.0\\n",
        f"{INFO}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        "shapes.pth": os.path.join(os.getcwd(), "src") + "\\n",
    })


build_wheel = build_editable
'''


@dataclass(frozen=True)
class Bug:
    """A repository before and after its fix, and the tests that tell."""

    name: str
    before: Mapping[str, str]
    fixed: Mapping[str, str]
    tests: Mapping[str, str]
    """Tests as the test patch leaves them."""
    wrong: str
    """A line of the shell that changes the source and does not fix it."""
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    setup: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problem: str = ""

    @property
    def id(self) -> str:
        return f"acme__{self.name}-1"


TEXTKIT = Bug(
    name="textkit",
    before={
        "textkit.py": 'def slug(text):\n    return text.lower().replace(" ", "-")\n',
        "tests/test_slug.py": (
            "from textkit import slug\n\n\n"
            'def test_words():\n    assert slug("Two Words") == "two-words"\n'
        ),
    },
    fixed={
        "textkit.py": 'def slug(text):\n    return "-".join(text.lower().split())\n',
    },
    tests={
        "tests/test_slug.py": (
            "import pytest\n\nfrom textkit import slug\n\n\n"
            'def test_words():\n    assert slug("Two Words") == "two-words"\n\n\n'
            '@pytest.mark.parametrize("text", ["a  b", " a b "])\n'
            'def test_blanks(text):\n    assert slug(text) == "a-b"\n'
        ),
    },
    wrong="sed -i 's/lower()/lower().strip()/' textkit.py",
    # the published lists cut an id at its first blank
    fail_to_pass=("tests/test_slug.py::test_blanks[a", "tests/test_slug.py::test_blanks["),
    pass_to_pass=("tests/test_slug.py::test_words",),
    setup={"test_cmd": "python -m pytest -rA tests/test_slug.py", "log_parser": "parse_log_flask"},
    problem="slug() keeps a dash for every blank: slug('a  b') is 'a--b', and should be 'a-b'.",
)

LEDGER = Bug(
    name="ledger",
    before={
        "ledger/__init__.py": "def total(rows):\n    return sum(rows[1:])\n",
        "ledger/money.py": 'def shown(cents):\n    return f"{cents / 100:.2f}"\n',
        "tests/__init__.py": "",
        "tests/test_ledger.py": (
            "import unittest\n\nfrom ledger.money import shown\n\n\n"
            "class LedgerTest(unittest.TestCase):\n"
            "    def test_shown(self):\n"
            '        """Cents are shown as a decimal."""\n'
            '        self.assertEqual(shown(150), "1.50")\n'
        ),
    },
    fixed={"ledger/__init__.py": "def total(rows):\n    return sum(rows)\n"},
    tests={
        "tests/test_ledger.py": (
            "import unittest\n\nfrom ledger import total\nfrom ledger.money import shown\n\n\n"
            "class LedgerTest(unittest.TestCase):\n"
            "    def test_shown(self):\n"
            '        """Cents are shown as a decimal."""\n'
            '        self.assertEqual(shown(150), "1.50")\n\n'
            "    def test_total(self):\n"
            "        self.assertEqual(total([1, 2, 3]), 6)\n"
        ),
    },
    wrong="sed -i 's/rows\\[1:\\]/rows[:1]/' ledger/__init__.py",
    fail_to_pass=("test_total (tests.test_ledger.LedgerTest)",),
    pass_to_pass=("test_shown (tests.test_ledger.LedgerTest)",),
    setup={"test_cmd": "python -m unittest -v tests.test_ledger"},
    problem="total() forgets the first row.",
)

SHAPES = Bug(
    name="shapes",
    before={
        "pyproject.toml": (
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["build"]\n'
        ),
        "build/backend.py": BACKEND,
        "src/shapes/__init__.py": "def area(a, b):\n    return a + b\n",
        "checks/test_area.py": (
            "from importlib.metadata import version\n\n\n"
            'def test_it_is_installed():\n    assert version("shapes") == "1.0"\n'
        ),
    },
    fixed={"src/shapes/__init__.py": "def area(a, b):\n    return a * b\n"},
    tests={
        "checks/test_area.py": (
            "from importlib.metadata import version\n\nfrom shapes import area\n\n\n"
            'def test_it_is_installed():\n    assert version("shapes") == "1.0"\n\n\n'
            "def test_area():\n    assert area(2, 3) == 6\n"
        ),
    },
    wrong="sed -i 's/a + b/a - b/' src/shapes/__init__.py",
    fail_to_pass=("checks/test_area.py::test_area",),
    pass_to_pass=("checks/test_area.py::test_it_is_installed",),
    setup={
        "install": ["python -m pip install -q -e ."],
        "test_cmd": "python -m pytest -rA checks",
        "log_parser": "parse_log_pytest",
    },
    problem="area() of a rectangle adds its sides.",
)

BUGS = (TEXTKIT, LEDGER, SHAPES)


def make_row(bug: Bug, repos: Path, **more: Any) -> dict[str, Any]:
    """The row of a bug, whose repository is made in a folder if it is not there."""
    repo = repos / f"acme__{bug.name}"
    if not repo.exists():
        repo.mkdir(parents=True)
        git(repo, "init", "-q")
        _commit(repo, bug.before, "begin")
        git(repo, "tag", "base")
        _commit(repo, bug.fixed, "fix")
        git(repo, "tag", "fixed")
        _commit(repo, bug.tests, "test")
    setup = dict(bug.setup)
    if "pytest" in setup.get("test_cmd", ""):
        setup["packages"] = [f"{name}=={distribution(name).version}" for name in PYTEST]
    return {
        "instance_id": bug.id,
        "repo": f"acme/{bug.name}",
        "base_commit": git(repo, "rev-parse", "base").strip(),
        "problem_statement": bug.problem,
        "hints_text": "",
        "patch": git(repo, "diff", "base", "fixed"),
        "test_patch": git(repo, "diff", "fixed", "HEAD"),
        # the published rows hold these as JSON in a text
        "FAIL_TO_PASS": json.dumps(bug.fail_to_pass),
        "PASS_TO_PASS": json.dumps(bug.pass_to_pass),
        "version": "1.0",
        "setup": setup,
        **more,
    }


def make_task(bug: Bug, repos: Path, tasks: Path) -> Path:
    """The task folder of a bug, as SWE-bench-tasks has one."""
    row = make_row(bug, repos)
    setup: dict[str, Any] = row["setup"]
    folder = tasks / bug.id
    folder.mkdir(parents=True)
    told = {name: row[name] for name in ("instance_id", "repo", "base_commit", "version")}
    told |= {"datasets": ["SWE-bench/SWE-bench_Lite"], "split": "test"}
    told |= {"log_parser": setup.get("log_parser", "parse_log_pytest")}
    lists = {name: json.loads(row[name]) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    pins = "".join(f"      - {one}\n" for one in setup.get("packages", ()))
    install = "\n".join(setup.get("install", ()))
    files = {
        # JSON is YAML
        "task.yaml": json.dumps(told),
        "problem_statement.md": row["problem_statement"],
        "hints.md": "",
        "gold.patch": row["patch"],
        "test.patch": row["test_patch"],
        "tests.json": json.dumps(lists),
        "environment.yml": (
            "name: testbed\ndependencies:\n  - openssl=3.0.15=h5eee18b_0\n"
            f"  - pip=24.2=py311h06a4308_0\n  - pip:\n{pins or '      []'}\n"
        ),
        "Dockerfile": (
            "RUN <<EOF\ngit clone x /testbed\n"
            'echo "Current environment: $CONDA_DEFAULT_ENV"\ncd /testbed\n'
            f"{install}\n\n# Configure git\ngit commit -am x\nEOF\n"
        ),
        "eval.sh": (
            "#!/bin/bash\nexport LANG=C.UTF-8\ngit apply -v - <<'EOF'\nEOF\n"
            ": '>>>>> Start Test Output'\n"
            f"{setup['test_cmd']}\n: '>>>>> End Test Output'\n"
        ),
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def make_wheels(folder: Path, *names: str) -> Path:
    """Wheels of packages that are installed here, for venvs that reach no index."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = distribution(name)
        files: dict[str, bytes] = {}
        for path in found.files or ():
            if ".." in path.parts or path.name in (
                "RECORD",
                "INSTALLER",
                "REQUESTED",
                "uv_cache.json",
            ):
                continue
            if path.suffix != ".pyc":
                files[path.as_posix()] = Path(str(found.locate_file(path))).read_bytes()
        info = next(path.rpartition("/")[0] for path in files if path.endswith(".dist-info/WHEEL"))
        rows = [f"{path},{_digest(data)},{len(data)}" for path, data in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        stem = info.removesuffix(".dist-info")
        with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
            for path, data in files.items():
                wheel.writestr(path, data)
    return folder


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    # so that the same files are the same commit
    dates = {"GIT_AUTHOR_DATE": "2026-01-01T00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00Z"}
    done = subprocess.run(
        ["git", *who, "-C", str(folder), *words],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.defpath, **dates},
    )
    return done.stdout


def _commit(repo: Path, files: Mapping[str, str], message: str) -> None:
    for name, text in files.items():
        path = repo / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", message)


def _digest(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


def make_kata(folder: Path, count: int) -> Path:
    """Rows of many bugs in one repository, all at one commit, that share one venv.

    Bug n is fixed where `kata.n<n>.value()` returns n; before, it returns None.
    """
    repo = folder / "swebench_repos" / "acme__kata"
    repo.mkdir(parents=True)
    git(repo, "init", "-q")
    names = [f"n{n:02}" for n in range(count)]
    before = {f"kata/{name}.py": "def value():\n    return None\n" for name in names}
    _commit(repo, {**before, "kata/__init__.py": "", "tests/__init__.py": ""}, "begin")
    base = git(repo, "rev-parse", "HEAD").strip()
    rows: list[dict[str, Any]] = []
    for n, name in enumerate(names):
        source = f"def value():\n    return {n}\n"
        test = (
            f"import unittest\n\nfrom kata.{name} import value\n\n\n"
            "class ValueTest(unittest.TestCase):\n"
            f"    def test_value(self):\n        self.assertEqual(value(), {n})\n"
        )
        rows.append(
            {
                "instance_id": f"acme__kata-{n}",
                "repo": "acme/kata",
                "base_commit": base,
                "problem_statement": f"value() of kata/{name}.py should return {n}, not None.",
                "patch": _diff(repo, {f"kata/{name}.py": source}),
                "test_patch": _diff(repo, {f"tests/test_{name}.py": test}),
                "FAIL_TO_PASS": [f"test_value (tests.test_{name}.ValueTest)"],
                "PASS_TO_PASS": [],
                "version": "1.0",
                "setup": {"test_cmd": f"python -m unittest -v tests.test_{name}"},
            }
        )
    path = folder / "swe-bench-tasks" / "kata.jsonl"
    path.parent.mkdir()
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def _diff(repo: Path, files: Mapping[str, str]) -> str:
    """The patch that makes these files what they are told, which leaves the repository alone."""
    for name, text in files.items():
        (repo / name).write_text(text, encoding="utf-8")
    git(repo, "add", "-A")
    found = git(repo, "diff", "--cached")
    git(repo, "reset", "-q", "--hard")
    return found
