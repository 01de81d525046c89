"""A process to be killed: an Inspect task on Kept, whose model is a server elsewhere.

Usage: python -m tests.adapters.inspect_kill_target RUN_DIR URL
"""

import sys
from typing import Any

from kept.adapters import inspect as kept_inspect
from tests.adapters.inspect_world import HARMFUL, KEY, RULE, SEED, USELESS, plain, pool
from tests.conftest import peer_folder


def optimize(folder: str, url: str) -> Any:
    """The same call in any process."""
    return kept_inspect.optimize(
        plain,
        SEED,
        model="openai-api/desk/any",
        model_base_url=url,
        model_args={"api_key": KEY},
        proposers=pool(USELESS[0], HARMFUL, RULE),
        max_metric_calls=400,
        run_dir=folder,
    )


if __name__ == "__main__":
    sys.path.append(str(peer_folder("inspect")))
    optimize(*sys.argv[1:])
