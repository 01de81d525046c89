"""The facade for authors of components: runners, scorers, proposers, environments and tools.

Import only from `kept`, `kept.extend` and `kept.testing`: these names stay, all others may change.
`docs/guide/extending.md` builds an example package.
"""

from kept.core.llm import (
    Embedded,
    Image,
    Message,
    ModelReply,
    ModelRequest,
    ToolAnswer,
    ToolCall,
    ToolOffer,
)
from kept.core.plan import Plan
from kept.core.ports import Embedder, Model, Schedule, Tool
from kept.core.proposal import Answer, Brief, ProposerReply, Turn
from kept.core.score import Severity
from kept.core.verdict import View
from kept.evaluators.environments.base import (
    HARD,
    SKILL,
    SOFT,
    About,
    Defect,
    Environment,
    Episode,
    Graded,
    Item,
    JudgeOptions,
    JudgeQuestion,
    LookAgain,
    OneReply,
    Options,
    Posed,
    TurnOptions,
)
from kept.evaluators.environments.base import Turn as EpisodeTurn
from kept.evaluators.environments.chat_student import answer_in, quoted
from kept.evaluators.environments.datasets import Fields, Row, as_items, item, rows_in, values
from kept.evaluators.tools.retrieval.config import HierarchicalDocument, VectorStore
from kept.evaluators.tools.retrieval.tool import Indexes
from kept.models.ask import ask, ask_within, draw_seed
from kept.models.client import connect
from kept.models.providers import ModelConfig
from kept.models.roles import connect_role
from kept.recipes.agent_config.spec.tools import ToolSpec
from kept.recipes.agent_config.tools import Toolbox, ToolComponent
from kept.sandbox.command import Command, Exit
from kept.sandbox.workspace import Scratch, Workspace
from kept.spec.checks import check_asked, check_field, check_fields, check_price, read_prompt
from kept.spec.command_lines import check_script
from kept.spec.components import (
    BuildContext,
    CheckContext,
    Component,
    ComponentSpec,
    ModelNeed,
    Needs,
    ProposerSpec,
)
from kept.spec.shared_sections import ModelsSpec, RoleSpec
from kept.spec.validate import (
    Count,
    Finite,
    OneOrMore,
    Seconds,
    SomeTexts,
    SpecModel,
    Text,
    Texts,
    Whole,
)

__all__ = [
    "HARD",
    "SKILL",
    "SOFT",
    "About",
    "Answer",
    "Brief",
    "BuildContext",
    "CheckContext",
    "Command",
    "Component",
    "ComponentSpec",
    "Count",
    "Defect",
    "Embedded",
    "Embedder",
    "Environment",
    "Episode",
    "EpisodeTurn",
    "Exit",
    "Fields",
    "Finite",
    "Graded",
    "HierarchicalDocument",
    "Image",
    "Indexes",
    "Item",
    "JudgeOptions",
    "JudgeQuestion",
    "LookAgain",
    "Message",
    "Model",
    "ModelConfig",
    "ModelNeed",
    "ModelReply",
    "ModelRequest",
    "ModelsSpec",
    "Needs",
    "OneOrMore",
    "OneReply",
    "Options",
    "Plan",
    "Posed",
    "ProposerReply",
    "ProposerSpec",
    "RoleSpec",
    "Row",
    "Schedule",
    "Scratch",
    "Seconds",
    "Severity",
    "SomeTexts",
    "SpecModel",
    "Text",
    "Texts",
    "Tool",
    "ToolAnswer",
    "ToolCall",
    "ToolComponent",
    "ToolOffer",
    "ToolSpec",
    "Toolbox",
    "Turn",
    "TurnOptions",
    "VectorStore",
    "View",
    "Whole",
    "Workspace",
    "answer_in",
    "as_items",
    "ask",
    "ask_within",
    "check_asked",
    "check_field",
    "check_fields",
    "check_price",
    "check_script",
    "connect",
    "connect_role",
    "draw_seed",
    "item",
    "quoted",
    "read_prompt",
    "rows_in",
    "values",
]
