"""An Inspect task whose model runs on this machine, asked by Inspect over HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.adapters import inspect as kept_inspect
from kept.models.local.model import LocalModel, start_server

pytestmark = [
    pytest.mark.model,
    pytest.mark.inspect,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("inspect_ai"),
]


@pytest.fixture
def address(smollm2: Path) -> Iterator[str]:
    """Where the model is served, by a thread of its own."""
    loop = asyncio.new_event_loop()
    model = LocalModel("local/smollm2", smollm2)
    runner, port = loop.run_until_complete(start_server(model, 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield f"http://127.0.0.1:{port}/v1"
    asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def capitals(prompt: str) -> Any:
    dataset, solver, scorer = (
        import_module(f"inspect_ai.{name}") for name in ("dataset", "solver", "scorer")
    )
    rows = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo"}
    rows |= {"Egypt": "Cairo"}
    samples = [
        dataset.Sample(id=land, input=f"What is the capital of {land}?", target=town)
        for land, town in rows.items()
    ]
    steps = [solver.prompt_template(prompt), solver.generate()]
    return import_module("inspect_ai").Task(dataset=samples, solver=steps, scorer=scorer.includes())


def test_a_small_model_is_measured_and_what_helps_it_is_kept(address: str, tmp_path: Path):
    result = kept_inspect.optimize(
        capitals,
        "Tell me a story about a cat.",
        model="openai-api/local/smollm2",
        model_base_url=address,
        model_args={"api_key": "none-is-needed"},
        temperature=0.0,
        max_tokens=12,
        proposers=["Answer the question. {prompt}"],
        gate="strict",
        budget=kept.Budget(max_iterations=1),
        split="1:4:0",
        workers=2,
        home=tmp_path,
    )
    assert result.best["prompt"] == "Answer the question. {prompt}"
    assert result.seed_value == 0.0
    assert result.spend.calls == result.spend.rollouts
    assert result.spend.tokens_out > 0
