"""A project with a run of every kind, made by the real commands."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from kept.testing.server import ModelServer
from tests.cli.comparing import write_comparison
from tests.cli.tasks import Called, kept, write_task
from tests.recipes.agent import world as talking
from tests.recipes.coordinate.world import answer, write_agent

HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"

RACE_RUN = r"""
chance=$(grep -o '"chance": *[0-9]*' "$KEPT_CASE" | grep -o '[0-9]*$')
good=$(grep -o good "$KEPT_CANDIDATE/prompt.md" | wc -l)
luck=$(od -An -N1 -tu1 /dev/urandom)
cat "$KEPT_CANDIDATE/prompt.md"; echo "luck $luck of $chance"
test $((luck)) -lt $((chance + 110 * good)); echo $((1 - $?)) >"$KEPT_OUTPUT/passed"
"""
RACE_SCORE = r"""printf '{"score": %d}' "$(cat "$KEPT_OUTPUT/passed")" """
RACE = """
artifacts: {include: [prompt.md]}
runner: {command: "sh run.sh"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
cases: {file: cases.jsonl}
proposers: [{kind: variants, files: ["alternatives/*.md"]}]
budget: {max_rollouts: 1200}
workers: 2
"""
TUNING = "accept_sigma: 1.0\nrepeats: 2\nsplit: '1:1:0'"


def write_race(folder: Path) -> Path:
    """A task that passes by the case, by luck and by what the prompt says."""
    (folder / "alternatives").mkdir(parents=True, exist_ok=True)
    (folder / "prompt.md").write_text("Answer the question.\nBe brief.\n")
    texts = {
        "1-worse": "Say something.\n",
        "2-better": "Answer the question in a good way.\nBe brief.\n",
        "3-hostile": f"Answer the question.\n{HOSTILE}\n",
        "4-best": "Answer the question in a good way.\nBe brief, and good.\n",
    }
    for name, text in texts.items():
        (folder / "alternatives" / f"{name}.md").write_text(text)
    (folder / "run.sh").write_text(RACE_RUN)
    (folder / "score.sh").write_text(RACE_SCORE)
    rows = ({"id": f"c{n:02}", "chance": 30 + 10 * (n % 9)} for n in range(40))
    (folder / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "task.yaml").write_text(RACE)
    return folder / "task.yaml"


@contextmanager
def inside(folder: Path, **variables: str) -> Generator[None]:
    """The working folder and the environment that a person has there."""
    before, here = {name: os.environ.get(name) for name in variables}, Path.cwd()  # noqa: TID251 # restored below
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    os.environ.update(variables)  # noqa: TID251 # as a shell would
    try:
        yield
    finally:
        os.chdir(here)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)  # noqa: TID251 # as it was
            else:
                os.environ[name] = value  # noqa: TID251 # as it was


def make_project(folder: Path) -> Path:
    """Runs of every kind in one home."""
    home = {"KEPT_HOME": str(folder / ".kept"), "KEY": "sk-very-secret-key"}
    with ModelServer(answer) as server:
        write_agent(folder / "agent", server.v1, cases=12, trials=14, more=TUNING)
        with inside(folder / "agent", **home):
            _done(kept("eval", "agent.yaml", "-q"), (0, 1))
            _done(kept("test", "optimize", "agent.yaml", "-q"), (0,))
            _done(kept("eval", "agent.yaml", "-q"), (0, 1))
    with ModelServer(talking.answer) as server, inside(folder / "talking", **home):
        talking.write_agent(folder / "talking", server.v1, 6)
        _done(kept("eval", "agent.yaml", "-q"), (0, 1))
    with inside(folder / "loop", **home):
        write_task(folder / "loop")
        _done(kept("optimize", "task.yaml", "-q"), (0,))
    with inside(folder / "compare", **home):
        write_comparison(folder / "compare")
        texts = ("prompt.md", "better.md", "worse.md")
        _done(kept("compare", *texts, "--cases", "cases.jsonl"), (0, 1))
    with inside(folder / "race", **home):
        write_race(folder / "race")
        _done(kept("optimize", "task.yaml", "-q"), (0,))
    return folder


def _done(called: Called, allowed: tuple[int, ...]) -> None:
    assert called.code in allowed, called.stderr
