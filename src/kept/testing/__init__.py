"""Fakes for every port, and test suites that an implementation of a port can inherit.

The fakes pass the same suites as the real implementations. Nothing here needs pytest: a suite is a
class whose `test_` methods pytest finds in a subclass.
"""

from kept.models.scripted import ScriptedModel
from kept.testing.fakes import (
    AcceptAll,
    FakeClock,
    Heard,
    Matter,
    Pool,
    RecordingSink,
    RejectAll,
    ScriptedProposer,
    ScriptedTool,
    WordEmbedder,
    hear,
)
from kept.testing.journal import MemoryJournal
from kept.testing.run import Faults, ScriptedEvaluator, sit, sitting, small_cases, small_plan
from kept.testing.suites.environment import EnvironmentSuite
from kept.testing.suites.evaluators import RunnerSuite, ScorerSuite, ToolSuite
from kept.testing.suites.gate import GateSuite
from kept.testing.suites.journal import JournalSuite
from kept.testing.suites.models import EmbedderSuite, ModelSuite
from kept.testing.suites.proposer import ProposerSuite
from kept.testing.suites.sink_schedule import ScheduleSuite, SinkSuite

__all__ = [
    "AcceptAll",
    "EmbedderSuite",
    "EnvironmentSuite",
    "FakeClock",
    "Faults",
    "GateSuite",
    "Heard",
    "JournalSuite",
    "Matter",
    "MemoryJournal",
    "ModelSuite",
    "Pool",
    "ProposerSuite",
    "RecordingSink",
    "RejectAll",
    "RunnerSuite",
    "ScheduleSuite",
    "ScorerSuite",
    "ScriptedEvaluator",
    "ScriptedModel",
    "ScriptedProposer",
    "ScriptedTool",
    "SinkSuite",
    "ToolSuite",
    "WordEmbedder",
    "hear",
    "sit",
    "sitting",
    "small_cases",
    "small_plan",
]
