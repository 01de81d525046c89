"""What a command line says of a run that tunes an agent, instead of the file."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from kept.errors import SetupError
from kept.recipes.agent_config.spec.optimizer import OptimizerSpec, PhaseSpec

LIMITS = ("max_cycles", "max_minutes", "max_usd", "allow_unpriced")
"""What a run may be given more or less of when it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """None leaves a thing to the file."""

    max_cycles: int | None = None
    max_minutes: float | None = None
    max_usd: float | None = None
    numeric_max_trials: int | None = None
    numeric_patience: int | None = None
    textual_max_trials: int | None = None
    textual_patience: int | None = None
    repeats: int | None = None
    accept_sigma: float | None = None
    seed: int | None = None
    output: str | None = None
    """Where its files go; a folder."""
    allow_unpriced: bool | None = None
    """Go on where `max_usd` cannot be enforced for want of a price, with a warning."""

    @classmethod
    def of(cls, fact: object, moved: Callable[[Path], Path]) -> "Tuning":
        """As a run was asked, from the fact that it began with; paths may have `moved` since."""
        asked = cls(**cast("Mapping[str, Any]", fact))
        place = asked.output
        return asked if place is None else replace(asked, output=str(moved(Path(place))))

    def renewed(self, asked: "Tuning") -> "Tuning":
        """As a run was asked, with limits that its resume sets anew; all else is refused."""
        given = {name: value for name, value in asdict(asked).items() if value is not None}
        fixed = [name for name in given if name not in LIMITS]
        if fixed:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
            raise SetupError(
                f"{flags} cannot change in a run that goes on", hint="start another run with it"
            )
        return replace(self, **given)

    def over(self, spec: OptimizerSpec) -> OptimizerSpec:
        """The block with what was said besides laid over it."""
        names = ("max_cycles", "max_minutes", "max_usd", "repeats", "accept_sigma", "seed")
        said = {n: v for n in names if (v := getattr(self, n)) is not None}
        for name in ("accept_sigma", "repeats"):
            if name in said:
                _check_sigma(f"--{name.replace('_', '-')}", spec)
                said |= {"gate": "sigma", "gate_by": f"--{name.replace('_', '-')}"}
        return replace(
            spec,
            **said,
            numeric_phase=self._phase(spec.numeric_phase, "numeric"),
            textual_phase=self._phase(spec.textual_phase, "textual"),
        )

    def _phase(self, phase: PhaseSpec, name: str) -> PhaseSpec:
        given = {
            key: value
            for key in ("max_trials", "patience")
            if (value := getattr(self, f"{name}_{key}")) is not None
        }
        return phase.model_copy(update=given) if given else phase


def _check_sigma(flag: str, spec: OptimizerSpec) -> None:
    """Refuse a flag of `sigma` where the file names the race."""
    if spec.gate == "race" and spec.gate_by:
        raise SetupError(
            f"{flag} is of `gate: sigma`, and the agent.yaml names `{spec.gate_by}`",
            hint=f"leave {flag} out, or take `{spec.gate_by}` out of the file",
        )


def told(spec: OptimizerSpec) -> dict[str, Any]:
    """The block as it is written down: nested as its source has it, defaults and all."""
    phases = ("numeric_phase", "textual_phase", "demos_phase")
    return {
        "loss_weights": dict(spec.loss),
        "penalties": spec.penalties.model_dump(),
        "axes": spec.axes.model_dump(exclude_none=True),
        "gate": spec.gate,
        "repeats": spec.repeats,
        "accept_sigma": spec.accept_sigma,
        "min_delta": spec.min_delta,
        "max_errored_fraction": spec.max_errored_fraction,
        "min_confidence": spec.min_confidence,
        "numeric_convergence_eps": spec.numeric_convergence_eps,
        "budget": {
            "global": {
                "max_cycles": spec.max_cycles,
                "max_minutes": spec.max_minutes,
                "max_usd": spec.max_usd,
                "max_rollouts": spec.max_rollouts,
            },
            **{name: getattr(spec, name).model_dump() for name in phases},
        },
        "holdout_eval_policy": spec.holdout_eval_policy,
        "min_holdout_cases": spec.min_holdout_cases,
    }
