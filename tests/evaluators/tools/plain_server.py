"""A server of tools by the letter of the protocol of 2025, from the standard library alone.

`python plain_server.py PIDS`: it adds its pid to that file when it starts. What it says is written
as the TypeScript SDK writes it, with the id at the end.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = (
    "echo",
    "fail",
    "hang",
    "large",
    "noise",
    "refuse",
    "crash",
    "page",
    "environment",
    "odd.name",
)
LOCK = threading.Lock()


def send(message: dict[str, Any]) -> None:
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def reply(number: Any, result: dict[str, Any]) -> None:
    send({"result": result, "jsonrpc": "2.0", "id": number})


def texts(*said: str, wrong: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in said], "isError": wrong}


def call(number: Any, name: str, given: dict[str, Any]) -> None:
    if name == "hang":
        time.sleep(120)
    elif name == "crash":
        sys.stderr.write("last words\n")
        sys.stderr.flush()
        os._exit(7)
    elif name == "refuse":
        error = {"code": -32602, "message": "there is no such city"}
        send({"error": error, "jsonrpc": "2.0", "id": number})
    elif name == "noise":
        with LOCK:
            sys.stdout.write("a line that somebody forgot\n")
        reply(number, texts("heard"))
    elif name == "page":
        reply(number, texts("first passage", "second passage"))
    elif name == "large":
        reply(number, texts("x" * 50_000_000))
    elif name == "environment":
        reply(number, texts(json.dumps(dict(os.environ))))  # noqa: TID251 # what it is asked for
    else:
        time.sleep(float(given.get("seconds", 0)))
        reply(number, texts(str(given.get("text")), wrong=name == "fail"))


def main() -> None:
    started = [os.getpid()]
    if "--with-child" in sys.argv:
        started.append(subprocess.Popen(["sleep", "300"]).pid)
    with Path(sys.argv[1]).open("a") as file:
        file.writelines(f"{pid}\n" for pid in started)
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        number = asked.get("id")
        params: dict[str, Any] = asked.get("params") or {}
        match asked["method"]:
            case "initialize":
                info = {"name": "plain", "version": "1"}
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                }
                reply(number, {**result, "serverInfo": info})
            case "tools/list":
                # in two pages
                half = TOOLS[5:] if params.get("cursor") else TOOLS[:5]
                tools = [{"name": name, "description": name, "inputSchema": TEXT} for name in half]
                more: dict[str, Any] = {} if params.get("cursor") else {"nextCursor": "more"}
                reply(number, {"tools": tools, **more})
            case "tools/call":
                given: dict[str, Any] = params.get("arguments") or {}
                words = (number, params["name"], given)
                threading.Thread(target=call, args=words, daemon=True).start()
            case method if number is not None:
                error = {"code": -32601, "message": f"no method {method}"}
                send({"error": error, "jsonrpc": "2.0", "id": number})
            case _:
                pass


if __name__ == "__main__":
    main()
