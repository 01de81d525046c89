"""promptfoo importer: the choice among a config's models and prompts, the task, its scripts.

Python files of assertions are copied into the task under names that stay in it. Local modules
that they import keep their names, because imports refer to these.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from kept.core.text import are, count
from kept.core.untyped import dict_in
from kept.errors import Problem, SetupError, SpecError
from kept.evaluators.scorers.assertions.python import FILE, file_of
from kept.evaluators.scorers.assertions.spec import GRADED, leaves
from kept.evaluators.templates.render import names_of
from kept.models.providers import parse
from kept.recipes.importers import Draft, task_text, text_of
from kept.recipes.importers.cases import STEPS, budget_of
from kept.recipes.importers.function import imported, parsed
from kept.recipes.importers.promptfoo.cases import (
    MOST_CASES,
    Made,
    as_lines,
    check_assertions,
    common_test,
    made_of,
    nowhere,
)
from kept.recipes.importers.promptfoo.config import (
    ConfigSpec,
    Grader,
    ProviderConfig,
    ProviderSpec,
    as_list,
    mapping_of,
)
from kept.recipes.importers.promptfoo.prompts import Prompt, is_below, read_prompts
from kept.recipes.importers.promptfoo.providers import model_block
from kept.recipes.importers.promptfoo.read import Placed, ReadConfig, provider_of, read_config
from kept.spec.source import Source, read_source
from kept.spec.validate import said


@dataclass(frozen=True, slots=True)
class Chosen:
    """Choice among the prompts and providers of a config."""

    prompt: str | None = None
    """Label of the prompt to begin with; by default the first."""
    provider: str | None = None
    """Id or label of the provider to ask, or a model of Kept's; by default the first."""
    judge: str | None = None
    """Grader, if the config names none: a provider, or a model of Kept's."""
    optimizer: str | None = None
    """Writer of further prompts: a model of Kept's, or a provider. By default there is none if
    the config has several prompts."""
    limited: bool = False
    """True if the task gets a money limit, where one can be kept."""


def judge_of(read: ReadConfig, chosen: Chosen) -> dict[str, Any] | None:
    """Return the model that grades; report an error if assertions name several."""
    found: dict[str, tuple[Source, Grader]] = {}
    for source, grader in read.graders:
        given = grader.provider
        given = (mapping_of(given) or {}).get("text", given)
        found.setdefault(str(given), (source, grader._replace(provider=given)))
    if len(found) > 1:
        source, grader = list(found.values())[1]
        # the message has only its id: other values may be a key
        first = mapping_of(provider_of(next(iter(found.values()))[1].provider)) or {}
        named = f": `{first['id']}`" if isinstance(first.get("id"), str) else ""
        message = f"another model grades elsewhere{named}"
        source.report(grader.loc, message, "let one grade all")
    if found:
        source, grader = next(iter(found.values()))
        spec = provider_of(grader.provider)
        said = dict_in(spec)
        if not isinstance(said.get("id"), str):
            source.report(grader.loc, "is no provider", "write it as in openai:chat:gpt-5-mini")
            return None
        try:
            settings = ProviderConfig.model_validate(said.get("config") or {})
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            source.report((*grader.loc, "config"), f"`{key}` is not known here, or is wrong")
            return None
        return model_block(source, grader.loc, ProviderSpec(id=said["id"], config=settings))
    graded = _graded(read)
    if graded is None:
        return None
    if chosen.judge is not None:
        return own_model(chosen.judge) or model_block(
            read.source, ("judge",), ProviderSpec(id=chosen.judge)
        )
    placed, kind = graded
    hint = "name one in `defaultTest.options.provider`, as in openai:chat:gpt-5-mini"
    placed.source.report((*placed.loc, "assert"), f"nobody is named to grade `{kind}`", hint)
    return None


def _graded(read: ReadConfig) -> tuple[Placed, str] | None:
    """Return the first assertion that a model decides, with its test."""
    common = common_test(read.default, read.source)
    for placed in (common, *read.tests):
        for one in placed.spec.assert_:
            for leaf in leaves(one):
                if leaf.base in GRADED:
                    return placed, leaf.base
    return None


def own_model(name: str) -> dict[str, Any] | None:
    """Return the block of a model of Kept's, `provider/model`; None if it is not one."""
    try:
        provider, model = parse(name)
    except ValueError:
        return None
    return {"provider": provider, "model": model}


def optimizer_of(read: ReadConfig, chosen: Chosen) -> dict[str, Any] | None:
    """Return the model that writes further prompts; None if none is named."""
    name = chosen.optimizer
    if name is None:
        return None
    hint = "write it as in openai/gpt-5, or as promptfoo does: openai:chat:gpt-5"
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] # whatever a call was given
        raise SetupError(f"who writes prompts is {name!r:.60}, and not a name", hint=hint)
    own = own_model(name)
    if own is None and ":" not in name:
        raise SetupError(f"`{name}` is no model that could write prompts", hint=hint)
    return own or model_block(read.source, ("reflection_lm",), ProviderSpec(id=name))


def target_of(
    config: ConfigSpec, blocks: list[dict[str, Any] | None], chosen: Chosen
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """Return the model to ask, and the labels of its prompts; None means all prompts."""
    if chosen.provider is not None:
        for spec, made in zip(config.providers, blocks, strict=True):
            if chosen.provider in (spec.id, spec.label) and made is not None:
                return made, spec.prompts
        own = own_model(chosen.provider)
        if own is None:
            known = ", ".join(spec.label or spec.id for spec in config.providers) or "none"
            raise SetupError(
                f"there is no provider `{chosen.provider}` in the config",
                hint=f"there are {known}; or give a model of Kept's, as in local/smollm2",
            )
        # the settings of the first provider apply to the model that replaces it
        said = (blocks[0] if blocks else None) or {}
        shape = {key: said[key] for key in ("temperature", "top_p", "max_tokens") if key in said}
        return {**own, **shape}, None
    if not config.providers or blocks[0] is None:
        hint = "name a provider in the config, or give one, as in local/smollm2"
        raise SetupError("the config names nobody to ask", hint=hint)
    return blocks[0], config.providers[0].prompts


def usable(prompts: list[Prompt], labels: tuple[str, ...] | None) -> list[Prompt]:
    """Return the prompts for a provider, each text once."""
    chosen = [
        prompt
        for prompt in prompts
        if labels is None
        or any(
            prompt.label == one or prompt.label.startswith(f"{one.rstrip('*:')}:") for one in labels
        )
    ]
    # of equal texts the first prompt stays, at the place of the last
    return list({prompt.text: prompt for prompt in reversed(chosen)}.values())[::-1]


def first_of(prompts: list[Prompt], chosen: Chosen) -> Prompt:
    """Return the prompt to begin with."""
    known = ", ".join(prompt.label for prompt in prompts)
    if not prompts:
        raise SetupError("the provider is asked with none of the prompts")
    if chosen.prompt is None:
        return prompts[0]
    for prompt in prompts:
        if prompt.label == chosen.prompt:
            return prompt
    raise SetupError(f"there is no prompt `{chosen.prompt}`", hint=f"there are {known}")


FOLDER = "checks"


def take_scripts(cases: list[Made]) -> dict[str, str]:
    """Rename the scripts of assertions to their copies; return the original of each copy."""
    copies: dict[str, str] = {}
    for row in (row for made in cases for row in _in_python(made.asserts)):
        value = str(row["value"])
        file, _ = file_of(value)
        if not file:
            continue
        # files of the same name in different folders get numbered copies
        if file not in copies:
            name, number = f"{FOLDER}/{PurePosixPath(file).stem}", 1
            copy = f"{name}.py"
            while copy in copies.values():
                number += 1
                copy = f"{name}_{number}.py"
            copies[file] = copy
        row["value"] = FILE + copies[file] + value.removeprefix(FILE + file)
    return {copy: file for file, copy in copies.items()}


def read_scripts(source: Source, copies: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Read the scripts and their imported modules; add a note for each package left out."""
    texts = {copy: text_of(source.folder / name) for copy, name in copies.items()}
    packages: dict[str, None] = {}
    for copy, name in copies.items():
        path = source.folder / name
        modules, beside = imported(path, parsed(path, texts[copy]))
        packages |= dict.fromkeys(beside)
        for module, text in modules.items():
            if not is_below(source, path.with_name(module)):
                hint = "copy it there: all that is in the folder of the config may be read"
                message = f"{module}, which {name} imports, is not below the folder of the config"
                raise SetupError(message, hint=hint)
            if texts.setdefault(f"{FOLDER}/{module}", text) != text:
                hint = "give one of them another name"
                raise SetupError(f"assertions use two files that are named {module}", hint=hint)
    notes = [f"`{name}` is imported and not copied: put it into {FOLDER}/" for name in packages]
    return texts, notes


def _in_python(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for row in rows:
        yield from _in_python(row.get("assert") or [])
        if str(row["type"]).removeprefix("not-") == "python":
            yield row


FEW = 5
"""Fewest tests that are split; fewer are all used to decide."""

_ODD = re.compile(r"[^A-Za-z0-9]+")


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of a config that make the task."""

    read: ReadConfig
    cases: list[Made]
    names: list[str]
    """Names of all variables."""
    asked: list[str]
    """Variables that a prompt of the config asks for. Others may be the answer: neither the
    target nor a proposer sees them."""
    first: Prompt
    others: list[Prompt]
    target: dict[str, Any]
    judge: dict[str, Any] | None
    optimizer: dict[str, Any] | None
    scripts: dict[str, str]
    """Texts of Python files that assertions use, by their names in the task."""

    @property
    def prompt(self) -> str:
        """Name of the artifact."""
        chats = all(prompt.chat for prompt in (self.first, *self.others))
        return "prompt.json" if chats else "prompt.txt"

    @property
    def field(self) -> str:
        """Field of a case that has its assertions."""
        return "asserts" if "assert" in self.names else "assert"


def draft_of(path: Path, chosen: Chosen | None = None) -> Draft:
    """Draft the task of a config; raises `SpecError` with all its problems."""
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
    """Return the cases of all tests, and the number left out because they assert nothing."""
    every = (one for placed in read.tests for one in made_of(placed, default, read.source))
    # stops at the limit: a few lists can multiply to more cases than fit in memory
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
    """Note other providers than the one asked, if the user did not choose it."""
    known = [spec.label or spec.id for spec in read.config.providers]
    if chosen.provider is not None or len(known) < 2:
        return []
    first, *others = known
    rest = ", ".join(f"`{name}`" for name in others)
    return [f"`{first}` is asked, and {rest} {are(len(others))} not: one model is asked in a run"]


def _lacking(cases: list[Made], wanted: list[str]) -> list[str]:
    """Note variables of prompts that some tests have and others lack."""
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
    variants: dict[str, str] = {}
    for number, prompt in enumerate(parts.others, 1):
        slug = _ODD.sub("-", prompt.label).strip("-").lower()[:40].strip("-") or "prompt"
        variants[f"prompts/{number:02}-{slug}.{suffix}"] = prompt.text + "\n"
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
    # only `python` assertions need variables: all others are filled in already
    scorer |= {"input": parts.names} if by_code and parts.asked != parts.names else {}
    target = dict(parts.target)
    types = [_types(one.asserts) for one in parts.cases]
    if any(name in asserted for asserted in types for name in ('"latency"', '"cost"')):
        target["cache"] = False  # a cached reply takes no time and costs nothing
    models: dict[str, Any] = {"target": target}
    models |= {"judge": parts.judge} if parts.judge is not None else {}
    proposers: list[dict[str, Any]] = []
    if parts.others:
        proposers.append({"kind": "variants", "files": ["prompts/*"]})
    notes: list[str] = []
    if parts.optimizer is not None or not parts.others:
        # the target's address serves the writer too, but its settings are those of the task
        address = ("provider", "model", "base_url", "api_key", "api_version")
        reached = {key: parts.target[key] for key in address if key in parts.target}
        models["optimizer"] = parts.optimizer or reached
        proposers.append({"kind": "edit"})
        if parts.optimizer is None:
            notes.append(
                "there is one prompt, and the model it is for writes further ones: "
                "name a better one in `models.optimizer`"
            )
    # at least two steps for each prompt to try
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
    """Return all types of assertions, with those in sets, as a text to search."""
    inner = (
        f'"{row["type"].removeprefix("not-")}"{_types(row.get("assert") or [])}' for row in rows
    )
    return "".join(inner)


def _wrong(read: ReadConfig, message: str, hint: str | None = None) -> SpecError:
    return SpecError([Problem(read.source.where(("tests",)), "tests", message, hint)])
