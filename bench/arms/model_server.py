"""The server that all arms of `bench.models` call: every reply takes 100 ms and says the same.

Prints where it is, and goes on until its input ends.
"""

import sys

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import ModelServer

SECONDS = 0.1
REPLY = ModelReply("the answer is forty-two " * 20, Usage(calls=1, tokens_in=600, tokens_out=120))


def main() -> None:
    with ModelServer(lambda seen: REPLY, latency=SECONDS) as server:
        print(server.v1, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
