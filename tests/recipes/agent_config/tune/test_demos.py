"""A phase of examples, over real HTTP: they come from train cases that pass, and from no others."""

import asyncio
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kept.core.artifact import Candidate
from kept.core.case import SPLITS, Split
from kept.core.plan import Plan
from kept.core.state import State
from kept.proposers.few_shot import BEGIN, END
from kept.recipes.agent_config.tune import compile_coordinate
from kept.run import start
from kept.spec.locate.tree import read_value
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import RejectAll
from kept.testing.server import ModelServer, Seen
from tests.recipes.agent_config.tune.world import share

pytestmark = pytest.mark.slow

WORDS = [first + rest for first in "bdfgklmnprst" for rest in ("alo", "iru")]
AGENT = """\
name: moods
model: {{provider: openai, name: gpt-5-mini, endpoint: "{url}", api_key: "${{KEY}}"}}
instructions:
  inline: |
    You say what mood a text has.
evaluations:
  metrics: [{{type: standard, metric: equality}}]
  optimizer:
    loss: {{equality: 1.0}}
    split: "12:24:12"
{more}
    axes: {axes}
    budget:
      global: {{max_cycles: 1}}
      demos_phase: {{max_trials: 5, patience: 5}}
test_cases_file: cases.yaml
"""
DEMOS = "{demos: {path: instructions, max_demos: 3}}"
RACE = "race: {preset: fast}"
SIGMA = "gate: sigma"
EXAMPLE = re.compile(r"Example\s+Input: (.*)\s+Answer: (.*)")
BASE, EACH, MISLED = 0.4, 0.18, 0.25


def text_of(n: int) -> str:
    """Ten words that no other case has in this order."""
    return f"{' '.join(random.Random(n).sample(WORDS, 10))} {n}"


def truth(n: int) -> str:
    return "positive" if n % 2 else "negative"


def chance_of(system: str) -> float:
    """Every example that is right helps, and every one that is wrong harms."""
    shown = EXAMPLE.findall(system)
    right = sum(answer == truth(int(text.rpartition(" ")[2])) for text, answer in shown)
    return max(0.0, BASE + EACH * right - MISLED * (len(shown) - right))


def answer(seen: Seen) -> str:
    system = seen.lines[0].text
    n = int(seen.text.rpartition(" ")[2])
    right = share(system, seen.text, seen.body.get("seed")) < chance_of(system)
    return truth(n) if right else truth(n + 1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("KEY", "none")
    with ModelServer(answer) as made:
        yield made


def plan_of(folder: Path, server: ModelServer, more: str = RACE, axes: str = DEMOS) -> Plan:
    rows = (
        f"- {{name: text-{n}, input: {text_of(n)}, ground_truth: {truth(n)}}}" for n in range(48)
    )
    (folder / "cases.yaml").write_text("\n".join(rows))
    path = folder / "agent.yaml"
    path.write_text(AGENT.format(url=server.v1, more=f"    {more}", axes=axes))
    return compile_coordinate(path).plan


def ran(plan: Plan, folder: Path) -> tuple[Path, State]:
    return asyncio.run(start(plan, Home(folder / "home")))


def instructions_of(candidate: Candidate) -> str:
    return str(read_value("agent.yaml", candidate["agent.yaml"], "instructions.inline"))


def check(folder: Path) -> None:
    """What a user is promised, by the world and by nothing that a run measured."""
    with Run(folder) as run:
        before, after = (chance_of(instructions_of(one)) for one in (run.seed, run.best))
    assert after >= before + EACH, f"{before:g} → {after:g} is no real gain"


def test_examples_that_help_are_promoted_and_all_come_from_train_cases_that_pass(
    tmp_path: Path, server: ModelServer
):
    plan = plan_of(tmp_path, server)
    folder, state = ran(plan, tmp_path)
    check(folder)
    trials = [step for step in state.history if step.turn.phase == "c1/demos"]
    assert len(trials) > 1 and {step.turn.proposer for step in trials} == {"demos"}
    train = {case.id: cast("dict[str, Any]", case.data)["input"] for case in plan.cases.train}
    for step in trials:
        assert step.proposal is not None and step.verdict.code != "guard"
        (edit,) = cast("Any", step.proposal.edits)
        shown = EXAMPLE.findall(edit.value)
        named = cast("list[str]", step.proposal.about["demos"])
        assert [text for text, _ in shown] == [train[case] for case in named]
        # the agent is right four times of ten: among all of train there would be wrong ones
        assert all(said == truth(int(text.rpartition(" ")[2])) for text, said in shown)


def test_the_check_fails_where_no_example_is_kept(tmp_path: Path, server: ModelServer):
    plan = replace(plan_of(tmp_path, server, SIGMA), gate=RejectAll())
    folder, state = ran(plan, tmp_path)
    assert any(step.turn.phase == "c1/demos" for step in state.history)
    with pytest.raises(AssertionError, match="no real gain"):
        check(folder)


def refused(plan: Plan, text: str) -> list[str]:
    """By which guards an agent with this text in its instructions is refused."""
    seed = plan.seed
    new = seed["agent.yaml"].replace("mood a text has.", f"mood a text has.\n    {text}")
    candidate = Candidate({**seed.texts, "agent.yaml": new})
    return [guard.name for guard in plan.guards if guard.check(seed, seed, candidate)]


def input_of(plan: Plan, split: Split) -> str:
    return cast("dict[str, Any]", plan.cases.of(split)[0].data)["input"]


def test_where_examples_are_shown_train_text_may_come_in_and_no_other(
    tmp_path: Path, server: ModelServer
):
    plan = plan_of(tmp_path, server)
    shown = {split: f"{BEGIN} {input_of(plan, split)} {END}" for split in SPLITS}
    assert refused(plan, shown["train"]) == []
    assert refused(plan, shown["holdout"]) == ["copy"]
    assert refused(plan, shown["test"]) == ["copy"]
    # beside the examples it is as if there were none: a critic has read the train cases
    assert refused(plan, input_of(plan, "train")) == ["copy"]


def test_without_examples_no_text_of_cases_may_come_in(tmp_path: Path, server: ModelServer):
    plan = plan_of(tmp_path, server, axes="{textual: [{path: instructions}]}")
    assert [refused(plan, input_of(plan, split)) for split in SPLITS] == [["copy"]] * 3
