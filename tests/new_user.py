"""A first day with Kept, from empty folders: `python -m tests.new_user [FOLDER]`.

Plays what new users tripped over, item by item, and prints each command with its whole output.
Models are asked over HTTP, on a loopback server that is started here.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from kept.core.llm import ModelReply
from kept.core.rollout import Usage
from kept.testing.server import ModelServer, Seen

LABELS = ("billing", "delivery", "login", "refund")
RULES = ("Name one label only.", "Read the last words.", "Ignore greetings.", "Be short.")
WORTH = {RULES[0]: 0.4, RULES[1]: 0.2}
"""Share of tickets that a rule in the prompt has the model sort correctly, beyond `SEED_WORTH`."""
SEED_WORTH = 0.3
LATENCY = 0.01
"""Seconds of one call."""
MODEL = "openai/gpt-5-mini"
TICKETS = [
    {"ticket": f"#{n} about {label}, from customer {n * 7919 % 100}", "label": label}
    for n, label in enumerate(LABELS * 15)
]
WITHOUT_WEB = ("fastapi", "jinja2", "uvicorn")


@dataclass
class World:
    """The model behind the API: it sorts tickets, and proposes the edits of an item."""

    edits: Callable[[int, str], list[tuple[str, str]]]
    """Paths and texts of the edits, by the number of the request and the artifact it names."""
    asked: list[str] = field(default_factory=list[str])
    """What the optimizer was sent."""

    def answer(self, seen: Seen) -> ModelReply:
        """A label, or the edits that are wanted."""
        text = "\n".join(line.text for line in seen.lines)
        wanted: dict[str, Any] | None = seen.body.get("response_format")
        if wanted is None:
            return ModelReply(self._label(text, str(seen.body.get("seed"))), Usage(1, 60, 3))
        self.asked.append(text)
        (path, *_) = re.findall(r"You may edit: `([^`]+)`", text)
        rows = [
            {"op": "append", "path": path, "target": "", "text": text}
            for path, text in self.edits(len(self.asked), path)
        ]
        said = {"why": "be clearer", "cases": [], "diagnosis": [], "edits": rows}
        names = wanted["json_schema"]["schema"]["properties"]
        return ModelReply(json.dumps({name: said[name] for name in names}), Usage(1, 900, 90))

    def _label(self, text: str, seed: str) -> str:
        tickets = re.findall(r"#\d+ about (\w+)", text)
        right = LABELS.index(tickets[-1]) if tickets else 0
        worth = SEED_WORTH + sum(more for rule, more in WORTH.items() if rule in text)
        drawn = sha256(f"{text}{seed}".encode()).digest()
        is_right = int.from_bytes(drawn[:4], "big") / 2**32 < worth
        return LABELS[right if is_right else (right + 1 + drawn[4] % 3) % 4]


def one_rule(number: int, path: str) -> list[tuple[str, str]]:
    """One rule after the other, at a path as small models spell it."""
    return [(f"/{path}", RULES[number % len(RULES)])]


def edits_out_of_scope(number: int, path: str) -> list[tuple[str, str]]:
    """An edit of a script that is no artifact in every second proposal, else of a text file."""
    beside = "scripts/score.py" if number % 2 else "notes.txt"
    return [(path, f"good {number}"), (beside, "x = 2")]


@dataclass
class User:
    """Somebody at a terminal, in a folder of their own."""

    folder: Path
    server: ModelServer
    world: World
    show: Callable[[str], None]

    def write(self, name: str, text: str) -> None:
        """Write a file, and say so."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.show(f"(writes {name})")

    def run(self, command: str, **more: str) -> str:
        """Type a command; what it answers."""
        self.show(f"$ {command}")
        scripts = sysconfig.get_path("scripts")
        path = os.environ["PATH"]  # noqa: TID251 # the tools that commands use
        variables = {
            "PATH": f"{scripts}{os.pathsep}{path}",
            "HOME": str(self.folder),
            "COLUMNS": "110",
            "OPENAI_BASE_URL": self.server.v1,
            "OPENAI_API_KEY": "none",
            **more,
        }
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.show(done.stdout.rstrip() + f"\n(exit code {done.returncode})")
        return done.stdout

    def cases(self, name: str = "cases.jsonl") -> None:
        """Write the tickets with their labels."""
        self.write(name, "".join(json.dumps(row) + "\n" for row in TICKETS))


ASK = """\
import json
import os
import urllib.request


def ask(text):
    body = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": text}]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]


cases = [json.loads(line) for line in open("cases.jsonl")]
"""
FORMATTED = """\
import kept
from ask import ask, cases


def evaluate(prompt, case):
    return float(ask(f"{prompt}\\n\\n{case['ticket']}") == case["label"])


def typed(prompt: str, case):
    return float(ask(prompt + "\\n\\n" + case["ticket"]) == case["label"])


def propose(brief):
    return brief.incumbent.text + " Name one label only. Read the last words."


print(kept.optimize("Sort the ticket.", evaluate, cases, proposers=[propose], budget=1))
print(kept.optimize("Sort the ticket.", typed, cases, proposers=[propose], budget=1))
print("the model was sent", repr(str(kept.Candidate({"text": "Sort the ticket."}))))
try:
    str(kept.Candidate({"system.md": "Sort.", "user.md": "The ticket:"}))
except ValueError as error:
    print("two texts:", error)
"""
RAISING = """\
import kept
from ask import cases


def evaluate(prompt, case):
    return float(len(prompt) > 0 and case["label"] in prompt)


try:
    kept.optimize("Sort the ticket.", evaluate, cases, proposers=["Sort it."], budget=20)
except kept.RunError as error:
    print("RunError:", error)
"""
EDITED = """\
import kept
from ask import ask, cases


def evaluate(prompt: str, case):
    answer = ask(prompt + "\\n\\n" + case["ticket"])
    return float(answer == case["label"]), f"got {answer}"


writer = kept.edit("openai/gpt-5-mini", fields=["ticket", "label"])
print(kept.optimize("Sort it.", evaluate, cases, proposers=[writer], budget=12, bounds=(0, 1)))
"""
TASK = """\
artifacts: {include: ["*.md", "*.txt"]}
models: {optimizer: openai/gpt-5-mini}
mutation: {allowed_file_types: [.md]}
runner: {command: "cp prompt.md $KEPT_OUTPUT"}
scorer: {command: "sh score.sh"}
objective: {primary_metric: score, direction: maximize}
proposers: [{kind: edit}]
budget: {max_iterations: 2}
logging: {results_file: work/results.jsonl}
"""
TOOLS = "tools: [{name: library, type: vectorstore, description: Looks up, source: library}]"
SCORE = """printf '{"score": 0.%d17}' "$(wc -w < "$KEPT_OUTPUT/prompt.md")"\n"""


def item_1(user: User) -> None:
    """A candidate in an f-string is its text."""
    user.cases()
    user.write("ask.py", ASK)
    user.write("formatted.py", FORMATTED)
    user.run("python formatted.py")


def item_2(user: User) -> None:
    """A function that always raises stops the run with its line and the case."""
    user.cases()
    user.write("ask.py", ASK)
    user.write("raising.py", RAISING)
    user.run("python raising.py")


def item_3(user: User) -> None:
    """`kept eval` says `scored`, or what passes, and --min-score sets the exit code."""
    user.cases()
    user.run(f"kept init --from cases.jsonl sorter --model {MODEL}")
    user.run("kept eval sorter -q")
    user.run("kept eval sorter -q --min-score 0.8 -o report.xml")
    user.run("grep failures report.xml")
    user.run("sed -i 's/bounds: .0, 1./&, pass_at: 1/' sorter/task.yaml")
    user.run("kept eval sorter -q")


def item_4(user: User) -> None:
    """Optimizers see of train cases what was expected, and what was got."""
    user.cases()
    user.run(f"kept init --from cases.jsonl sorter --model {MODEL}")
    user.run("kept optimize sorter -q --set budget.max_iterations=6")
    _show_results(user)
    tests = [
        {
            "vars": {"ticket": row["ticket"]},
            "assert": [{"type": "icontains", "value": row["label"]}],
        }
        for row in TICKETS
    ]
    config = {"prompts": ["Sort: {{ticket}}"], "providers": ["openai:gpt-5-mini"], "tests": tests}
    user.write("promptfooconfig.yaml", json.dumps(config))
    user.run("kept init --from promptfooconfig.yaml from-promptfoo")
    user.run("kept optimize from-promptfoo -q --set budget.max_iterations=3")
    _show_results(user)


def _show_results(user: User) -> None:
    """Show the first failing cases in what the optimizer was last sent."""
    parts = user.world.asked[-1].split("\n# ")
    failing = [part.strip() for part in parts if part.startswith("Case") and "` 0\n" in part]
    user.show("(the optimizer was sent)\n" + "\n\n".join(failing[:2]))


def item_5(user: User) -> None:
    """One set of figures, and a closing sentence."""
    user.cases()
    user.run(f"kept init --from cases.jsonl sorter --model {MODEL}")
    user.run("kept optimize sorter")
    user.run("cd sorter && kept report | sed '/## Trajectory/,$d'")
    user.run("cd sorter && kept runs")


def item_6(user: User) -> None:
    """A hint names how this installation is extended, and no package of another project."""
    site = user.folder / "an-installation-without-the-pages"
    site.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(WITHOUT_WEB):
            (site / path.name).symlink_to(path)
    source = Path(__file__).parents[1] / "src"
    user.run("python -S -m kept view --no-browser", PYTHONPATH=f"{site}{os.pathsep}{source}")


def item_7(user: User) -> None:
    """The user's prompt, labels, 8 rollouts at a time, fitting advice and paths."""
    user.cases()
    user.write("prompt.md", "Sort the ticket.\n\n{{ticket}}\n")
    user.run(f"kept init --from cases.jsonl --prompt-file prompt.md mine --model {MODEL}")
    user.run("cat mine/prompt.md")
    user.server.latency = 0.3
    user.run("kept eval mine -q")
    user.server.latency = LATENCY
    user.show(f"(the server was asked {user.server.most_at_once} times at once, at most)")
    user.write("SKILL.md", "---\nname: sort\ndescription: Sorts\n---\n# Sorting\n\nSort tickets.\n")
    user.run(f"kept init --from SKILL.md --cases cases.jsonl skill --model {MODEL}")
    user.run("grep scorer skill/task.yaml")
    user.write("ask.py", ASK)
    user.write("edited.py", EDITED)
    user.run("python edited.py")


def item_8(user: User) -> None:
    """Without cases one run confirms a keep; none where runs are deterministic."""
    _write_task(user)
    user.write("score.sh", SCORE.replace("17", ""))
    user.write("drafts/longer.md", "good good good\n")
    variants = "--set 'proposers=[{kind: variants, files: [drafts/*.md]}]' -q"
    user.run(f"kept optimize task.yaml {variants}")
    user.run(f"kept optimize task.yaml {variants} --set objective.deterministic=true")


def item_9(user: User) -> None:
    """What of a proposal was not applied, and the times of all stages."""
    _write_task(user)
    user.world.edits = edits_out_of_scope
    user.run("kept optimize task.yaml")
    user.world.edits = one_rule
    (line, *_) = (user.folder / "work" / "results.jsonl").read_text().splitlines()
    rows = json.loads(line)["stages"].items()
    shown = [f"{stage['t']:.3f}  {name}: {stage['what'][:60]}" for name, stage in rows]
    user.show("(the stages in work/results.jsonl)\n" + "\n".join(shown))


def _write_task(user: User) -> None:
    user.write("task.yaml", TASK)
    user.write("score.sh", SCORE)
    user.write("prompt.md", "good\n")
    user.write("notes.txt", "x = 1\n")


def item_10(user: User) -> None:
    """`--set` reaches items of lists."""
    _write_task(user)
    user.run("kept check task.yaml --set 'proposers[0].kind=reflect' | grep -A1 ^proposers")
    user.run("kept check task.yaml --set 'proposers[kind=edit].kind=rewrite' | grep -A1 ^proposers")
    user.run("kept check task.yaml --set 'proposers[kind=nothing].kind=rewrite'")
    user.run("kept init agent my-agent")
    user.write("my-agent/library/page.md", "Reviews with thanks are positive.\n")
    user.run(f"echo '{TOOLS}' >> my-agent/agent.yaml")
    check = "kept check my-agent --set 'model={provider: openai, name: gpt-5-mini}'"
    user.run(f"{check} --set 'tools[name=library].database={{provider: in-memory}}'")
    user.run(f"{check} --set 'tools[name=library].database=postgres'")


ITEMS: Sequence[Callable[[User], None]] = (
    item_1, item_2, item_3, item_4, item_5, item_6, item_7, item_8, item_9, item_10,
)  # fmt: skip


def play(number: int, folder: Path, show: Callable[[str], None]) -> None:
    """Play an item by its number, in an empty folder below `folder`."""
    item = ITEMS[number - 1]
    show(f"\n== {number}. {item.__doc__}\n")
    mine = folder / f"item-{number}"
    mine.mkdir(parents=True)
    world = World(one_rule)
    with ModelServer(world.answer, latency=LATENCY) as server:
        item(User(mine, server, world, show))


def show(text: str) -> None:
    """Print a text at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Play all of it in the folder that is named, or in a temporary one."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="new-user-"))
    for number in range(1, len(ITEMS) + 1):
        play(number, folder, show)


if __name__ == "__main__":
    main()
