"""Commands against an endpoint that breaks three of ten replies: nothing is lost or misjudged.

The server keeps its own books. Kept's are never less; what they say more is the worst case of
replies without believable counts, one by one; and a limit of money holds.
"""

import contextlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kept.core.rollout import Job, Usage
from kept.models.prices import rates_of
from kept.models.protocol import Taken
from kept.models.providers import ModelConfig
from kept.sandbox.capabilities import abilities
from kept.store.overview import journalled_spend
from kept.store.reader import Run
from kept.testing.server import Fault, ModelServer, Seen
from tests.faults import KINDS, FaultyBooks, check_books, check_rollouts, model_block
from tests.orchestrator.play import Play, Say, complete, delegate, done, plan, say, write
from tests.recipes.agent_config.tune import world as tuned
from tests.recipes.skill import world as trained
from tests.ui.cli.tasks import Called, kept

pytestmark = pytest.mark.slow

SIZES = [
    pytest.param(60, id="sample"),
    pytest.param(1000, id="many", marks=pytest.mark.nightly),
]
"""Calls, about."""

SAMPLE_SEED = 2153
"""Of the first 64 requests 26 go wrong, in 16 of 18 ways; two of the first 16 are too slow."""

CROWD_SEED = 309
"""The first 16 requests are those of managers, and go well; up to the 66th none is too slow or 429.

Six managers send six workers each, so 32 are in flight only where no manager is late. After a 429
Kept makes fewer calls at once, as it should.
"""


def seconds_of(calls: int) -> float:
    """Time that a reply may take: each that is too slow takes all of it."""
    return 3 if calls < 100 else 6


def model_for(calls: int) -> str:
    return model_block(seconds_of(calls))


def seed_for(calls: int) -> int:
    return SAMPLE_SEED if calls < 100 else 0


@pytest.fixture(autouse=True)
def apart(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_API_KEY", "sk-very-secret-key")
    monkeypatch.setenv("KEY", "sk-very-secret-key")
    monkeypatch.setattr("kept.models.endpoint.FIRST_WAIT", 0.02)


def test_there_are_twelve_kinds_of_faults_and_more():
    assert len(KINDS) >= 12


LATENCY = 0.5
"""Seconds before the server answers to many calls, so that they are in flight together."""

IN_FLIGHT = 32

ENOUGH = 1000.0
"""US dollars that no run comes near."""


def run_of(here: Path) -> Path:
    (folder,) = (here / ".kept" / "runs").iterdir()
    return folder


TASK = """\
artifacts: {include: [prompt.md]}
runner:
  model: {provider: openai_compatible, model: m, base_url: "URL", SETTINGS}
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


def write_task(here: Path, url: str, settings: str, cases: int, variants: int, usd: float) -> None:
    names = [f"v{n}.md" for n in range(variants)]
    text = TASK.replace("URL", f"{url}/v1").replace("SETTINGS", settings).replace("USD", str(usd))
    (here / "task.yaml").write_text(text.replace("FILES", ", ".join(names)))
    for name in ("prompt.md", *names):
        (here / name).write_text(f"Say good, as {name} says.\n")
    (here / "cases.jsonl").write_text("".join(f'{{"q": "case {n}"}}\n' for n in range(cases)))


def optimize(here: Path, url: str, calls: int, usd: float) -> Called:
    variants = 4 if calls < 100 else 9
    write_task(here, url, model_for(calls), calls // (variants + 1), variants, usd)
    return kept("optimize", "task.yaml", "-q")


def good(seen: Seen) -> str:
    """Good by two thirds of the requests; how long it is has no influence on the score."""
    word = "good" if random.Random(seen.text).random() < 2 / 3 else "poor"
    return f"{word}, " + "and so on, " * (seen.number % 7)


def train(here: Path, url: str, calls: int, usd: float) -> Called:
    at = f"provider: openai_compatible, base_url: '{url}/v1', {model_for(calls)}"
    words = trained.write_searchqa(here, f"{url}/v1")
    words = [word for word in words if not word.startswith("model.")]
    words += [
        f"model.optimizer={{model: teacher, {at}}}",
        f"model.target={{model: student, {at}}}",
    ]
    # 60 cases, of which a batch has those to learn from
    ratio, epochs, batch = ("5:3:2", 1, 30) if calls < 100 else ("8:1:1", 12, 48)
    words[words.index("--split_ratio") + 1] = ratio
    words += [f"train.num_epochs={epochs}", f"train.batch_size={batch}", "env.workers=32"]
    words += [
        "evaluation.gate=selection",
        f"budget.max_usd={usd}",
        "optimizer.use_slow_update=false",
    ]
    (here / "skills").mkdir()
    (here / "skills" / "mine.md").write_text(trained.START)
    return kept(*words[:4], "--skill_init", "skills/mine.md", *words[4:])


def tune(here: Path, url: str, calls: int, usd: float) -> Called:
    cases, trials = (20, 3) if calls < 100 else (80, 4)
    more = "gate: sigma\naccept_sigma: 1.0\nrepeats: 1\nsplit: '1:1:0'"
    path = tuned.write_agent(here, f"{url}/v1", cases=cases, trials=trials, more=more)
    running = f"llm_timeout: {seconds_of(calls):g}, parallel_test_cases: 32"
    text = path.read_text() + f"execution: {{{running}}}\n"
    path.write_text(text.replace("{max_cycles: 2}", f"{{max_cycles: 2, max_usd: {usd}}}"))
    return kept("test", "optimize")


WORKERS = 500
"""That a run may have by default."""


class Team(Play):
    """A manager that sends managers, each of which sends six workers, turn after turn."""

    def __init__(self, turns: int, managers: int) -> None:
        super().__init__([], loops=1000)
        self.turns = turns
        self.managers = managers

    def answer(self, lines: Sequence[tuple[str, str]]) -> Say:
        """As `Play` does; every worker writes a file of its own, twice."""
        user = "\n".join(text for role, text in lines if role == "user")
        for name in re.findall(r"Your name: (\S+)", user):
            path, text = f"output/{name}.md", "# More\n\nText.\n"
            script = [write(path), write(path, text), done(name)]
            self.workers = {**self.workers, name: script}
        return super().answer(lines)

    def _managed(self, user: str, spoken: int) -> Say:
        below = re.search(r"\nlead (m[\d-]+)\n", user)
        name = "m0-0" if below is None else below[1]
        if "There is no plan yet" in user:
            return plan(f"{name}-w0.md", description="write")
        if below is not None:
            sent = [f"{name}-w{n}" for n in range(6)]
            return complete() if "## Worker" in user else delegate(*sent)
        used = WORKERS - int(re.findall(r"(\d+) workers?", user)[-1])
        turn = used // (7 * self.managers)
        if turn >= self.turns:
            return complete()
        common = {"subtask_id": "s1", "as_submanager": True}
        names = [f"m{turn}-{n}" for n in range(self.managers)]
        rows = [{"worker_id": one, "instructions": f"lead {one}", **common} for one in names]
        return say({"decision": "delegate", "delegations": rows})


def work(here: Path, url: str, calls: int, usd: float) -> Called:
    model = f"{{provider: openai_compatible, model: m, base_url: '{url}/v1', {model_for(calls)}}}"
    words = ["--set", f"models.manager={model}", "--set", f"budget.max_usd={usd}"]
    limits = {"parallel_workers": 36, "tool_calls": 9999, "loops": 1000}
    words += [word for name, n in limits.items() for word in ("--set", f"budget.max_{name}={n}")]
    return kept("agent", "run", "Write it", "-q", *words)


def books_of_optimize(calls: int) -> FaultyBooks:
    return FaultyBooks(good, seed=seed_for(calls))


def books_of_train(calls: int) -> FaultyBooks:
    return FaultyBooks(trained.searchqa_answer, seed=seed_for(calls))


def books_of_tune(calls: int) -> FaultyBooks:
    rates = rates_of(ModelConfig(provider="openai", model="gpt-5-mini"))
    assert rates is not None

    def price(used: Usage) -> float:
        return rates.usd(Taken(used.tokens_in, used.tokens_out))

    return FaultyBooks(tuned.answer, seed=seed_for(calls), price=price)


def books_of_work(calls: int) -> FaultyBooks:
    if calls < 100:
        return FaultyBooks(Team(1, 2).of_server, seed=SAMPLE_SEED)
    return FaultyBooks(Team(7, 6).of_server, seed=CROWD_SEED)


Command = Callable[[Path, str, int, float], Called]
COMMANDS: Mapping[str, tuple[Command, Callable[[int], FaultyBooks], float]] = {
    "optimize": (optimize, books_of_optimize, 0.0008),
    "train": (train, books_of_train, 0.002),
    "test optimize": (tune, books_of_tune, 0.00005),
    "agent run": (work, books_of_work, 0.01),
}
"""What runs each, the endpoint's books, and US dollars for each call of a limit that is met."""

WALLS = pytest.mark.skipif(not abilities().walls, reason="no walls here")
EACH = [
    pytest.param(name, marks=[pytest.mark.sandbox, WALLS] if name == "agent run" else [])
    for name in COMMANDS
]


Row = tuple[Job, tuple[tuple[str, float], ...]]


def scores_of(folder: Path) -> list[Row]:
    """What each rollout was measured to be; none of them failed."""
    rows: list[Row] = []
    for _, job, outcome in Run(folder).rollouts():
        assert outcome.failure is None
        rows.append((job, tuple(sorted(outcome.metrics.items()))))
    return sorted(rows)


def sound_scores(here: Path, name: str, calls: int, port: int) -> list[Row]:
    """The same of a run without faults, at the same address: candidates may hold it."""
    command, books_of, _ = COMMANDS[name]
    sound = here.with_name("sound-" + here.name)
    sound.mkdir()
    books = books_of(calls)
    with contextlib.chdir(sound), ModelServer(books.answer, port=port) as server:
        assert command(sound, server.url, calls, ENOUGH).code == 0
    return scores_of(run_of(sound))


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("name", EACH)
def test_nothing_is_lost_or_misjudged_and_every_reply_is_booked(here: Path, name: str, calls: int):
    command, books_of, _ = COMMANDS[name]
    books = books_of(calls)
    latency = 0.0 if calls < 100 else LATENCY
    with ModelServer(books.answer, faults=books.fault, latency=latency) as server:
        called = command(here, server.url, calls, ENOUGH)
        assert called.code == 0, called.stderr
        if calls >= 100:
            assert server.most_at_once >= IN_FLIGHT
    assert len(books.billed) >= calls
    check_books(books, run_of(here))
    scores = scores_of(run_of(here))
    assert scores == sound_scores(here, name, calls, server.port)
    assert len({metrics for _, metrics in scores}) > 1 or len(scores) == 1, "all score alike"


@pytest.mark.parametrize("calls", SIZES)
@pytest.mark.parametrize("name", EACH)
def test_a_limit_of_money_holds_to_the_cent(here: Path, name: str, calls: int):
    command, books_of, usd = COMMANDS[name]
    books, limit = books_of(calls), calls * usd
    with ModelServer(books.answer, faults=books.fault) as server:
        command(here, server.url, calls, limit)
    assert 0 < len(books.billed) < calls, "the limit is to be met"
    state = Run(run_of(here)).state
    assert books.total <= journalled_spend(run_of(here), state).usd <= limit + 1e-9


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
        block = model_block(seconds_of(16))
        write_task(here, server.url, block, 16, 1, usd=ENOUGH)
        editor = f"{{provider: openai_compatible, model: e, base_url: '{server.v1}', {block}}}"
        settings = [f"proposers=[{{kind: edit, cases: 0, model: {editor}}}]", "width=4"]
        settings.append("budget.max_iterations=4")
        called = kept("optimize", "task.yaml", "-q", *(w for s in settings for w in ("--set", s)))
        assert called.code == 0, called.stderr
    state = check_books(books, run_of(here))
    assert state.spend.cancelled > 0
    check_rollouts(run_of(here))
