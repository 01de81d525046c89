"""An environment that is ready to be trained in: all that a recipe has to know of it.

The trace of a rollout, which analysts are shown, is made of these items, in order:

* `system`: the system prompt of the student, the skill in it. At most one, the first.
* `user`: what the student was asked: the first is the prompt of the case, later ones are further
  turns of a conversation.
* `assistant`: what it said; `data["tool_calls"]` are the tools that it wanted used.
* `tool`: one use of a tool: `data["name"]`, `data["arguments"]`, and the text that came back. What
  an agent CLI did is one, too: `data["command"]` says what, the text is what came of it. Its steps
  are numbered by `data["step"]`.
* `step`: one step of a simulator: `data["step"]` is its number from 1, `data["action"]` what was
  done, `data["reasoning"]` what was thought before; the text is what the simulator answered.
* `info`: what was cut, and what an agent CLI cost; with a `data["summary"]` that sums its trace up.
* `failure`: why the student came to no answer, where that is its own fault.
* `verification`: what the scorer says of the outcome. It may hold the expected answer
  (`data["reference"]`), and so is shown only as far as the gold answers are.
* `session`: all that an agent CLI said, word for word (`data["raw"]`), and what it can go on from,
  packed; never shown, only handed to `probe`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kept.core.case import Case, Cases
from kept.core.model import Image
from kept.core.ports import Runner, Scorer
from kept.core.rollout import TraceItem
from kept.models.config import ModelConfig

SKILL = "SKILL.md"
"""The artifact that every skill has; the others of a skill folder have their paths in it."""

HARD = "hard"
"""The metric that says how much of a case was solved; only 1, all of it, is a success."""

SOFT = "soft"
"""The metric that gives credit for parts, from 0 to 1."""

VERIFICATION = "verification"
SESSION = "session"
STEP = "step"


@dataclass(frozen=True, slots=True)
class About:
    """What an analyst is told of a case besides the trace of its rollout."""

    task: str
    type: str = ""
    reference: str = ""
    """What is expected; for the optimizer only where the config says so."""
    preview: str = ""
    """What the files of the case look like."""
    golds: tuple[str, ...] = ()
    """All answers that are right, each by itself: none may come into a skill. The lines of the
    reference, unless an environment says so."""

    def __post_init__(self) -> None:
        if not self.golds:
            lines = (line.strip() for line in self.reference.splitlines())
            object.__setattr__(self, "golds", tuple(line for line in lines if line))


class Probe(Protocol):
    """Makes the texts of a candidate that is rolled out with a diagnostic instruction."""

    def __call__(
        self,
        texts: Mapping[str, str],
        instruction: str,
        trace: Sequence[TraceItem] = (),
        after_step: int | None = None,
    ) -> Mapping[str, str]:
        """The texts of a candidate to be asked for with the purpose `probe`.

        Without a trace the case is run from its start with the instruction behind its prompt. With
        the trace of an earlier rollout of the same case and the number of a step, it goes on from
        behind that step: an agent CLI that can resumes its own session, all others are told again
        what was said and done up to there. Such a candidate is for one case, and is never judged.
        """
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """An environment, ready to be trained in."""

    name: str
    cases: Cases
    """`train`, `holdout` (the selection split) and `test`."""
    runner: Runner
    """Runs `candidate["SKILL.md"]`, with the further files of a skill folder, on a case."""
    scorer: Scorer
    """Gives the metrics `hard` and `soft`, from 0 to 1; its findings say why a case failed."""
    about: Callable[[Case], About]
    prompts: Mapping[str, str]
    """Prompts of the environment by name: analyst_error, analyst_success …"""
    skill: Mapping[str, str]
    """The initial skill: path to text; its first is SKILL.md."""
    probe: Probe
    materialise: Callable[[Path], Path | None]
    """Writes a split that was made by ratio, below the outputs of a run or where the config says;
    the folder, or None where the split was read."""
    pictures: Callable[[Case], Sequence[Image]] | None = None
    """Pictures of a case, for analysts that may see them."""
    scripts: object = None
    """The environment, where it can write the files of a standalone script
    (`kept.evaluators.environments.standalone`)."""
    judge: ModelConfig | None = None
    """The model that decides what the rules of the environment cannot."""
    warnings: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    """What holds for measuring as well, in words: a file that is no text and is not used, a key of
    another way, cases with a known defect."""
    inputs: Mapping[str, str] | None = None
    """Hashes of what the environment was made from, by name, for the plan."""
