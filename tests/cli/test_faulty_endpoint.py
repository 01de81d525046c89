"""Commands against an endpoint that breaks three of ten replies: nothing is lost or misjudged.

The server keeps its own books. Kept's are never less; what they say more is the worst case of
replies without believable counts, one by one; and a limit of money holds.
"""

import json
import random
from pathlib import Path

import pytest

from kept.core.rollout import Usage
from kept.models.config import ModelConfig
from kept.models.prices import rates_of
from kept.models.speech import Taken
from kept.sandbox import abilities
from kept.store.reader import Run
from kept.store.spent import spend_of
from kept.testing.server import Fault, ModelServer, Seen
from tests.agents.play import Play, complete, delegate, done, plan, write
from tests.cli.tasks import kept
from tests.faults import KINDS, MODEL, FaultyBooks, check_books, check_rollouts
from tests.recipes.coordinate import world as tuned
from tests.recipes.skill import world as trained

pytestmark = pytest.mark.slow

SIZES = [
    pytest.param(60, id="sample"),
    pytest.param(1000, id="many", marks=pytest.mark.nightly),
]
"""Calls, about."""


@pytest.fixture(autouse=True)
def apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")
    monkeypatch.setenv("KEY", "sk-very-secret-key")
    monkeypatch.setattr("kept.models.line.FIRST_WAIT", 0.02)


def test_there_are_twelve_kinds_of_faults_and_more():
    assert len(KINDS) >= 12


def run_of(here: Path) -> Path:
    (folder,) = (here / ".kept" / "runs").iterdir()
    return folder


TASK = """\
artifacts: {include: [prompt.md]}
runner:
  model: {provider: openai_compatible, model: m, base_url: "URL", MODEL}
  prompt: prompt.md
  input: q
scorer: {type: rules, target: output, rules: [{kind: matches, pattern: "good"}]}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: variants, files: [FILES]}]
cases: {file: cases.jsonl, split: "0:1:0"}
gate: strict
budget: {max_usd: USD}
workers: 32
"""


def write_task(here: Path, url: str, cases: int, variants: int, usd: float) -> None:
    names = [f"v{n}.md" for n in range(variants)]
    text = TASK.replace("URL", url).replace("MODEL", MODEL).replace("USD", str(usd))
    (here / "task.yaml").write_text(text.replace("FILES", ", ".join(names)))
    for name in ("prompt.md", *names):
        (here / name).write_text(f"Say good, as {name} says.\n")
    (here / "cases.jsonl").write_text("".join(f'{{"q": "case {n}"}}\n' for n in range(cases)))


def good(seen: Seen) -> str:
    return "good, " + "and so on, " * (seen.number % 7)


@pytest.mark.parametrize("calls", SIZES)
def test_optimize_loses_nothing_and_books_everything(here: Path, calls: int):
    books = FaultyBooks(good)
    variants = 4 if calls < 100 else 9
    cases = calls // (variants + 1)
    with ModelServer(good, faults=books.fault) as server:
        write_task(here, server.v1, cases, variants, usd=1000.0)
        called = kept("optimize", "task.yaml", "-q")
        assert called.code == 0, called.stderr
        if calls >= 100:
            assert server.most_at_once > 16
    assert len(books.billed) >= calls
    assert check_rollouts(run_of(here)) == cases * (variants + 1)
    check_books(books, run_of(here))


@pytest.mark.parametrize("calls", SIZES)
def test_optimize_keeps_to_its_limit_of_money(here: Path, calls: int):
    books = FaultyBooks(good)
    limit = calls * 0.0008
    with ModelServer(good, faults=books.fault) as server:
        write_task(here, server.v1, calls // 5, 4, usd=limit)
        kept("optimize", "task.yaml", "-q")
    state = Run(run_of(here)).state
    assert state.stopped is not None and state.stopped.kind == "usd"
    assert books.total <= spend_of(run_of(here), state).usd <= limit + 1e-9


def growing(seen: Seen) -> str:
    """As an editor that appends lines, or as a model that is right the more often the more."""
    if seen.body.get("response_format"):
        line = {
            "op": "append",
            "path": "prompt.md",
            "target": "",
            "text": f"v{seen.body['seed']}\n",
        }
        return json.dumps({"why": "why not", "cases": [], "edits": [line]})
    told = seen.lines[0].text
    return "good" if random.Random(seen.text).random() < 0.1 * len(told.splitlines()) else "no"


def test_replies_to_rollouts_that_were_cancelled_are_booked(here: Path):
    books = FaultyBooks(growing)

    def fault(seen: Seen) -> Fault:
        return books.fault(seen) or Fault("slow", seconds=(seen.number * 37 % 100) / 100)

    with ModelServer(growing, faults=fault) as server:
        write_task(here, server.v1, 16, 1, usd=1000.0)
        editor = f"{{provider: openai_compatible, model: e, base_url: '{server.v1}', {MODEL}}}"
        settings = [f"proposers=[{{kind: edit, cases: 0, model: {editor}}}]", "width=4"]
        settings.append("budget.max_iterations=6")
        called = kept("optimize", "task.yaml", "-q", *(w for s in settings for w in ("--set", s)))
        assert called.code == 0, called.stderr
    state = check_books(books, run_of(here))
    assert state.spend.cancelled > 0
    check_rollouts(run_of(here))


@pytest.mark.parametrize("calls", SIZES)
def test_train_loses_nothing_and_books_everything(here: Path, calls: int):
    books = FaultyBooks(trained.searchqa_answer)
    with ModelServer(trained.searchqa_answer, faults=books.fault) as server:
        at = f"provider: openai_compatible, base_url: '{server.v1}', {MODEL}"
        words = trained.write_searchqa(here, server.v1)
        words = [word for word in words if not word.startswith("model.")]
        words += [
            f"model.optimizer={{model: teacher, {at}}}",
            f"model.target={{model: student, {at}}}",
        ]
        epochs, batch = (1, 30) if calls < 100 else (11, 10)
        words += [f"train.num_epochs={epochs}", f"train.batch_size={batch}", "env.workers=32"]
        words += [
            "evaluation.gate=selection",
            "budget.max_usd=1000",
            "optimizer.use_slow_update=false",
        ]
        (here / "skills").mkdir()
        (here / "skills" / "mine.md").write_text(trained.START)
        called = kept(*words[:4], "--skill_init", "skills/mine.md", *words[4:])
        assert called.code == 0, called.stderr
    assert len(books.billed) >= calls
    assert check_rollouts(run_of(here)) >= calls // 2
    check_books(books, run_of(here))


@pytest.mark.parametrize("calls", SIZES)
def test_test_optimize_loses_nothing_and_books_everything(here: Path, calls: int):
    rates = rates_of(ModelConfig(provider="openai", model="gpt-5-mini"))
    assert rates is not None

    def price(used: Usage) -> float:
        return rates.usd(Taken(used.tokens_in, used.tokens_out))

    books = FaultyBooks(tuned.answer, price=price)
    with ModelServer(tuned.answer, faults=books.fault) as server:
        cases, trials = (20, 3) if calls < 100 else (40, 8)
        more = "gate: sigma\naccept_sigma: 1.0\nrepeats: 1\nsplit: '1:1:0'"
        path = tuned.write_agent(here, server.v1, cases=cases, trials=trials, more=more)
        text = path.read_text() + "execution: {llm_timeout: 6, parallel_test_cases: 32}\n"
        path.write_text(text.replace("{max_cycles: 2}", "{max_cycles: 2, max_usd: 1000}"))
        called = kept("test", "optimize")
        assert called.code == 0, called.stderr
    assert len(books.billed) >= calls
    assert check_rollouts(run_of(here)) >= 2 * cases
    check_books(books, run_of(here))


WALLS = pytest.mark.skipif(not abilities().walls, reason="no walls here")


def story(turns: int, side_by_side: int) -> Play:
    names = [[f"w{turn}-{n}" for n in range(side_by_side)] for turn in range(turns)]
    workers = {
        name: [
            write(f"output/{name}.md"),
            write(f"output/{name}.md", "# More\n\nText.\n"),
            done(name),
        ]
        for row in names
        for name in row
    }
    managed = [plan("w0-0.md"), *(delegate(*row) for row in names), complete()]
    return Play(managed, workers)


@pytest.mark.sandbox
@WALLS
@pytest.mark.parametrize("calls", SIZES)
def test_agent_run_loses_nothing_and_books_everything(here: Path, calls: int):
    play = story(max(1, calls // 20), 6)
    books = FaultyBooks(play.of_server)
    with ModelServer(play.of_server, faults=books.fault) as server:
        model = f"{{provider: openai_compatible, model: m, base_url: '{server.v1}', {MODEL}}}"
        words = ["--set", f"models.manager={model}", "--set", "budget.max_usd=1000"]
        words += ["--set", "budget.max_parallel_workers=32", "--set", "budget.max_tool_calls=9999"]
        called = kept("agent", "run", "Write it", "-q", *words)
        assert called.code == 0, called.stderr
    assert len(books.billed) >= calls
    assert check_rollouts(run_of(here)) == 1
    check_books(books, run_of(here))
