"""The table of commands: all that `kept --help` needs, so that it imports none of them."""

from typing import Literal, NamedTuple

Section = Literal["Improve", "Measure", "Look", "Manage"]
SECTIONS: tuple[Section, ...] = ("Improve", "Measure", "Look", "Manage")


class Entry(NamedTuple):
    """One command: where it is listed, and which attribute of which module it is."""

    section: Section
    name: str
    module: str
    """Below `kept.ui.cli`; the command is an attribute of it."""
    summary: str
    """The first sentence of the command's own help; a test compares them."""
    attribute: str = ""
    """By default the name."""


COMMANDS = {
    entry.name: entry
    for entry in (
        Entry(
            "Improve", "optimize", "optimize", "Improve what SPEC names, and keep what is better"
        ),
        Entry("Improve", "init", "init", "Write a small task that runs at once, to be changed"),
        Entry("Improve", "loop", "optimize", "Improve the artifacts of a task.yaml"),
        Entry("Improve", "train", "train", "Train a skill on cases, and keep what is better"),
        Entry("Improve", "agent", "agent", "Have a task done by a manager and its workers"),
        Entry("Improve", "refine", "refine", "Run a finished task again, and keep what is better"),
        Entry("Improve", "resume", "resume", "Go on with a run that stopped"),
        Entry("Improve", "adopt", "adopt", "Change the source files to the best of a run"),
        Entry(
            "Improve",
            "demo",
            "demo",
            "Watch a run without a key, on a model that is on this machine",
        ),
        Entry(
            "Measure", "check", "check", "Say what a run of SPEC would do, and the most it can cost"
        ),
        Entry(
            "Measure", "compare", "compare", "Say whether B is better than A for cases like these"
        ),
        Entry(
            "Measure",
            "eval",
            "evaluate",
            "Measure what SPEC names on all its cases, and change nothing",
            "evaluate",
        ),
        Entry("Measure", "test", "test", "Test the agent of an agent.yaml on its cases"),
        Entry("Look", "runs", "runs", "List the runs of this project"),
        Entry("Look", "show", "show", "Show what a run did, step by step"),
        Entry("Look", "diff", "diff", "Show the change from seed to best"),
        Entry("Look", "report", "report", "Print the report of a run"),
        Entry("Look", "view", "view", "Look at runs in a browser, live and after"),
        Entry(
            "Manage",
            "experiment",
            "experiment",
            "Keep tasks together that go on from one another",
        ),
        Entry("Manage", "models", "models", "Manage the models that run on this machine"),
        Entry("Manage", "prompts", "prompts", "Look at what models are told, and copy it out"),
        Entry(
            "Manage",
            "doctor",
            "doctor",
            "Check Python, sandbox and models; or verify the files of one run",
        ),
    )
}
