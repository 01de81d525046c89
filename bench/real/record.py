"""Makes the bank: `nice python -m bench.real.record`. Stop it at any time; it goes on from there.

The draws of a case are asked for in one request, so that its prompt is read once. Every case has a
seed of its own: with one seed for all of them llama.cpp draws the same chance for every case, and
what looks like 150 independent cases would be a handful.
"""

import hashlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from bench.real.bank import CASES, DRAWS, FILE, LETTERS, TEMPERATURE, cases, lines, prompts
from kept.models.local.model import Engine, engine_of
from kept.models.weights import known, pull
from kept.settings import processors
from kept.ui.demo import REVIEWS

CONTEXT = 512
MAX_TOKENS = 16


def body(prompt: str, case: dict[str, str]) -> dict[str, Any]:
    whole = "{{review}}" in prompt
    text = prompt.replace("{{review}}", case["review"])
    system = [] if whole else [{"role": "system", "content": text}]
    user = {"role": "user", "content": text if whole else case["review"]}
    schema = json.loads((REVIEWS / "schema.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256(f"{prompt}\0{case['id']}".encode()).digest()
    return {
        "messages": [*system, user],
        "schema": schema,
        "temperature": TEMPERATURE,
        "max_tokens": MAX_TOKENS,
        "seed": int.from_bytes(digest[:3], "big"),
        "n": DRAWS,
    }


def said(engine: Engine, prompt: str, case: dict[str, str]) -> str:
    texts = [""] * DRAWS
    for chunk in engine.chat(body(prompt, case), lambda: False):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content") or ""
    return "".join(map(letter, texts))


def letter(text: str) -> str:
    try:
        return LETTERS[json.loads(text)["label"]]
    except (ValueError, KeyError):
        return "?"


def drop_torn_line() -> None:
    """What a kill left half written is made again."""
    text = FILE.read_text(encoding="utf-8") if FILE.exists() else ""
    if text and not text.endswith("\n"):
        FILE.write_text(text[: text.rfind("\n") + 1], encoding="utf-8")


def main() -> None:
    drop_torn_line()
    done = {(line["prompt"], line["case"]) for line in lines()}
    todo = [
        (name, text, case)
        # the longest last: eight of them are a bank
        for name, text in sorted(prompts().items(), key=lambda prompt: len(prompt[1]))
        for case in cases()
        if (name, case["id"]) not in done
    ]
    pull("smollm2")
    weights = known("smollm2")
    count = processors()
    engine = engine_of(weights.path, DRAWS * count, CONTEXT)
    FILE.parent.mkdir(exist_ok=True)
    start = time.monotonic()
    with FILE.open("a", encoding="utf-8") as file, ThreadPoolExecutor(count) as pool:
        if file.tell() == 0:
            head = {"weights": weights.sha256, "temperature": TEMPERATURE, "cases": CASES}
            file.write(json.dumps(head) + "\n")
        texts, asked = [text for _, text, _ in todo], [case for _, _, case in todo]
        answers = pool.map(partial(said, engine), texts, asked)
        for number, ((name, _, case), answer) in enumerate(zip(todo, answers, strict=True), 1):
            line = {"prompt": name, "case": case["id"], "said": answer}
            file.write(json.dumps(line) + "\n")
            file.flush()
            if number % 20 == 0:
                speed = number * DRAWS / (time.monotonic() - start)
                print(f"{len(done) + number} of {len(done) + len(todo)}: {speed:.1f} a second")


if __name__ == "__main__":
    main()
