"""Recipe that trains a skill."""

from collections.abc import Mapping
from pathlib import Path

from kept.core.event import SpecSettings
from kept.core.plan import SKILL
from kept.recipes.base import Compiled, Context, Recipe, spec_name
from kept.recipes.evaluate.request import Evaluation
from kept.recipes.skill.request import Training, TrainingFacts

_KEYS = ("_base_", "gradient", "train", "optimizer", "evaluation")
"""Keys that mark a skill config, if there is no key of a task."""


class SkillRecipe(Recipe[Training]):
    """Trains a skill on cases of an environment."""

    name = SKILL
    request = Training
    facts = TrainingFacts

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if the keys are those of a skill config, and none is that of a task."""
        if any(key in keys for key in ("artifacts", "runner", "scorer")):
            return False
        env = keys.get("env")
        named = isinstance(env, dict) and "name" in env
        return named or any(key in keys for key in _KEYS)

    def compile(self, request: Training, context: Context) -> Compiled:
        """Compile the plan of a skill config."""
        # imported at use: it takes longer than most commands
        from kept.recipes.skill.compile import compile_skill

        return compile_skill(
            context.spec,
            context.overrides,
            context.gate,
            folder=Path(request.folder) if request.folder else None,
            problems=context.problems,
        )

    def measure(self, asked: Evaluation, context: Context) -> Compiled:
        """Compile the plan that measures a skill on cases that it was not trained on."""
        from kept.recipes.skill.measure import compile_measure

        return compile_measure(
            context.spec,
            asked.wanted,
            context.overrides,
            workers=context.workers,
            folder=Path(asked.folder) if asked.folder else None,
            problems=context.problems,
        )

    def command(self, spec: SpecSettings, request: Training) -> list[str]:
        """Return the command `train` with the overrides."""
        given = ["--cfg-options", *spec.overrides] if spec.overrides else []
        return ["train", "--config", spec_name(spec), *given]


RECIPE = SkillRecipe()
