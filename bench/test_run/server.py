"""The model of both arms: says the same at once, or after so many seconds.

Prints where it is. Each line that it is given asks for the seconds from the first request to the
last reply since the last such line, for how many there were, and for when the first one came by the
clock that all processes share; it goes on until its input ends.
"""

import json
import sys
import time

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import ModelServer, Seen

REPLY = ModelReply("forty-two", Usage(calls=1, tokens_in=60, tokens_out=2))


def main() -> None:
    latency = float(sys.argv[1])
    replied: list[float] = []

    def reply(seen: Seen) -> ModelReply:
        replied.append(time.perf_counter())
        return REPLY

    with ModelServer(reply, latency=latency) as server:
        print(server.v1, flush=True)
        for _ in sys.stdin:
            span = replied[-1] - replied[0] + latency if replied else 0.0
            first = replied[0] if replied else 0.0
            told = {
                "span": span,
                "calls": len(replied),
                "at_once": server.most_at_once,
                "first": first,
            }
            replied.clear()
            server.log.clear()
            server.most_at_once = 0
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
