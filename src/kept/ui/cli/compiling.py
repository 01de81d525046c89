"""From a spec and what the command line adds to it, to a plan."""

from collections.abc import Sequence
from pathlib import Path

from kept.core.plan import Plan
from kept.recipes.recipes import Compiled
from kept.recipes.registry import compile_spec
from kept.ui.cli import _output


def compiled(spec: Path, settings: Sequence[str] = (), began: str = "") -> Plan:
    """The plan of a spec, for a run that began with this gate if it goes on; warnings are told."""
    return told_warnings(compile_spec(spec, settings, began))


def told_warnings(made: Compiled) -> Plan:
    """The plan, and its warnings on stderr."""
    for warning in made.warnings:
        _output.warn(warning)
    return made.plan
