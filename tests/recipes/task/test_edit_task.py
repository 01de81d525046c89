"""A task whose changes a model proposes: truly better at the end, cut anywhere, killed, told of.

The model draws from good, useless and harmful lines, so that only a gate which looks can tell.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.errors import SpecError
from kept.proposers.llm import ModelProposer
from kept.recipes.task.compile import compile_task
from kept.results.steps import step_detail
from kept.run import inputs_of, start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, Pool, RejectAll
from kept.testing.server import ModelServer, Seen
from kept.ui.cli._render import step_text
from tests.recipes.cutting import check_every_cut
from tests.sampling import some_or_all
from tests.ui.cli.tasks import kept

POOL = Pool()
STEPS = 30


def rules() -> str:
    rows = [f"{{kind: matches, pattern: '^{line}$'}}" for line in POOL.good]
    rows += [f"{{kind: lacks, pattern: '^{line}$'}}" for line in POOL.harmful]
    return ", ".join(rows)


TASK = f"""\
artifacts: {{include: [guide.md]}}
models: {{optimizer: {{provider: openai_compatible, model: m, base_url: "URL", cache: false}}}}
runner: {{command: "true"}}
scorer: {{type: rules, rules: [{rules()}]}}
objective: {{primary_metric: score, direction: maximize, bounds: [0, 1]}}
mutation: {{mode: direct_edit, max_changed_lines: 4}}
sandbox: {{walls: "off"}}
budget: {{max_iterations: {STEPS}}}
width: 2
workers: 2
"""


def draw(seen: Seen) -> str:
    """One line of the pool, by the seed; every third answer has to be mended first."""
    repaired = len(seen.lines) > 2
    chance = random.Random(seen.body["seed"] + repaired)
    shown = seen.lines[1].text
    text = shown.partition("<file-")[2].partition("\n</file-")[0]
    left = [line for line in POOL.lines if line not in text.splitlines()]
    if not left:
        return answer(seen, "all of them are there", "", "")
    line = chance.choice(left) + "\n"
    wrong = chance.random() < 1 / 3 and not repaired
    return answer(seen, f"add: {line.strip()}", text.lstrip("\n") + line, line, wrong=wrong)


def answer(seen: Seen, why: str, whole: str, line: str, *, wrong: bool = False) -> str:
    """What is said, in the form that was asked for."""
    said: dict[str, object] = {"why": why, "cases": []}
    wanted = seen.body["response_format"]["json_schema"]["schema"]["properties"]
    if "files" in wanted:
        path = "elsewhere.md" if wrong else "guide.md"
        return json.dumps({**said, "files": [{"path": path, "text": whole}] if line else []})
    edit = {"op": "append", "path": "guide.md", "target": "", "text": line}
    if wrong:
        edit |= {"op": "insert_after", "target": "words that stand nowhere"}
    if "diagnosis" in wanted:
        said["diagnosis"] = [{"case": "the run", "cause": "a line is missing"}]
    return json.dumps({**said, "edits": [edit] if line else []})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(draw) as made:
        yield made


@pytest.fixture
def task(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("KEPT_MODEL", raising=False)
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "guide.md").write_text("a seed\n")
    (tmp_path / "task" / "task.yaml").write_text(TASK.replace("URL", server.v1))
    return tmp_path / "task" / "task.yaml"


def check(best: str) -> None:
    """What a user is promised."""
    lines = best.splitlines()
    assert len(set(lines) & set(POOL.good)) >= 3, "no real gain"
    assert not set(lines) & {*POOL.harmful, *POOL.useless}, "something bad was kept"
    assert len(lines) == len(set(lines)), "something was added twice"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["", "edit", "rewrite", "reflect"])
def test_a_loop_over_what_a_model_proposes_ends_truly_better(
    kind: str, task: Path, server: ModelServer
):
    said = ("--set", f"proposers=[{{kind: {kind}}}]") if kind else ()
    called = kept("optimize", str(task), "-q", "--json", *said)
    assert called.code == 0, called.stderr
    folder = Path(called.json["folder"])
    check((folder / "best" / "guide.md").read_text())
    assert called.json["spend"]["calls"] == len(server.answered) > STEPS, "some were mended"
    assert (task.parent / "guide.md").read_text() == "a seed\n"
    with Run(folder) as run:
        verdicts = {closed.verdict.code for closed in run.state.history}
    assert not verdicts & {"no edits", "proposer failed"}, "what could not be made was mended"


@pytest.mark.slow
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
@pytest.mark.parametrize("kind", ["edit", "rewrite", "reflect"])
def test_the_check_fails_for_a_gate_that_does_not_look(
    kind: str, gate: Gate, task: Path, tmp_path: Path
):
    plan = replace(compile_task(task, [f"proposers=[{{kind: {kind}}}]"]).plan, gate=gate)
    folder, _ = asyncio.run(start(plan, Home(tmp_path / "other")))
    with pytest.raises(AssertionError):
        check((folder / "best" / "guide.md").read_text())


@pytest.mark.slow
@some_or_all
@pytest.mark.parametrize("kind", ["edit", "rewrite", "reflect"])
def test_a_run_of_proposals_cut_after_anything_it_wrote_asks_nothing_again(
    kind: str, everything: bool, task: Path, tmp_path: Path, server: ModelServer
):
    def make() -> Plan:
        said = ["budget={max_iterations: 8}", f"proposers=[{{kind: {kind}}}]"]
        return compile_task(task, said).plan

    state = check_every_cut(
        make,
        server,
        tmp_path / "cut",
        everything=everything,
        asks=lambda scope: scope.startswith("propose/"),
    )
    assert state.keeps


@pytest.mark.slow
def test_what_the_model_was_not_shown_is_told_with_the_step(task: Path, tmp_path: Path):
    small = (
        "models.optimizer.context_window=1720",
        "models.optimizer.max_tokens=800",
        "width=1",
        "budget={max_iterations: 12}",
    )
    folder, _ = asyncio.run(start(compile_task(task, small).plan, Home(tmp_path / "small")))
    with Run(folder) as run:
        shown = [step_text(step_detail(run, n), traces=False) for n in range(12)]
    assert "not shown to the model" not in shown[0]
    assert "not shown to the model, which has no room for it: " in shown[-1]
    assert "refused proposal" in shown[-1]


def test_a_prompt_of_ones_own_stands_for_kepts_and_belongs_to_the_run(
    task: Path, tmp_path: Path, server: ModelServer
):
    (task.parent / "mine.md").write_text("Improve it my way.\n")
    mine = ("proposers=[{kind: edit, prompt: mine.md, cases: 0}]", "budget={max_iterations: 1}")
    plan = compile_task(task, mine).plan
    asyncio.run(start(plan, Home(tmp_path / "mine")))
    assert server.log[0].lines[0].text == "Improve it my way.\n"
    assert "# The run" not in server.log[0].text, "no case was looked at"
    (task.parent / "mine.md").write_text("Improve it another way.\n")
    now = inputs_of(compile_task(task, mine).plan)
    before = inputs_of(plan)
    assert {name for name in now if now[name] != before[name]} == {"`mine.md`"}


def test_the_model_is_its_own_or_the_optimizer_or_the_applier_or_that_of_the_environment(
    task: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    def named(*overrides: str) -> str:
        (proposer,) = compile_task(task, overrides).plan.proposers
        assert isinstance(proposer, ModelProposer)
        return proposer.model.name

    def block(name: str) -> str:
        return f"{{provider: openai_compatible, model: {name}, base_url: '{server.v1}'}}"

    applier = f"models.applier={block('a')}"
    assert named(applier) == "openai_compatible/m"
    assert named(applier, f"proposers=[{{kind: edit, model: {block('own')}}}]").endswith("/own")
    assert named(f"models={{applier: {block('a')}}}") == "openai_compatible/a"
    monkeypatch.setenv("KEPT_MODEL", "openai_compatible/env")
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
    assert named("models={}") == "openai_compatible/env"
    assert "edit: edits by `openai_compatible/m`" in kept("check", str(task)).stdout


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("models={}", "mutation.mode: `direct_edit` needs a model that edits"),
        ("proposers=[{kind: edit, model: gpt-5}]", "proposers[0].model: `gpt-5` is not a model"),
        ("proposers=[{kind: edit, prompt: gone.md}]", "proposers[0].prompt: cannot read `gone.md`"),
        ("proposers=[{kind: edit, fields: answer}]", "proposers[0].fields: there are no cases"),
        ("proposers=[{kind: edit, traces: -1}]", "proposers[0].traces: the number -1, where 0"),
        ("proposers=[{kind: reflect, batch: 0}]", "proposers[0].batch: the number 0, where 1"),
        ("proposers=[{kind: rewrite, batch: 2}]", "proposers[0].batch: unknown key"),
        ("proposers=[{kind: simplify, prompt: gone.md}]", "proposers[0].prompt: cannot read"),
        (
            "models.optimizer.context_window=0",
            "models.optimizer.context_window: the number 0, where 1 or more",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told(task: Path, override: str, problem: str):
    with pytest.raises(SpecError) as told:
        compile_task(task, [override])
    lines = [f"{one.path}: {one.message}" for one in told.value.problems]
    assert any(line.startswith(problem) for line in lines), lines
