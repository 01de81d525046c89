"""A task whose runner is a model: what is wrong with it is told, and it runs."""

import asyncio
import json
from pathlib import Path

import pytest

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.errors import SpecError
from kept.evaluators.runners.model import ModelRunner
from kept.models.manual import SETTLED
from kept.recipes.task.compile import compile_task
from kept.run import inputs_of, start
from kept.sandbox.command import TIMEOUT
from kept.store.home import Home
from kept.testing.server import ModelServer, Seen
from tests.recipes.telling import problems, write_cases

TASK = """\
artifacts: {include: [prompt.md, settings.yaml]}
runner:
  model: handoff/desk
  prompt: prompt.md
  input: text
  schema: schema.json
  settings: settings.yaml
scorer: {type: python, function: "score:score"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: variants, files: ["drafts/*"]}]
cases: {file: cases.jsonl, split: "1:2:0"}
budget: {max_iterations: 4}
workers: 8
"""


@pytest.fixture
def task(tmp_path: Path) -> Path:
    (tmp_path / "drafts" / "shout").mkdir(parents=True)
    (tmp_path / "prompt.md").write_text("Say it.\n")
    (tmp_path / "drafts" / "shout" / "prompt.md").write_text("SHOUT it.\n")
    (tmp_path / "settings.yaml").write_text("temperature: 0\n")
    (tmp_path / "schema.json").write_text('{"type": "string"}')
    (tmp_path / "score.py").write_text(
        "def score(output, case):\n    return float(output == '\"' + case['text'].upper() + '\"')\n"
    )
    rows = ({"id": f"c{n}", "text": f"word {n}", "answer": n} for n in range(6))
    write_cases(tmp_path, rows)
    (tmp_path / "task.yaml").write_text(TASK)
    return tmp_path / "task.yaml"


def test_it_becomes_a_runner_that_asks_a_model(task: Path):
    plan = compile_task(task).plan
    assert isinstance(plan.runner, ModelRunner)
    assert plan.spec.runner == {
        "type": "model",
        "model": "handoff/desk",
        "prompt": ("prompt.md",),
        "input": ("text",),
        "schema": "schema.json",
        "settings": "settings.yaml",
        "template": "fields",
        "timeout_seconds": TIMEOUT,
        "env": [],
    }


def paid(task: Path, server: ModelServer) -> None:
    """The same task with a target that costs 2 cents and a bit a call."""
    block = (
        "models:\n  target:\n    provider: openai_compatible\n    model: m\n"
        f"    base_url: {server.v1}\n    max_tokens: 200\n    price: {{input: 1, output: 100}}\n"
    )
    text = TASK.replace("  model: handoff/desk\n", "").replace("max_iterations: 4", "max_usd: 0.1")
    task.write_text(text + block)


def test_a_limit_of_money_needs_no_price_of_a_rollout_where_calls_have_one(
    task: Path, tmp_path: Path
):
    def reply(seen: Seen) -> ModelReply:
        return ModelReply('"word"', Usage(1, 20, 200))

    with ModelServer(reply) as server:
        paid(task, server)
        plan = compile_task(task).plan
        _, state = asyncio.run(start(plan, Home(tmp_path / "home")))
        calls = len(server.answered)
    assert state.stopped is not None
    assert state.stopped.kind == "usd"
    assert calls == 4, "a fifth would have been too much"


def test_a_model_without_a_price_cannot_be_held_to_a_limit_of_money(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "https://models.example/v1")
    text = TASK.replace("handoff/desk", "openai_compatible/m").replace(
        "max_iterations: 4", "max_usd: 1"
    )
    task.write_text(text)
    told = problems(task)
    assert told == [
        "runner.model: what a call costs at most is not known, so `max_usd` could not be kept"
    ]


@pytest.mark.parametrize("place", ["{{q.text}}", "{{ the text }}", "{{answer}}", "{{}}"])
def test_a_place_that_nothing_fills_in_is_told_before_anybody_is_asked(task: Path, place: str):
    prompt = task.with_name("prompt.md")
    prompt.write_text(f"Say {{{{ text }}}} and {place}.<!-- {{{{not.seen}}}} -->\n")
    told = [line for line in compile_task(task).warnings if "filled" in line]
    assert told == [f"`{place}` of prompt.md is filled in by nothing: the model is given text"]
    prompt.write_text("Say {{ text }}.\n")
    assert not [line for line in compile_task(task).warnings if "filled" in line]


def test_a_runner_that_names_no_model_asks_the_target(task: Path):
    task.write_text(TASK.replace("  model: handoff/desk\n", ""))
    assert problems(task) == ["runner.model: missing"]
    task.write_text(task.read_text() + "models: {target: handoff/desk}\n")
    facts = compile_task(task).plan.spec.runner
    assert isinstance(facts, dict)
    assert facts["model"] == "handoff/desk"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("runner.model=smollm2", "runner.model: `smollm2` is not a model"),
        ("runner.model=local/gpt-9", "runner.model: there is no model `gpt-9`"),
        ("runner.prompt=promt.md", "runner.prompt: there is no artifact `promt.md`"),
        ("runner.settings=s.yaml", "runner.settings: there is no artifact `s.yaml`"),
        ("runner.schema=s.json", "runner.schema: cannot read `s.json`: No such file or directory"),
        (
            "runner.schema=prompt.md",
            "runner.schema: `prompt.md` is no JSON schema: Expecting value",
        ),
        ("runner.input=[text, title]", "runner.input: 6 cases without a field `title`, `c"),
        ("runner.temperature=1", "runner.temperature: unknown key"),
        ("runner.type=magic", "runner.type: the text `magic`, where one of `command`, `model`"),
        ("cases=null", "cases: missing"),
    ],
)
def test_what_is_wrong_with_it_is_told(task: Path, override: str, problem: str):
    told = problems(task, override)
    assert any(line.startswith(problem) for line in told), told


def test_a_runner_needs_its_prompt_and_its_input(task: Path):
    text = TASK.replace("  prompt: prompt.md\n  input: text\n", "")
    task.write_text(text)
    assert {"runner.prompt: missing", "runner.input: missing"} <= set(problems(task))


def test_without_weights_the_command_that_fetches_them_is_told(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "none"))
    where = "runner.model: the weights of `smollm2` are not on this machine"
    with pytest.raises(SpecError, match=where) as told:
        compile_task(task, ["runner.model=local/smollm2"])
    assert "`kept models pull smollm2`" in (told.value.problems[0].hint or "")


def test_a_change_of_the_schema_is_noticed_by_a_resume(task: Path):
    before = inputs_of(compile_task(task).plan)
    (task.parent / "schema.json").write_text('{"type": "number"}')
    after = inputs_of(compile_task(task).plan)
    assert {name for name in after if after[name] != before[name]} == {"`schema.json`"}


@pytest.mark.slow
def test_a_run_is_answered_by_whoever_reads_the_folder(task: Path):
    desk = task.parent / "desk"

    async def someone() -> None:
        while True:
            for path in desk.glob("*.prompt.md"):
                answer = path.with_name(path.name.replace("prompt", "answer"))
                if not answer.exists():
                    text = path.read_text()
                    last = text.strip().rpartition("\n")[2]
                    answer.write_text(json.dumps(last.upper() if "SHOUT" in text else last))
            await asyncio.sleep(SETTLED / 20)

    async def both() -> Path:
        helper = asyncio.create_task(someone())
        folder, _ = await start(compile_task(task).plan, Home(task.parent / ".kept"))
        helper.cancel()
        return folder

    folder = asyncio.run(both())
    assert (folder / "best" / "prompt.md").read_text() == "SHOUT it.\n"


@pytest.mark.parametrize(
    ("model", "workers"),
    [("openai/gpt-5-mini", 8), ("anthropic/claude-haiku-4-5", 8), ("local/smollm2", 2)],
)
def test_a_model_behind_an_api_is_asked_8_at_a_time(
    task: Path, monkeypatch: pytest.MonkeyPatch, model: str, workers: int
):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setattr("kept.recipes.task.compile.processors", lambda: 2)
    task.write_text(TASK.replace("handoff/desk", model).replace("workers: 8\n", ""))
    assert compile_task(task).plan.workers == workers
    assert compile_task(task, ("workers=3",)).plan.workers == 3
