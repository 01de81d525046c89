"""A task with agents: what is wrong with it is told, and what a run of it would do."""

from pathlib import Path

import pytest

from kept.evaluators.runners.coding_agent import AgentRunner
from kept.proposers.external import AgentProposer
from kept.recipes.base import plan_facts
from kept.recipes.outline import outline
from kept.recipes.task.compile import compile_task
from kept.run import inputs_of
from kept.sandbox.capabilities import Abilities, abilities
from kept.sandbox.cgroup import Parents
from tests.recipes.telling import problems, write_cases
from tests.sandbox.coding_agents.stand_in import put

TASK = """\
artifacts: {include: [SKILL.md, AGENTS.md]}
runner:
  agent: codex_exec
  model: openai/gpt-5-mini
  skill: SKILL.md
  instructions: AGENTS.md
  input: question
  files: [table.csv, "sheets/{{sheet}}"]
scorer: {type: python, function: "score:score"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: agent, agent: codex_exec, model: openai/gpt-5-mini}]
cases: {file: cases.jsonl, split: "1:2:0"}
budget: {max_iterations: 2}
sandbox: {walls: "off"}
"""


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path, ":", monkeypatch)
    folder = tmp_path / "task"
    (folder / "sheets").mkdir(parents=True)
    for name in ("SKILL.md", "AGENTS.md", "table.csv", "sheets/a.txt", "sheets/b.txt"):
        (folder / name).write_text(f"{name}\n")
    (folder / "score.py").write_text("def score(output, case):\n    return 1.0\n")
    rows = (
        {"id": f"c{n}", "question": f"{word}?", "sheet": f"{'ab'[n % 2]}.txt"}
        for n, word in enumerate(("apples", "bread", "cheese", "dates", "eggs", "figs"))
    )
    write_cases(folder, rows)
    (folder / "task.yaml").write_text(TASK)
    return folder / "task.yaml"


@pytest.mark.parametrize(
    "other", ["runner={command: 'true'}", "proposers=[{kind: variants, files: [AGENTS.md]}]"]
)
def test_where_an_agent_is_paid_few_steps_are_open_at_once(task: Path, other: str):
    model = "{provider: openai_compatible, model: m, base_url: 'http://localhost:1/v1', "
    model += "price: {input: 0, output: 0}}"
    free = (f"runner.model={model}", f"proposers.0.model={model}", "workers=16")
    assert compile_task(task, (other, "workers=16")).plan.width == 2
    assert compile_task(task, free).plan.width == 8


def test_it_becomes_a_runner_and_a_proposer_that_send_agents(task: Path):
    plan = compile_task(task).plan
    assert isinstance(plan.runner, AgentRunner)
    assert [proposer.name for proposer in plan.proposers] == ["agent"]
    assert plan.spec.runner == {
        "type": "agent",
        "agent": "codex_exec",
        "model": "openai/gpt-5-mini",
        "skill": ("SKILL.md",),
        "instructions": ("AGENTS.md",),
        "prompt": None,
        "input": ("question",),
        "files": ("table.csv", "sheets/{{sheet}}"),
        "timeout_seconds": 600.0,
        "env": [],
    }


def test_a_prompt_of_the_tasks_own_is_what_an_agent_is_told(task: Path):
    (task.parent / "told").mkdir()
    own = task.parent / "told" / "agent.md"
    own.write_text("Make {{kept.metric}} better.\n")
    plain = compile_task(task).plan
    plan = compile_task(task, ["prompts=told"]).plan
    assert plan_facts(plan).prompts == {"agent": "told/agent.md"}
    assert plan_facts(plain).prompts == {}
    named = compile_task(task, ["proposers.0.prompt=told/agent.md"]).plan
    assert plan_facts(named).prompts == {"agent": "told/agent.md"}
    (proposer,) = plan.proposers
    assert isinstance(proposer, AgentProposer)
    assert proposer.own == "Make {{kept.metric}} better.\n"
    before = inputs_of(plan)
    own.write_text("{{kept.metrik}}\n")
    (line,) = problems(task, "prompts=told")
    assert "proposers[0].prompt: `{{kept.metrik}}` is no placeholder of the prompt `agent`" in line
    own.write_text("Other.\n")
    now = inputs_of(compile_task(task, ["prompts=told"]).plan)
    assert {name for name in now if now[name] != before.get(name)} == {"`told/agent.md`"}


def test_a_model_that_costs_money_makes_a_run_that_costs_money(task: Path):
    assert outline(compile_task(task))["at_most"]["usd"] is None
    free = "{provider: openai_compatible, model: m, base_url: 'http://127.0.0.1:1/v1'}"
    ours = [f"runner.model={free}", f"proposers.0.model={free}"]
    assert outline(compile_task(task, ours))["at_most"]["usd"] == 0


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("runner.agent=codex", "runner.agent: the text `codex`, where `codex_exec`, `claude_code"),
        ("runner.model=gpt", "runner.model: `gpt` is not a model"),
        (
            "runner.model=anthropic/claude",
            "runner: `codex_exec` cannot ask `anthropic`; it can ask openai, openai_compatible",
        ),
        (
            "runner.model={provider: openai, model: m, temperature: 1}",
            "runner.model.temperature: unknown key",
        ),
        (
            "runner.model={provider: openai, model: m, api_key: sk-123}",
            "runner.model.api_key: a key is kept in the environment",
        ),
        ("runner.skil=x", "runner.skil: unknown key (did you mean `skill`?)"),
        ("runner.skill=S.md", "runner.skill: there is no artifact `S.md`"),
        ("runner.input=answer", "runner.input: 6 cases without a field `answer`"),
        ("runner.input=null", "runner: gives the agent nothing to do"),
        ("runner.files=[no.csv]", "runner.files[0]: `no.csv` matches nothing"),
        ("runner.files=[sheets]", "runner.files[0]: `sheets` matches folders only"),
        ("runner.files=['../x']", "runner.files[0]: `../x` leaves the folder"),
        ("runner.files=['{{name}}.txt']", "runner.files[0]: case `c0` has no text or number in"),
        ("proposers.0.agent=x", "proposers[0].agent: the text `x`, where `codex_exec`"),
        ("proposers.0.model=ollama/x", "proposers[0]: `codex_exec` cannot ask `ollama`"),
        ("sandbox.network=none", "sandbox.network: `none` would keep `codex_exec` from its model"),
        (
            "budget={max_usd: 1, usd_per_rollout: 0.1}",
            "proposers[0]: what a proposal costs at most is not known, so `max_usd` could not be",
        ),
    ],
)
def test_what_is_wrong_with_it_is_told(task: Path, override: str, problem: str):
    told = problems(task, override, hints=True)
    assert any(line.startswith(problem) for line in told), told


def test_a_runner_that_gives_its_agent_no_artifact_is_refused(task: Path):
    lines = "  skill: SKILL.md\n  instructions: AGENTS.md\n"
    files = '  files: [table.csv, "sheets/{{sheet}}"]\n'
    task.write_text(TASK.replace(lines, "").replace(files, ""))
    (told,) = problems(task, hints=True)
    assert told.startswith("runner: the agent is given no artifact")


def test_a_program_that_is_not_there_is_told_with_how_to_have_it(task: Path):
    programs = task.parent.parent / "programs"
    (programs / "codex").unlink()
    told = problems(task, hints=True)
    hint = "`npm install -g @openai/codex` installs it"
    if "there is no program" in told[0]:
        line = f"agent: there is no program `codex` on the PATH ({hint})"
        assert told == [f"runner.{line}", f"proposers[0].{line}"]


def test_an_agent_is_not_let_loose_because_walls_cannot_be_had(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    none = Abilities(walls=False, overlay=False, groups=Parents(None, None), why_not="no bwrap")
    monkeypatch.setattr("kept.evaluators.runners.coding_agent.abilities", lambda: none)
    told = problems(task, "sandbox.walls=auto", hints=True)
    assert told[0].startswith("runner.agent: an agent runs commands, and nothing holds them here")
    assert "`sandbox.walls: off`" in told[0]


@pytest.mark.sandbox
def test_a_program_beside_what_no_agent_may_see_is_told(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    assert compile_task(task, ["sandbox.walls=auto"])
    # scratch folders are made below it
    monkeypatch.setattr("tempfile.tempdir", str(task.parent.parent / "programs"))
    told = problems(task, "sandbox.walls=auto")
    assert "lies beside what no agent may see between walls" in told[0]


def test_a_missing_key_is_warned_of(task: Path, monkeypatch: pytest.MonkeyPatch):
    assert "codex_exec" not in str(compile_task(task).warnings)
    monkeypatch.delenv("OPENAI_API_KEY")
    told = "`codex_exec` cannot ask `openai/gpt-5-mini`: OPENAI_API_KEY is not set"
    assert told in compile_task(task).warnings


def test_a_model_without_a_price_is_warned_of(task: Path):
    model = "{provider: openai_compatible, model: m, base_url: 'https://elsewhere/v1'}"
    told = "the price of `openai_compatible/m` is not known: what it costs is not counted"
    assert told in compile_task(task, [f"runner.model={model}"]).warnings


def test_a_resume_notices_a_file_that_agents_are_given(task: Path):
    before = inputs_of(compile_task(task).plan)
    (task.parent / "sheets" / "b.txt").write_text("changed\n")
    (task.parent / "table.csv").write_text("changed\n")
    after = inputs_of(compile_task(task).plan)
    assert {n for n in after if after[n] != before[n]} == {"`sheets/b.txt`", "`table.csv`"}
