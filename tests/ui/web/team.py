"""A manager, workers and a critic that play on one server, for agent runs and their refinements."""

import time
from collections.abc import Sequence

from kept.testing.server import Seen
from tests.orchestrator.play import Play, Say, complete, delegate, done, plan, say, write
from tests.recipes.refine.world import Attempted

TASK = "Write a report on the sales to report.md.\nSay what changed from May to June."
MODEL = "openai_compatible/m"
FIRST_SECONDS = 0.2
"""Latency of each reply to the first run."""

HARM = "<script>window.hacked=1</script>"
FIRST = "# Sales\n\nMay 12. TODO: June.\n"
SECOND = "# Sales\n\nMay 12, June 15. {}\n"
DEFECTS = (
    ("critical", "the change from May to June is not told"),
    ("warning", "no source is named {}"),
)


def judged(score: float, *defects: tuple[str, str]) -> str:
    rows = [
        {"category": "incomplete", "location": "report.md", "description": what, "severity": how}
        for how, what in defects
    ]
    return say({"score": score, "defects": rows, "summary": "a beginning", "prescriptions": []})


def first_run(harm: str) -> Play:
    """One completion is refused, then the report is mended; its critic is not content."""
    workers: dict[str, Sequence[Say]] = {
        "ada": [write("output/report.md", FIRST), done("ada", 0.6)],
        "bob": [write("output/report.md", SECOND.format(harm)), done("bob")],
    }
    turns = [plan("report.md"), delegate("ada"), complete(), delegate("bob"), complete()]
    return Play(
        turns,
        workers,
        judged(0.6, *((how, what.format(harm).strip()) for how, what in DEFECTS)),
        loops=20,
    )


def attempts(*scores: float) -> list[Attempted]:
    return [
        Attempted(score, f"# Sales\n\nMay 12, June 15: a quarter more. Version {n}.\n")
        for n, score in enumerate(scores, 1)
    ]


class Team:
    """Whoever is asked answers by the play that is on; a refinement has one for each iteration."""

    def __init__(self, harm: str = HARM) -> None:
        self.first = first_run(harm)
        self.plays = [one.play() for one in attempts(0.7, 0.85, 0.8)]
        self.briefs: dict[str, int] = {}
        self.at: int | None = None

    def __call__(self, seen: Seen) -> Say:
        text = "\n".join(line.text for line in seen.lines)
        if "## REFINEMENT CONTEXT" in text:
            self.at = self.briefs.setdefault(text, len(self.briefs) % len(self.plays))
        if self.at is None:
            # a refinement ends after twice the time of its seed, also on a busy machine
            time.sleep(FIRST_SECONDS)
            return self.first.of_server(seen)
        play = self.plays[self.at]
        play.loops = 10  # half of what the first run had
        return play.of_server(seen)
