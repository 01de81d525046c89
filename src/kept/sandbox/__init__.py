"""Commands of a user: started, listened to, ended, and nothing of them left running.

A command is a line for the shell. It runs in a session of its own and sees of the environment only
what is passed on by name. With a `View` it also has walls round it, where this machine can build
them: `abilities` says what holds here. Decides nothing about whose fault an end is.
"""

from kept.sandbox.abilities import Abilities, abilities
from kept.sandbox.command import (
    MAX_TEXT,
    TIMEOUT,
    Command,
    Exit,
    Limits,
    Network,
    View,
)
from kept.sandbox.execute import execute
from kept.sandbox.session import start_alone

__all__ = [
    "MAX_TEXT",
    "TIMEOUT",
    "Abilities",
    "Command",
    "Exit",
    "Limits",
    "Network",
    "View",
    "abilities",
    "execute",
    "start_alone",
]
