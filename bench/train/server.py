"""The student and the teacher, in a process of their own: every reply takes 50 ms.

The student is right more often with more rules in its skill; the teacher adds one a step. Prints
where it is. When its input ends, how often it was asked, how many were under way at once, and the
seconds from the first request to the last reply.
"""

import json
import re
import sys
import time
from typing import Any

from bench.train.shape import is_right
from kept.testing.server import ModelServer, Seen

NAMED = "bench prompt: "
"""How prompts begin that the bench gives to a peer whose own do not come with it."""


def answer(seen: Seen) -> str:
    """As whoever is asked."""
    if seen.model == "student":
        found = re.search(r"number (\d+)\?", seen.text)
        n, skill = int(found[1]) if found else 0, seen.lines[0].text
        right = is_right(n, seen.body.get("seed"), skill)
        return f"<answer>word{n}</answer>" if right else "<answer>no idea</answer>"
    return json.dumps(taught(seen))


def taught(seen: Seen) -> dict[str, Any]:
    """By the schema of a request, or by the name of its prompt where there is none."""
    rule = f"- Rule {seen.text.count('- Rule') + 1}."
    item = {"op": "append", "target": "", "content": rule}
    form: Any = seen.body.get("response_format")
    wanted: Any = form["json_schema"]["schema"]["properties"] if form else ()
    name = seen.lines[0].text.partition(NAMED)[2].partition("\n")[0]
    nothing: list[str] = []
    if "patch" in wanted or name.startswith("analyst"):
        side = "failure_summary" if "failure_summary" in wanted else "success_patterns"
        return {side: nothing, "patch": {"reasoning": "seen", "edits": [item]}}
    if "selected_indices" in wanted or name == "ranking":
        return {"reasoning": "first", "selected_indices": [0]}
    places = [int(n) for n in re.findall(r"^(\d+): \{", seen.text, re.MULTILINE)]
    source = {"from": places} if wanted else {"support_count": 1, "source_type": "failure"}
    return {"reasoning": "one", "edits": [{**source, **item}]}


def main() -> None:
    replied: list[float] = []

    def told(seen: Seen) -> str:
        text = answer(seen)
        replied.append(time.monotonic())
        return text

    with ModelServer(told, latency=float(sys.argv[1])) as server:
        print(server.v1, flush=True)
        sys.stdin.read()
        span = replied[-1] - replied[0] + float(sys.argv[1]) if replied else 0.0
        print(len(server.log), server.most_at_once, span, flush=True)


if __name__ == "__main__":
    main()
