"""Environments trained and measured through the commands, beside a server of ours.

The server is student, teacher and judge. The student solves a case where the skill has the rule,
and fails it otherwise; the teacher proposes that rule. So two steps of training keep it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kept.core.llm import ModelReply
from kept.testing.server import ModelServer, Seen
from tests.recipes.skill import world
from tests.sandbox.coding_agents.stand_in import KEY
from tests.ui.cli.tasks import Called, kept

RULE = "Keep to the house rule."
STUDENT, TEACHER, JUDGE = "student", "teacher", "judge"

Reply = str | ModelReply
Says = Callable[[Seen], Reply]

SMALL = (
    *("train.num_epochs=1", "evaluation.eval_test=false", "gradient.minibatch_size=4"),
    *("gradient.merge_batch_size=2", "optimizer.learning_rate=1", "optimizer.min_learning_rate=1"),
    *("optimizer.use_slow_update=false", "optimizer.use_meta_skill=false"),
)
"""Settings of a training with one epoch and a single edit a step."""


@dataclass(frozen=True)
class EnvWorld:
    """One environment with small data in its real format."""

    name: str
    write: Callable[[Path], Sequence[str]]
    """Writes data into a folder; returns settings of `env` that name it, as `split_dir=here`."""
    right: Says
    """What a student says that solves the case of a request."""
    wrong: Says
    """What one says that fails it, and can be graded."""
    judge: Says = lambda _: "True"
    batch: int = 4
    """Cases of a step; the data has twice as many to train on."""

    def answer(self, seen: Seen) -> Reply:
        """The reply of student, teacher or judge."""
        if seen.model == TEACHER:
            return json.dumps(teach(seen))
        if seen.model == JUDGE:
            return self.judge(seen)
        return (self.right if RULE in system(seen) else self.wrong)(seen)

    def words(self, command: str, folder: Path, url: str, *more: str) -> list[str]:
        """A command line; its data is written to the folder that the command is called in."""
        folder.mkdir(parents=True, exist_ok=True)
        told = [f"env.{one}" for one in self.write(folder)]
        models = [
            f"model.{role}={{provider: openai_compatible, model: {name}, base_url: '{url}', "
            "cache: false}"
            for role, name in (("optimizer", TEACHER), ("target", STUDENT))
        ]
        batch = f"train.batch_size={self.batch}"
        start = [command, "--config", f"configs/{self.name}/default.yaml", "-q"]
        if command == "train":
            start += ["--out_root", "out"]
        settings = (*models, *SMALL, batch, "env.workers=4", *told, *more)
        return [*start, "--cfg-options", *settings]


def system(seen: Seen) -> str:
    """What a student was told first, the skill in it."""
    return "\n".join(line.text for line in seen.lines if line.role == "system")


def pictures(seen: Seen) -> list[bytes]:
    """The pictures of a request of chat completions, in order, as the server was sent them."""
    import base64

    urls = [
        part["image_url"]["url"]
        for message in seen.body["messages"]
        for part in (message["content"] if isinstance(message["content"], list) else ())
        if part["type"] == "image_url"
    ]
    return [base64.b64decode(url.partition("base64,")[2]) for url in urls]


def teach(seen: Seen) -> dict[str, Any]:
    """The rule, wherever edits are asked for."""
    wanted = world.properties(seen)
    edit = {"op": "append", "target": "", "content": f"- {RULE}"}
    if "patch" in wanted:
        told: dict[str, Any] = {"patch": {"reasoning": "it would help", "edits": [edit]}}
        if "failure_summary" in wanted:
            told["failure_summary"] = [
                {"failure_type": "lapse", "count": 1, "description": "the rule was not kept"}
            ]
        else:
            told["success_patterns"] = ["the rule was kept"]
        return told
    if "selected_indices" in wanted:
        return {"reasoning": "the first", "selected_indices": [0]}
    return world.merged(seen, "edits") if "reasoning" in wanted else world.mended(seen)


def train(made: EnvWorld, folder: Path, server: ModelServer, *more: str) -> Called:
    """Train in a folder, which the test has changed into."""
    return kept(*made.words("train", folder, server.v1, *more))


def evaluate(made: EnvWorld, folder: Path, server: ModelServer, *more: str) -> dict[str, Any]:
    """Measure the initial skill on all cases; the report."""
    words = made.words("eval", folder, server.v1, *more)
    called = kept(*words[:3], "--split", "all", "--json", *words[4:])
    assert called.code == 0, called.stderr
    return json.loads(called.stdout)


def check_trained(called: Called, folder: Path, steps: int = 2) -> None:
    """The run made its steps, and what it kept has the rule."""
    assert called.code == 0, called.stderr
    history = json.loads((folder / "out" / "history.json").read_text())
    assert len(history) == steps, [row["action"] for row in history]
    assert RULE in (folder / "out" / "best_skill.md").read_text()


AGENT = """\
#!{python}
import json, pathlib, sys
sys.path.insert(0, {root!r})
prompt = sys.stdin.read()
skills = [one.read_text() for one in pathlib.Path(".agents").rglob("*.md")]
has_rule = any({rule!r} in text for text in skills)
def act(prompt, has_rule):
{body}
said = act(prompt, has_rule)
events = [
    {{"type": "thread.started", "thread_id": "01a1e3c5-9ac0-7fb2-a10d-e4461b8f597d"}},
    {{"type": "turn.started"}},
    {{"type": "item.completed", "item": {{"id": "1", "type": "agent_message", "text": said}}}},
    {{"type": "turn.completed", "usage": {{"input_tokens": 100, "cached_input_tokens": 0,
      "cache_write_input_tokens": 0, "output_tokens": 10, "reasoning_output_tokens": 0}}}},
]
for event in events:
    print(json.dumps(event))
"""


def put_agent(folder: Path, body: str, monkeypatch: Any) -> tuple[str, ...]:  # pytest's
    """A program that stands in for codex as the student; the settings that name it.

    `body` is the body of `act(prompt, has_rule)`: it works in the workspace, and returns the last
    message. It runs without a sandbox, which would hide a program in a temporary folder.
    """
    import sys
    from textwrap import indent

    folder.mkdir(parents=True, exist_ok=True)
    program, root = folder / "codex", str(Path(__file__).parents[3])
    text = AGENT.format(
        root=root, python=sys.executable, rule=RULE, body=indent(body.strip("\n"), "    ")
    )
    program.write_text(text)
    program.chmod(0o755)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return (
        "model.target=null",
        "model.student_backend=codex_exec",
        "model.student=gpt-5-codex",
        f"model.codex_exec_path={program}",
        "model.codex_exec_sandbox=danger-full-access",
    )
