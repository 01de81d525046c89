"""Fakes for every port, and suites that an implementation of one can inherit.

The fakes pass the same suites as the real things. Nothing here needs pytest; a suite is a class
whose `test_` methods pytest finds in a subclass.
"""

from kept.models.scripted import ScriptedModel
from kept.testing.clock import FakeClock
from kept.testing.dialogue import Heard, Matter, hear
from kept.testing.embedder import WordEmbedder
from kept.testing.evaluator import Faults, ScriptedEvaluator
from kept.testing.gates import AcceptAll, RejectAll
from kept.testing.journal import MemoryJournal
from kept.testing.pool import Pool
from kept.testing.proposer import ScriptedProposer
from kept.testing.sink import RecordingSink
from kept.testing.sitting import sit, sitting, small_cases, small_plan
from kept.testing.suites.embedder import EmbedderSuite
from kept.testing.suites.environment import EnvironmentSuite
from kept.testing.suites.gate import GateSuite
from kept.testing.suites.journal import JournalSuite
from kept.testing.suites.model import ModelSuite
from kept.testing.suites.proposer import ProposerSuite
from kept.testing.suites.runner import RunnerSuite
from kept.testing.suites.schedule import ScheduleSuite
from kept.testing.suites.scorer import ScorerSuite
from kept.testing.suites.sink import SinkSuite
from kept.testing.suites.tool import ToolSuite
from kept.testing.tool import ScriptedTool

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
