"""A module, a metric and examples of dspy's, run on Kept: what is proven better, or the seed."""

import asyncio
import contextvars
import json
import uuid
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kept
from kept.adapters import dspy as kept_dspy
from kept.adapters.dspy.api import LanguageModel
from kept.adapters.dspy.program import trouble_of
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.score import Outcome
from tests.adapters.dspy_world import IDEAS, RULE, Engine, examples, lm, metric

pytestmark = [pytest.mark.dspy, pytest.mark.filterwarnings("default")]


def run(dspy: Any, engine: Engine, home: Path, **more: Any) -> Any:
    """The tutorial, with the models set round the call."""
    program = more.pop("program", None) or dspy.Predict("question -> answer")
    given: dict[str, Any] = {"max_metric_calls": 900, "bounds": (0, 1), "home": home, **more}
    with dspy.context(lm=lm(engine)):
        return kept_dspy.optimize(
            program, given.pop("metric", metric), examples(20), examples(30, "z"), **given
        )


def outcomes(best: Any) -> list[Outcome]:
    with kept.read_run(best.kept_run.folder) as found:
        return [outcome for _, _, outcome in found.rollouts()]


def test_the_tutorial_with_another_optimizer_promotes_what_is_truly_better(
    dspy: Any, tmp_path: Path
):
    engine = Engine()
    program = dspy.Predict("question -> answer")
    # dspy.GEPA(metric=metric, max_metric_calls=900, reflection_lm=…) before
    optimizer = kept_dspy.Optimizer(metric=metric, max_metric_calls=900, home=tmp_path)
    with dspy.context(lm=lm(engine)):
        best = optimizer.compile(program, trainset=examples(20), valset=examples(30, "z"))
        answer = best(question="How many letters has abc?")
    assert RULE in best.signature.instructions
    assert answer.answer.isdigit()
    assert best.kept_run.improved
    assert best.kept_run.best_value > best.kept_run.seed_value + 0.3
    # the program that was given is as it was
    assert (
        program.signature.instructions
        == "Given the fields `question`, produce the fields `answer`."
    )
    assert program.demos == []


@pytest.mark.slow
def test_where_nothing_helps_the_copy_is_like_the_seed(dspy: Any, tmp_path: Path):
    same = 0
    for world in range(4):
        engine = Engine(0.5, 0.5)
        engine.world = world
        best = run(dspy, engine, tmp_path, max_metric_calls=500)
        same += not best.kept_run.improved and best.demos == []
    assert same >= 3


def test_demos_of_what_went_well_are_proposed_and_promoted_where_they_help(
    dspy: Any, tmp_path: Path
):
    engine = Engine(low=0.4, high=0.4, shown=0.95)
    best = run(dspy, engine, tmp_path, max_demos=2)
    assert 1 <= len(best.demos) <= 2
    right = {example.question: example.answer for example in examples(20)}
    assert all(right[demo.question] == demo.answer for demo in best.demos)
    shown = json.loads(best.kept_run.best["self.demos"])
    assert [dict(demo.items()) for demo in best.demos] == shown


def test_without_demos_only_instructions_change(dspy: Any, tmp_path: Path):
    best = run(dspy, Engine(), tmp_path, max_demos=0, max_metric_calls=400)
    assert set(best.kept_run.seed.texts) == {"self.instructions"}
    assert {step.turn.proposer for step in best.kept_run.state.history} <= {
        *("reflect", "merge", "prove", "claim", "measure")
    }


def test_a_prompt_of_the_users_folder_stands_for_kepts_own(dspy: Any, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "component.md").write_text("Rhyme, in <new-text> tags.\n")
    engine = Engine()
    run(dspy, engine, tmp_path, max_metric_calls=300, prompts=tmp_path / "mine")
    assert engine.written
    assert all(text.startswith("Rhyme, in <new-text> tags.\n\n") for text in engine.written)


def test_tokens_are_counted_where_they_are_used(dspy: Any, tmp_path: Path):
    engine = Engine()
    # one step at a time: what a thread asks for after it was given up is on nobody's bill
    best = run(dspy, engine, tmp_path, max_metric_calls=300, width=1)
    spend, asked = best.kept_run.spend, engine.asked.total()
    assert spend.calls == asked + len(engine.written)
    assert spend.tokens_in == 10 * spend.calls
    assert spend.tokens_out == 5 * spend.calls


def test_each_predictor_of_a_program_is_improved_by_what_it_did(dspy: Any, tmp_path: Path):
    class Two(dspy.Module):
        def __init__(self) -> None:
            dspy.Module.__init__(self)
            self.first = dspy.Predict("question -> answer")
            self.second = dspy.Predict("question, draft -> answer")

        def forward(self, question: str) -> Any:
            draft = self.first(question=question).answer
            return self.second(question=question, draft=draft)

    def judged(
        gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None
    ) -> Any:
        words = f"mend {pred_name}" if pred_name else "mend it all"
        return dspy.Prediction(score=float(gold.answer == pred.answer), feedback=words)

    engine = Engine(0.0, 0.0)
    best = run(
        dspy, engine, tmp_path, program=Two(), metric=judged, max_demos=0, max_metric_calls=300
    )
    assert set(best.kept_run.seed.texts) == {"first.instructions", "second.instructions"}
    first = next(p for p in engine.written if "The text `first.instructions` as it is now" in p)
    assert "Feedback: mend first" in first
    assert '"draft"' not in first
    second = next(p for p in engine.written if "The text `second.instructions` as it is now" in p)
    assert "Feedback: mend second" in second
    assert '"draft"' in second


def test_an_answer_that_cannot_be_read_is_the_candidates_failure(dspy: Any, tmp_path: Path):
    class Mumbling(Engine):
        def answer(self, told: str) -> str:
            if any(idea in told for idea in IDEAS):
                return "hm"
            return super().answer(told)

    best = run(dspy, Mumbling(0.5, 0.5), tmp_path, max_demos=0, max_metric_calls=300)
    assert not best.kept_run.improved
    failures = [o.failure for o in outcomes(best) if o.failure is not None]
    assert failures
    assert {(f.kind, f.blame) for f in failures} == {("parse", "candidate")}
    assert all(f.usage.tokens_in > 0 for f in failures)
    assert all(not o.metrics for o in outcomes(best) if o.failure is not None)


def test_a_model_without_a_key_measures_nothing_and_ends_the_run(dspy: Any, tmp_path: Path):
    engine = Engine()
    engine.error = dspy.lm15.AuthError("no key")
    with pytest.raises(kept.RunError, match=r"nothing can be measured: .*no key"):
        run(dspy, engine, tmp_path)


def test_whose_fault_an_error_of_dspys_is(dspy: Any):
    errors = dspy.utils.exceptions
    told = {
        errors.LMRateLimitError("slow down"): ("rate_limit", "infrastructure"),
        errors.LMServerError("oops"): ("server", "infrastructure"),
        errors.LMTransportError("reset"): ("network", "infrastructure"),
        errors.LMTimeoutError("late"): ("network", "infrastructure"),
        errors.LMAuthError("who"): ("harness", "infrastructure"),
        errors.ContextWindowExceededError(): ("context", "candidate"),
        KeyError("x"): ("exception", "candidate"),
        SystemExit(1): ("exception", "candidate"),
    }
    assert {e: (trouble_of(e).kind, trouble_of(e).blame) for e in told} == told


def test_a_metric_that_fails_on_the_seed_is_no_score(dspy: Any, tmp_path: Path):
    def broken(example: Any, prediction: Any) -> float:
        raise KeyError("gold")

    with pytest.raises(kept.RunError, match="the metric failed: KeyError"):
        run(dspy, Engine(), tmp_path, metric=broken)


def test_a_cached_model_is_asked_anew_for_every_draw(dspy: Any, tmp_path: Path):
    engine = Engine(0.5, 0.5)
    # a name that no earlier run has left in the cache
    model = dspy.LM(f"stub/{uuid.uuid4()}", engine=engine, cache=True, temperature=1.0)
    program = dspy.Predict("question -> answer")
    with dspy.context(lm=model, disable_history=True):
        best = kept_dspy.optimize(
            program,
            metric,
            examples(20),
            examples(30, "z"),
            budget=kept.Budget(max_iterations=4),
            max_demos=0,
            home=tmp_path,
            bounds=(0, 1),
        )
    seed = best.kept_run.seed.id
    with kept.read_run(best.kept_run.folder) as found:
        draws = Counter(job.case_id for _, job, _ in found.rollouts() if job.candidate_id == seed)
    # as many answers as draws: none came out of the cache
    assert max(draws.values()) > 1
    assert max(engine.asked.values()) > 1
    assert engine.asked.total() == best.kept_run.spend.rollouts


def test_demos_that_are_no_json_are_the_candidates_failure(dspy: Any, tmp_path: Path):
    from kept.adapters.dspy.program import ModuleRunner, Program
    from kept.core.artifact import Candidate
    from kept.core.case import Case
    from kept.core.rollout import Job
    from kept.engine.replay import JournalScope
    from kept.testing.journal import MemoryJournal

    program = Program(dspy.Predict("question -> answer"), demos=True)
    candidate = Candidate({**program.texts, "self.demos": "[{"})
    with dspy.context(lm=lm(Engine())):
        runner = ModuleRunner(program, metric, {"a": examples(1)[0]}, workers=1, seed=0)
        job = Job(candidate.id, "a", 0, "decide")
        scope = JournalScope(MemoryJournal(), job.scope)
        told = asyncio.run(runner.run(job, candidate, Case("a"), scope))
        asyncio.run(runner.close())
    assert isinstance(told, kept.Failure)
    assert (told.kind, told.blame) == ("parse", "candidate")


def test_demos_that_a_program_has_stay_as_they_are_until_others_are_better(
    dspy: Any, tmp_path: Path
):
    program = dspy.Predict("question -> answer")
    mine = dspy.Example(question="How many letters has ab?", answer="2", augmented=True)
    program.demos = [mine]
    best = run(dspy, Engine(0.5, 0.5), tmp_path, program=program, max_metric_calls=500)
    assert not best.kept_run.improved
    assert best.demos == [mine]


def test_a_run_dir_goes_on_with_its_last_run_and_asks_nothing_twice(dspy: Any, tmp_path: Path):
    def once(calls: int) -> tuple[Any, Engine]:
        engine = Engine(0.0, 1.0)
        program = dspy.Predict("question -> answer")
        with dspy.context(lm=lm(engine)):
            best = kept_dspy.optimize(
                program,
                metric,
                examples(20),
                examples(30, "z"),
                max_metric_calls=calls,
                bounds=(0, 1),
                run_dir=tmp_path,
            )
        return best, engine

    first, _ = once(300)
    again, engine = once(300)
    assert again.kept_run.folder == first.kept_run.folder
    assert engine.asked.total() == len(engine.written) == 0
    assert again.signature.instructions == first.signature.instructions
    more, engine = once(500)
    assert more.kept_run.folder == first.kept_run.folder
    before = first.kept_run.spend.rollouts
    assert engine.asked.total() == more.kept_run.spend.rollouts - before


def test_a_run_dir_does_not_go_on_where_another_model_or_module_answers(dspy: Any, tmp_path: Path):
    class First(dspy.Module):
        def __init__(self) -> None:
            dspy.Module.__init__(self)
            self.answer = dspy.Predict("question -> answer")

        def forward(self, question: str) -> Any:
            return self.answer(question=question)

    class Second(First):
        def forward(self, question: str) -> Any:
            return self.answer(question=question + "?")

    def once(program: Any, model: Any, **more: Any) -> Any:
        terms: dict[str, Any] = {
            "max_metric_calls": 300,
            "bounds": (0, 1),
            "run_dir": tmp_path,
            **more,
        }
        with dspy.context(lm=model):
            return kept_dspy.optimize(program, metric, examples(20), examples(30, "z"), **terms)

    engine = Engine()
    first = once(First(), lm(engine))
    assert once(First(), lm(engine)).kept_run.folder == first.kept_run.folder
    other = dspy.LM("stub/other", engine=engine, cache=False)
    aside = First()
    aside.answer.lm = other
    for program, model in (
        (First(), other),
        (First(), lm(engine, temperature=0.7)),
        (Second(), lm(engine)),
        (aside, lm(engine)),
    ):
        with pytest.raises(kept.JournalError, match="changed since it started"):
            once(program, model)


def plain(prompt: str) -> str:
    return "text"


def test_what_a_model_that_writes_costs_is_what_dspy_says(dspy: Any):
    class Priced(dspy.BaseLM):
        def forward(self, prompt: Any = None, messages: Any = None, **_: Any) -> Any:
            message = SimpleNamespace(content="x", tool_calls=None)
            return SimpleNamespace(
                choices=[SimpleNamespace(message=message, finish_reason="stop")],
                usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
                model="stub/x",
                _hidden_params={"response_cost": self.kwargs["price"]},
            )

    def cost(lm: Any, usd: float | None) -> float:
        asked = LanguageModel(lm, contextvars.copy_context(), usd)
        reply = asyncio.run(asked.complete(ModelRequest((Message("user", "hi"),))))
        assert isinstance(reply, ModelReply), reply
        return reply.usage.usd

    assert cost(Priced("stub/x", price=0.5), None) == 0.5
    assert cost(Priced("stub/x", price=0.5), 2.0) == 0.5
    assert cost(Priced("stub/x", price=None), 2.0) == 2.0
    assert cost(plain, 2.0) == 2.0


def test_a_limit_of_money_needs_the_price_of_a_function_that_writes(dspy: Any, tmp_path: Path):
    limit = {"budget": kept.Budget(max_usd=1.0), "usd_per_rollout": 0.001, "max_metric_calls": None}
    with pytest.raises(kept.SetupError, match="so `max_usd` could not be kept"):
        run(dspy, Engine(), tmp_path, reflection_lm=plain, **limit)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"auto": "light"}, "`auto` is no argument"),
        ({"program": "question -> answer"}, "`module` is 'question -> answer'"),
        ({"metric": 3}, "`metric` is 3, not a function"),
        ({"max_demos": "4"}, "`max_demos` is '4'"),
        ({"workers": 0}, "`workers` is 0"),
        ({"max_metric_calls": None}, "nothing says how long"),
        ({"reflection_lm": "nobody/knows"}, "no provider"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(
    dspy: Any, tmp_path: Path, more: dict[str, Any], words: str
):
    with pytest.raises(kept.SetupError, match=words):
        run(dspy, Engine(), tmp_path, **more)


def test_an_example_without_inputs_and_a_module_without_predictors_are_refused(
    dspy: Any, tmp_path: Path
):
    bare = [dspy.Example(question="a", answer="b")] * 20
    with dspy.context(lm=lm(Engine())):
        with pytest.raises(kept.SetupError, match="does not say its inputs"):
            kept_dspy.optimize(
                dspy.Predict("question -> answer"), metric, bare, max_metric_calls=100
            )
        with pytest.raises(kept.SetupError, match="no predictors"):
            kept_dspy.optimize(dspy.Module(), metric, examples(20), max_metric_calls=100)
        with pytest.raises(kept.SetupError, match="`teacher` means nothing"):
            teacher: Any = dspy.Module()
            kept_dspy.Optimizer(metric).compile(dspy.Module(), trainset=[], teacher=teacher)
    with pytest.raises(kept.SetupError, match="no model to write"):
        kept_dspy.optimize(
            dspy.Predict("question -> answer"), metric, examples(20), max_metric_calls=100
        )
