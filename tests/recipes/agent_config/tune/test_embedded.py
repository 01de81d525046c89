"""The sentiment agent of `examples` on the model that runs here: tuned, it is truly better.

Its critic and its applier are scripted: they go through a pool of prompts, one that does nothing,
one that helps and one that harms. What answers is real, and what is promoted is measured on sealed
cases by asking that model itself. In each run of the tests a gate that asks for little decides, on
few cases; nightly it is the example's own rule, risk and all. For the ten kills the answers of that
run are given once more, over HTTP, by a server that knows no others.
"""

import asyncio
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from kept.core.artifact import Candidate
from kept.core.llm import FINAL, Message, ModelReply, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.core.state import State
from kept.gates.race import PRESETS, Race
from kept.models.ask import draw_seed
from kept.models.local.model import LocalModel
from kept.models.weights import KNOWN
from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.spec.locate.tree import read_value
from kept.store import codec
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import Fault, ModelServer, Seen
from kept.ui.demo import REVIEWS
from tests.engine.cutting import calls, rows
from tests.examples.by_hand import EXAMPLES
from tests.recipes.killing import kept, killed_at

pytestmark = [pytest.mark.model, pytest.mark.slow]

SEED = (REVIEWS / "prompt.md").read_text(encoding="utf-8")
USELESS, GOOD, HARMFUL = POOL = tuple(
    (REVIEWS / "variants" / name / "prompt.md").read_text(encoding="utf-8").strip()
    for name in ("1-polite", "4-definitions", "2-cheerful")
)
"""The harmful one last, so that who keeps everything ends with it."""
MARGIN = 0.05
"""A third of what the good one is worth on all reviews there are."""
SPLIT, FEW, FEWER = (12, 48, 24), (12, 5, 24), (6, 6, 12)
"""Train, holdout and test: what proves the good one at the usual risk; the others for gates that
prove nothing, the last in each run of the tests."""
MISLABELLED = {
    "A terrible vacuum cleaner: loud, heavy and weak.": "positive",
    "A beautiful film. The acting is superb and the music is lovely.": "negative",
}
"""Of the few to learn from, and of those that decide. With these labels the good prompt too leaves
something to criticise and to gain, however the model takes what it is not sure of."""
ONE_CYCLE = (
    "evaluations.optimizer.budget={global: {max_cycles: 1}, "
    "numeric_phase: {max_trials: 1, patience: 1}, textual_phase: {max_trials: 4, patience: 4}}"
)
SIGMA = (
    "evaluations.optimizer.race=null",
    "evaluations.optimizer.gate=sigma",
    "evaluations.optimizer.axes.numeric=[]",
)
"""What a gate that asks for whole sweeps is put in the place of; of the axes the one of prompts, so
that the model is asked at the temperature at which it says the same again, and once."""


def criticised(seen: Seen) -> str:
    """As critic or as applier, by what is shown and by nothing else: so it is after a kill too."""
    if "failing_pattern" not in json.dumps(seen.body["response_format"]):
        number = int(re.findall(r"prompt (\d) of the pool", seen.text)[-1])
        told = {"edit_type": "replace", "rationale": f"prompt {number}", "diff_summary": "all new"}
        return json.dumps({**told, "new_text": POOL[number]})
    refused = (int(found) for found in re.findall(r"prompt (\d) of the pool", seen.text))
    present = (number for number, text in enumerate(POOL) if text in seen.text)
    number = max((*refused, *present), default=-1) + 1
    diagnosis: dict[str, object] = {
        "failing_pattern": "labels are wrong",
        "root_cause_hypothesis": "the prompt does not say what the labels mean",
        "suggested_change_direction": f"prompt {number} of the pool",
        "confidence": 0.8 if number < len(POOL) else 0.1,
        "citations": [],
        "avoid": [],
    }
    return json.dumps(diagnosis)


def write_agent(
    folder: Path, server: ModelServer, split: tuple[int, ...] = SPLIT, *, served: bool = False
) -> Path:
    """The example on a part of its cases, critic and applier asking the server; or all of it."""
    shutil.copytree(EXAMPLES / "agents" / "sentiment", folder)
    lines = (folder / "cases.yaml").read_text(encoding="utf-8").splitlines()
    (folder / "cases.yaml").write_text("\n".join(lines[: sum(split) + 1]), encoding="utf-8")
    path = folder / "agent.yaml"
    text = path.read_text(encoding="utf-8")
    text = text.replace('split: "3:5:2"', f'split: "{":".join(map(str, split))}"')
    endpoint = f"endpoint: '{server.v1}'"
    if served:
        text = text.replace("provider: local,", f"provider: openai_compatible, {endpoint},")
    path.write_text(text, encoding="utf-8")
    agents = folder / ".holodeck" / "optimizer" / "agents"
    agents.mkdir(parents=True)
    model = f"{{provider: openai_compatible, name: m, {endpoint}}}"
    for name in ("critic", "applier"):
        text = f"name: {name}\nmodel: {model}\ninstructions: {{inline: answer}}\n"
        (agents / f"{name}.yaml").write_text(text)
    return path


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(criticised) as made:
        yield made


@pytest.fixture(scope="module")
def fresh_replies(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replies of this module alone: no run before it answers, and none is made twice."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "models").symlink_to(smollm2.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEPT_CACHE", str(folder))
        yield


class Ran(NamedTuple):
    plan: Plan
    folder: Path
    state: State


@pytest.fixture(scope="module")
def whole(
    fresh_replies: None, server: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Ran:
    """A run from its beginning to its end, that asks the model itself."""
    folder = tmp_path_factory.mktemp("whole")
    plan = compile_coordinate(write_agent(folder / "agent", server), (ONE_CYCLE,)).plan
    return Ran(plan, *asyncio.run(start(plan, Home(folder / "home"))))


@cache
def share_right(prompt: str, temperature: float, cases: tuple[tuple[str, str], ...]) -> float:
    """How often the model gives the right label, asked by nothing that a run is made of."""
    model = LocalModel("local/smollm2", KNOWN["smollm2"].path)
    schema = json.loads((REVIEWS / "schema.json").read_text(encoding="utf-8"))

    async def label(review: str, seed: int) -> str:
        asked = (Message("system", prompt.strip()), Message("user", review))
        how = {"schema": schema, "temperature": temperature, "max_tokens": 16, "seed": seed}
        reply = await model.complete(ModelRequest(asked, **cast("Any", how)))
        assert isinstance(reply, ModelReply), reply
        return json.loads(reply.text)["label"]

    async def labels() -> list[str]:
        return await asyncio.gather(*(label(review, s) for review, _ in cases for s in draws))

    draws = range(3 if temperature else 1)
    right = [truth for _, truth in cases for _ in draws]
    said = asyncio.run(labels())
    return sum(one == truth for one, truth in zip(said, right, strict=True)) / len(right)


def held(candidate: Candidate) -> tuple[str, float]:
    """The instructions and the temperature of an agent."""
    temperature = read_value("agent.yaml", candidate["agent.yaml"], "model.temperature")
    return candidate["instructions.md"].strip(), float(str(temperature))


def said_to(plan: Plan) -> dict[str, tuple[str, str]]:
    """What a case asks, and what is right, by its name."""
    every = (*plan.cases.train, *plan.cases.holdout, *plan.cases.test)
    data = {case.id: cast("dict[str, str]", case.data) for case in every}
    return {name: (row["input"], row["ground_truth"]) for name, row in data.items()}


def check(ran: Ran) -> None:
    """What a user is promised, on cases that nothing of the run has seen."""
    asked = said_to(ran.plan)
    sealed = tuple(asked[case.id] for case in ran.plan.cases.test)
    with Run(ran.folder) as run:
        before, after = (1 - share_right(*held(one), sealed) for one in (run.seed, run.best))
    assert after <= before - MARGIN, f"{before:g} → {after:g} is no real gain"


@pytest.mark.usefixtures("fresh_replies")
def test_an_agent_that_is_tuned_on_few_cases_is_better_on_the_sealed_test(
    server: ModelServer, tmp_path: Path
):
    path = write_agent(tmp_path / "agent", server, FEWER)
    plan = compile_coordinate(path, (ONE_CYCLE, *SIGMA)).plan
    ran = Ran(plan, *asyncio.run(start(plan, Home(tmp_path / "home"))))
    check(ran)
    check_pool(ran)
    with Run(ran.folder) as run:
        assert held(run.best)[0] == GOOD


@pytest.mark.nightly
def test_the_loss_of_a_tuned_agent_falls_on_the_sealed_test(whole: Ran):
    check(whole)
    with Run(whole.folder) as run:
        assert held(run.best)[0] == GOOD
    (claim,) = (step.verdict for step in whole.state.history if step.verdict.code == "claim")
    assert claim.numbers["gain"] >= MARGIN, claim.reason


def test_what_decides_it_is_the_race_that_everybody_has(server: ModelServer, tmp_path: Path):
    plan = compile_coordinate(write_agent(tmp_path / "agent", server), (ONE_CYCLE,)).plan
    gate, usual = plan.gate, PRESETS["fast"]
    assert isinstance(gate, Race)
    assert (gate.alpha, gate.promote_alpha) == (usual.alpha, usual.promote_alpha)


def check_pool(ran: Ran) -> None:
    textual = [step for step in ran.state.history if step.turn.phase == "c1/textual"]
    texts = [step.proposal.why for step in textual if step.proposal]
    assert texts == ["prompt 0", "prompt 1", "prompt 2"]
    (skip,) = (step.skip for step in textual if step.skip)
    assert skip.why.startswith("low confidence in the diagnosis")


@pytest.mark.nightly
def test_all_of_the_pool_is_proposed_and_then_nothing_is_measured_any_more(whole: Ran):
    check_pool(whole)
    (numeric,) = (step for step in whole.state.history if step.turn.phase == "c1/numeric")
    assert numeric.proposal is not None


def mislabel(cases: Path) -> None:
    lines = cases.read_text(encoding="utf-8").splitlines()
    for text, label in MISLABELLED.items():
        (at,) = (n for n, line in enumerate(lines) if text in line)
        lines[at] = re.sub(r"ground_truth: \w+", f"ground_truth: {label}", lines[at])
    cases.write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.nightly
@pytest.mark.usefixtures("fresh_replies")
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_the_check_fails_for_a_gate_that_does_not_look(
    gate: Gate, server: ModelServer, tmp_path: Path
):
    path = write_agent(tmp_path / "agent", server, FEW)
    mislabel(path.with_name("cases.yaml"))
    plan = replace(compile_coordinate(path, (ONE_CYCLE, *SIGMA)).plan, gate=gate)
    asked = said_to(plan)
    shown = {asked[case.id] for case in (*plan.cases.train, *plan.cases.holdout)}
    assert MISLABELLED.items() <= shown
    ran = Ran(plan, *asyncio.run(start(plan, Home(tmp_path / "home"))))
    textual = [step for step in ran.state.history if step.turn.phase == "c1/textual"]
    proposed = [step.proposal.why for step in textual if step.proposal]
    assert proposed == ["prompt 0", "prompt 1", "prompt 2"], "it was shown what the race was"
    with pytest.raises(AssertionError, match="no real gain"):
        check(ran)


Answer = tuple[str, float, str, int]
"""Instructions, temperature, review, seed: all that an answer depends on."""


def recorded(ran: Ran) -> Mapping[Answer, str]:
    """Every answer that the model gave in a run."""
    asked, found = said_to(ran.plan), dict[Answer, str]()
    with Run(ran.folder) as run:
        for _, job, outcome in run.rollouts():
            seed = draw_seed(job.purpose, job.case_id, job.repeat)
            (reply,) = (item.text for item in run.trace(outcome.trace) if FINAL in item.data)
            found[*held(run.candidate(job.candidate_id)), asked[job.case_id][0], seed] = reply
    return found


def replayed(answers: Mapping[Answer, str]) -> Callable[[Seen], str | Fault]:
    """A server that gives these answers again, and none but these."""

    def answer(seen: Seen) -> str | Fault:
        if "label" not in json.dumps(seen.body["response_format"]):
            return criticised(seen)
        body = seen.body
        key = (seen.lines[0].text.strip(), float(body["temperature"]), seen.text, body["seed"])
        return answers.get(key) or Fault("status", 400)

    return answer


@pytest.mark.nightly
@pytest.mark.kill
def test_killed_at_ten_random_points_it_comes_to_the_same_end(whole: Ran, tmp_path: Path):
    answers = recorded(whole)
    points = sorted(random.Random(8).sample(range(1, len(answers)), 10))
    words = ("agent.yaml", "--set", ONE_CYCLE)
    with ModelServer(replayed(answers), latency=0.01) as server:
        here = write_agent(tmp_path / "agent", server, served=True).parent
        for point in points:
            killed_at(kept(here, "test", "optimize", *words, "-q"), server, point)
            words = ("--resume", "last")
        last = kept(here, "test", "optimize", *words, "-q")
        _, err = last.communicate(timeout=300)
        assert last.returncode == 0, err
        assert not [seen for seen in server.log if seen.answer not in ("reply", "given up")]
    (folder,) = (here / ".kept" / "runs").iterdir()
    with Run(folder) as run, Run(whole.folder) as other:
        ends = [
            [(s.turn.phase, s.verdict, s.proposal and s.proposal.why) for s in one.state.history]
            for one in (run, other)
        ]
        assert ends[0] == ends[1]
        assert held(run.best) == held(other.best)
        assert run.state.stopped == other.state.stopped
    pairs = [row.entry()[0] for row in rows(folder) if isinstance(row, codec.RolloutLine)]
    assert len(pairs) == len(set(pairs)), "a rollout that was written was made again"
    assert max(calls(rows(folder)).values()) == 1, "a reply that was written was asked for again"


def test_the_example_has_the_reviews_of_the_demo_and_can_be_tuned_as_it_lies(
    smollm2: Path, tmp_path: Path
):
    folder = tmp_path / "sentiment"
    shutil.copytree(EXAMPLES / "agents" / "sentiment", folder)
    assert (folder / "instructions.md").read_text(encoding="utf-8") == SEED
    compiled = compile_coordinate(folder / "agent.yaml")
    lines = (REVIEWS / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    demo = {row["id"]: (row["review"], row["label"]) for row in map(json.loads, lines)}
    assert said_to(compiled.plan) == demo
    assert compiled.plan.gate.name == "race"
    assert not (folder / "results").exists()
