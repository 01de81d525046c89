"""What a task may say about the walls round its commands."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from kept.sandbox.command import MIB, Limits, Network
from kept.spec.base import Count, Model, Text, Texts

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _variable(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not the name of a variable")
    return name


class SandboxSpec(Model):
    """What commands may see, write, reach and use up."""

    walls: Literal["auto", "required", "off"] = "auto"
    """`auto` uses bwrap where it works, and says so where it does not; `required` insists."""
    network: Network = "none"
    env: Annotated[tuple[Annotated[Text, AfterValidator(_variable)], ...], Field(strict=False)] = ()
    """Variables of the environment that commands may see, besides the few that are harmless."""
    hidden: Texts = ()
    """Further files and folders that the runner must not see; the scorer sees them."""
    readable: Texts = ()
    """Files and folders that commands may read although they are known to hold secrets."""
    writable: Texts = ()
    """Files and folders that commands may really write to."""
    cpu_seconds: Count | None = None
    memory_mb: Count | None = None
    file_mb: Count = 1024
    tree_mb: Count = 1024
    output_mb: Count = 16
    processes: Count = 512

    def limits(self, memory: int | None) -> Limits:
        """The limits of each command; memory is what the machine has, if it is known."""
        return Limits(
            self.cpu_seconds,
            self.memory_mb * MIB if self.memory_mb else memory,
            self.file_mb * MIB,
            self.tree_mb * MIB,
            self.processes,
        )
