"""A student and a teacher without a model, so that the example needs no key and no network.

`python stand_in.py COMMAND...` runs a command with their address in `$STAND_IN`. The student copies
a date unless its skill has rules that it knows, and slips now and then. The teacher has a pool of
rules, good, useless and harmful ones, and cannot tell which is which: the gate has to.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MONTHS = [date(2000, n, 1).strftime("%B") for n in range(1, 13)]
NAMES = "Turn the name of a month into its number."
SLASHES = "Between slashes the month comes first, then the day."
DOTS = "Between dots the day comes first, then the month."
WORDS = "Say the date in words of your own."
YEARLESS = "Leave the year out, everybody knows it."
POOL = (NAMES, SLASHES, DOTS, WORDS, YEARLESS, "Be polite to whoever asks.", "Be brief.")


def share(*what: object) -> float:
    """A number from 0 to 1 that depends on nothing but its arguments."""
    return int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:6], "big") / 2**48


def student(skill: str, question: str, seed: object) -> str:
    """The date of a question, as far as the rules of the skill tell how to read it."""
    written = re.search(r"\d+ [A-Z][a-z]+ \d{4}|\d+[/.]\d+[/.]\d{4}", question)[0]
    parts = re.split(r"[ /.]", written)
    if WORDS in skill or share("slip", question, seed) < 0.1:
        return "some day"
    if "/" in written and SLASHES in skill:
        month, day, year = parts
    elif "." in written and DOTS in skill:
        day, month, year = parts
    elif " " in written and NAMES in skill:
        day, month, year = parts[0], MONTHS.index(parts[1]) + 1, parts[2]
    else:
        return written
    found = f"{int(month):02}-{int(day):02}"
    return found if YEARLESS in skill else f"{year}-{found}"


def teacher(wanted: dict[str, object], text: str, seed: object) -> dict[str, object]:
    """A reply in the form that is wanted: a rule of the pool, or all that were proposed."""
    if "patch" in wanted:
        rule = POOL[int(share("rule", text, seed) * len(POOL))]
        edits = [{"op": "append", "target": "", "content": f"- {rule}"}]
        seen = "failure_summary" if "failure_summary" in wanted else "success_patterns"
        return {seen: [], "patch": {"reasoning": "a rule of the pool", "edits": edits}}
    if "selected_indices" in wanted:
        return {"reasoning": "the first", "selected_indices": [0]}
    places: dict[str, list[int]] = {}
    for number, row in re.findall(r"^(\d+): (\{.*\})$", text, re.MULTILINE):
        places.setdefault(json.loads(row)["content"], []).append(int(number))
    edits = [
        {"from": numbers, "op": "append", "target": "", "content": content}
        for content, numbers in places.items()
    ]
    return {"reasoning": "each once", "edits": edits}


class Handler(BaseHTTPRequestHandler):
    """Chat completions, as OpenAI has them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer as whoever is asked."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        said, last = asked["messages"][0]["content"], asked["messages"][-1]["content"]
        if asked["model"] == "student":
            text = student(said, last, asked.get("seed"))
        else:
            schema = asked["response_format"]["json_schema"]["schema"]
            text = json.dumps(teacher(schema["properties"], last, asked.get("seed")))
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": len(last) // 4, "completion_tokens": len(text) // 4}
        body = json.dumps({"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is said of single requests."""


class Server(ThreadingHTTPServer):
    """Serves until its program ends."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of who hung up; any other mistake is told as usual."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*_)


def main() -> int:
    """Run the command."""
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    # the command hears Ctrl-C as well, and may still ask before it ends
    signal.signal(signal.SIGINT, lambda *_: None)
    return subprocess.call(sys.argv[1:], env={**os.environ, "STAND_IN": address})


if __name__ == "__main__":
    sys.exit(main())
