"""What a user of `gepa.optimize` has, run on Kept: promoted where it is better, else the seed."""

import inspect
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import kept
from kept.adapters import gepa
from kept.adapters.gepa.arguments import REFUSED, TaskTerms
from kept.core.score import Outcome
from tests.adapters.gepa_world import (
    IDEAS,
    RULE,
    SEED,
    AtOnce,
    Reflection,
    Task,
    questions,
    tutorial,
)

real_gepa: Any = import_module("gepa")


def test_the_tutorial_with_another_import_promotes_what_is_truly_better(tmp_path: Path):
    task, reflection = Task(), Reflection()
    result = tutorial(gepa, task, reflection, home=tmp_path)
    assert RULE in result.best_candidate["system_prompt"]
    assert result.improved
    assert result.run.folder.parent == tmp_path / "runs"
    assert result.run.seed_value == pytest.approx(0.3, abs=0.15)
    assert result.run.best_value == pytest.approx(0.9, abs=0.1)
    assert task.calls <= 1200
    assert task.calls == result.run.spend.rollouts
    # by the names that gepa has for them
    assert result.candidates[0] == {"system_prompt": SEED}
    assert result.candidates[result.best_idx] == result.best_candidate
    assert result.val_aggregate_scores == [result.run.seed_value, result.run.best_value]
    assert result.total_metric_calls == task.calls
    assert result.run_dir == str(result.run.folder)


@pytest.mark.slow
def test_where_no_prompt_is_better_the_seed_comes_back(tmp_path: Path):
    seeds = 0
    for world in range(12):
        result = tutorial(gepa, Task(0.5, 0.5, world), Reflection(), home=tmp_path)
        seeds += result.best_candidate == {"system_prompt": SEED} and not result.improved
        assert result.candidates[result.best_idx] == result.best_candidate
        assert len(result.candidates) == len(result.val_aggregate_scores) == 1 + result.improved
    # a run may promote by mistake once in twenty
    assert seeds >= 11


@pytest.mark.slow
def test_the_same_call_runs_on_gepa_itself_which_keeps_noise(
    capsys: pytest.CaptureFixture[str],
):
    moved = 0
    for world in range(4):
        result = tutorial(real_gepa, Task(0.5, 0.5, world), Reflection(), max_metric_calls=600)
        moved += result.best_candidate != {"system_prompt": SEED}
    assert moved >= 2
    assert "Iteration" in capsys.readouterr().out


def test_the_model_is_shown_the_text_the_records_and_what_was_refused(tmp_path: Path):
    reflection = Reflection()
    tutorial(gepa, Task(0.0, 0.0), reflection, home=tmp_path, max_metric_calls=400, width=1)
    first, later = reflection.prompts[0], reflection.prompts[3]
    assert SEED in first
    assert "Generated Outputs: I do not know." in first
    assert "The generated response is incorrect" in first
    assert "tried this" not in first
    assert "tried this" in later
    assert any(idea in later for idea in IDEAS)


def test_what_records_say_is_found_again_in_the_run(tmp_path: Path):
    result = tutorial(gepa, Task(0.0, 0.0), Reflection(), home=tmp_path, max_metric_calls=400)
    lines = (result.run.folder / "rollouts.jsonl").read_text()
    assert "The generated response is incorrect" in lines


class Adapter:
    """Two components: it is right where both say their word, and asks no model."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.texts: list[dict[str, str]] = []

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        self.batches.append(len(batch))
        scores = [self.score(item, candidate) for item in batch]
        return SimpleNamespace(
            outputs=scores,
            scores=scores,
            trajectories=[{"item": item} for item in batch] if capture_traces else None,
            objective_scores=[{"brevity": 1 / len(candidate["plan"])} for _ in batch],
        )

    def score(self, item: Any, candidate: dict[str, str]) -> float:
        return 0.5 * ("first" in candidate["plan"]) + 0.5 * ("tools" in candidate["act"])

    def make_reflective_dataset(
        self, candidate: dict[str, str], eval_batch: Any, components_to_update: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        assert len(components_to_update) == 1
        assert len(eval_batch.trajectories) == len(eval_batch.scores) == 1
        (name,) = components_to_update
        return {name: [{"Inputs": eval_batch.trajectories[0]["item"], "Feedback": f"mend {name}"}]}


def run(adapter: Any, home: Path, **more: Any) -> gepa.Result:
    given: dict[str, Any] = {"max_metric_calls": 600, "bounds": (0, 1), **more}
    return gepa.optimize(
        seed_candidate={"plan": "think", "act": "do"},
        trainset=list(range(6)),
        valset=list(range(100, 112)),
        adapter=adapter,
        home=home,
        **given,
    )


def better(candidate: dict[str, str], records: Any, components: list[str]) -> dict[str, str]:
    words = {"plan": "first", "act": "tools"}
    return {name: f"{candidate[name]} {words[name]}" for name in components}


def test_an_adapters_own_proposer_proposes_component_by_component(tmp_path: Path):
    adapter: Any = Adapter()
    seen: list[tuple[list[str], Any]] = []

    def propose(candidate: dict[str, str], records: Any, components: list[str]) -> dict[str, str]:
        seen.append((components, records))
        return better(candidate, records, components)

    adapter.propose_new_texts = propose
    result = run(adapter, tmp_path)
    assert "first" in result.best_candidate["plan"]
    assert "tools" in result.best_candidate["act"]
    assert {tuple(names) for names, _ in seen} == {("plan",), ("act",)}
    assert {row["Feedback"] for _, records in seen for row in records["act"]} == {"mend act"}
    assert max(adapter.batches) > 1


def test_all_components_at_once_by_a_function_of_the_users_own(tmp_path: Path):
    adapter = Adapter()
    result = run(adapter, tmp_path, custom_candidate_proposer=better, module_selector="all")
    assert result.best_candidate == {"plan": "think first", "act": "do tools"}


def test_a_template_of_the_users_own_stands_for_the_whole_prompt(tmp_path: Path):
    asked: list[str] = []

    def lm(prompt: str) -> str:
        asked.append(prompt)
        return "think first"

    template = "OLD <curr_param> SEEN <side_info> END"
    result = run(
        Adapter(),
        tmp_path,
        reflection_lm=lm,
        reflection_prompt_template={"plan": template, "act": template},
        max_metric_calls=200,
    )
    assert asked[0].startswith("OLD think SEEN Inputs: ")
    assert asked[0].endswith("Feedback: mend plan END")
    assert result.run.state.history


def test_a_prompt_of_the_users_folder_stands_for_kepts_own(tmp_path: Path):
    asked: list[str] = []

    def lm(prompt: str) -> str:
        asked.append(prompt)
        return "think first"

    folder = own_prompts(tmp_path, "Write it so that it rhymes.\n")
    run(Adapter(), tmp_path, reflection_lm=lm, prompts=folder, max_metric_calls=200)
    assert asked[0].startswith("Write it so that it rhymes.\n\n")
    assert "mend plan" in asked[0], "what is to be looked at stands behind it"
    assert not [text for text in asked if "What you are shown stands between tags" in text]


def own_prompts(folder: Path, text: str | None) -> Path:
    (folder / "mine").mkdir()
    if text is not None:
        (folder / "mine" / "component.md").write_text(text)
    return folder / "mine"


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        (None, {}, "cannot read .*component.md: No such file.*\n\nhint: `kept prompts copy"),
        (" \n", {}, "component.md is empty"),
        ("a\n{{kept.metric}}\n", {}, "component.md:2 `{{kept.metric}}` is no placeholder"),
        ("Write.", {"reflection_lm": None}, "`prompts` is for a `reflection_lm`"),
        (
            "Write.",
            {"reflection_prompt_template": "<curr_param> <side_info>"},
            "`prompts` and `reflection_prompt_template` are given",
        ),
    ],
)
def test_a_folder_of_prompts_that_means_nothing_is_refused(
    tmp_path: Path, text: str | None, more: dict[str, Any], words: str
):
    given = {"reflection_lm": Reflection(), **more, "prompts": own_prompts(tmp_path, text)}
    with pytest.raises(kept.SetupError, match=words):
        run(Adapter(), tmp_path, **given)


def test_an_adapter_is_the_evaluator_of_kept_optimize_itself(tmp_path: Path):
    def propose(brief: kept.Brief) -> dict[str, str]:
        return {"plan": "first", "act": "tools"}

    result = kept.optimize(
        {"plan": "think", "act": "do"},
        gepa.evaluator(Adapter()),
        list(range(20)),
        proposers=[propose],
        home=tmp_path,
        bounds=(0, 1),
    )
    assert result.best_value == 1.0
    assert result.state.evaluations[result.best.id][0].metric("brevity") == pytest.approx(0.2)


def test_an_adapter_is_the_evaluator_of_a_comparison_too(tmp_path: Path):
    texts = {"plan": "think", "act": "do"}
    both = {"plan": "first", "act": "tools"}
    evaluator = gepa.evaluator(Adapter())
    told = kept.compare(texts, both, evaluator, list(range(20)), bounds=(0, 1), home=tmp_path)
    assert "better" in str(told)


def test_a_runner_keeps_its_own_time(tmp_path: Path):
    with pytest.raises(kept.SetupError, match="keeps its own time"):
        kept.optimize(
            "a", gepa.evaluator(Adapter()), [1, 2], proposers=["b"], timeout=1, home=tmp_path
        )


class Raising(Adapter):
    """Raises on every other case where a word is in the plan; a seed has half of the score."""

    def __init__(self, error: Exception, wrong: str = "") -> None:
        super().__init__()
        self.error = error
        self.wrong = wrong

    def score(self, item: Any, candidate: dict[str, str]) -> float:
        if item % 2 == 0 and self.wrong in candidate["plan"]:
            raise self.error
        return 0.5 + 0.5 * super().score(item, candidate)


def outcomes(result: gepa.Result) -> list[Outcome]:
    with kept.read_run(result.run.folder) as found:
        return [outcome for _, _, outcome in found.rollouts()]


def test_an_exception_of_an_adapter_is_the_failure_of_its_case_and_never_a_zero(tmp_path: Path):
    adapter = Raising(ValueError("no such tool"), wrong="first")
    result = run(adapter, tmp_path, custom_candidate_proposer=better)
    failures = [o.failure for o in outcomes(result) if o.failure is not None]
    assert failures
    assert {f.blame for f in failures} == {"candidate"}
    assert all("ValueError: no such tool" in f.message for f in failures)
    assert all(o.metrics == {} for o in outcomes(result) if o.failure is not None)
    # what does not fail is promoted alone
    assert result.best_candidate == {"plan": "think", "act": "do tools"}


def test_without_bounds_a_seed_that_fails_on_some_cases_ends_the_run_with_the_reason(
    tmp_path: Path,
):
    with pytest.raises(kept.RunError, match="no such tool") as caught:
        run(Raising(ValueError("no such tool")), tmp_path, bounds=None, reflection_lm=Reflection())
    assert "pass bounds=" in str(caught.value)


@pytest.mark.slow
def test_an_outage_is_tried_again_and_blames_nobody(tmp_path: Path):
    adapter = Adapter()
    score = adapter.score
    fails = iter(range(2))

    def once(item: Any, candidate: dict[str, str]) -> float:
        if next(fails, None) is not None:
            raise ConnectionError("reset")
        return score(item, candidate)

    adapter.score = once
    result = run(adapter, tmp_path, custom_candidate_proposer=better)
    assert result.improved
    assert result.run.spend.retries == 2
    assert all(o.failure is None for o in outcomes(result))


class Miscounting(Adapter):
    """Forgets a score, in batches or always."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least = least

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> SimpleNamespace:
        told = super().evaluate(batch, candidate, capture_traces)
        if len(batch) >= self.least:
            told.scores = told.scores[1:]
        return told


def test_an_adapter_is_called_once_at_a_time_in_batches_of_one_candidate(tmp_path: Path):
    adapter = Adapter()
    watched = AtOnce(adapter, pause=0.005)
    run(watched, tmp_path, custom_candidate_proposer=better, workers=8, width=6)
    assert watched.most == 1
    assert max(adapter.batches) <= 8


def test_an_adapter_with_too_few_scores_measures_nothing(tmp_path: Path):
    with pytest.raises(kept.RunError, match="evaluate returned 0 scores for 1 cases"):
        run(Miscounting(1), tmp_path, custom_candidate_proposer=better)


def test_a_batch_with_too_few_scores_is_done_again_case_by_case(tmp_path: Path):
    adapter = Miscounting(2)
    result = run(adapter, tmp_path, custom_candidate_proposer=better)
    assert result.best_candidate == {"plan": "think first", "act": "do tools"}
    assert all(o.failure is None for o in outcomes(result))


@pytest.mark.parametrize("score", ["0.5", None, [1]])
def test_a_score_that_is_no_number_is_no_score(tmp_path: Path, score: object):
    def strange(item: Any, candidate: dict[str, str]) -> Any:
        return score

    adapter = Adapter()
    adapter.score = strange
    with pytest.raises(kept.RunError, match="scores that are no numbers"):
        run(adapter, tmp_path, custom_candidate_proposer=better)


def test_records_that_cannot_be_made_are_noted_and_the_score_stays(tmp_path: Path):
    adapter: Any = Adapter()

    def broken(*_: object) -> None:
        raise KeyError("trace")

    adapter.make_reflective_dataset = broken
    with_lm = run(adapter, tmp_path, reflection_lm=Reflection(), max_metric_calls=200)
    assert not with_lm.improved
    reasons = {step.verdict.reason for step in with_lm.run.state.history}
    assert any("nothing was recorded of plan" in reason for reason in reasons)


def test_a_model_that_cannot_be_asked_ends_the_run_and_blames_no_candidate(tmp_path: Path):
    def lm(prompt: str) -> str:
        raise PermissionError("bad key")

    with pytest.raises(kept.RunError, match="bad key"):
        run(Adapter(), tmp_path, reflection_lm=lm)


def test_a_named_model_is_asked_by_kept_and_held_to_its_settings(tmp_path: Path):
    script = tmp_path / "model.jsonl"
    script.write_text('{"text": "<new-text>\\nthink first\\n</new-text>"}\n' * 40)
    result = run(
        Adapter(),
        tmp_path,
        reflection_lm=f"scripted/{script}",
        reflection_lm_kwargs={"temperature": 0.7},
        budget=kept.Budget(max_iterations=6),
    )
    assert result.best_candidate["plan"] == "think first"
    with pytest.raises(kept.SetupError, match="`api_base`"):
        run(
            Adapter(),
            tmp_path,
            reflection_lm=f"scripted/{script}",
            reflection_lm_kwargs={"api_base": "http://localhost"},
        )


def test_a_train_set_alone_is_shared_out_so_that_what_was_seen_decides_nothing(tmp_path: Path):
    items = list(range(40))
    for valset in (None, items):
        result = gepa.optimize(
            {"plan": "think", "act": "do"},
            items,
            valset,
            Adapter(),
            custom_candidate_proposer=better,
            max_metric_calls=400,
            home=tmp_path,
        )
        started = result.run.state.started
        assert started is not None
        assert started.settings.cases == {"train": 12, "holdout": 20, "test": 8}


def test_what_the_arguments_do_not_mean_here_is_refused_by_name(tmp_path: Path):
    wrong: dict[str, Any] = {
        "use_wandb": True,
        "stop_callbacks": [print],
        "frontier_type": "hybrid",
        "cache_evaluation": True,
        "acceptance_criterion": "strict_improvement",
        "max_reflection_cost": 2.0,
    }
    for name, value in wrong.items():
        with pytest.raises(kept.SetupError, match=f"`{name}` means nothing here"):
            run(Adapter(), tmp_path, reflection_lm=Reflection(), **{name: value})
    with pytest.raises(kept.SetupError, match="`max_metric_cals` is no argument"):
        run(Adapter(), tmp_path, reflection_lm=Reflection(), max_metric_cals=3)
    run(Adapter(), tmp_path, reflection_lm=Reflection(), use_wandb=False, max_metric_calls=200)


def test_every_argument_of_gepas_is_either_meant_or_refused():
    theirs = set(inspect.signature(real_gepa.optimize).parameters)
    ours = {"seed_candidate", "trainset", "valset", "adapter", *TaskTerms.__annotations__, *REFUSED}
    assert theirs - ours == set()


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"max_metric_calls": None}, "nothing says how long"),
        ({"reflection_lm": None}, "nobody writes new texts"),
        ({"task_lm": print}, "there is an `adapter` already"),
        ({"module_selector": "random"}, "`module_selector` is"),
        ({"reflection_prompt_template": "no places"}, "has no <curr_param>"),
        ({"run_dir": "x"}, "`run_dir` and `home`"),
        ({"max_metric_calls": 60}, "60 rollouts are too few for a race on 12 deciding cases"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(tmp_path: Path, terms: dict[str, Any], words: str):
    with pytest.raises(kept.SetupError, match=words):
        run(Adapter(), tmp_path, **{"reflection_lm": Reflection(), **terms})


def test_a_budget_may_be_a_number_of_steps(tmp_path: Path):
    result = gepa.optimize(
        {"plan": "think", "act": "do"},
        list(range(6)),
        list(range(100, 112)),
        Adapter(),
        reflection_lm=Reflection(),
        budget=2,
        gate="strict",
        home=tmp_path,
    )
    assert result.run.stopped.message == "all 2 iterations are used"


@pytest.mark.parametrize(
    ("slip", "words"),
    [
        ({"max_metric_calls": "5"}, "`max_metric_calls` is '5'"),
        ({"max_metric_calls": True}, "`max_metric_calls` is True"),
        ({"max_metric_calls": 0}, "`max_metric_calls` is 0"),
        ({"seed_candidate": "a text"}, "`seed_candidate` is 'a text'"),
        ({"seed_candidate": {}}, "`seed_candidate` is {}"),
        ({"adapter": 7}, "`adapter` is 7, which has no `evaluate`"),
        ({"seed_candidate": {"plan": 5}}, "`seed_candidate` is {'plan': 5}"),
        ({"trainset": None}, "`trainset` is None"),
        ({"trainset": "rows"}, "`trainset` is 'rows'"),
        ({"valset": 7}, "`valset` is 7"),
        ({"testset": 7}, "`testset` is 7"),
    ],
)
def test_a_likely_slip_is_told_by_the_name_of_the_argument(slip: dict[str, Any], words: str):
    given: dict[str, Any] = {
        "seed_candidate": {"plan": "think", "act": "do"},
        "trainset": list(range(6)),
        "valset": list(range(100, 112)),
        "max_metric_calls": 600,
        "reflection_lm": Reflection(),
        "adapter": Adapter(),
        **slip,
    }
    with pytest.raises(kept.SetupError) as told:
        gepa.optimize(**given)
    assert told.value.message.startswith(words)


def test_a_run_dir_goes_on_with_its_last_run_and_repeats_nothing(tmp_path: Path):
    def once(calls: int) -> tuple[gepa.Result, Task]:
        task = Task()
        result = tutorial(gepa, task, Reflection(), run_dir=tmp_path, max_metric_calls=calls)
        return result, task

    first, _ = once(300)
    again, task = once(300)
    assert again.run.folder == first.run.folder
    assert task.calls == 0
    more, task = once(900)
    assert more.run.folder == first.run.folder
    assert 0 < task.calls == more.run.spend.rollouts - first.run.spend.rollouts
    with pytest.raises(kept.JournalError, match="changed since it started"):
        gepa.optimize(
            {"system_prompt": "Another."},
            questions(20),
            questions(40, start=100),
            task_lm=Task(),
            reflection_lm=Reflection(),
            max_metric_calls=300,
            run_dir=tmp_path,
        )


def test_a_run_dir_does_not_go_on_where_another_model_answers(tmp_path: Path):
    def first(messages: list[dict[str, str]]) -> str:
        return "### 1"

    def second(messages: list[dict[str, str]]) -> str:
        return "### 2"

    terms: dict[str, Any] = {"run_dir": tmp_path, "max_metric_calls": 300, "gate": "strict"}
    tutorial(gepa, cast("Any", first), Reflection(), **terms, budget=kept.Budget(max_iterations=1))
    with pytest.raises(kept.JournalError, match="changed since it started"):
        tutorial(gepa, cast("Any", second), Reflection(), **terms)


@pytest.mark.slow
def test_a_lasting_outage_ends_the_run_with_its_cause(tmp_path: Path):
    adapter = Adapter()

    def unreachable(item: Any, candidate: dict[str, str]) -> float:
        raise ConnectionError("no route to 10.0.0.1")

    adapter.score = unreachable
    with pytest.raises(kept.RunError, match=r"no route to 10\.0\.0\.1"):
        run(adapter, tmp_path, reflection_lm=Reflection())


def test_a_limit_of_money_counts_what_a_function_that_writes_is_said_to_cost(tmp_path: Path):
    limit = kept.Budget(max_usd=1.0, max_iterations=2)
    terms: dict[str, Any] = {"budget": limit, "usd_per_rollout": 0.0001, "max_metric_calls": None}
    with pytest.raises(kept.SetupError, match="so `max_usd` could not be kept"):
        run(Adapter(), tmp_path, reflection_lm=Reflection(), **terms)
    with pytest.raises(kept.SetupError, match="so `max_usd` could not be kept"):
        run(Adapter(), tmp_path, custom_candidate_proposer=better, **terms)
    for who in ({"reflection_lm": Reflection()}, {"custom_candidate_proposer": better}):
        result = run(Adapter(), tmp_path, usd_per_call=0.25, **who, **terms)
        asked = {step.proposal is not None for step in result.run.state.history}
        spend = result.run.spend
        assert asked == {True} and spend.usd == pytest.approx(0.5 + 0.0001 * spend.rollouts)


def test_a_limit_of_money_refuses_a_named_model_without_a_price(tmp_path: Path):
    with pytest.raises(kept.SetupError, match="costs at most is not known"):
        run(
            Adapter(),
            tmp_path,
            reflection_lm="openai/no-such-model",
            budget=kept.Budget(max_usd=1.0),
            usd_per_rollout=0.0001,
            max_metric_calls=None,
        )


def test_a_loader_is_read_to_its_end(tmp_path: Path):
    class Loader:
        def all_ids(self) -> list[int]:
            return list(range(12))

        def fetch(self, ids: list[int]) -> list[int]:
            return [n * 10 + 1 for n in ids]

        def __iter__(self) -> Any:
            raise AssertionError("it is fetched, not walked through")

    result = gepa.optimize(
        {"plan": "think", "act": "do"},
        Loader(),
        list(range(20)),
        Adapter(),
        custom_candidate_proposer=better,
        max_metric_calls=300,
        home=tmp_path,
    )
    assert result.run.state.started is not None
    assert result.run.state.started.settings.cases == {"train": 12, "holdout": 20, "test": 0}
