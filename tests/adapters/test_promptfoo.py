"""A promptfooconfig.yaml as evaluator: its prompts compete, and the best that is proven is kept."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import kept
from kept.adapters import promptfoo
from kept.core.plan import Plan
from kept.core.state import State
from kept.errors import SetupError, SpecError
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import ModelServer
from tests.adapters.promptfoo_world import GOOD, HARMFUL, PROMPTS, serve, write_config
from tests.recipes.cutting import check_every_cut
from tests.sampling import some_or_all


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("SORTER_KEY", "sk-SECRET-of-the-sorter")
    with serve() as serving:
        yield serving


@pytest.fixture
def config(tmp_path: Path, server: ModelServer) -> Path:
    return write_config(tmp_path / "theirs", server.v1)


def check(result: kept.Result) -> None:
    """What a run of this config must come to: the good prompt, and a gain that is real."""
    assert GOOD in result.best.text
    assert HARMFUL not in result.best.text
    assert result.seed_value is not None and result.best_value is not None
    assert result.best_value - result.seed_value > 0.15


@pytest.mark.slow
def test_the_good_prompt_of_a_config_is_kept_and_useless_and_harmful_ones_are_not(
    config: Path, tmp_path: Path, server: ModelServer
):
    files = {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()}
    result = promptfoo.optimize(config, home=tmp_path / "home", max_metric_calls=1500)
    check(result)
    assert result.seed.text == PROMPTS[0] + "\n"
    assert {path: path.read_bytes() for path in config.parent.rglob("*") if path.is_file()} == files
    assert {"accuracy", "brevity", "pass"} <= _metrics(result)
    asked = {seen.model for seen in server.answered}
    assert asked == {"sorter", "judge"}
    assert server.answered[0].headers["authorization"] == "Bearer sk-SECRET-of-the-sorter"
    written = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert not [path for path in written if b"SECRET" in path.read_bytes()], "keys stay outside"


def _metrics(result: kept.Result) -> set[str]:
    with Run(result.folder) as run:
        rows = (run.folder / "rollouts.jsonl").read_text().splitlines()
    found: set[str] = set()
    for row in map(json.loads, rows):
        found |= set(row.get("metrics") or {})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_a_gate_that_does_not_look_fails_that_test(
    gate: AcceptAll | RejectAll, config: Path, tmp_path: Path
):
    with pytest.raises(AssertionError):
        check(promptfoo.optimize(config, home=tmp_path, gate=gate, max_metric_calls=700, width=1))


def test_why_an_answer_failed_is_told_assertion_by_assertion(config: Path, tmp_path: Path):
    promptfoo.task(config, tmp_path / "ours")
    once = ["gate=strict", "budget={max_iterations: 1}"]
    plan = compile_task(tmp_path / "ours" / "task.yaml", once).plan
    folder, _ = asyncio.run(start(plan, Home(tmp_path / "home")))
    with Run(folder) as run:
        told = (run.folder / "rollouts.jsonl").read_text()
    assert "python does not hold: it is false of the output `" in told
    assert "contains does not hold: what must be in it is not in the output `" in told


@pytest.mark.kill
def test_a_call_that_is_killed_and_made_again_asks_nothing_twice_that_was_answered(
    tmp_path: Path, server: ModelServer
):
    server.latency = 0.01
    config = write_config(tmp_path / "theirs", server.v1)
    program = (
        "import sys; from kept.adapters import promptfoo; "
        "print(promptfoo.optimize(sys.argv[1], run_dir=sys.argv[2], max_metric_calls=900).best.id)"
    )
    command = [sys.executable, "-c", program, str(config), str(tmp_path / "runs-here")]
    process = subprocess.Popen(command)
    while len(server.answered) < 150:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=120)
    time.sleep(0.2)  # the server has yet to hear of what was on its way to it
    (folder,) = (tmp_path / "runs-here" / "runs").iterdir()
    before = len(server.answered)
    best = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True).stdout
    assert [path.name for path in folder.parent.iterdir()] == [folder.name], "the same run goes on"
    assert len(server.answered) >= 200 > before
    asked = Counter(json.dumps(seen.body, sort_keys=True) for seen in server.log)
    again = sum(times - 1 for times in asked.values())
    assert again <= 8, "no more than what was in flight may be asked again"
    with Run(folder) as run:
        assert best.strip() == run.state.best
    assert GOOD in (folder / "best" / "prompt.txt").read_text()


@pytest.mark.slow
@some_or_all
def test_one_that_is_cut_anywhere_goes_on_to_the_same_end(
    tmp_path: Path, server: ModelServer, everything: bool
):
    config = write_config(tmp_path / "small", server.v1, tests=5)
    promptfoo.task(config, tmp_path / "ours")
    settings = ["workers=1", "width=1", "gate=strict", "budget={max_iterations: 2}"]
    settings += ['cases.split="1:5:0"', "models.judge.cache=false"]

    def make() -> Plan:
        return compile_task(tmp_path / "ours" / "task.yaml", settings).plan

    place = tmp_path / "cut"
    state: State = check_every_cut(make, server, place, everything=everything, every=9)
    assert state.keeps


@pytest.mark.model
def test_a_small_config_is_answered_by_the_model_in_this_process(tmp_path: Path, smollm2: Path):
    config = tmp_path / "promptfooconfig.yaml"
    config.write_text(
        """\
prompts:
  - "Tell me a story."
  - "Tell me about the {{animal}}."
providers: [{id: openai:chat:gpt-5-mini, config: {temperature: 0.1, max_tokens: 12}}]
defaultTest:
  assert: [{type: icontains, value: "{{animal}}"}, {type: not-contains, value: "!"}]
tests: [{vars: {animal: [cat, dog, horse, cow, fox, hen, owl, bee, ant, pig]}}]
"""
    )
    result = promptfoo.optimize(
        config,
        provider="local/smollm2",
        home=tmp_path / "home",
        gate="strict",
        split="0:1:0",
        budget=kept.Budget(max_iterations=1),
    )
    assert result.spend.rollouts == 20
    assert result.improved, str(result)
    assert "about the {{animal}}" in result.best.text


def test_the_measure_may_be_whether_whole_tests_pass(config: Path, tmp_path: Path):
    result = promptfoo.optimize(
        config, home=tmp_path, metric="pass", gate="strict", budget=kept.Budget(max_iterations=1)
    )
    assert result.state.started is not None
    assert result.state.started.settings.metric == "pass"


def test_an_outage_is_no_answer_and_no_prompts_fault(config: Path, tmp_path: Path):
    text = config.read_text().replace("127.0.0.1", "127.0.0.1:9/no")
    config.write_text(text)
    promptfoo.task(config, tmp_path / "ours")
    settings = ["models.target.tries=1", "budget={max_iterations: 1}", "gate=strict"]
    plan = compile_task(tmp_path / "ours" / "task.yaml", settings).plan
    # as if it had been there when the run began
    _, state = asyncio.run(start(replace(plan, probes=()), Home(tmp_path / "home")))
    assert state.stopped is not None and state.stopped.kind == "error"
    assert state.keeps == 0


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        ({"propmt": "x"}, "`propmt` is no argument of this call"),
        ({"workers": 0}, "`workers` is 0, not a whole number of 1 or more"),
        ({"reflection_lm": "gpt-5"}, "`gpt-5` is no model that could write prompts"),
        ({"reflection_lm": "openai/"}, "`openai/` is no model that could write prompts"),
        ({"reflection_lm": 5}, "who writes prompts is 5, and not a name"),
        ({"run_dir": "r", "home": "h"}, "`run_dir` and `home` or `resume` are given"),
        (
            {"max_metric_calls": 5, "budget": kept.Budget(max_rollouts=5)},
            "`max_metric_calls` and `budget.max_rollouts` are given",
        ),
    ],
)
def test_what_a_call_cannot_mean_is_refused(
    terms: dict[str, object], told: str, config: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(config.parent)
    with pytest.raises(SetupError) as error:
        promptfoo.optimize(config, **terms)  # type: ignore[arg-type]
    assert error.value.message == told


def test_what_a_task_cannot_mean_is_refused_and_nothing_is_written(config: Path, tmp_path: Path):
    with pytest.raises(SetupError, match="`refection_lm` is no argument of this call"):
        promptfoo.task(config, tmp_path / "ours", refection_lm="x")  # type: ignore[call-arg]
    with pytest.raises(SpecError, match="`gpt:5` is no provider that is known here"):
        promptfoo.task(config, tmp_path / "ours", reflection_lm="gpt:5")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("name", ["openai/gpt-5", "openai:chat:gpt-5"])
def test_who_writes_prompts_is_the_model_that_was_named(name: str, config: Path, tmp_path: Path):
    promptfoo.task(config, tmp_path / "ours", reflection_lm=name)
    task: Any = YAML(typ="safe").load(tmp_path / "ours" / "task.yaml")  # pyright: ignore[reportUnknownMemberType] # ruamel has no types here
    assert task["models"]["optimizer"] == {"provider": "openai", "model": "gpt-5"}
    assert {"kind": "edit"} in task["proposers"]


def test_what_should_be_known_of_a_config_comes_with_the_result(config: Path, tmp_path: Path):
    first = "  - id: openai:chat:sorter\n"
    assert first in config.read_text()
    other = config.read_text().replace("defaultTest:", "  - openai:chat:other\ndefaultTest:", 1)
    config.write_text(other)
    limit = kept.Budget(max_iterations=1)
    result = promptfoo.optimize(config, home=tmp_path, gate="strict", budget=limit)
    told = "`sorter` is asked, and `openai:chat:other` is not: one model is asked in a run"
    assert told in result.warnings


def test_a_candidate_that_asks_for_the_answer_fails_by_its_own_fault(
    config: Path, tmp_path: Path, server: ModelServer
):
    promptfoo.task(config, tmp_path / "ours")
    told = "The category is {{ category }}. {{ ticket }}\n"
    (tmp_path / "ours" / "prompts" / "00-told.txt").write_text(told)
    settings = ["gate=strict", "budget={max_iterations: 1}"]
    plan = compile_task(tmp_path / "ours" / "task.yaml", settings).plan
    folder, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    (step,) = state.history
    assert step.verdict.outcome != "keep"
    assert "The category is" not in str([seen.body for seen in server.log]), "nothing was asked"
    rows = list(map(json.loads, (folder / "rollouts.jsonl").read_text().splitlines()))
    accuracy = [row["metrics"]["accuracy"] for row in rows if row.get("metrics")]
    assert 0 < sum(accuracy) < len(accuracy), "assertions in Python see the answer"


def test_a_candidate_that_breaks_the_template_fails_by_its_own_fault(
    config: Path, tmp_path: Path, server: ModelServer
):
    promptfoo.task(config, tmp_path / "ours")
    (tmp_path / "ours" / "prompts" / "00-broken.txt").write_text("Sort {{ tickt }}\n")
    settings = ["gate=strict", "budget={max_iterations: 1}"]
    plan = compile_task(tmp_path / "ours" / "task.yaml", settings).plan
    _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    (step,) = state.history
    assert step.verdict.outcome != "keep"
    assert "{{ tickt }}" not in str([seen.body for seen in server.log]), "nothing was asked"
