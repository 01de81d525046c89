"""`kept check SPEC`, with a preview of agent.yaml runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kept.core.plan import AGENT_CONFIG, SKILL, SUITE, TASK
from kept.core.text import are, count, dollars_at_most
from kept.errors import SpecError
from kept.ui.cli import _output
from kept.ui.cli._command import Command, json_option, path_from_here, set_option

if TYPE_CHECKING:
    from kept.recipes.base import Compiled

LIMITS = {"files": "file", "changed_lines": "changed line"}

MAX_ARTIFACTS = 20
"""Maximum number of artifacts listed by name."""
HOUR = 3600.0
"""Seconds; if the worst case takes longer, time is stated per second of a rollout."""

MAX_VARIANTS = 5
"""Maximum number of variants listed by name."""

_TURNS = {
    "bandit": "more turns go to who brings more for its cost (`schedule: bandit`)",
    "in_turn": "they take turns (`schedule: in_turn`)",
}


@click.command(cls=Command, examples=("kept check task.yaml", "kept check task.yaml --json"))
@click.argument("spec", type=click.Path(path_type=Path))
@set_option
@json_option
def check(spec: Path, settings: tuple[str, ...], as_json: bool) -> None:
    """Say what a run of SPEC would do, and the most it can cost.

    `at most` is the worst case: every step kept, every reply as long as it may be. `likely` is what
    most runs come to: no proposal better, so that each is dropped early, or one kept and proven.

    Reads the spec and every file it names, and tells all that is wrong. Runs neither runner nor
    scorer nor proposer, writes nothing and spends nothing. Of your code only a Python function that
    scores is looked at by importing it.
    """
    from kept.recipes.registry import find_spec, recipe_of
    from kept.store.home import Home

    recipe = recipe_of(spec)
    shown = OUTLINES.get(recipe.name, _task_told) if recipe else _task_told
    told, rows = shown(spec, settings)
    home = Home.find(find_spec(spec).parent)
    if obstacle := home.obstacle():
        told["warnings"] += [f"a run would be written to {home.path}, {obstacle}"]
    if as_json:
        _output.document({"ok": True, **told})
        return
    _output.answer(_output.visible(_output.pairs(rows)))
    for warning in told["warnings"]:
        _output.warn(warning)


Outlined = tuple[dict[str, Any], Iterator[tuple[str, str]]]
"""Outline of a run, as a document and in rows."""


def _task_told(spec: Path, settings: tuple[str, ...]) -> Outlined:
    from kept.recipes.outline import outline
    from kept.recipes.registry import compile_spec
    from kept.ui.report.format import recipe_word

    told = outline(compile_spec(spec, settings))
    told["recipe"] = recipe_word(told["recipe"])
    return told, _rows(told)


def _suite_told(spec: Path, settings: tuple[str, ...]) -> Outlined:
    from kept.recipes.registry import compile_spec
    from kept.ui.cli.agent import outline_suite

    return outline_suite(compile_spec(spec, settings))


def _skill_told(spec: Path, settings: tuple[str, ...]) -> Outlined:
    from kept.recipes.registry import compile_spec
    from kept.ui.cli.train import outline_told

    return outline_told(compile_spec(spec, settings))


def _agent_told(spec: Path, settings: tuple[str, ...]) -> Outlined:
    from kept.recipes.agent_config.tune import tuning_problems
    from kept.recipes.base import Context
    from kept.recipes.evaluate.request import Wanted
    from kept.recipes.registry import compile_sweep, find_spec

    more = tuning_problems(find_spec(spec), settings)
    try:
        made = compile_sweep(spec, Wanted(), Context(overrides=settings, strict=True))
    except SpecError as error:
        said = {one.message for one in more}
        raise SpecError([*more, *(p for p in error.problems if p.message not in said)]) from None
    if more:
        raise SpecError(more)
    told = outline_agent(made)
    return told, agent_rows(told)


OUTLINES: Mapping[str, Callable[[Path, tuple[str, ...]], Outlined]] = {
    TASK: _task_told,
    SUITE: _suite_told,
    SKILL: _skill_told,
    AGENT_CONFIG: _agent_told,
}
"""Outline functions by the recipe of a spec."""


def _rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from kept.results.summary import judges, scorer_words, scoring_in

    yield "spec", f"{path_from_here(told['spec'])} ({told['recipe']}), in order"
    found: list[dict[str, Any]] = told["artifacts"]
    more = len(found) - MAX_ARTIFACTS
    hidden = f"; {more} {are(more)} not listed here" if more > 0 else ""
    size = _size(sum(one["bytes"] for one in found))
    yield "artifacts", f"{count(len(found), 'file')}, {size}{hidden}"
    for one in found[:MAX_ARTIFACTS]:
        carried = "" if one["editable"] else ", carried and not edited"
        yield "", f"{one['path']}, {_size(one['bytes'])}{carried}"
    sizes = told["limits"]
    limits = [count(sizes[name], one) for name, one in LIMITS.items() if sizes[name]]
    yield "change", f"at most {' and '.join(limits)} a candidate" if limits else "of any size"
    if told["protected"]:
        yield "", f"protected: {', '.join(told['protected'])}"
    if told["guidance"]:
        yield "guidance", ", ".join(told["guidance"])
    cases: dict[str, int] | None = told["cases"]
    splits = ", ".join(f"{n} {split}" for split, n in (cases or {}).items())
    alone = "none: one run of the whole command decides"
    yield "cases", alone if cases is None else splits
    yield "runner", _runner(told["runner"])
    scorer: Any = told["scorer"]  # whatever a recipe says of it
    scoring = scoring_in(scorer)
    yield "scorer", scorer_words(scoring) if judges(scoring) else _command(scorer)
    yield "sandbox", "; ".join(_sandbox(told["sandbox"], told["runner"]["env"]))
    for n, (role, facts) in enumerate(told["models"].items()):
        replies = ", replies kept for other runs" if facts["cache"] else ""
        yield "" if n else "models", f"{role}: {facts['model']}{replies}"
    yield "proposers", ", ".join(told["proposers"])
    if len(told["proposers"]) > 1:
        yield "", _TURNS[told["schedule"]]
    for name, labels in told["variants"].items():
        left = len(labels) - MAX_VARIANTS
        shown = [*labels[:MAX_VARIANTS], *([f"{left} more"] if left > 0 else [])]
        yield "", f"{name}: {count(len(labels), 'text')}, {', '.join(shown)}"
    for name, model in told["editors"].items():
        own = told["prompts"].get(name)
        yield "", f"{name}: edits by `{model}`" + (f", told by your {own}" if own else "")
    for name, own in told["prompts"].items():
        if name not in told["editors"]:
            yield "", f"{name}: told by your {own}"
    yield from _decision(told)
    budget = ", ".join(f"{name} {n:g}" for name, n in told["budget"].items())
    yield "budget", budget
    yield "at once", f"width {told['width']}, workers {told['workers']}"
    if told["likely"]:
        yield from zip(("likely", ""), _likely(told), strict=False)
    yield from zip(("at most", ""), _at_most(told), strict=False)
    yield from (("", words) for words in _paid(told))


def _size(n: int) -> str:
    return count(n, "byte") if n < 10_000 else f"{n / 1024:.0f} KiB"


def _runner(facts: dict[str, Any]) -> str:
    if facts.get("type") == "agent":
        return "; ".join(_agent(facts))
    if facts.get("type") != "model":
        return _command(facts)
    prompt, fields = " + ".join(facts["prompt"]), ", ".join(facts["input"])
    return f"`{facts['model']}`, asked with {prompt} about {fields}"


def _agent(facts: dict[str, Any]) -> Iterator[str]:
    """Settings of an agent runner; only agents have network access."""
    seconds = f"up to {facts['timeout_seconds']:g} s"
    yield f"the agent `{facts['agent']}` with `{facts['model']}`, {seconds}"
    given = {key: facts[key] for key in ("skill", "instructions", "prompt") if facts[key]}
    told = [f"{key} {' + '.join(names)}" for key, names in given.items()]
    yield f"given {', '.join(told)}" if told else "given no text but the case"
    if facts["input"]:
        yield f"asked about {', '.join(facts['input'])}"
    if facts["files"]:
        yield f"with files {' '.join(facts['files'])}"


def _command(facts: dict[str, Any]) -> str:
    if "command" not in facts:
        return str(facts.get("type", ""))
    seconds = f", up to {facts['timeout_seconds']:g} s" if "timeout_seconds" in facts else ""
    retried = facts.get("retry_exit")
    again = f"; exit {retried} is an outage, and tried again" if retried else ""
    return f"`{facts['command']}`{seconds}{again}"


def _sandbox(facts: dict[str, Any], given: list[str]) -> Iterator[str]:
    """Access of commands to network, variables and files; variables by name only."""
    yield "not sandboxed" if facts["walls"] == "none" else f"walls by {facts['walls']}"
    reach = {"none": "no network", "loopback": "no network but the machine's own"}
    alone = " but for agents" if facts.get("agents") and facts["network"] in reach else ""
    yield reach.get(facts["network"], "with network") + alone
    if facts["env"]:
        yield f"variables passed on: {' '.join(facts['env'])}"
    if given:
        yield f"variables given to the runner: {' '.join(given)}"
    for what in ("hidden", "readable", "writable"):
        if facts[what]:
            yield f"{what}: {' '.join(facts[what])}"


def _decision(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    objective, gate = told["objective"], told["gate"]
    yield "metric", f"{objective['metric']}, {objective['direction']}"
    yield "gate", f"{gate['name']}: {told['rule']['words']}"
    if gate["name"] == "race":
        yield from (("", words) for words in _numbers(told["rule"]["numbers"]))
    elif gate["not_race"]:
        yield "", f"not `race`: {gate['not_race']}"
    if objective["constraints"]:
        yield "", f"unless one of these is broken: {', '.join(objective['constraints'])}"
    if objective["tie_breakers"]:
        yield "", f"ties are broken by {', then '.join(objective['tie_breakers'])}"


def _numbers(settings: dict[str, Any], part: str = "") -> Iterator[str]:
    """Settings of a gate as lines; each part of it has a line of its own."""
    parts = cast(
        "dict[str, dict[str, Any]]",
        {name: value for name, value in settings.items() if isinstance(value, dict)},
    )
    own = [f"{name} {_plain(v)}" for name, v in settings.items() if name not in {*parts, "name"}]
    yield f"{part}: {', '.join(own)}" if part else ", ".join(own)
    for name, below in parts.items():
        yield from _numbers(below, name)


def _plain(value: Any) -> str:  # noqa: ANN401 # any setting
    """Setting as text: `8 then 16` for a pair, `10 at 0 then 25 at 0.06` for pairs of pairs."""
    if not isinstance(value, list | tuple):
        return str(value)
    items = cast("Sequence[Any]", value)
    rows = (cast("Sequence[Any]", i) if isinstance(i, list | tuple) else (i,) for i in items)
    return " then ".join(" at ".join(map(str, row)) for row in rows)


def _at_most(told: dict[str, Any]) -> Iterator[str]:
    """Worst case; with its assumptions if it exceeds both the likely case and the limit."""
    most = told["at_most"]
    rollouts, usd = most["rollouts"], most["usd"]
    parts = ["rollouts without limit" if rollouts is None else _rollouts(rollouts)]
    parts.append(_time(told))
    parts.append("money without limit" if usd is None else dollars_at_most(usd))
    yield ", ".join(parts)
    usual = told["likely"]["kept"]["rollouts"] if told["likely"] else rollouts
    if usual != rollouts != told["budget"].get("max_rollouts"):
        yield "were every proposal kept, after all the rollouts that the gate may ask for"


def _likely(told: dict[str, Any]) -> Iterator[str]:
    """Likely number of rollouts, with its assumptions."""
    from kept.models.prices import REPLY

    likely, most = told["likely"], told["at_most"]["rollouts"]
    useless, kept = (
        about(one["rollouts"], most) + (f" (${one['usd']:,.2f})" if one["usd"] else "")
        for one in (likely["useless"], likely["kept"])
    )
    if useless == kept:
        yield useless
    else:
        proven = " and proven" if told["gate"]["name"] == "race" else ""
        yield f"{useless} if no proposal is better, {kept} if one is kept{proven}"
    assumed = [_assumed(told)]
    if likely["usd_a_rollout"] and told["usd_per_rollout"] is None:
        long = f"a reply {REPLY} tokens at most"
        assumed.append(f"a call is as long as the mean one with the seed, {long}")
        if len(told["charges"]) > 1:
            assumed.append("who else is paid is not counted")
    yield f"taken for granted: {'; '.join(assumed)}"


def _assumed(told: dict[str, Any]) -> str:
    """Assumptions of a forecast of rollouts, by gate."""
    if told["likely"]["used_up"]:
        return "nothing else ends it before its rollouts are used up"
    match told["gate"]["name"]:
        case "race":
            early = "what is no better is dropped as early as the gate can tell"
            return f"{early}; answers vary from run to run: steady ones take fewer"
        case "repeats":
            most = told["rule"]["numbers"]["most"]
            return f"runs of one text agree; where they differ, a candidate may take {most} a side"
        case _:
            return "each candidate is judged once"


def about(rollouts: int, most: int | None) -> str:
    """Forecast rounded to two digits, as it is no more precise; never above the maximum."""
    size = 10 ** max(0, len(str(rollouts)) - 2)
    shown = round(rollouts / size) * size
    if most is not None and shown > most:
        return _rollouts(most)
    return f"about {_rollouts(shown)}" if size > 1 else _rollouts(rollouts)


def _rollouts(n: int) -> str:
    return f"{n:,} {'rollout' if n == 1 else 'rollouts'}"


def _time(told: dict[str, Any]) -> str:
    """Longest possible duration; beyond an hour stated per second of a rollout."""
    from kept.ui.report.format import duration

    rollouts, seconds = told["at_most"]["rollouts"], told["at_most"]["seconds"]
    if seconds is None:
        return "time without limit"
    if seconds <= HOUR or rollouts is None or "max_minutes" in told["budget"]:
        return f"{duration(seconds)} if all take their time"
    # ceiling division: rollouts run in rounds of `workers`
    usual = duration(-(-rollouts // told["workers"]))
    longest = duration(told["seconds_a_rollout"])
    return f"{usual} for each second that a rollout takes ({longest} at the longest)"


def _paid(told: dict[str, Any]) -> Iterator[str]:
    """Paid models, the known part of their price, and the keys that limit it."""
    each = told["usd_per_rollout"]
    if each is not None:
        yield f"${each:g} a rollout at most, by `budget.usd_per_rollout`"
    for charge in told["charges"]:
        if each is None or charge["by"] == "proposers":
            pay = "pay" if charge["by"].endswith("s") else "pays"
            yield f"the {charge['by']} {pay} `{charge['model']}` by the call: " + (
                _a_call(told, charge) if charge["priced"] else "its price is not known"
            )
    if told["at_most"]["usd"] is None:
        keys = [f"`{key}`" for key in told["limited_by"]]
        # a missing price leaves no key, as no limit could be enforced
        if keys:
            others = f", beside {' and '.join(keys[1:])}" if keys[1:] else ""
            yield f"{keys[0]} sets a limit{others}"
    elif each is None and told["sandbox"]["network"] == "on":
        yield "what commands pay for themselves, over the network, is not known"


def _a_call(told: dict[str, Any], charge: dict[str, Any]) -> str:
    """Known price of a call; for the runner, the highest cost of a call with the seed."""
    usd, most = told["seed_call_usd"], told["at_most"]
    if charge["by"] != "runner" or not usd:
        return "how much depends on what it is shown and answers"
    words = f"up to {dollars_at_most(usd)} with the seed, for the longest reply it may give"
    rollouts, whole = most["rollouts"], most["usd"]
    if rollouts is not None and (whole is None or usd * rollouts <= whole):
        return f"{words}; {rollouts:,} such calls would be ${usd * rollouts:,.2f}"
    if whole is None:
        return words
    shared = any(other["by"] != "runner" for other in told["charges"])
    alone = " if no other is paid from it" if shared else ""
    return (
        f"{words}; the limit pays for {int(whole / usd):,} such calls{alone}, and more short ones"
    )


def outline_agent(made: "Compiled") -> dict[str, Any]:
    """Outline of an agent's evaluation as a document."""
    plan = made.plan
    from kept.recipes.evaluate.request import EvaluationFacts

    facts = made.plan.facts
    assert isinstance(facts, EvaluationFacts), "a plan that measures"
    data = (cast("dict[str, Any]", case.data) for case in plan.cases.holdout)
    return {
        "spec": plan.spec.path,
        "recipe": "agent",
        "name": facts.evaluated.name,
        "agent": facts.evaluated.agent,
        "texts": sorted(plan.seed.texts),
        "cases": len(plan.cases.holdout),
        "turns": sum(len(one.get("turns") or (one,)) for one in data),
        "rollouts": facts.evaluated.rollouts,
        "workers": plan.workers,
        "warnings": list(made.warnings),
    }


def agent_rows(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Outline of an agent's evaluation as rows."""
    agent = told["agent"]
    yield "spec", f"{path_from_here(told['spec'])} (agent), in order"
    yield "agent", f"{told['name']}: {agent['model']}"
    yield "texts", ", ".join(told["texts"])
    yield "tools", ", ".join(agent["tools"]) or "none"
    yield "metrics", ", ".join(agent["metrics"]) or "none: a case passes that comes to an answer"
    if agent["prompts"]:
        yield "judges", f"told by your {', '.join(agent['prompts'])}"
    turns = f", {count(told['turns'], 'turn')}" if told["turns"] > told["cases"] else ""
    yield "cases", f"{told['cases']}{turns}, {told['workers']} at once"
