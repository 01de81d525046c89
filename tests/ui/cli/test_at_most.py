"""Rollouts and dollars that `kept check` and dry runs say are the most, against runs that follow.

Specs of every recipe that says such a bound are drawn at random. A server with books of its own
answers them, and some of its replies are outages, or cannot be used and are paid for.
"""

import json
import re
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.store.overview import journalled_spend
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from kept.testing.server.script import guess
from tests.ui.cli import drawn_specs as drawn
from tests.ui.cli.drawn_specs import Made
from tests.ui.cli.tasks import Called, kept

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No long pauses before what failed is tried again, and a key."""
    for pause in ("models.endpoint.FIRST_WAIT", "engine.replay.PAUSE", "engine.rollout.BACKOFF"):
        monkeypatch.setattr(f"kept.{pause}", 0.002)
    monkeypatch.setenv("KEY", "sk-none")
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-none")


TOO_FEW = ("too few for a race", "are needed to tell a gain from noise")
"""Refusals of drawn specs that are right: their budget or their cases are too few."""


class Books:
    """What the server charges."""

    def __init__(self, made: Made) -> None:
        self._made = made
        self.billed: list[float] = []

    def say(self, seen: Seen) -> ModelReply:
        """The reply, with what it took."""
        said = self._made.answer(seen)
        assert not isinstance(said, Fault), "faults are drawn before"
        reply = ModelReply(said) if isinstance(said, str) else said
        used = reply.usage if reply.usage.calls else guess(seen, reply)
        self.billed.append(self._made.usd(seen, used))
        return ModelReply(reply.text, used, reply.finish, reply.tool_calls)

    def fault(self, seen: Seen) -> Fault | None:
        """What goes wrong; a reply that cannot be used is charged all the same."""
        found = self._made.fault(seen)
        if found is not None and found.kind == "body":
            self.billed.append(self._made.usd(seen, Usage(1, 2, 1)))
        return found


def told(called: Called) -> tuple[int | None, float | None]:
    """Rollouts and dollars that a command says are the most; None for what it sets no limit to."""
    if called.stdout.startswith("{"):
        said: Any = json.loads(called.stdout)
        # a sweep takes just what it is asked for
        most = said.get("at_most", said.get("rollouts"))
        if isinstance(most, dict):
            return most["rollouts"], most["usd"]  # pyright: ignore[reportUnknownVariableType] # a document
        return int(number(str(most).split()[0])), None
    (line,) = re.findall(r"at most[: ]+(.*)", called.stdout + called.stderr)
    rollouts, usd = re.match(r"([\d,]+)", line), re.search(r"\$([\d,.]+\d)", line)
    return rollouts and int(number(rollouts[1])), usd and number(usd[1])


def number(text: str) -> float:
    return float(text.replace(",", ""))


def check(made: Made, folder: Path) -> None:
    books = Books(made)
    with ModelServer(books.say, faults=books.fault) as server, chdir(folder):
        made.write(folder, server.v1)
        asks, runs = (made.words(words, server.v1) for words in (made.asks, made.runs))
        asked = kept(*asks) if asks else None
        if asked is not None and any(words in asked.stderr for words in TOO_FEW):
            reject()  # what a race needs at least is more than some budgets have
        assert asked is None or asked.code == 0, asked.stderr
        ran = kept(*runs)
    assert ran.code in (0, 1, 3), ran.stderr
    rollouts, usd = told(asked or ran)
    (place,) = (folder / ".kept" / "runs").iterdir()
    run = Run(place)
    used = journalled_spend(place, run.state)
    failures = (outcome.failure for _, _, outcome in run.rollouts())
    answered = sum(failure is None or failure.blame == "candidate" for failure in failures)
    assert rollouts is None or max(used.rollouts, answered) <= rollouts
    assert usd is None or max(used.usd, sum(books.billed)) <= usd + 1e-9


WORLDS: dict[str, Callable[[], st.SearchStrategy[Made]]] = {
    "task": drawn.tasks,
    "task without cases": drawn.caseless,
    "compare": drawn.comparisons,
    "agent": drawn.agents,
    "train": drawn.trainings,
    "suite": drawn.suites,
    "eval": drawn.sweeps,
}


def check_many(name: str, examples: int) -> None:
    @given(WORLDS[name]())
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.filter_too_much])
    def each(made: Made) -> None:
        with TemporaryDirectory() as folder:
            check(made, Path(folder))

    each()


@pytest.mark.parametrize("name", WORLDS)
def test_no_run_takes_more_than_its_command_says(name: str):
    check_many(name, 3)


@pytest.mark.nightly
@pytest.mark.parametrize("name", WORLDS)
def test_no_run_of_many_takes_more_than_its_command_says(name: str):
    check_many(name, 60)


def test_a_limit_below_a_cent_is_not_rounded_to_nothing(tmp_path: Path):
    check(drawn.cheap(), tmp_path)


def test_sweeps_over_the_holdout_cases_are_counted(tmp_path: Path):
    check(drawn.swept(), tmp_path)


def test_no_price_is_a_bound_where_models_are_too_many_to_look_at(tmp_path: Path):
    drawn.choosing("gpt-4o-mini", "gpt-4o").write(tmp_path, "http://127.0.0.1:1/v1")
    with chdir(tmp_path):
        called = kept("test", "optimize", "agent.yaml", "--dry-run")
    assert told(called) == (50, None), called.stderr


def test_an_agent_whose_tools_are_paid_is_not_free(tmp_path: Path):
    axes = {"numeric": [{"path": "model.temperature", "range": [0.0, 1.0]}]}
    made = drawn.agent({"split": "3:8:0", "axes": axes}, 11, model={}, long=0.0)
    spec = json.loads(made.files["agent.yaml"])
    embeds = {**spec["model"], "name": "text-embedding-3-small", "temperature": None}
    spec["model"] = {"provider": "scripted", "name": "script.jsonl", "temperature": 0.9}
    search = {"name": "search", "type": "vectorstore", "description": "Searches."}
    spec |= {"tools": [{**search, "source": "notes.md"}], "embedding_provider": embeds}
    files = {
        "agent.yaml": json.dumps(spec),
        "notes.md": "It is.\n",
        "script.jsonl": '{"text": "x"}\n',
    }
    replace(made, files={**made.files, **files}).write(tmp_path, "http://127.0.0.1:1/v1")
    with chdir(tmp_path):
        called = kept("test", "optimize", "agent.yaml", "--dry-run")
    assert called.code == 0, called.stderr
    assert told(called)[1] is None, called.stdout
