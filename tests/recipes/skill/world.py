"""A world to train in: a student that is more often right with the right rules in its skill.

One server is the student and the teacher. What it answers depends on what it is asked and on
nothing else, so that a run that was cut hears the same again. The teacher draws good, useless and
harmful rules.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from kept.core.artifact import Candidate
from kept.core.case import Case, Cases
from kept.core.llm import Message, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Model, Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.core.score import Finding, Score
from kept.evaluators.environments.base import About, Opened
from kept.models.ask import ask, draw_seed
from kept.models.client import connect
from kept.recipes.skill.compile import plan_of
from kept.testing.server import Seen
from tests.recipes.skill.skill_configs import sound_skill

START = "# Skill\n\nAnswer the question.\n"
GOOD = ("Check the units before answering.", "Answer with the last number alone.")
USELESS = ("Be friendly at all times.", "Think before you speak.")
HARMFUL = ("Always answer with a poem.",)
POOL = (*GOOD, *USELESS, *HARMFUL)

CONFIG = """\
model:
  optimizer: {{provider: openai_compatible, model: teacher, base_url: "{url}", cache: false}}
  target: {{provider: openai_compatible, model: student, base_url: "{url}"}}
train: {{num_epochs: {epochs}, batch_size: {batch}, seed: 7}}
gradient: {{minibatch_size: 4, merge_batch_size: 2, max_analyst_rounds: 2}}
optimizer: {{learning_rate: 2, min_learning_rate: 1, use_slow_update: false, use_meta_skill: false}}
evaluation: {{gate: {gate}}}
env: {{name: world, workers: 8, out_root: "{out}"}}
"""


def share(*what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def chance_of(skill: str) -> float:
    """How often the student is right."""
    chance = 0.25 + sum(0.3 for rule in GOOD if rule in skill)
    return max(0.0, chance - sum(0.5 for rule in HARMFUL if rule in skill))


def truth(n: int) -> str:
    return f"answer {n * 17 + 1000}"


@dataclass(frozen=True)
class Student:
    """Asks the model once, with the skill as its system prompt."""

    model: Model

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        skill = candidate["SKILL.md"]
        question = fields(case)["question"]
        messages = (Message("system", skill), Message("user", question))
        seed = draw_seed(job.case_id, job.repeat, job.purpose)
        reply = await ask(scope, self.model, ModelRequest(messages, seed=seed))
        if isinstance(reply, Failure):
            return reply
        items = [TraceItem("system", skill), TraceItem("user", question)]
        items.append(TraceItem("assistant", reply.text, {"final": True}))
        return Rollout(reply.text, trace=tuple(items), usage=reply.usage)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class Exact:
    """Right or wrong."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        answer = fields(case)["answer"]
        right = rollout.output == answer
        told = TraceItem("verification", f"expected {answer}", {"reference": answer})
        findings = () if right else (Finding("not the expected answer"),)
        return Score({"hard": float(right), "soft": float(right)}, findings, (told,))

    async def close(self) -> None:
        """Nothing is open."""


def fields(case: Case) -> dict[str, str]:
    return cast("dict[str, str]", case.data)


def about(case: Case) -> About:
    return About(fields(case)["question"], "sum", fields(case)["answer"])


def cases_of(sizes: Sequence[int]) -> Cases:
    made = [
        Case(f"q{n}", {"question": f"question number {n}", "answer": truth(n)})
        for n in range(sum(sizes))
    ]
    a, b, _ = sizes
    return Cases(tuple(made[:a]), tuple(made[a : a + b]), tuple(made[a + b :]))


def opened(model: Model, sizes: Sequence[int] = (24, 12, 12), **more: Any) -> Opened:
    def no_probe(texts: Mapping[str, str], instruction: str, *_: Any) -> Mapping[str, str]:
        return {**texts, "SKILL.md": f"{texts['SKILL.md']}\nPROBE: {instruction}\n"}

    def no_files(_: Path) -> None:
        return None

    fields: dict[str, Any] = {
        "name": "world",
        "cases": cases_of(sizes),
        "runner": Student(model),
        "scorer": Exact(),
        "about": about,
        "prompts": {},
        "skill": {"SKILL.md": START},
        "probe": no_probe,
        "materialise": no_files,
        "inputs": {"world": "1"},
    }
    return Opened(**{**fields, **more})


def write_config(
    folder: Path, url: str, *, epochs: int = 2, batch: int = 12, gate: str = "selection"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "skill.yaml"
    out = folder / "out"
    path.write_text(CONFIG.format(url=url, epochs=epochs, batch=batch, gate=gate, out=out))
    return path


def make_plan(
    path: Path, overrides: Sequence[str] = (), sizes: Sequence[int] = (24, 12, 12), **more: Any
) -> Plan:
    spec = sound_skill(path, overrides)
    assert spec.student is not None
    return plan_of(spec, opened(connect(spec.student), sizes, **more), overrides).plan


def answer(seen: Seen) -> str:
    """As the student or the teacher."""
    if seen.model == "student":
        n = int(seen.text.rpartition(" ")[2])
        skill = seen.lines[0].text
        right = share("student", skill, n, seen.body.get("seed")) < chance_of(skill)
        return truth(n) if right else "no idea"
    return json.dumps(teach(seen))


def properties(seen: Seen) -> Mapping[str, Any]:
    schema: Any = seen.body["response_format"]["json_schema"]["schema"]
    return schema["properties"]


def drawn(seen: Seen, what: str) -> str:
    at = share(what, seen.text, seen.body.get("seed"))
    return POOL[int(at * len(POOL))]


def edit(rule: str) -> dict[str, Any]:
    return {"op": "append", "target": "", "content": f"- {rule}"}


def patch_of(seen: Seen) -> dict[str, Any]:
    """In whichever way the skill is updated."""
    rule = drawn(seen, "a")
    schema = json.dumps(properties(seen)["patch"])
    if "revise_suggestions" in schema:
        return {"reasoning": "seen", "revise_suggestions": [suggestion(rule)]}
    if "skill_candidates" in schema:
        whole = {"title": "one", "change_summary": ["a rule"], "new_skill": f"{START}- {rule}\n"}
        return {"reasoning": "seen", "skill_candidates": [whole]}
    return {"reasoning": "seen", "edits": [edit(rule)]}


def suggestion(rule: str) -> dict[str, Any]:
    told = {"type": "add_rule", "title": "a rule", "motivation": "seen", "priority_hint": "high"}
    return {**told, "instruction": rule}


def rules_in(text: str) -> list[str]:
    return [rule for rule in POOL if rule in text]


FIXED: Mapping[str, Callable[[Seen], Mapping[str, Any]]] = {
    "slow_update_content": lambda seen: {
        "reasoning": "over the epochs",
        "slow_update_content": f"Keep to this: {GOOD[0]} ({int(100 * share(seen.text))})",
    },
    "meta_skill_content": lambda seen: {
        "reasoning": "of the epochs",
        "meta_skill_content": f"Short rules help ({int(100 * share(seen.text))}).",
    },
    "meta_summary": lambda seen: {
        "meta_summary": "short rules were kept",
        "patch": {"reasoning": "looking back", "edits": [edit(GOOD[1])]},
    },
    "probe_instruction": lambda seen: {
        "reasoning": "to see more",
        "probe_instruction": "Say which rule you applied.",
        "probe_target_id": "",
        "probe_after_step": 0,
    },
    "notes": lambda seen: {"notes": ["Remember the rules."]},
    "new_skill": lambda seen: {
        "reasoning": "anew",
        "change_summary": ["one rule more"],
        "new_skill": "\n".join([START, *(f"- {rule}" for rule in rules_in(seen.text))]),
    },
}
"""What the teacher says where a reply has such a key."""


def merged(seen: Seen, key: str) -> dict[str, Any]:
    found = re.findall(r"^(\d+): (\{.*\})$", seen.text, re.MULTILINE)
    by_content: dict[str, dict[str, Any]] = {}
    for n, row in found:
        item = {k: v for k, v in json.loads(row).items() if k not in CODE}
        by_content.setdefault(json.dumps(item), {"from": [], **item})["from"].append(int(n))
    return {"reasoning": "together", key: list(by_content.values())}


CODE = ("support_count", "source_type", "merge_level")


def mended(seen: Seen) -> dict[str, Any]:
    """Edits that had no place in the skill, at its end."""
    found = re.findall(r"^(\d+): (\{.*\})$", seen.text, re.MULTILINE)
    rows = [(int(n), json.loads(row)["content"]) for n, row in found]
    return {"edits": [{"index": n, "op": "append", "target": "", "content": c} for n, c in rows]}


def teach(seen: Seen) -> dict[str, Any]:
    """What the teacher says, by what its reply must be."""
    wanted = properties(seen)
    for key, says in FIXED.items():
        if key in wanted:
            return {**says(seen)}
    if "failure_summary" in wanted or "success_patterns" in wanted:
        told: dict[str, Any] = {"patch": patch_of(seen)}
        if "failure_summary" in wanted:
            told["failure_summary"] = [
                {"failure_type": "wrong", "count": 1, "description": "no answer"}
            ]
        else:
            told["success_patterns"] = ["it answered"]
        if "appendix_notes" in wanted:
            told["appendix_notes"] = [f"Remember: {drawn(seen, 'n')}"]
        return told
    if "selected_indices" in wanted:
        return {"reasoning": "the first", "selected_indices": [0]}
    for key in ("edits", "revise_suggestions", "skill_candidates"):
        if key in wanted and "reasoning" in wanted:
            return merged(seen, key)
    if [*wanted] == ["edits"]:
        return mended(seen)
    raise AssertionError(f"the teacher was asked for {list(wanted)}")


def write_searchqa(folder: Path, url: str, *more: str) -> list[str]:
    """Data of SearchQA's shape; the words of a command that trains on it."""
    rows = [
        {
            "id": f"q{n}",
            "question": f"What is number {n}?",
            "context": f"[DOC] Number {n} is called word{n * 17}.",
            "answers": [f"word{n * 17}"],
        }
        for n in range(60)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.json").write_text(json.dumps(rows))
    at = f"provider: openai_compatible, base_url: '{url}', cache: false"
    blocks = [
        f"model.optimizer={{model: teacher, {at}}}",
        f"model.target={{model: student, {at}}}",
    ]
    words = ["train", "--config", "configs/searchqa/default.yaml", "-q"]
    words += ["--split_mode", "ratio", "--split_ratio", "5:3:2", "--data_path", "data.json"]
    words += ["--num_epochs", "2", "--batch_size", "10", "--minibatch_size", "4"]
    words += ["--merge_batch_size", "2", "--learning_rate", "1", "--min_learning_rate", "1"]
    words += ["--out_root", "out", "--workers", "6"]
    return [*words, "--cfg-options", *blocks, *more]


def searchqa_answer(seen: Seen) -> str:
    """As the student of SearchQA, or the teacher."""
    if seen.model == "teacher":
        return json.dumps(teach(seen))
    found = re.search(r"number (\d+)\?", seen.text)
    assert found is not None, seen.text
    n, skill = int(found[1]), seen.lines[0].text
    right = share("student", skill, n, seen.body.get("seed")) < chance_of(skill)
    return f"<answer>word{n * 17}</answer>" if right else "<answer>no idea</answer>"
