"""Test results read from what a test runner prints: pytest, unittest, Django and SymPy.

Every parser takes a log and returns a status by test name. The names are those of the published
`FAIL_TO_PASS` lists. A pytest id may hold blanks, and those lists cut it at the first one, except
for the projects whose parser keeps the whole id.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

Status = Literal["PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL"]
Statuses = dict[str, Status]
Parser = Callable[[str], Statuses]

_SUMMARY = re.compile(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL)")
_COUNT = re.compile(r"\[\d+\]\Z")
"""Count in the place of a name: `SKIPPED [2] tests/test_a.py:3: needs a network`."""
_COLOUR = re.compile(r"\[\d+m")
_CONTROLS = dict.fromkeys(range(1, 32))
_PARAMETERS = re.compile(r"(.*?)\[(.*)\]")
_UNITTEST_NAME = re.compile(r"(\w+) \(([\w.<>]+)\)")
_UNITTEST_END = re.compile(
    r"(ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)\Z", re.DOTALL
)
_UNITTEST_HEAD = re.compile(r"(FAIL|ERROR): (\w+) \(([\w.<>]+)\)")
_UNITTEST: Mapping[str, Status] = {"ok": "PASSED", "ERROR": "ERROR", "expected failure": "XFAIL"}
_SYMPY_ENDS: Mapping[str, Status] = {"ok": "PASSED", "F": "FAILED", "E": "ERROR"}


def parse_pytest(log: str) -> Statuses:
    """Results of the short summary of `pytest -rA`; an id ends at its first blank."""
    found: Statuses = {}
    for line in log.split("\n"):
        words = _summary_words(line)
        if words is not None:
            found[words[1]] = _status(words[0])
    return found


def parse_pytest_paths(log: str) -> Statuses:
    """Like `parse_pytest`, but a path as parameter is reduced to its last part.

    Such a parameter holds the folder of the machine that the list was made on.
    """
    found: Statuses = {}
    for name, status in parse_pytest(log).items():
        parts = _PARAMETERS.match(name)
        if parts is not None:
            last = parts[2]
            if last.startswith("/") and not last.startswith("//") and "*" not in last:
                last = "/" + last.rpartition("/")[2]
            name = f"{parts[1]}[{last}]"
        found[name] = status
    return found


def parse_pytest_whole(log: str) -> Statuses:
    """Like `parse_pytest`, with whole ids; also reads old releases, which print the status last."""
    found: Statuses = {}
    for raw in log.split("\n"):
        line = _COLOUR.sub("", raw).translate(_CONTROLS)
        if _SUMMARY.match(line):
            text = line.partition(" - ")[0] if line.startswith("FAILED") else line
            words = _summary_words(text)
            if words is not None:
                found[" ".join(words[1:])] = _status(words[0])
            continue
        last = line.split()
        if len(last) > 1 and line.endswith(("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL")):
            found[" ".join(last[:-1])] = _status(last[-1])
    return found


def parse_pytest_verbose(log: str) -> Statuses:
    """Results of `pytest -v` as seaborn has them: passed on a line of its own, or in a summary."""
    found: Statuses = {}
    for line in log.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith("FAILED"):
            found[words[1]] = "FAILED"
        elif " PASSED " in line:
            if words[1] == "PASSED":
                found[words[0]] = "PASSED"
        elif line.startswith("PASSED"):
            found[words[1]] = "PASSED"
    return found


def parse_matplotlib(log: str) -> Statuses:
    """Like `parse_pytest`; names of mouse buttons become numbers, as some releases print them."""
    return parse_pytest(log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def parse_unittest(log: str) -> Statuses:
    """Results of `python -m unittest -v`, as `test_name (module.Class)`.

    A test with a docstring has its name on a line and its end on the next one. What a test prints
    stands between its name and its end. A failed subtest fails its test.
    """
    found: Statuses = {}
    name = ""
    for line in log.split("\n"):
        head = _UNITTEST_HEAD.match(line)
        if head is not None:
            found[unittest_name(f"{head[2]} ({head[3]})")] = (
                "FAILED" if head[1] == "FAIL" else "ERROR"
            )
            name = ""
            continue
        known = _UNITTEST_NAME.match(line)
        if known is not None:
            name = unittest_name(known[0])
        end = _UNITTEST_END.search(line.rpartition(" ... ")[2] if " ... " in line else line)
        # after the dots, or on a separate line after the test's output
        if name and end is not None and (" ... " in line or end[1] == line.strip()):
            skipped = end[1].startswith("skipped")
            found.setdefault(name, "SKIPPED" if skipped else _UNITTEST.get(end[1], "FAILED"))
            name = ""
    return found


def unittest_name(name: str) -> str:
    """The name of a unittest as all Pythons print it: since 3.11 its method stands there twice."""
    known = _UNITTEST_NAME.fullmatch(name.strip())
    if known is None:
        return name
    return f"{known[1]} ({known[2].removesuffix(f'.{known[1]}')})"


def parse_django(log: str) -> Statuses:
    """Results of Django's `runtests.py --verbosity 2`.

    A test with a docstring is called by the first line of it, as in the published lists. A test
    that prints something has its `ok` on a later line.
    """
    found: Statuses = {}
    running: str | None = None
    for line in map(str.strip, log.split("\n")):
        if "--version is equivalent to version" in line:
            found["--version is equivalent to version"] = "PASSED"
        if " ... " in line:
            running = line.partition(" ... ")[0]
        _django_line(line, found)
        if line.startswith("ok") and running is not None:
            found[running] = "PASSED"
    found.update((name, "PASSED") for name in _django_interrupted(log.split("\n")))
    return found


_DJANGO_MESSAGES = {
    " ... Testing against Django installed in ": (re.compile(r".* silenced\)\."), 20),
    " ... Internal Server Error: ": (re.compile("/.*/"), 0),
    " ... System check identified no issues (0 silenced)": (re.compile(""), 0),
}
"""Messages of Django between a test and its `ok`: the pattern of the last line of each, and the
maximum number of further lines."""


def _django_interrupted(lines: Sequence[str]) -> Iterator[str]:
    """Tests that passed though a message stands between their name and their `ok`.

    Line by line: a pattern for the whole log would take hours for what a hostile test prints.
    """
    for n, line in enumerate(lines):
        for message, (end, more) in _DJANGO_MESSAGES.items():
            if message not in line:
                continue
            name, _, rest = line.partition(message)
            following = lines[n + 1 : n + 2 + more]
            pairs = zip((rest, *following), following, strict=False)
            if any(end.fullmatch(last) and after == "ok" for last, after in pairs):
                yield name


def _django_line(line: str, found: Statuses) -> None:
    for end in (" ... ok", " ... OK", " ...  OK"):
        if line.endswith(end):
            # a migration prints on the same line before the test does
            begins = "Applying sites.0002_alter_domain_unique...test_no_migrations"
            whole = line.partition("...")[2].strip() if line.startswith(begins) else line
            found[whole.removesuffix(end)] = "PASSED"
            break
    if " ... skipped" in line:
        found[line.partition(" ... skipped")[0]] = "SKIPPED"
    for word, status in (("FAIL", "FAILED"), ("ERROR", "ERROR")):
        if line.endswith(f" ... {word}"):
            found[line.partition(f" ... {word}")[0]] = _status(status)
        words = line.split()
        if line.startswith(f"{word}:") and len(words) > 1:
            found[words[1]] = _status(status)


def parse_sympy(log: str) -> Statuses:
    """Results of SymPy's `bin/test --verbose`: a name and a letter; failures once more by file."""
    found: Statuses = {}
    for line in map(str.strip, log.split("\n")):
        words = line.split()
        head = line.rstrip("_")
        if head != line and head.endswith(" "):
            file, colon, name = head.partition("_ ")[2].strip().partition(".py:")
            found |= {f"{file}.py:{name}": "FAILED"} if file and colon and name else {}
        if line.startswith("test_") and len(words) > 1 and words[-1] in _SYMPY_ENDS:
            found[words[0]] = _SYMPY_ENDS[words[-1]]
    return found


def _summary_words(line: str) -> list[str] | None:
    """Words of a summary line: status, name and more; None for other lines."""
    if not _SUMMARY.match(line):
        return None
    words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split()
    if len(words) < 2 or words[0] not in _STATUSES:
        return None
    return None if words[0] == "SKIPPED" and _COUNT.match(words[1]) else words


_STATUSES: Mapping[str, Status] = {
    "PASSED": "PASSED",
    "FAILED": "FAILED",
    "ERROR": "ERROR",
    "SKIPPED": "SKIPPED",
    "XFAIL": "XFAIL",
}


def _status(word: str) -> Status:
    return _STATUSES[word]


PARSERS: Mapping[str, Parser] = {
    "django": parse_django,
    "matplotlib": parse_matplotlib,
    "pytest": parse_pytest,
    "pytest_paths": parse_pytest_paths,
    "pytest_verbose": parse_pytest_verbose,
    "pytest_whole": parse_pytest_whole,
    "sympy": parse_sympy,
    "unittest": parse_unittest,
}

_PUBLISHED: Mapping[str, str] = {
    "astropy": "pytest_whole",
    "django": "django",
    "matplotlib": "matplotlib",
    "pydicom": "pytest_paths",
    "pylint": "pytest_paths",
    "pytest_options": "pytest_paths",
    "pytest_v2": "pytest_whole",
    "requests": "pytest_paths",
    "scikit": "pytest_whole",
    "seaborn": "pytest_verbose",
    "sphinx": "pytest_whole",
    "sympy": "sympy",
}
"""Parsers that published instances name, as `parse_log_NAME`; all others are pytest's."""

_COMMANDS = (("runtests.py", "django"), ("bin/test", "sympy"), ("unittest", "unittest"))
"""Part of a test command, and the parser of its output."""


def parser_name(named: str, command: str) -> str:
    """The parser that an instance names, or the usual one for its test command."""
    if named:
        short = named.removeprefix("parse_log_")
        return short if short in PARSERS else _PUBLISHED.get(short, "pytest")
    return next((name for mark, name in _COMMANDS if mark in command), "pytest")
