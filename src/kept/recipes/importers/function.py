"""Importer of a Python function that scores a text, with the local files that it imports.

Imports are followed recursively. The code is parsed, never run.
"""

import ast
import json
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kept.core.parsing import parse_python
from kept.errors import Problem, SetupError, SpecError
from kept.recipes.importers import Draft, task_text, text_of
from kept.recipes.importers.cases import STEPS, budget_of, read_rows
from kept.spec.source import shown


def imported(
    path: Path, tree: ast.Module, taken: Collection[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Return the imported modules beside a file, as texts by name, and packages beside it.

    Raises a `SetupError` for a module with the name of one of the task's own files.
    """
    texts: dict[str, str] = {}
    packages: dict[str, None] = {}
    # modules that were found may import others: `waiting` grows in the loop
    waiting = list(_modules(tree))
    while waiting:
        name = waiting.pop(0)
        file = path.with_name(f"{name}.py")
        if (path.parent / name).is_dir():
            packages[f"{name}/"] = None
        elif file.name != path.name and file.name not in texts and file.is_file():
            if file.name in taken:
                hint = "give it another name"
                raise SetupError(
                    f"{file.name}, which {path.name} imports, is in the way", hint=hint
                )
            texts[file.name] = text_of(file)
            waiting += _modules(parsed(file, texts[file.name]))
    return texts, list(packages)


def parsed(file: Path, text: str) -> ast.Module:
    """Parse a Python file, without running it."""
    try:
        return parse_python(text)
    except (SyntaxError, ValueError) as error:
        raise SetupError(f"{file.name} is not Python: {error}") from error


def _modules(tree: ast.Module) -> Iterator[str]:
    """Yield the first part of every imported module name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


TEXTS = ("SEED", "PROMPT", "TEXT", "INSTRUCTIONS", "TEMPLATE", "ARTIFACT")
"""Usual names of a constant with the text to begin with."""
CASES = ("CASES", "EXAMPLES", "DATASET", "TESTS")

_SCORE = '''\
"""Hands what is to be scored to `{function}` of {file}, as `kept.optimize` does."""

import inspect
import json

from {module} import {function} as evaluate


class Text(str):
    """A candidate: a text that also has itself as `.text`."""

    @property
    def text(self):
        return str(self)


async def score(output, case):
    told = evaluate(Text(output){more})
    if inspect.isawaitable(told):
        told = await told
    told, info = told if isinstance(told, tuple) else (told, None)
    metrics = dict(told) if isinstance(told, dict) else {{"score": told}}
    if info is not None:
        text = info if isinstance(info, str) else json.dumps(info, default=repr)
        metrics["findings"] = [text]  # what proposers read of train cases
    return metrics
'''


class _Found(NamedTuple):
    name: str
    text: str
    takes_case: bool
    cases: list[Any] | None


def draft_of_function(
    path: Path, name: str = "", model: str | None = None, cases: Path | None = None
) -> Draft:
    """Draft a task that improves the text that a function scores."""
    source = text_of(path)
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        why = getattr(error, "msg", None) or str(error)
        raise SpecError([Problem(f"{shown(path)}:{line}", "", f"not Python: {why}")]) from error
    if not path.stem.isidentifier() or path.stem in ("score", "task"):
        raise SetupError(f"{path.name} cannot be imported", hint="give it another name")
    found = _found(path, tree, name)
    rows: list[Any] = list(read_rows(cases)) if cases is not None else found.cases or []
    if found.takes_case and not rows:
        _refuse_made(path, tree, CASES, "a list of what JSON can hold", "give them with --cases")
        hint = f"give them with --cases, or as a list {CASES[0]} in the file"
        raise SetupError(f"`{found.name}` wants a case, and there are none", hint=hint)
    task: dict[str, Any] = {
        "artifacts": {"include": ["text.md"]},
        "runner": {"command": f"cat {shlex.quote('text.md')}"},
        "scorer": {"type": "python", "function": "score:score"},
        "objective": {"primary_metric": "score", "direction": "maximize"},
        "proposers": [{"kind": "prune"}],
        "sandbox": {"hidden": []},
        "budget": {"max_iterations": STEPS},
    }
    notes = ["`score` is to be as great as can be; `objective` says otherwise where less is better"]
    beside, missing = imported(path, tree, ("score.py",))
    notes += [f"`{name}` is imported and not copied: put it into the folder" for name in missing]
    files = {"text.md": found.text, path.name: source, **beside}
    # the runner must not see the scorer's code
    task["sandbox"]["hidden"] = [path.name, *beside]
    more = ", case" if found.takes_case else ""
    files["score.py"] = _SCORE.format(
        function=found.name, file=path.name, module=path.stem, more=more
    )
    if found.takes_case:
        task["cases"] = {"file": "cases.jsonl", "split": "3:5:2" if len(rows) > 4 else "0:1:0"}
        try:
            lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
        except (TypeError, ValueError, RecursionError) as error:
            hint = "cases are texts, numbers, lists and mappings by texts"
            raise SetupError(f"a case of {path.name} cannot be JSON: {error}", hint=hint) from error
        files["cases.jsonl"] = "".join(lines)
    if model is not None:
        task["models"] = {"optimizer": model}
        task["proposers"].append({"kind": "edit"})
        task["budget"], about_money = budget_of(model)
        notes += about_money
        if "max_usd" in task["budget"]:
            task["budget"] |= {"usd_per_rollout": 0}
            notes.append(
                f"where `{found.name}` itself pays for something, say how much at most in "
                "`budget.usd_per_rollout`"
            )
    else:
        notes.append("no model is named, so parts are left out and nothing new is written")
    head = f"# From `{found.name}` of {path.name}, by `kept init --from`.\n"
    return Draft({"task.yaml": task_text(head, task), **files}, tuple(notes))


def _found(path: Path, tree: ast.Module, name: str) -> _Found:
    functions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    public = [one for one in functions if not one.startswith("_")]
    if not name and len(public) == 1:
        name = public[0]
    if not name and "evaluate" in functions:
        name = "evaluate"
    if name not in functions:
        hint = f"there are {', '.join(public)}: write --from {path}:NAME" if public else None
        which = (
            f"no function `{name}`" if name else "several functions" if public else "no function"
        )
        raise SetupError(f"{path.name} has {which}", hint=hint)
    given = functions[name].args
    wanted = [*given.posonlyargs, *given.args]
    # required arguments: a text, and perhaps a case
    needed = len(wanted) - len(given.defaults)
    if not wanted or needed > 2 or [one for one in given.kw_defaults if one is None]:
        hint = "a function of a text, or of a text and a case"
        raise SetupError(f"`{name}` cannot be called with a text, or a text and a case", hint=hint)
    constants = _constants(tree)
    text = _default(given, len(wanted)) or next(
        (constants[one] for one in TEXTS if isinstance(constants.get(one), str)), None
    )
    if text is None:
        _refuse_made(path, tree, TEXTS, "a text", "write it there in full")
        hint = f"write it there as {TEXTS[0]} = …, or as what the argument is by default"
        raise SetupError(f"{path.name} has no text to begin with", hint=hint)
    cases = next((constants[one] for one in CASES if isinstance(constants.get(one), list)), None)
    return _Found(name, text, len(wanted) > 1, cases)


def _refuse_made(
    path: Path, tree: ast.Module, names: tuple[str, ...], what: str, hint: str
) -> None:
    """Refuse a constant of these names that is computed: the file is parsed, not run."""
    for node in tree.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and target.id in names:
                message = f"not {what} that is written out: the file is read here, and not run"
                where = f"{shown(path)}:{node.lineno}"
                raise SpecError([Problem(where, target.id, message, hint)])


def _constants(tree: ast.Module) -> dict[str, Any]:
    # only literals are read: anything computed is left out
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name):
            try:
                found[target.id] = ast.literal_eval(value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return found


def _default(given: ast.arguments, wanted: int) -> str | None:
    """Return the text that is the default of the first argument, if it has one."""
    if len(given.defaults) < wanted:
        return None
    first = given.defaults[0]
    value = first.value if isinstance(first, ast.Constant) else None
    return value if isinstance(value, str) else None
