"""`optimize_anything` of gepa's on Kept: a text, or several, and one function that scores it."""

import random
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.adapters import gepa

oa: Any = import_module("gepa.optimize_anything")
WORDS = ["brief", "kind", "cite", "steps", "limits"]


def write(prompt: str) -> str:
    """A text with one word more than the one it is shown."""
    shown = prompt.split("as it is now")[1].split("\n\n")[1].split("\n")[1]
    more = [word for word in WORDS if word not in shown]
    return f"<new-text>\n{shown} {more[0] if more else 'now'}\n</new-text>"


def test_a_text_and_a_function_are_enough(tmp_path: Path):
    def evaluate(candidate: str) -> tuple[float, dict[str, Any]]:
        assert isinstance(candidate, str)
        missing = [word for word in WORDS if word not in candidate]
        return len(WORDS) - len(missing), {"Feedback": f"missing: {missing}"}

    result = gepa.optimize_anything(
        "write",
        evaluator=evaluate,
        objective="Use every word.",
        reflection_lm=write,
        max_metric_calls=60,
        home=tmp_path,
    )
    assert set(result.best_candidate.split()) == {"write", *WORDS}
    assert result.run.best_value == len(WORDS)


def test_noise_on_a_dataset_is_not_kept(tmp_path: Path):
    times: Counter[object] = Counter()

    def evaluate(candidate: dict[str, str], example: int) -> float:
        times[candidate["text"], example] += 1
        nth = times[candidate["text"], example]
        return random.Random(f"{candidate['text']} {example} {nth}").random()

    result = gepa.optimize_anything(
        {"text": "write"},
        evaluator=evaluate,
        dataset=list(range(60)),
        reflection_lm=write,
        max_metric_calls=600,
        workers=1,
        bounds=(0, 1),
        home=tmp_path,
    )
    assert result.best_candidate == {"text": "write"}
    assert not result.improved


def test_what_is_logged_and_what_is_said_of_one_component_reach_its_author(tmp_path: Path):
    asked: list[str] = []

    def lm(prompt: str) -> str:
        asked.append(prompt)
        return "<new-text>\nanother\n</new-text>"

    def evaluate(candidate: dict[str, str], example: int) -> tuple[float, dict[str, Any]]:
        oa.log("looked at", example)
        return 0.5, {
            "scores": {"tone": 0.25},
            "plan_specific_info": {"Analysis": "of the plan"},
            "act_specific_info": {"Analysis": "of the act"},
        }

    result = gepa.optimize_anything(
        {"plan": "think", "act": "do"},
        evaluator=evaluate,
        dataset=list(range(30)),
        background="It is for children.",
        config=oa.GEPAConfig(
            engine=oa.EngineConfig(max_metric_calls=200, max_workers=2, max_candidate_proposals=2),
            reflection=oa.ReflectionConfig(reflection_lm=lm, reflection_minibatch_size=2),
        ),
        width=1,
        home=tmp_path,
    )
    assert len(result.run.state.history) == 2
    assert "looked at" in asked[0]
    assert "It is for children." in asked[0]
    assert "of the plan" in asked[0]
    assert "of the act" not in asked[0]
    assert "of the act" in asked[1]
    seed = result.run.state.evaluations[result.run.seed.id][0]
    assert seed.metric("tone") == 0.25


def test_an_evaluator_that_raises_blames_the_candidate(tmp_path: Path):
    def evaluate(candidate: str) -> float:
        if "kind" in candidate:
            raise ZeroDivisionError("too kind")
        return len(candidate)

    def kind(prompt: str) -> str:
        return "<new-text>\nbe kind\n</new-text>"

    result = gepa.optimize_anything(
        "be",
        evaluator=evaluate,
        reflection_lm=kind,
        budget=kept.Budget(max_iterations=2),
        home=tmp_path,
    )
    assert result.best_candidate == "be"
    assert "too kind" in result.run.state.history[0].verdict.private


def warm_started(candidate: str, opt_state: object) -> float:
    return 0.0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"config": {"engine": {"capture_stdio": True}}}, "config.engine.capture_stdio"),
        ({"config": {"refiner": {}}}, "config.refiner"),
        ({"config": oa.GEPAConfig(refiner=oa.RefinerConfig())}, "config.refiner"),
        ({"config": oa.GEPAConfig(tracking=oa.TrackingConfig(use_wandb=True))}, "use_wandb"),
        ({"batch_evaluator": len}, "`batch_evaluator` means nothing here"),
        ({"task_lm": "openai/gpt-5"}, "`task_lm` is no argument"),
        ({"evaluator": warm_started}, "opt_state"),
        ({"config": "fast"}, "`config` has 'fast'"),
    ],
)
def test_what_means_nothing_here_is_refused_by_name(
    tmp_path: Path, more: dict[str, Any], words: str
):
    given: dict[str, Any] = {"evaluator": len, "reflection_lm": write, "max_metric_calls": 20}
    with pytest.raises(kept.SetupError, match=words):
        gepa.optimize_anything("a", home=tmp_path, **{**given, **more})


def silent(candidate: str) -> None:
    """Measures nothing."""


def test_an_evaluator_that_never_says_a_number_ends_the_run_with_what_it_said(tmp_path: Path):
    with pytest.raises(kept.RunError, match="scores that are no numbers"):
        gepa.optimize_anything(
            "x",
            evaluator=silent,
            reflection_lm=write,
            home=tmp_path,
            max_metric_calls=60,
        )


def test_a_call_without_a_seed_is_refused(tmp_path: Path):
    nothing: Any = None
    with pytest.raises(kept.SetupError, match="no text to improve"):
        gepa.optimize_anything(nothing, evaluator=len, reflection_lm=write, home=tmp_path)


def test_every_part_of_gepas_config_is_either_meant_or_refused_by_name():
    from kept.adapters.gepa.arguments import terms_of

    # as it always is, it says which model to ask and how many workers there are
    assert set(terms_of(oa.GEPAConfig(), {})) == {"reflection_lm", "workers"}
    assert terms_of(oa.GEPAConfig(engine=oa.EngineConfig(parallel=False)), {}).get("workers") == 1


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        ({"evaluator": 5}, "`evaluator` is 5, not a function"),
        ({"seed_candidate": 5}, "`seed_candidate` is 5"),
        ({"dataset": "rows"}, "`dataset` is 'rows'"),
    ],
)
def test_a_likely_slip_is_told_by_the_name_of_the_argument(slip: dict[str, Any], words: str):
    given: dict[str, Any] = {"seed_candidate": "a", "evaluator": len, "max_metric_calls": 9, **slip}
    with pytest.raises(kept.SetupError) as told:
        gepa.optimize_anything(**given)
    assert told.value.message.startswith(words)
