"""Replies of the models in the golden runs.

A reply depends on the request alone and not on the order of requests. Nothing here is random: a
number is drawn by hashing what was asked.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from kept.testing.server import Seen

GOOD = "Answer with one word, positive or negative."
BETTER = "Read the last sentence twice: it decides."
USELESS = "Be polite at all times."
HARMFUL = "Answer in French, at length."
RULES = (GOOD, USELESS, HARMFUL, BETTER)
SEED = "You say what mood a text has."


def share(*what: object) -> float:
    """A number in [0, 1) that depends on its arguments alone."""
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def mood(number: int) -> str:
    """The right answer to a case."""
    return "positive" if number % 2 else "negative"


def chance(prompt: str) -> float:
    """How often the answerer is right with this prompt."""
    found = 0.2 + 0.5 * (GOOD in prompt) + 0.2 * (BETTER in prompt) - 0.3 * (HARMFUL in prompt)
    return max(0.0, found)


def answer_case(seen: Seen) -> str:
    """The mood of `text number N`, right as often as the system prompt deserves."""
    number = int(re.findall(r"number (\d+)", seen.text)[-1])
    prompt = seen.lines[0].text
    temperature = float(seen.body.get("temperature") or 0.0)
    likely = chance(prompt) + 0.1 * (1 - abs(temperature - 0.2))
    drawn = share(number, seen.body.get("seed"), prompt)
    return mood(number) if drawn < likely else "neither"


def drawn_rule(seen: Seen) -> str:
    """One of the rules, by the request."""
    return RULES[int(share("rule", seen.text, seen.body.get("seed")) * len(RULES))]


def wanted(seen: Seen) -> Mapping[str, Any]:
    """Properties of the JSON schema that the reply has to satisfy; empty where there is none."""
    given: Any = seen.body.get("response_format") or {}
    schema: Any = given.get("json_schema", {}).get("schema", {})
    return schema.get("properties", {})


def tune(seen: Seen) -> str:
    """Critic, applier and agent of `kept test optimize`."""
    keys = wanted(seen)
    if "failing_pattern" in keys:
        return json.dumps(
            {
                "failing_pattern": "answers are not one of the two words",
                "root_cause_hypothesis": "nothing says which words there are",
                "suggested_change_direction": "say which words there are",
                "confidence": 0.8,
                "citations": ["text-1"],
                "avoid": [],
            }
        )
    if "new_text" in keys:
        rule = drawn_rule(seen)
        present = [one for one in RULES if one in seen.text and one != rule]
        return json.dumps(
            {
                "edit_type": "insert",
                "rationale": f"added: {rule}",
                "new_text": "\n".join([SEED, *present, rule]) + "\n",
                "diff_summary": "one more line",
            }
        )
    return answer_case(seen)


def edit_prompt(seen: Seen) -> str:
    """Proposer and answerer of a task: the proposer appends the next rule that it does not see."""
    if not wanted(seen):
        return answer_case(seen)
    rule = next((one for one in (HARMFUL, GOOD, BETTER) if one not in seen.text), USELESS)
    edit = {"op": "append", "path": "prompt.md", "target": "", "text": f"{rule}\n"}
    return json.dumps({"why": "say which words there are", "cases": [], "edits": [edit]})


def train(seen: Seen) -> str:
    """Student and teacher of `kept train`: a student that answers by the rules of its skill."""
    keys = wanted(seen)
    if seen.model == "student":
        number = int(re.findall(r"number (\d+)\?", seen.text)[-1])
        skill = seen.lines[0].text
        right = share(number, seen.body.get("seed"), skill) < chance(skill)
        return f"<answer>{f'word{number * 17}' if right else 'no idea'}</answer>"
    return json.dumps(teach(seen, keys))


def teach(seen: Seen, keys: Mapping[str, Any]) -> dict[str, Any]:
    """A reply of the teacher, by what the schema asks for."""
    edit = {"op": "append", "target": "", "content": f"- {drawn_rule(seen)}"}
    patch = {"reasoning": "seen in the traces", "edits": [edit]}
    if "failure_summary" in keys:
        failures = [{"failure_type": "wrong", "count": 1, "description": "no answer"}]
        return {"failure_summary": failures, "patch": patch}
    if "success_patterns" in keys:
        return {"success_patterns": ["it answered"], "patch": patch}
    if "selected_indices" in keys:
        return {"reasoning": "the first", "selected_indices": [0]}
    if "slow_update_content" in keys:
        return {"reasoning": "over the epochs", "slow_update_content": f"Keep to this: {GOOD}"}
    if "meta_skill_content" in keys:
        return {"reasoning": "over the epochs", "meta_skill_content": "Short rules help."}
    if "edits" in keys:
        rows = re.findall(r"^(\d+): (\{.*\})$", seen.text, re.MULTILINE)
        first: dict[str, Any] = json.loads(rows[0][1]) if rows else edit
        merged = {name: first[name] for name in ("op", "target", "content") if name in first}
        return {"reasoning": "together", "edits": [{"from": [int(n) for n, _ in rows], **merged}]}
    raise AssertionError(f"no reply for {list(keys)}")
