"""Specs drawn at random for every recipe that says `at most`, and a server that answers them all.

What a model says depends on what it is asked and on nothing else. Gates are careless where they can
be, so that much is kept and each keep has open steps judged again.
"""

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.models.prices import rates_of
from kept.models.protocol import Taken
from kept.models.providers import ModelConfig
from kept.testing.server import Fault, Seen
from tests.recipes.agent_config.tune import world as tuned
from tests.recipes.skill import world as trained
from tests.recipes.suite import world as suite

Draw = st.DrawFn
Answer = Callable[[Seen], str | ModelReply | Fault]


@dataclass(frozen=True)
class Made:
    """A spec in words, and how it is asked what it takes, and run."""

    recipe: str
    files: dict[str, str]
    """By path; `URL` stands for the server."""
    asks: tuple[str, ...]
    """The command that says `at most`."""
    runs: tuple[str, ...]
    answer: Answer = field(repr=False)
    usd: Callable[[Seen, Usage], float] = field(repr=False)
    """Dollars that the server charges for a request with such a reply."""
    faults: float = 0.0
    """Share of requests that go wrong."""

    def write(self, folder: Path, url: str) -> None:
        """Write its files."""
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("URL", url))

    def words(self, words: Sequence[str], url: str) -> list[str]:
        """The words of a command, with the address of the server."""
        return [word.replace("URL", url) for word in words]

    def fault(self, seen: Seen) -> Fault | None:
        """An outage, or a reply that cannot be used and is paid for."""
        chance = random.Random(seen.number)
        if chance.random() >= self.faults:
            return None
        if chance.random() < 0.4:
            return Fault("status", chance.choice([429, 500, 503]), retry_after=0.01)
        return Fault("body", body=json.dumps(chance.choice(BROKEN)).encode())


UNREADABLE: dict[str, object] = {"choices": [{"message": {"content": 5}}]}
BROKEN = (UNREADABLE, {**UNREADABLE, "usage": {"prompt_tokens": 2, "completion_tokens": 1}})
"""Replies in which the text is a number: one is charged at its worst, one says what it took."""

PRICE = 10e-6
"""Dollars a token, where a spec says the price."""

LINES = ("better, better", "the same", "worse", "better", "even better", "another", "a mix better")
SCORER = {"type": "rules", "target": "output", "rules": [{"kind": "matches", "pattern": "^good"}]}
FAULTS = (0.0, 0.1, 0.4)


def share(*what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:6], "big") / 2**48


def flat(seen: Seen, used: Usage) -> float:
    """By the price that specs of tasks say."""
    return (used.tokens_in + used.tokens_out) * PRICE


def model(name: str, **more: object) -> dict[str, object]:
    """A model of the server."""
    said = {"provider": "openai_compatible", "model": name, "base_url": "URL", "cache": False}
    price = {"input": 10, "output": 10}
    return {**said, "price": price, "max_tokens": 60, "timeout_seconds": 20, **more}


def task_answer(seen: Seen) -> str:
    """As the target, or as the editor of a task."""
    if seen.model == "editor":
        line = LINES[int(share("edit", seen.body.get("seed"), seen.text) * len(LINES))]
        edit = {"op": "append", "path": "prompt.md", "target": "", "text": f"{line}\n"}
        cases = [word for word in ("c1", "c2") if word in seen.text]
        diagnosis = {"diagnosis": "so so", "causes": ["none"], "case": "c1"}
        return json.dumps({**diagnosis, "why": "why not", "cases": cases, "edits": [edit]})
    told = "\n".join(line.text for line in seen.lines)
    chance = 0.3 + 0.12 * told.count("better") - 0.1 * told.count("worse")
    return "good" if share(told, seen.body.get("seed")) < chance else "bad"


@st.composite
def proposers(draw: Draw, train: int) -> list[dict[str, object]]:
    """One to three of them, of any kind that needs nothing but files and the server."""
    cases = {"cases": draw(st.integers(0, 9)), "traces": 1}
    kinds: list[dict[str, object]] = [
        {"kind": "variants", "files": ["other/*"]},
        {"kind": "edit", "model": model("editor"), **cases},
        {"kind": "prune", "units": ["line"]},
    ]
    if train:
        axis = {"file": "c.toml", "path": "x", "type": "int", "range": [0, 40]}
        numeric: dict[str, object] = {"kind": "numeric", "axes": [axis], "startup": 2}
        if draw(st.booleans()):
            numeric["train_sample"] = draw(st.integers(1, train))
        template: dict[str, object] = {"template": "Q: {q}", "begin": "# from", "end": "# to"}
        kinds += [numeric, {"kind": "demos", "file": "prompt.md", **template}]
    picked = draw(st.lists(st.sampled_from(range(len(kinds))), min_size=1, max_size=3, unique=True))
    return [kinds[n] for n in picked]


def whole(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@st.composite
def races(draw: Draw) -> dict[str, object]:
    """A race with few passes, or a preset as it is."""
    if draw(st.integers(0, 3)) == 0:
        return {"preset": draw(st.sampled_from(["fast", "balanced", "careful"]))}
    sizes = draw(st.lists(whole(1, 24), min_size=1, max_size=4, unique=True).map(sorted))
    floors = [[size, -9] for size in sizes]
    screen: dict[str, object] = {"passes": draw(whole(1, 3)), "cases": draw(whole(1, 6))}
    for name in draw(st.sets(st.sampled_from(["steps", "together", "alone"]))):
        screen[name] = floors
    found: dict[str, object] = {
        "most": draw(whole(1, 4)),
        "alpha": 0.5,
        "promote_alpha": 0.9,
        "promote_passes": draw(st.sampled_from([[1], [1, 2], [2, 4]])),
        "claim_passes": draw(whole(1, 2)),
        "pool_goal": draw(st.sampled_from([0.01, 0.1, 4.0])),
        "screen": screen,
        "simplify": {"most": draw(whole(1, 4)), "alpha": 0.5},
    }
    if draw(st.booleans()):
        found["final"] = {"most": draw(st.sampled_from([0, 8])), "passes": [1, 2]}
    return found


def rows_of(cases: int) -> str:
    return "".join(f'{{"id": "c{n}", "q": "case {n}"}}\n' for n in range(cases))


@st.composite
def tasks(draw: Draw) -> Made:
    """A task.yaml that asks a model."""
    train, holdout = draw(st.sampled_from([(0, 8), (4, 8), (8, 8), (3, 9)]))
    test = draw(st.sampled_from([0, 2]))
    spec: dict[str, Any] = {
        "artifacts": {"include": ["prompt.md", "c.toml"]},
        "runner": {"model": model("target"), "prompt": ["prompt.md", "c.toml"], "input": "q"},
        "scorer": SCORER,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "proposers": draw(proposers(train)),
        "schedule": draw(st.sampled_from(["bandit", "in_turn"])),
        "cases": {"file": "cases.jsonl", "split": f"{train}:{holdout}:{test}"},
        "budget": {"max_iterations": draw(whole(1, 7))},
        "width": draw(whole(1, 4)),
        "workers": draw(st.sampled_from([1, 3, 8])),
    }
    if draw(st.booleans()):
        spec["gate"] = "strict"
    else:
        spec["race"] = draw(races())
    if draw(st.booleans()):
        spec["budget"]["usd_per_rollout"] = 0.01
        spec["proposers"] = [one for one in spec["proposers"] if one["kind"] != "edit"] or [
            {"kind": "variants", "files": ["other/*"]}
        ]
    elif draw(st.booleans()):
        spec["budget"]["max_usd"] = draw(st.sampled_from([0.02, 0.2, 2.0]))
    if draw(st.integers(0, 3)) == 0:
        spec["budget"]["max_rollouts"] = draw(whole(20, 200))
    seed = "Say it.\nthe same\n# from\n# to\n"
    files = {
        f"other/{n}/prompt.md": f"{seed}{line}\n"
        for n, line in enumerate(LINES[: draw(whole(1, 5))])
    }
    files |= {
        "prompt.md": seed,
        "c.toml": "x = 3\n",
        "cases.jsonl": rows_of(train + holdout + test),
    }
    return Made(
        "task",
        {**files, "task.yaml": json.dumps(spec, indent=1)},
        ("check", "task.yaml", "--json"),
        ("optimize", "task.yaml", "-q", "--json"),
        task_answer,
        flat,
        draw(st.sampled_from(FAULTS)),
    )


def listed(seen: Seen, used: Usage) -> float:
    """By the list of prices."""
    rates = rates_of(ModelConfig(provider="openai", model=seen.model))
    assert rates is not None
    return rates.usd(Taken(used.tokens_in, used.tokens_out))


def agent_answer(long: float) -> Answer:
    """As the agent, its critic or its applier; a share of the replies takes all that it may."""

    def answer(seen: Seen) -> str | ModelReply:
        if seen.body.get("response_format"):
            return tuned.answer(seen)
        told = "\n".join(line.text for line in seen.lines)
        drawn = share(told, seen.body.get("seed"), seen.body.get("temperature"), seen.model)
        first = next(line.text for line in seen.lines if line.role == "user")
        text = tuned.truth(int(first.rpartition(" ")[2])) if drawn < 0.5 else "neither"
        if share("long", told, drawn) >= long:
            return text
        most = int(seen.body["max_completion_tokens"])
        return ModelReply(text + " and so on" * (4 * most // 10), Usage(1, len(told), most))

    return answer


@st.composite
def agents(draw: Draw) -> Made:
    """An agent.yaml that is tuned."""
    numeric: list[dict[str, object]] = [
        {"path": "model.temperature", "range": [0.0, 1.0]},
        {"path": "model.name", "choices": ["gpt-4o-mini", "gpt-4.1", "gpt-4o"]},
        {"path": "model.max_tokens", "type": "int", "range": [20, 200]},
    ]
    numeric = numeric[: draw(whole(0, 3))][draw(whole(0, 2)) :]
    axes: dict[str, object] = {"numeric": numeric} if numeric else {}
    if draw(st.integers(0, 3)) == 0 or not numeric:
        axes["textual"] = [{"path": "instructions", "max_chars": 400}]
    if draw(st.integers(0, 3)) == 0:
        axes["demos"] = {"max_demos": 2}
    optimizer: dict[str, Any] = {"axes": axes}
    if draw(st.booleans()):
        optimizer |= {
            "gate": "sigma",
            "repeats": draw(whole(1, 3)),
            "accept_sigma": draw(st.sampled_from([0.0, 1.0])),
            "holdout_eval_policy": draw(
                st.sampled_from(["on_train_improve", "every_trial", "skip"])
            ),
        }
    else:
        optimizer["race"] = draw(races())
    train, holdout = draw(st.sampled_from([(3, 8), (6, 9)]))
    test = draw(st.sampled_from([0, 2]))
    optimizer["split"] = f"{train}:{holdout}:{test}"
    optimizer["max_cycles"] = draw(whole(1, 2))
    for name in ("numeric_phase", "textual_phase", "demos_phase"):
        optimizer[name] = {"max_trials": draw(whole(1, 3)), "patience": draw(whole(1, 3))}
    if draw(st.integers(0, 4)) == 0:
        optimizer["max_usd"] = draw(st.sampled_from([0.001, 0.01, 1.0]))
    if draw(st.integers(0, 4)) == 0:
        optimizer["max_rollouts"] = draw(whole(20, 300))
    made = agent(
        optimizer,
        train + holdout + test,
        model={
            "name": draw(st.sampled_from(["gpt-4o-mini", "gpt-4o"])),
            "max_tokens": draw(st.sampled_from([30, 100])),
        },
        long=draw(st.sampled_from([0.0, 0.5, 1.0])),
        turns=draw(st.sampled_from([1, 1, 2])),
        workers=draw(st.sampled_from([1, 4, 8])),
    )
    return replace(made, faults=draw(st.sampled_from(FAULTS)))


def agent(
    optimizer: Mapping[str, object],
    cases: int,
    *,
    model: Mapping[str, object],
    long: float,
    turns: int = 1,
    workers: int = 4,
) -> Made:
    """An agent.yaml that is tuned so; a share of its replies takes all the tokens that it may."""
    rows: list[dict[str, object]] = []
    for n in range(cases):
        row: dict[str, object] = {"input": f"text number {n}", "ground_truth": tuned.truth(n)}
        rest = [{"input": "once more", "ground_truth": tuned.truth(n)}] * (turns - 1)
        rows.append({"name": f"text-{n}", **({"turns": [row, *rest]} if rest else row)})
    llm = {"provider": "openai", "name": "gpt-4o-mini", "endpoint": "URL", "api_key": "${KEY}"}
    metric = {"type": "standard", "metric": "equality", "case_insensitive": True}
    spec = {
        "name": "moods",
        "model": {**llm, "temperature": 0.9, **model},
        "instructions": {"inline": "You say what mood a text has.\n"},
        "evaluations": {"metrics": [metric], "optimizer": {"loss": {"equality": 1.0}, **optimizer}},
        "test_cases_file": "cases.yaml",
        "execution": {"parallel_test_cases": workers},
    }
    return Made(
        "agent",
        {"agent.yaml": json.dumps(spec, indent=1), "cases.yaml": json.dumps(rows)},
        ("test", "optimize", "agent.yaml", "--dry-run"),
        ("test", "optimize", "agent.yaml", "-q"),
        agent_answer(long),
        listed,
    )


@st.composite
def caseless(draw: Draw) -> Made:
    """A task.yaml without cases, whose command is run again where repeats differ."""
    noise = draw(st.booleans())
    score = "n=$(grep -o better $KEPT_OUTPUT/prompt.md | wc -l); "
    score += "printf '{\"score\": %d}' $((n * 2" + (" + RANDOM % 3))" if noise else "))")
    spec = {
        "artifacts": {"include": ["prompt.md"]},
        "runner": {"command": 'cp "$KEPT_CANDIDATE"/* "$KEPT_OUTPUT"'},
        "scorer": {"command": "bash score.sh"},
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 30]},
        "proposers": [{"kind": "variants", "files": ["other/*"]}],
        "budget": {"max_iterations": draw(whole(1, 4)), "usd_per_rollout": 0.01},
        "gate": draw(st.sampled_from(["repeats", "strict"])),
        "sandbox": {"walls": "off"},
        "width": draw(whole(1, 3)),
    }
    files = {f"other/{n}.md": f"{line}\n" for n, line in enumerate(LINES[: draw(whole(1, 4))])}
    return Made(
        "task",
        {**files, "prompt.md": "so\n", "score.sh": score, "task.yaml": json.dumps(spec, indent=1)},
        ("check", "task.yaml", "--json"),
        ("optimize", "task.yaml", "-q", "--json"),
        task_answer,
        flat,
    )


@st.composite
def comparisons(draw: Draw) -> Made:
    """Versions that are compared by a task."""
    cases = draw(st.sampled_from([8, 12]))
    challengers = draw(whole(1, 2))
    spec: dict[str, Any] = {
        "artifacts": {"include": ["prompt.md"]},
        "runner": {"model": model("target"), "prompt": "prompt.md", "input": "q"},
        "scorer": SCORER,
        "objective": {"primary_metric": "score", "direction": "maximize", "bounds": [0, 1]},
        "cases": {"file": "cases.jsonl"},
    }
    if draw(st.booleans()):
        spec["budget"] = {"max_iterations": 9, "usd_per_rollout": 0.01}
    files = {f"{n}.md": f"Say it.\n{line}\n" for n, line in enumerate(LINES[: challengers + 1])}
    names = [*files]
    plan = draw(st.integers(0, 3)) == 0
    words = ("compare", *(names[:1] if plan else names), "--passes", str(draw(whole(1, 6))))
    return Made(
        "compare",
        {
            **files,
            "prompt.md": "Say it.\n",
            "cases.jsonl": rows_of(max(cases, 16)),
            "task.yaml": json.dumps(spec, indent=1),
        },
        (),
        (*words, *(["--plan"] if plan else [])),
        task_answer,
        flat,
        draw(st.sampled_from(FAULTS)),
    )


@st.composite
def trainings(draw: Draw) -> Made:
    """A skill that is trained."""
    rows = [
        {
            "id": f"q{n}",
            "question": f"What is number {n}?",
            "context": f"[DOC] Number {n} is called word{n * 17}.",
            "answers": [f"word{n * 17}"],
        }
        for n in range(24)
    ]
    cap = draw(whole(1, 3))
    sections: dict[str, dict[str, object]] = {
        "train": {
            "num_epochs": draw(whole(1, 3)),
            "batch_size": draw(whole(3, 12)),
            "accumulation": draw(whole(1, 2)),
            "steps_at_once": draw(whole(1, 3)),
        },
        "gradient": {
            "minibatch_size": draw(whole(2, 4)),
            "use_deep_reflect": draw(st.booleans()),
            "deep_reflect_failures": draw(whole(0, 4)),
            "deep_reflect_successes": draw(whole(0, 3)),
        },
        "optimizer": {
            "learning_rate": cap,
            "min_learning_rate": 1,
            "skill_update_mode": draw(st.sampled_from(["patch", "full_rewrite_minibatch"])),
            "use_meta_reflect": draw(st.booleans()),
            "use_slow_update": draw(st.booleans()),
            "slow_update_samples": draw(whole(1, 20)),
            "use_meta_skill": draw(st.booleans()),
            "use_skill_aware_reflection": draw(st.booleans()),
            "appendix_gate": draw(st.sampled_from(["batch", "flush"])),
        },
        "evaluation": {
            "gate": draw(st.sampled_from(["race", "selection", "selection"])),
            "eval_test": draw(st.booleans()),
        },
        "env": {
            "split_mode": "ratio",
            "split_ratio": draw(st.sampled_from(["8:10:6", "12:8:4"])),
            "workers": draw(st.sampled_from([2, 8])),
            "data_path": "data.json",
            "out_root": "out",
        },
    }
    at = {"provider": "openai_compatible", "base_url": "URL", "cache": False}
    blocks = [
        f"{one}.{key}={json.dumps(v)}" for one, row in sections.items() for key, v in row.items()
    ]
    blocks += [
        f"model.{role}={json.dumps({**at, 'model': name})}"
        for role, name in (("optimizer", "teacher"), ("target", "student"))
    ]
    words = ("train", "--config", "configs/searchqa/default.yaml")
    return Made(
        "train",
        {"data.json": json.dumps(rows)},
        (*words, "--dry-run", "--cfg-options", *blocks),
        (*words, "-q", "--cfg-options", *blocks),
        trained.searchqa_answer,
        flat,
        draw(st.sampled_from(FAULTS)),
    )


def cheap() -> Made:
    """An agent that is tuned for a tenth of a cent at most."""
    axes = {"numeric": [{"path": "model.max_tokens", "type": "int", "range": [20, 200]}]}
    optimizer = {"split": "3:8:0", "gate": "sigma", "repeats": 1, "max_usd": 0.001, "axes": axes}
    return agent(optimizer, 11, model={"max_tokens": 100}, long=0.5)


@st.composite
def suites(draw: Draw) -> Made:
    """A suite of agent runs whose prompts are improved."""
    spec: dict[str, Any] = {
        "name": "reports",
        "tasks": [
            {"name": one, "task": f"Write a report on {one} to report.md"}
            for one in suite.TASKS[: draw(whole(2, 3))]
        ],
        "run": {"walls": "off", "models": {"manager": model("m", max_tokens=2000)}},
        "optimizer": model("m", max_tokens=2000),
        "epochs": draw(whole(1, 2)),
        "gate": "rollback",
        "workers": draw(whole(1, 2)),
    }
    cast = suite.Cast(proposes=suite.in_order(*draw(st.permutations(suite.RULES))))
    return Made(
        "suite",
        {"suite.yaml": json.dumps(spec, indent=1)},
        ("check", "suite.yaml", "--json"),
        ("agent", "optimize", "suite.yaml", "-q"),
        cast.of_server,
        flat,
        draw(st.sampled_from([0.0, 0.1])),
    )


@st.composite
def sweeps(draw: Draw) -> Made:
    """An agent that is measured on its cases."""
    made = agent({"axes": {"demos": {}}}, draw(whole(2, 12)), model={"max_tokens": 50}, long=0.5)
    words = ("check", "agent.yaml", "--json"), ("eval", "agent.yaml", "-q")
    return replace(
        made,
        recipe="eval",
        asks=words[0],
        runs=words[1],
        faults=draw(st.sampled_from(FAULTS)),
    )


def swept() -> Made:
    """An agent under `sigma`, every trial of which is swept over the holdout cases as well."""
    axes = {"numeric": [{"path": "model.temperature", "range": [0.0, 1.0]}]}
    optimizer = {"split": "2:10:0", "gate": "sigma", "repeats": 2, "accept_sigma": 0.0}
    optimizer |= {"holdout_eval_policy": "every_trial", "axes": axes, "max_cycles": 1}
    limits = {"numeric_phase": {"max_trials": 3, "patience": 3}}
    return agent({**optimizer, **limits}, 12, model={"max_tokens": 100}, long=0.0)


def choosing(*names: str) -> Made:
    """An agent whose model may be any of these, each with hundreds of other numbers."""
    axes = [
        {"path": "model.name", "choices": [*names]},
        {"path": "model.temperature", "choices": [*range(3)]},
        {"path": "model.top_p", "choices": [n / 100 for n in range(1, 100)]},
    ]
    optimizer = {"split": "3:8:0", "gate": "sigma", "repeats": 1, "axes": {"numeric": axes}}
    numbers = {"name": names[0], "max_tokens": 50, "temperature": 0, "top_p": 0.5}
    return agent({**optimizer, "max_rollouts": 50}, 11, model=numbers, long=0.0)
