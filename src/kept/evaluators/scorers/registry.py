"""Registry of the scorers that a spec may name."""

from kept.core.ports import Scorer
from kept.spec.components import Registry

_HERE = "kept.evaluators.scorers"

SCORERS: Registry[Scorer] = Registry(
    "kept.scorers",
    {
        "command": f"{_HERE}.command:CommandScorerComponent",
        "python": f"{_HERE}.function:PythonScorerComponent",
        "rules": f"{_HERE}.rules:RulesComponent",
        "judge": f"{_HERE}.judge.component:JudgeComponent",
        "assertions": f"{_HERE}.assertions.component:AssertionsComponent",
        "composite": f"{_HERE}.composite:CompositeComponent",
    },
    # a scorer without a type is a command, as in the first tasks
    default=lambda given: "command",
)
