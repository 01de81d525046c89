"""From a config to the task that it stands for."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

from kept.core.words import are, count
from kept.errors import Problem, SpecError
from kept.evaluators.templates.nunjucks import names_of
from kept.recipes.importers.intake import Draft
from kept.recipes.importers.money import STEPS, budget_of
from kept.recipes.importers.promptfoo.cases import (
    MOST_CASES,
    Made,
    as_lines,
    check_assertions,
    common_test,
    made_of,
    nowhere,
)
from kept.recipes.importers.promptfoo.choosing import (
    Chosen,
    first_of,
    judge_of,
    optimizer_of,
    reached,
    target_of,
    usable,
)
from kept.recipes.importers.promptfoo.config import as_list
from kept.recipes.importers.promptfoo.prompts import Prompt, read_prompts
from kept.recipes.importers.promptfoo.providers import model_block
from kept.recipes.importers.promptfoo.reading import ReadConfig, read_config
from kept.recipes.importers.promptfoo.scripts import read_scripts, take_scripts
from kept.recipes.importers.promptfoo.tests import Placed
from kept.recipes.importers.yaml import task_text
from kept.spec.load import said
from kept.spec.source import read_source

FEW = 5
"""Tests that are too few to be shared out."""

_ODD = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class _Parts:
    """What of a config makes the task."""

    read: ReadConfig
    cases: list[Made]
    names: list[str]
    """Variables."""
    asked: list[str]
    """Those that some prompt of the config asks for. The others may be the answer: who is asked
    and who proposes do not see them."""
    first: Prompt
    others: list[Prompt]
    target: dict[str, Any]
    judge: dict[str, Any] | None
    optimizer: dict[str, Any] | None
    scripts: dict[str, str]
    """Python files that assertions use, by their names in the task."""

    @property
    def prompt(self) -> str:
        """The artifact."""
        chats = all(prompt.chat for prompt in (self.first, *self.others))
        return "prompt.json" if chats else "prompt.txt"

    @property
    def field(self) -> str:
        """Where a case has its assertions."""
        return "asserts" if "assert" in self.names else "assert"


def draft_of(path: Path, chosen: Chosen | None = None) -> Draft:
    """The task that a config stands for; raises `SpecError` with everything that is wrong."""
    chosen = chosen or Chosen()
    read = read_config(read_source(path))
    source = read.source
    entries = tuple(as_list(said(source, ("prompts",))))
    prompts = read_prompts(source, entries)
    if not entries:
        source.report(("prompts",), "missing", "the first of them is what is improved")
    blocks = [model_block(source, ("providers", n), one) for n, one in read.providers]
    default = common_test(read.default, source)
    for placed in (default, *read.tests):
        check_assertions(placed, source)
    judge, optimizer = judge_of(read, chosen), optimizer_of(read, chosen)
    read.check()
    cases, silent = _cases(read, default)
    target, labels = target_of(read.config, blocks, chosen)
    chosen_ones = usable(prompts, labels)
    first = first_of(chosen_ones, chosen)
    others = [prompt for prompt in chosen_ones if prompt is not first]
    notes = [*_left_out(silent), *_not_asked(read, chosen)]
    names = list(dict.fromkeys(name for one in cases for name in one.vars))
    wanted = dict.fromkeys(name for prompt in chosen_ones for name in names_of(prompt.text))
    for name in [name for name in wanted if name not in names]:
        notes.append(f"a prompt asks for `{{{{{name}}}}}`, which no test has: it is empty")
        names.append(name)
    notes += _lacking(cases, list(wanted))
    if not names:
        raise _wrong(read, "no test has variables, so all of them ask the same")
    used = {name for prompt in prompts for name in names_of(prompt.text)}
    asked = [name for name in names if name in used]
    if not asked:
        hint = f"name one in the prompt, as in {{{{{names[0]}}}}}"
        raise _wrong(read, "no prompt asks for a variable, so all of them ask the same", hint)
    scripts, missing = read_scripts(source, take_scripts(cases))
    notes += missing
    parts = _Parts(read, cases, names, asked, first, others, target, judge, optimizer, scripts)
    task, more = _task(parts, chosen)
    head = f"# From {path.name}, by `kept init --from`.\n"
    return Draft({"task.yaml": task_text(head, task), **_files(parts)}, (*notes, *more))


def _cases(read: ReadConfig, default: Placed) -> tuple[list[Made], int]:
    """The cases of all tests, and how many assert nothing and are left out."""
    every = (one for placed in read.tests for one in made_of(placed, default, read.source))
    # no more are made than are taken: a few lists multiply to more than fits
    made = list(islice(every, MOST_CASES + 1))
    if len(made) > MOST_CASES:
        raise _wrong(read, f"they make more than {MOST_CASES:,} cases")
    known = {name for one in made for name in one.vars}
    for lack in (lack for one in made for lack in one.lacks):
        if lack.name not in known:
            lack.source.report(lack.loc, *nowhere(lack.name, known))
    read.check()
    cases = [one for one in made if one.asserts]
    if not cases:
        raise _wrong(read, "no test asserts anything, so no prompt is better than another")
    return cases, len(made) - len(cases)


def _left_out(tests: int) -> list[str]:
    if not tests:
        return []
    return [
        f"{count(tests, 'test')} that {'asserts' if tests == 1 else 'assert'} nothing "
        f"{are(tests)} left out"
    ]


def _not_asked(read: ReadConfig, chosen: Chosen) -> list[str]:
    """That there are others than the provider which is asked, where nobody chose it."""
    known = [spec.label or spec.id for spec in read.config.providers]
    if chosen.provider is not None or len(known) < 2:
        return []
    first, *others = known
    rest = ", ".join(f"`{name}`" for name in others)
    return [f"`{first}` is asked, and {rest} {are(len(others))} not: one model is asked in a run"]


def _lacking(cases: list[Made], wanted: list[str]) -> list[str]:
    """The variables of prompts that some tests have and others have not."""
    told: list[str] = []
    for name in wanted:
        lack = [one for one in cases if name not in one.vars]
        if not lack or len(lack) == len(cases):
            continue
        near = get_close_matches(name, list(lack[0].vars), n=1, cutoff=0.7)
        meant = f", which has `{near[0]}`" if near else ""
        told.append(
            f"{count(len(lack), 'test')} without `{name}`, which a prompt asks for and which is "
            f"empty there, the first at {lack[0].where}{meant}"
        )
    return told


def _files(parts: _Parts) -> dict[str, str]:
    suffix = parts.prompt.rpartition(".")[2]
    variants = {
        f"prompts/{number:02}-{_slug(prompt.label)}.{suffix}": prompt.text + "\n"
        for number, prompt in enumerate(parts.others, 1)
    }
    return {
        parts.prompt: parts.first.text + "\n",
        **variants,
        "cases.jsonl": as_lines(parts.cases, parts.names, parts.field),
        **parts.scripts,
    }


def _task(parts: _Parts, chosen: Chosen) -> tuple[dict[str, Any], list[str]]:
    config = parts.read.config
    scorer: dict[str, Any] = {"type": "assertions"}
    scorer |= {"field": parts.field} if parts.field != "assert" else {}
    scorer |= {"files": list(parts.scripts)} if parts.scripts else {}
    by_code = any('"python"' in _types(one.asserts) for one in parts.cases)
    # all other assertions are filled in already
    scorer |= {"input": parts.names} if by_code and parts.asked != parts.names else {}
    target = dict(parts.target)
    types = [_types(one.asserts) for one in parts.cases]
    if any(name in asserted for asserted in types for name in ('"latency"', '"cost"')):
        target["cache"] = False  # a reply that is kept takes no time, and costs nothing
    models: dict[str, Any] = {"target": target}
    models |= {"judge": parts.judge} if parts.judge is not None else {}
    proposers: list[dict[str, Any]] = []
    if parts.others:
        proposers.append({"kind": "variants", "files": ["prompts/*"]})
    notes: list[str] = []
    if parts.optimizer is not None or not parts.others:
        models["optimizer"] = parts.optimizer or reached(parts.target)
        proposers.append({"kind": "edit"})
        if parts.optimizer is None:
            notes.append(
                "there is one prompt, and the model it is for writes further ones: "
                "name a better one in `models.optimizer`"
            )
    steps = max(STEPS, 2 * len(parts.others))
    budget: dict[str, Any] = {"max_iterations": steps}
    if chosen.limited:
        budget, about_money = budget_of(*models.values(), steps=steps)
        notes += about_money
    about = {"description": config.description} if config.description else {}
    at_once = config.evaluateOptions.maxConcurrency
    return {
        **about,
        "artifacts": {"include": [parts.prompt]},
        "models": models,
        "runner": {"prompt": parts.prompt, "input": parts.asked, "template": "nunjucks"},
        "scorer": scorer,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": proposers,
        "cases": {"file": "cases.jsonl", "split": "3:5:2" if len(parts.cases) >= FEW else "0:1:0"},
        "budget": budget,
        **({"workers": at_once} if at_once else {}),
    }, notes


def _types(rows: list[dict[str, Any]]) -> str:
    """The types of assertions, those in sets too, for whoever looks for one."""
    inner = (
        f'"{row["type"].removeprefix("not-")}"{_types(row.get("assert") or [])}' for row in rows
    )
    return "".join(inner)


def _slug(label: str) -> str:
    return _ODD.sub("-", label).strip("-").lower()[:40].strip("-") or "prompt"


def _wrong(read: ReadConfig, message: str, hint: str | None = None) -> SpecError:
    return SpecError([Problem(read.source.where(("tests",)), "tests", message, hint)])
