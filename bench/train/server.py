"""The student and the teacher, in a process of their own: every reply takes 50 ms.

The student is right more often with more rules in its skill; the teacher adds one a step. Prints
where it is, and how often it was asked when its input ends.
"""

import hashlib
import json
import re
import sys
from typing import Any

from kept.testing.server import ModelServer, Seen

SECONDS = 0.05


def share(*what: object) -> float:
    digest = hashlib.sha256(repr(what).encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def answer(seen: Seen) -> str:
    """As whoever is asked."""
    if seen.model == "student":
        found = re.search(r"number (\d+)\?", seen.text)
        n, skill = int(found[1]) if found else 0, seen.lines[0].text
        right = share(n, seen.body.get("seed")) < 0.2 + 0.2 * skill.count("- Rule")
        return f"<answer>word{n}</answer>" if right else "<answer>no idea</answer>"
    schema: Any = seen.body["response_format"]["json_schema"]["schema"]
    wanted = schema["properties"]
    rule = f"- Rule {seen.text.count('- Rule') + 1}."
    item = {"op": "append", "target": "", "content": rule}
    if "patch" in wanted:
        side = "failure_summary" if "failure_summary" in wanted else "success_patterns"
        nothing: list[str] = []
        return json.dumps({side: nothing, "patch": {"reasoning": "seen", "edits": [item]}})
    if "selected_indices" in wanted:
        return json.dumps({"reasoning": "first", "selected_indices": [0]})
    places = [int(n) for n in re.findall(r"^(\d+): \{", seen.text, re.MULTILINE)]
    return json.dumps({"reasoning": "one", "edits": [{"from": places, **item}]})


def main() -> None:
    with ModelServer(answer, latency=float(sys.argv[1])) as server:
        print(server.v1, flush=True)
        sys.stdin.read()
        print(len(server.log), server.most_at_once, flush=True)


if __name__ == "__main__":
    main()
