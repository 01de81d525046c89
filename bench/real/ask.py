"""The runner of the live null: asks the model that is served, with a seed that nobody chose.

Runs as a command of a task: `python ask.py URL`.
"""

import json
import os
import re
import secrets
import sys
import urllib.request
from pathlib import Path


def main() -> None:
    folder = Path(os.environ["KEPT_CANDIDATE"])  # noqa: TID251 # how Kept speaks to commands
    case = json.loads(Path(os.environ["KEPT_CASE"]).read_bytes())  # noqa: TID251 # as above
    prompt = re.sub(r"<!--.*?-->", "", (folder / "prompt.md").read_text(encoding="utf-8")).strip()
    body = {
        "messages": [
            {"role": "system", "content": prompt},
            {"role": "user", "content": case["review"]},
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"schema": json.loads(Path("schema.json").read_bytes())},
        },
        "temperature": 0.7,
        "max_tokens": 16,
        "seed": secrets.randbelow(2**31),
    }
    asked = urllib.request.Request(
        f"{sys.argv[1]}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked, timeout=60) as reply:
        print(json.load(reply)["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
