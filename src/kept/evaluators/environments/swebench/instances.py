"""SWE-bench instances from dataset rows or task folders, and validation of patches.

A row has the format of the published dataset. A task folder (SWE-bench-tasks) has `task.yaml`
with `problem_statement.md`, `gold.patch`, `test.patch`, `tests.json` and the description of the
environment. A row describes it in `setup`, or as SWE-rebench does in `install_config` and
`requirements`.

A patch comes from a model. It must be in the format of `git diff` and may only touch plain files
of the repository.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from dataclasses import fields as fields_of
from pathlib import Path, PurePosixPath
from shlex import join
from typing import Any, cast

import yaml

from kept.core.case import Case
from kept.core.parsing import ParseLimit
from kept.core.untyped import dict_in, is_dict, is_list, list_in
from kept.evaluators.environments.base import Item
from kept.evaluators.environments.datasets import Fields, Row, rows_in, values
from kept.spec.yaml import compose_all

MOST_BYTES = 1_000_000
MOST_FILES = 300

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_HEADS = ("--- ", "+++ ", "rename from ", "rename to ", "copy from ", "copy to ")
_MODES = {"120000": "a symbolic link", "160000": "a submodule"}
_ESCAPE = re.compile(r'\\([abfnrtv"\\]|[0-7]{3})')
_LETTERS = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


class PatchRefused(Exception):
    """A patch that is not applied; the message says why."""


def touched_files(patch: str) -> list[str]:
    """Paths that a patch reads or writes, in its order; raises `PatchRefused`.

    An empty patch touches nothing. What is no diff at all is refused.
    """
    if not patch.strip():
        return []
    if len(patch.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        raise PatchRefused(f"the patch is larger than {MOST_BYTES:,} bytes")
    found: dict[str, None] = {}
    for line in _heads(patch):
        _check_head(line)
        for path in _paths(line):
            _check_path(path)
            found[path] = None
    if not found:
        raise PatchRefused("the patch has no file in it: a diff of `git diff` is expected")
    if len(found) > MOST_FILES:
        raise PatchRefused(f"the patch touches more than {MOST_FILES} files")
    return list(found)


def _heads(patch: str) -> list[str]:
    """Lines of a patch that are no content of a file."""
    found: list[str] = []
    old = new = 0
    for line in patch.split("\n"):
        if old > 0 or new > 0:
            # inside a hunk, whose header says how many old and new lines follow
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
            continue
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = (int(one) if one is not None else 1 for one in hunk.groups())
        else:
            found.append(line)
    return found


def _check_head(line: str) -> None:
    if line.startswith("GIT binary patch") or re.match(r"Binary files .* differ", line):
        raise PatchRefused("the patch changes a binary file")
    mode = re.match(r"(?:new file mode|new mode|old mode|deleted file mode) (\d+)", line)
    mode = mode or re.match(r"index [0-9a-f]+\.\.[0-9a-f]+ (\d+)", line)
    if mode is not None and mode[1] in _MODES:
        raise PatchRefused(f"the patch changes {_MODES[mode[1]]}")


def _paths(line: str) -> list[str]:
    if line.startswith("diff --git "):
        return [_stripped(part) for part in _pair(line.removeprefix("diff --git "))]
    for head in _HEADS:
        if line.startswith(head):
            name = _unquoted(line.removeprefix(head).partition("\t")[0].rstrip("\r"))
            if name == "/dev/null":
                return []
            return [_stripped(name) if head in ("--- ", "+++ ") else name]
    return []


def _pair(names: str) -> list[str]:
    """Both names of a `diff --git` line; an unquoted one may hold blanks, and both are alike."""
    quoted = re.match(r'("(?:[^"\\]|\\.)*"|\S+) ("(?:[^"\\]|\\.)*"|\S+)\Z', names)
    if quoted is not None:
        return [_unquoted(quoted[1]), _unquoted(quoted[2])]
    half = len(names) // 2
    return [names[:half], names[half + 1 :]]


def _unquoted(name: str) -> str:
    if not (len(name) > 1 and name[0] == name[-1] == '"'):
        return name
    raw = _ESCAPE.sub(lambda found: chr(_LETTERS.get(found[1]) or int(found[1], 8)), name[1:-1])
    try:
        return raw.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return raw


def _stripped(name: str) -> str:
    """A name without its `a/` or `b/`; an absolute one stays absolute."""
    return name if name.startswith("/") else name.partition("/")[2] or name


def _check_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    outside = path.startswith("/") or ".." in parts or not parts
    if outside or any(part.lower() == ".git" for part in parts):
        raise PatchRefused(f"the patch touches `{path[:200]}`, which is outside the repository")
    if any(ord(sign) < 32 or ord(sign) == 127 for sign in path):
        raise PatchRefused(f"the patch has a control character in the path {path[:200]!r}")


TASK = "task.yaml"
DATASETS: Mapping[str, str] = {
    "lite": "SWE-bench_Lite",
    "verified": "SWE-bench_Verified",
    "full": "SWE-bench",
}
"""Names that a config has for the published datasets, and how task folders call them."""

_MOST_CHARS = 4_000_000
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_ID = re.compile(r"[A-Za-z0-9][\w.-]*\Z")
_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selection of instances to read, and the folder with their setups."""

    dataset: str = ""
    """Dataset of the task folders: `lite`, `verified` or `full`; empty for all."""
    split: str = "test"
    """Split of the dataset."""
    tasks: Path | None = None
    """Folder of task folders, for rows that say nothing of their environment."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Description of the environment of an instance."""

    python: str = ""
    """Version, as `3.9`; empty for the Python that runs Kept."""
    packages: tuple[str, ...] = ()
    """Pinned requirements, as `pytest==7.4.0`."""
    install: tuple[str, ...] = ()
    """Lines of the shell that install the repository, run in it."""
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the tests."""
    test_cmd: str = ""
    log_parser: str = ""
    image: str = ""
    """Docker image with the repository in `/testbed`."""

    def row(self) -> dict[str, object]:
        """Return it as in a row; empty values are left out."""
        found: dict[str, object] = {
            "python": self.python,
            "packages": list(self.packages),
            "install": list(self.install),
            "variables": dict(self.variables),
            "test_cmd": self.test_cmd,
            "log_parser": self.log_parser,
            "image": self.image,
        }
        return {key: value for key, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Instance:
    """One bug of one repository."""

    id: str
    repo: str
    base_commit: str
    problem: str
    hints: str
    gold: str
    test_patch: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    version: str
    setup: Setup


_KEYS = {*(one.name for one in fields_of(Setup)), "pre_install", "pip_packages", "env_vars"}
"""Keys that the setup of a row may have; the last three are spelt as SWE-rebench does."""


def instance_of(case: Case) -> Instance:
    """The instance of a case that this environment has read."""
    data = values(case)
    setup: dict[str, Any] = data.get("setup", {})
    return Instance(
        id=case.id,
        repo=data["repo"],
        base_commit=data["base_commit"],
        problem=data["problem_statement"],
        hints=data.get("hints_text", ""),
        gold=data["patch"],
        test_patch=data["test_patch"],
        fail_to_pass=tuple(data["FAIL_TO_PASS"]),
        pass_to_pass=tuple(data["PASS_TO_PASS"]),
        version=data.get("version", ""),
        setup=setup_of(setup),
    )


def read_instances(path: Path, fields: Fields, wanted: Wanted) -> Iterator[Item]:
    """Cases of a file or folder; of task folders those of one dataset and split."""
    folders = task_folders(path)
    for row in map(_task_row, folders) if folders else rows_in(path):
        if folders:
            named = [str(one).rpartition("/")[2] for one in row.data.get("datasets") or ()]
            if wanted.dataset and named and DATASETS[wanted.dataset] not in named:
                continue
            if row.data.get("split", wanted.split) != wanted.split:
                continue
        data = _checked(row, fields, wanted.tasks)
        if data is not None:
            yield Item(Case(str(row.data["instance_id"]), data), row.where)


def task_folders(path: Path) -> list[Path]:
    """Task folders at a path, below it or below its `tasks`; sorted by name."""
    if (path / TASK).is_file():
        return [path]
    for folder in (path / "tasks", path):
        if folder.is_dir():
            found = sorted(one.parent for one in folder.glob(f"*/{TASK}"))
            if found:
                return found
    return []


def setup_of(row: Mapping[str, Any]) -> Setup:
    """The setup that a row has read or was given."""
    return Setup(
        python=str(row.get("python", "")),
        packages=tuple(row.get("packages", ())),
        install=tuple(row.get("install", ())),
        variables=dict(row.get("variables", {})),
        test_cmd=str(row.get("test_cmd", "")),
        log_parser=str(row.get("log_parser", "")),
        image=str(row.get("image", "")),
    )


def _checked(row: Row, fields: Fields, tasks: Path | None) -> dict[str, Any] | None:
    """Validated fields of a row; None if there are problems, which are reported."""
    before = len(fields.problems)
    texts = {
        name: fields.text(row, (name,))
        for name in ("instance_id", "repo", "base_commit", "problem_statement", "test_patch")
    }
    for name, shape in (("instance_id", _ID), ("repo", _REPO), ("base_commit", _COMMIT)):
        if texts[name] is not None and not shape.match(str(texts[name])):
            fields.wrong(row, f"`{name}` is `{str(texts[name])[:80]}`")
    tests = {name: _tests(row, name, fields) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    if tests["FAIL_TO_PASS"] == []:
        fields.wrong(row, "`FAIL_TO_PASS` is empty: no test tells whether the bug is fixed")
    patch = fields.text(row, ("patch",))
    for name, text in (("patch", patch), ("test_patch", texts["test_patch"])):
        try:
            touched_files(text or "")
        except PatchRefused as refused:
            fields.wrong(row, f"`{name}` cannot be applied: {refused}")
    setup = _setup(row, fields)
    if len(fields.problems) > before:
        return None
    if not setup.row() and tasks is not None and (tasks / row.data["instance_id"]).is_dir():
        folder = tasks / row.data["instance_id"]
        setup = _task_setup(folder, _yaml(folder / TASK))
    if not setup.test_cmd:
        command = usual_command(str(texts["repo"]), touched_files(str(texts["test_patch"])))
        setup = replace(setup, test_cmd=command)
    more = {name: str(row.data.get(name) or "") for name in ("hints_text", "version")}
    data: dict[str, Any] = {**texts, "patch": patch, **more, **tests}
    return {**data, "setup": setup.row()}


def usual_command(repo: str, files: Sequence[str]) -> str:
    """The command that the tests of a project are run with, for the files of a test patch."""
    tests = [one for one in files if one.endswith(".py")]
    if repo == "django/django":
        labels = [one.removeprefix("tests/").removesuffix(".py").replace("/", ".") for one in tests]
        runner = "./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1"
        return join([*runner.split(), *labels])
    if repo == "sympy/sympy":
        return join(["bin/test", "-C", "--verbose", *tests])
    return join(["python", "-m", "pytest", "-rA", *tests])


def _tests(row: Row, name: str, fields: Fields) -> list[str]:
    """Names of tests: a list, or one written as JSON in a text."""
    value: object = row.data.get(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            value = None
    found = value if is_list(value) else None
    if found is None or not all(isinstance(one, str) for one in found):
        fields.wrong(row, f"`{name}` is no list of test names")
        return []
    return [str(one) for one in found]


def _setup(row: Row, fields: Fields) -> Setup:
    given: object = row.data.get("setup") or row.data.get("install_config") or {}
    if not is_dict(given):
        fields.wrong(row, "`setup` is no object")
        return Setup()
    # only `setup` is checked: SWE-rebench may add keys to `install_config`
    for name in sorted({*given} - _KEYS) if row.data.get("setup") else ():
        fields.wrong(row, f"`setup` has no `{name}`", f"it has {', '.join(sorted(_KEYS))}")
    install = [*_lines(given.get("pre_install")), *_lines(given.get("install"))]
    packages = [
        *_lines(given.get("packages")) * ("setup" in row.data),
        *_lines(given.get("pip_packages")),
        *_lines(row.data.get("requirements")),
    ]
    variables: object = given.get("variables") or given.get("env_vars") or {}
    if not is_dict(variables):
        fields.wrong(row, "`variables` of `setup` is no object")
        variables = {}
    return Setup(
        python=str(given.get("python") or ""),
        packages=tuple(dict.fromkeys(one for one in packages if not one.startswith("#"))),
        install=tuple(install),
        variables={str(name): str(value) for name, value in variables.items()},
        test_cmd=" ".join(_lines(given.get("test_cmd"))),
        log_parser=str(given.get("log_parser") or ""),
        image=str(given.get("image") or row.data.get("image_name") or ""),
    )


def _lines(value: object) -> list[str]:
    """Lines of a text, or the texts of a list."""
    if is_list(value):
        return [str(one).strip() for one in value if str(one).strip()]
    return [line.strip() for line in str(value or "").splitlines() if line.strip()]


def _task_row(folder: Path) -> Row:
    """Read a task folder as a row."""
    task = folder / TASK
    told = _yaml(task)
    told["instance_id"] = str(told.get("instance_id") or folder.name)
    names = {
        "problem_statement": "problem_statement.md",
        "hints_text": "hints.md",
        "patch": "gold.patch",
        "test_patch": "test.patch",
    }
    texts = {name: _text(folder / file) for name, file in names.items()}
    tests: object = None
    with suppress(ValueError, RecursionError):
        tests = json.loads(_text(folder / "tests.json"))
    tests = dict_in(tests)
    setup = _task_setup(folder, told)
    data: dict[str, Any] = {**told, **texts, **tests, "setup": setup.row()}
    return Row(data, task, 1, 1)


def _task_setup(folder: Path, told: Mapping[str, Any]) -> Setup:
    """Read the environment from the files of a task: pins, install lines, test command."""
    python, packages = _pins(folder / "environment.yml")
    install = _install_lines(_text(folder / "Dockerfile"))
    command, variables = _test_lines(_text(folder / "eval.sh"))
    return Setup(
        python=python,
        packages=packages,
        install=install,
        variables=variables,
        test_cmd=command,
        log_parser=str(told.get("log_parser") or ""),
        image=str(told.get("image") or ""),
    )


def _pins(path: Path) -> tuple[str, tuple[str, ...]]:
    """The Python and the packages of a conda environment, those that conda itself installs too."""
    rows: object = _yaml(path).get("dependencies") or []
    python, packages = "", list[str]()
    for row in list_in(rows):
        if is_dict(row):
            below: object = row.get("pip")
            packages += [str(one) for one in cast("list[object]", below or [])]
            continue
        name, _, rest = str(row).partition("=")
        version, _, build = rest.strip("=").partition("=")
        if name == "python":
            python = ".".join(version.split(".")[:2])
        elif re.search(r"py\d", build) and name != "pip":
            packages.append(f"{name}=={version}")
    return python, tuple(packages)


def _install_lines(dockerfile: str) -> tuple[str, ...]:
    """Lines of a Dockerfile that install the repository, which is checked out by then."""
    lines = dockerfile.splitlines()
    marks = [n for n, line in enumerate(lines) if "Current environment" in line]
    if not marks:
        return ()
    found: list[str] = []
    for line in lines[marks[-1] + 1 :]:
        if line.startswith("# Configure git"):
            break
        if line.strip() and line.strip() != "cd /testbed" and "locale-gen" not in line:
            found.append(line)
    return tuple(found)


def _test_lines(script: str) -> tuple[str, dict[str, str]]:
    """The command between the marks of an evaluation script, and the variables before it."""
    before, _, after = script.partition(_START)
    command = after.partition(_END)[0].strip("\n' :").strip()
    variables: dict[str, str] = {}
    for line in before.splitlines():
        found = re.match(r"export (\w+)=([\w.:-]*)\Z", line)
        if found is not None:
            variables[found[1]] = found[2]
    return command, variables


def _text(path: Path) -> str:
    try:
        # not `read_text`, which would change the line ends that a patch is about
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""
    return text if len(text) <= _MOST_CHARS else ""


def _yaml(path: Path) -> dict[str, Any]:
    text = _text(path)
    try:
        compose_all(text)  # raises `ParseLimit` on what is too deep or too large to load
        found: object = yaml.safe_load(text)
    except (yaml.YAMLError, ParseLimit, RecursionError):
        return {}
    return dict_in(found)
