"""Tasks made of shell commands, and `kept` called on them as a person would."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kept.ui.cli.main import cli

# Nothing but the shell, so that a rollout takes milliseconds.
RUN = 'grep -q crash "$KEPT_CANDIDATE/prompt.md" && exit 3; cp "$KEPT_CANDIDATE"/* "$KEPT_OUTPUT"'
SCORE = """n=$(grep -o good "$KEPT_OUTPUT/prompt.md" | wc -l); printf '{"score": %d}' "$n\""""
TEXTS = {
    "1-worse": "nothing of the sort\n",
    "2-better": "good\ngood\n",
    "3-crash": "crash\n",
    "4-best": "good good\ngood\n",
}


@dataclass(frozen=True)
class Called:
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)


def kept(*args: str) -> Called:
    result = CliRunner().invoke(cli, args)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Called(result.exit_code, result.stdout, result.stderr)


def write_task(
    folder: Path,
    *,
    run: str = RUN,
    score: str = SCORE,
    texts: Mapping[str, str] = TEXTS,
    iterations: int = 20,
    walls: bool = False,
) -> Path:
    """A task whose score is how often the prompt says `good`; its seed says it once.

    Without walls, unless they are wanted: they take twice as long as such a command itself.
    """
    (folder / "alternatives").mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text("good\n")
    for name, text in texts.items():
        (folder / "alternatives" / f"{name}.md").write_text(text)
    (folder / "run.sh").write_text(run + "\n")
    (folder / "score.sh").write_text(score + "\n")
    spec = folder / "task.yaml"
    spec.write_text(
        "artifacts: {include: [prompt.md]}\n"
        'runner: {command: "sh run.sh"}\n'
        'scorer: {command: "sh score.sh"}\n'
        "objective: {primary_metric: score, direction: maximize, bounds: [0, 10]}\n"
        'proposers: [{kind: variants, files: ["alternatives/*.md"]}]\n'
        f"budget: {{max_iterations: {iterations}}}\n"
        "width: 1\n" + ("" if walls else 'sandbox: {walls: "off"}\n')
    )
    return spec
