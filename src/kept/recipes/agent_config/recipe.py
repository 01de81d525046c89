"""Recipe that tunes an agent.yaml."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from kept.core.event import SpecSettings
from kept.core.plan import AGENT_CONFIG
from kept.recipes.agent_config.request import Tuning, TuningFacts
from kept.recipes.base import Compiled, Context, Recipe, flags, set_flags, spec_name
from kept.recipes.evaluate.request import Evaluation
from kept.store.reader import Run


class AgentConfigRecipe(Recipe[Tuning]):
    """Tunes values and texts of an agent."""

    name = AGENT_CONFIG
    request = Tuning
    facts = TuningFacts

    def detect(self, keys: Mapping[str, object]) -> bool:
        """True if the keys are those of an agent, not of a task or a promptfoo config."""
        if any(key in keys for key in ("artifacts", "runner", "scorer")):
            return False
        if "prompts" in keys and "instructions" not in keys:
            return False
        tells = ("instructions", "test_cases", "test_cases_file")
        return isinstance(keys.get("model"), dict) or any(key in keys for key in tells)

    def compile(self, request: Tuning, context: Context) -> Compiled:
        """Build the plan that tunes an agent.yaml."""
        from kept.recipes.agent_config.tune import compile_coordinate

        return compile_coordinate(
            context.spec,
            context.overrides,
            context.gate,
            tuning=request,
            workers=context.workers,
        )

    def measure(self, asked: Evaluation, context: Context) -> Compiled:
        """Build the plan that measures an agent on its cases."""
        from kept.recipes.agent_config.compile import compile_agent

        return compile_agent(
            context.spec,
            asked.wanted,
            context.overrides,
            workers=context.workers,
            force=context.force,
            strict=context.strict,
        )

    def command(self, spec: SpecSettings, request: Tuning) -> list[str]:
        """`test optimize` with the given options."""
        # this command allows unpriced models without a flag
        given = {k: v for k, v in asdict(request).items() if k != "allow_unpriced"}
        given["output_dir"] = given.pop("output")
        return ["test", "optimize", spec_name(spec), *flags(given), *set_flags(spec)]

    def resumed(self, request: Tuning, past: Run, settings: Sequence[str]) -> Tuning:
        """Same request, with its folder at its current place."""
        return request.moved(past.moved)


RECIPE = AgentConfigRecipe()
