"""A task that is in order, to be broken in one place."""

from pathlib import Path

TASK = """\
artifacts: {include: [prompt.md]}
runner: {command: "true"}
scorer: {command: "true"}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: variants, files: ["alternatives/*.md"]}]
budget: {max_iterations: 20}
"""


def write_task(folder: Path, text: str = TASK) -> Path:
    """The files of a task; the path of its task.yaml."""
    (folder / "alternatives").mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text("seed\n")
    (folder / "alternatives" / "a.md").write_text("a\n")
    (folder / "task.yaml").write_text(text)
    return folder / "task.yaml"
