"""The golden runs, one for each command. Everything runs one at a time, so that order is fixed."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kept.testing.server import Seen
from tests.golden import model
from tests.golden.stage import Stage

RUN = 'grep -q crash "$KEPT_CANDIDATE/prompt.md" && exit 3; cp "$KEPT_CANDIDATE"/* "$KEPT_OUTPUT"'
SCORE = """n=$(grep -o good "$KEPT_OUTPUT/prompt.md" | wc -l); printf '{"score": %d}' "$n\""""
DRAFTS = {"1-worse": "bad\n", "2-crash": "crash\n", "3-better": "good\ngood\n"}
COMMAND_TASK = """\
artifacts: {include: [prompt.md]}
runner: {command: "sh run.sh"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 10], deterministic: true}
proposers: [{kind: variants, files: ["drafts/*.md"]}]
logging: {results_file: work/results.jsonl, candidate_dir: work/candidates}
budget: {max_iterations: 10}
workers: 1
width: 1
"""
MODEL_TASK = """\
artifacts: {include: [prompt.md]}
models:
  target: {provider: openai_compatible, model: answers, cache: false}
  optimizer:
    {provider: openai_compatible, model: edits, cache: false, price: {input: 1, output: 4}}
runner: {model: "", prompt: prompt.md, input: text}
scorer: {type: assertions}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1], pass_at: 1}
proposers: [{kind: variants, files: ["drafts/*.md"]}, {kind: edit}]
cases: {file: cases.jsonl, split: "1:1:1"}
budget: {max_iterations: 6, max_rollouts: 1500}
workers: 1
width: 1
""".replace('model: "", ', "")


@dataclass(frozen=True)
class Scenario:
    """One golden run: who answers for its models, and what is typed."""

    play: Callable[[Stage], None]
    replies: Callable[[Seen], Any] = model.answer_case


def write_model_task(stage: Stage, cases: int) -> None:
    """A task whose runner is a model that says what mood a text has."""
    rows = [
        {
            "id": f"c{n}",
            "text": f"text number {n}",
            "assert": [{"type": "equals", "value": model.mood(n)}],
        }
        for n in range(cases)
    ]
    stage.write_rows("cases.jsonl", rows)
    stage.write("prompt.md", f"{model.SEED}\n")
    stage.write("task.yaml", MODEL_TASK)
    stage.write("drafts/prompt.md", f"{model.SEED}\n{model.USELESS}\n")


def look_back(stage: Stage) -> None:
    """The last run as other commands show it."""
    for line in ("show", "show --json", "runs --json", "report", "diff", "doctor last"):
        stage.run(*line.split())


def optimize_command(stage: Stage) -> None:
    """A task of shell commands: one draft is worse, one crashes, one is kept."""
    stage.write("prompt.md", "good\n")
    for name, text in DRAFTS.items():
        stage.write(f"drafts/{name}.md", text)
    stage.write("run.sh", RUN + "\n")
    stage.write("score.sh", SCORE + "\n")
    stage.write("task.yaml", COMMAND_TASK)
    stage.run("check", "task.yaml")
    stage.run("optimize", "task.yaml", "--fail-if-no-gain")
    look_back(stage)
    stage.run("adopt", "last", "--yes")


def optimize_model(stage: Stage) -> None:
    """A race on cases: what helps is proven on holdout cases and claimed on test cases."""
    write_model_task(stage, 72)
    stage.run("optimize", "task.yaml", "--json")
    look_back(stage)


SKILL_FLAGS = {
    "split_mode": "ratio",
    "split_ratio": "4:3:2",
    "data_path": "data.json",
    "num_epochs": "2",
    "batch_size": "6",
    "minibatch_size": "4",
    "merge_batch_size": "2",
    "learning_rate": "2",
    "min_learning_rate": "1",
    "out_root": "out",
    "workers": "1",
    "skill_init": "skills/moods.md",
}
AT = "provider: openai_compatible, cache: false"


def write_training(stage: Stage) -> list[str]:
    """Questions of the shape of SearchQA; flags for `kept train` and `kept eval`."""
    rows = [
        {
            "id": f"q{n}",
            "question": f"What is number {n}?",
            "context": f"[DOC] Number {n} is called word{n * 17}.",
            "answers": [f"word{n * 17}"],
        }
        for n in range(27)
    ]
    stage.write("data.json", json.dumps(rows))
    stage.write("skills/moods.md", "# Skill\n\nAnswer the question.\n")
    flags = [word for name, value in SKILL_FLAGS.items() for word in (f"--{name}", value)]
    models = [f"model.{role}={{model: {name}, {AT}}}" for role, name in ROLES.items()]
    return [*flags, "--cfg-options", *models]


ROLES = {"optimizer": "teacher", "target": "student"}


def train(stage: Stage) -> None:
    """A skill is trained for two epochs, with the slow update and the memory between them."""
    flags = write_training(stage)
    config = ("--config", "configs/searchqa/default.yaml")
    stage.run("train", *config, "--dry-run", *flags)
    stage.run("train", *config, *flags)
    look_back(stage)
    stage.run("eval", *config, "--skill", "out/best_skill.md", "--split", "val", *flags)


AGENT = """\
name: moods
model:
  provider: openai
  name: gpt-5-mini
  endpoint: "${OPENAI_COMPATIBLE_BASE_URL}"
  api_key: "${KEY}"  # never written here
  temperature: 0.9  # hot
instructions:
  inline: |
    You say what mood a text has.
evaluations:
  metrics:
    - {type: standard, metric: equality, case_insensitive: true}
  optimizer:
    loss: {equality: 1.0}
    axes:
      numeric:
        - {path: model.temperature, range: [0.0, 1.0]}
      textual:
        - {path: instructions, max_chars: 400}
    budget:
      global: {max_cycles: 1}
      numeric_phase: {max_trials: 3, patience: 3}
      textual_phase: {max_trials: 3, patience: 3}
    accept_sigma: 1.0
    repeats: 2
    split: '1:1:0'
test_cases_file: cases.yaml
"""


def write_agent(stage: Stage, cases: int) -> None:
    """An agent that says what mood a text has, with numbers and texts to tune."""
    rows = [
        f"- {{name: text-{n}, input: text number {n}, ground_truth: {model.mood(n)}}}\n"
        for n in range(cases)
    ]
    stage.write("cases.yaml", "".join(rows))
    stage.write("agent.yaml", AGENT)


def test_optimize(stage: Stage) -> None:
    """A cycle of a numeric and a textual phase, then the same as JSON events."""
    write_agent(stage, 16)
    stage.run("test", "optimize", "agent.yaml", "-v", "--workers", "1")
    look_back(stage)
    few = ("--numeric-max-trials", "1", "--textual-max-trials", "1")
    stage.run("test", "optimize", "agent.yaml", "--progress", "json", "--workers", "1", *few)


def evaluate(stage: Stage) -> None:
    """An agent whose answers are right in part, in each kind of report."""
    write_agent(stage, 8)
    for words in (("--json",), ("-o", "report.md", "-v"), ("-o", "report.xml", "--repeats", "2")):
        stage.run("eval", "agent.yaml", "--workers", "1", *words)
    stage.run("show", "last", "text-1")
    stage.run("test", "run", "agent.yaml", "--workers", "1", "-q")


def evaluate_task(stage: Stage) -> None:
    """The seed of a task on all its cases."""
    write_model_task(stage, 9)
    stage.run("eval", "task.yaml", "-o", "report.json")
    stage.run("eval", "task.yaml", "--min-score", "0.1", "-q")
    look_back(stage)


def compare(stage: Stage) -> None:
    """One text against a better and a worse one."""
    write_model_task(stage, 24)
    stage.write("better.md", f"{model.SEED}\n{model.GOOD}\n{model.BETTER}\n")
    stage.write("worse.md", f"{model.SEED}\n{model.HARMFUL}\n")
    words = ("compare", "prompt.md", "better.md", "worse.md", "--cases", "cases.jsonl")
    stage.run(*words, "--passes", "2")
    look_back(stage)
    stage.run("compare", "prompt.md", "--cases", "cases.jsonl", "--plan", "--passes", "2")
    stage.run("compare", "prompt.md", "worse.md", *words[-2:], "--json", "--fail-if-no-gain")


def agent_run(stage: Stage) -> None:
    """The example of an agent run: refused twice, repaired and complete. Its models are scripts."""
    stage.copy("examples/agent-run")
    task = "Write a report on sales.csv to report.md"
    words = ("agent", "run", task, "--input", "sales.csv", "--config", "run.yaml")
    stage.run(*words, "--output", "made")
    look_back(stage)


FINISHED = {
    "run_id": "seed",
    "status": "complete",
    "task": "Write a report on the sales to report.md",
    "critique": {"score": 0.6, "defects": [{"summary": "June is missing", "severity": "critical"}]},
    "eval": {"score": 0.9},
    "final_budget": {"max_loops": 20, "wall_time": {"elapsed_s": 60}},
}
SUBTASK = {"id": "fix", "description": "add what is missing", "required_outputs": ["report.md"]}
TURNS: tuple[dict[str, Any], ...] = (
    {"decision": "plan", "subtasks": [SUBTASK]},
    {
        "decision": "delegate",
        "delegations": [{"worker_id": "ada", "subtask_id": "fix", "instructions": "add June"}],
    },
    {"decision": "complete", "final_result": {"report": "report.md"}, "confidence": 0.9},
)
ATTEMPTS = (
    ("May 12, June 15.", 0.7),
    ("May 12, July 15.", 0.65),
    ("May 12, June 15: +25 %.", 0.95),
)


def refine(stage: Stage) -> None:
    """Three attempts at a finished run: better, worse, and better still. Models are scripts."""
    stage.write("seed/run_completion.json", json.dumps(FINISHED))
    stage.write("seed/FINAL/report.md", "# Sales\n\nMay 12.\n")
    roles = ("manager", "worker", "critic")
    stage.write("run.yaml", "models:\n" + "".join(f"  {r}: scripted/{r}.jsonl\n" for r in roles))
    manager: list[Any] = []
    worker: list[Any] = []
    critic: list[Any] = []
    for text, score in ATTEMPTS:
        manager += [json.dumps(turn) for turn in TURNS]
        arguments = {"path": "output/report.md", "content": f"# Sales\n\n{text}\n"}
        worker += [{"text": "", "tool_calls": [{"name": "file_write", "arguments": arguments}]}]
        worker += [json.dumps({"ada": {"summary": "added June", "confidence": 0.9}})]
        defect = {"category": "incomplete", "location": "report.md", "severity": "warning"}
        defects = [] if score > 0.9 else [{**defect, "description": f"no growth: {text}"}]
        critic += [json.dumps({"score": score, "defects": defects, "summary": "readable"})]
    for role, replies in zip(roles, (manager, worker, critic), strict=True):
        stage.write_rows(f"{role}.jsonl", replies)
    stage.run("refine", "seed", "--config", "run.yaml")
    look_back(stage)


SECTION = re.compile(r"^(\w+):$")
ROW = re.compile(r"^  ([a-z][\w-]*)  +\S")


def commands_in(text: str) -> list[str]:
    """The commands that a help lists."""
    found: list[str] = []
    section = ""
    for line in text.splitlines():
        if heading := SECTION.match(line):
            section = heading[1]
        elif section not in ("", "Options", "Examples") and (row := ROW.match(line)):
            found.append(row[1])
    return found


def show_help(stage: Stage, *words: str) -> None:
    """The help of a command and of all below it."""
    called = stage.run(*words, "--help")
    if "COMMAND" in called.out.partition("\n")[0]:
        for name in commands_in(called.out):
            show_help(stage, *words, name)


FIXED = """\
import kept

WISHES = "brief kind cite steps limits json quote date tone title".split()


def evaluate(candidate, case):
    found = case["wish"] in candidate.text.split()
    return found - len(candidate.text) / 1000, f"looked for `{case['wish']}`"


def propose(brief):
    return f"{brief.incumbent.text} {WISHES[brief.seed % len(WISHES)]}"


if __name__ == "__main__":
    result = kept.optimize(
        "Write a reply.",
        evaluate,
        [{"guest": f"guest {n}", "wish": WISHES[n % 10]} for n in range(60)],
        proposers=[propose, "Reply: brief kind cite steps limits json quote tone date"],
        bounds=(-1, 1),
        budget=kept.Budget(max_iterations=8),
        workers=1,
        width=1,
    )
    print(result)
"""


def fixed(stage: Stage) -> None:
    """A run of `kept.optimize`. No model, command or port has a part in it, so that its journal is
    the same byte for byte.
    """
    stage.write("reply.py", FIXED)
    stage.run_file("reply.py")
    look_back(stage)


SCENARIOS: Mapping[str, Scenario] = {
    "fixed": Scenario(fixed),
    "help": Scenario(show_help),
    "optimize": Scenario(optimize_model, model.edit_prompt),
    "optimize-command": Scenario(optimize_command),
    "train": Scenario(train, model.train),
    "test-optimize": Scenario(test_optimize, model.tune),
    "agent-run": Scenario(agent_run),
    "refine": Scenario(refine),
    "compare": Scenario(compare),
    "eval": Scenario(evaluate),
    "eval-task": Scenario(evaluate_task),
}
"""By the name of their files."""

NEED_SANDBOX = ("optimize", "optimize-command", "agent-run", "refine", "compare", "eval-task")
"""Those that run commands, or whose journal says how commands would be run."""
