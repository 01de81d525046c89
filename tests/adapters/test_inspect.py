"""An Inspect task on Kept: its samples are cases, its scorers score, what is proven is promoted."""

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.adapters import inspect as kept_inspect
from kept.core.ports import Gate
from kept.core.score import Outcome
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import Fault, ModelServer, Seen
from tests.adapters.inspect_world import (
    HARMFUL,
    KEY,
    RULE,
    SEED,
    USELESS,
    Desk,
    desk,
    plain,
    pool,
)

pytestmark = [
    pytest.mark.inspect,
    pytest.mark.filterwarnings("ignore"),  # theirs
    pytest.mark.usefixtures("inspect_ai"),
]

POOL = pool(USELESS[0], HARMFUL, RULE, f"{HARMFUL} Be quick.")


def run(home: Path, **more: Any) -> kept.Result:
    """The task without tools, by Inspect's own stand-in for a model."""
    given: dict[str, Any] = {"model": Desk().model(), "max_metric_calls": 500, "home": home}
    return kept_inspect.optimize(more.pop("task", plain), SEED, **{**given, **more})


def outcomes(result: kept.Result) -> list[Outcome]:
    with kept.read_run(result.folder) as found:
        return [outcome for _, _, outcome in found.rollouts()]


def served(server: ModelServer, **more: Any) -> dict[str, Any]:
    """Arguments by which Inspect asks a server."""
    return {
        "model": "openai-api/desk/any",
        "model_base_url": server.v1,
        "model_args": {"api_key": KEY, "max_retries": 0},
        **more,
    }


def check(result: kept.Result) -> None:
    """What a user is promised."""
    assert RULE in result.best["prompt"], "what helps was not kept"
    assert HARMFUL not in result.best["prompt"], "something harmful was kept"
    assert result.best_value is not None
    assert result.seed_value is not None
    assert result.best_value > result.seed_value + 0.3


def test_of_good_useless_and_harmful_prompts_the_good_one_is_promoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    result = run(tmp_path / "home", proposers=POOL)
    check(result)
    # Inspect leaves no logs behind, and shows nothing
    assert list((tmp_path / "here").iterdir()) == []
    assert capfd.readouterr() == ("", "")
    started = result.state.started
    assert started is not None
    assert started.settings.cases == {"train": 18, "holdout": 30, "test": 12}
    assert result.spend.calls == result.spend.rollouts
    assert result.spend.tokens_in == 10 * result.spend.calls


@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_the_check_fails_for_a_gate_that_does_not_look(gate: Gate, tmp_path: Path):
    with pytest.raises(AssertionError):
        check(run(tmp_path, proposers=POOL, gate=gate))


@pytest.mark.slow
def test_a_task_with_tools_and_two_scorers_runs_against_a_server(tmp_path: Path):
    asked: list[str] = []

    def lm(prompt: str) -> str:
        asked.append(prompt)
        return f"<new-text>\n{SEED} {RULE if len(asked) % 2 else USELESS[0]}\n</new-text>"

    def busy(seen: Seen) -> Fault | None:
        return Fault("status", 503) if "#104?" in seen.text else None

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "component.md").write_text("Write it so that it rhymes.\n")
    with ModelServer(Desk(0.1), faults=busy) as server:
        result = kept_inspect.optimize(
            desk,
            SEED,
            **served(server),
            prompts=tmp_path / "mine",
            reflection_lm=lm,
            gate="strict",
            budget=kept.Budget(max_iterations=2),
            max_retries=0,
            width=1,
            home=tmp_path,
        )
        log, answered = server.log, server.answered
    check(result)
    seed = result.state.evaluations[result.seed.id][0]
    assert seed.metric("manners.names_order") == 1.0
    assert seed.metric("match") == seed.metric("score")
    # a rollout is a call that looks the order up, and one that answers
    measured = [outcome for outcome in outcomes(result) if outcome.failure is None]
    assert len(answered) == 2 * len(measured)
    assert all(seen.headers["authorization"] == f"Bearer {KEY}" for seen in log)
    assert "I have a question." in asked[0]
    assert asked[0].startswith("Write it so that it rhymes.\n\n")
    assert "calls lookup({'order': " in asked[0]
    assert "match: I" in asked[0]
    assert "manners: {'names_order': True" in asked[0]
    failures = {(o.failure.kind, o.failure.blame) for o in outcomes(result) if o.failure}
    assert failures == {("server", "infrastructure")}
    for path in result.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_model_that_cannot_be_asked_measures_nothing_and_its_key_is_not_told(tmp_path: Path):
    refusal = Fault("status", 401, f"wrong key {KEY}")
    with ModelServer(faults=lambda _: refusal) as server:
        with pytest.raises(kept.RunError, match=r"nothing can be measured: .*401"):
            run(tmp_path, **served(server), proposers=POOL)
        assert len(server.log) > 0
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_run_dir_goes_on_with_its_last_run_and_asks_nothing_twice(tmp_path: Path):
    def once(calls: int) -> tuple[kept.Result, Desk]:
        model = Desk(0.0, 1.0)
        given: dict[str, Any] = {"proposers": POOL, "max_metric_calls": calls, "run_dir": tmp_path}
        result = kept_inspect.optimize(plain, SEED, model=model.model(), **given)
        return result, model

    first, _ = once(270)
    again, model = once(270)
    assert again.folder == first.folder
    assert model.asked.total() == 0
    more, model = once(330)
    assert more.folder == first.folder
    assert model.asked.total() == more.spend.rollouts - first.spend.rollouts


TASK_FILE = """
from pathlib import Path
from inspect_ai import Task, task
from inspect_ai.scorer import match
from inspect_ai.solver import generate, system_message
from wording import style
from tests.adapters.inspect_world import plain

@task
def orders(count: int = 60):
    solver = [system_message("prompt.md"), system_message(style()), generate()]
    return Task(dataset=plain("", count).dataset, solver=solver, scorer=match())

@task
def another():
    raise RuntimeError("not this one")
"""


def test_files_beside_a_task_file_are_the_artifact(tmp_path: Path):
    folder = tmp_path / "evals"
    folder.mkdir()
    (folder / "orders.py").write_text(TASK_FILE)
    (folder / "prompt.md").write_text(SEED)
    (folder / "wording.py").write_text('def style():\n    return "plain"\n')
    before = {path.name: path.read_text() for path in folder.iterdir()}
    heard: list[str] = []

    class Watching(Desk):
        def say(self, told: str, order: str) -> str:
            heard.append(told)
            return super().say(told, order)

    def better(brief: Any) -> dict[str, str]:
        return {"prompt.md": f"{SEED} {RULE}"}

    def worse(brief: Any) -> dict[str, str]:
        return {"wording.py": "def style():\n    return 1 / 0\n"}

    result = kept_inspect.optimize(
        f"{folder / 'orders.py'}@orders",
        ["prompt.md", "wording.py"],
        model=Watching().model(),
        task_args={"count": 40},
        proposers=[worse, better],
        gate="strict",
        budget=kept.Budget(max_iterations=2),
        home=tmp_path / "home",
    )
    assert result.best["prompt.md"] == f"{SEED} {RULE}"
    assert {path.name: path.read_text() for path in folder.iterdir()} == before
    assert {SEED, f"{SEED} {RULE}"} == set(heard)
    failures = {o.failure.message for o in outcomes(result) if o.failure is not None}
    assert len(failures) == 1
    assert "ZeroDivisionError" in failures.pop()


def unscored(prompt: str) -> Any:
    made = plain(prompt, 4)
    made.scorer = None
    made.dataset[1].id = made.dataset[0].id
    return made


def empty(prompt: str) -> Any:
    return import_module("inspect_ai").Task(dataset=[])


def shuffled(prompt: str) -> Any:
    made = plain(prompt, 40)
    made.dataset.shuffle()
    for sample in made.dataset:
        sample.id = None
    return made


def textual(prompt: str) -> Any:
    return prompt


def broken(prompt: str) -> Any:
    raise KeyError(prompt)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            unscored,
            "no scorer: nothing could be compared; sample ids stand more than once: order-1",
        ),
        (empty, "the task cannot be made: ValueError: The specified dataset is empty"),
        (shuffled, "other samples each time that it is made"),
        (broken, "the task cannot be made: KeyError"),
        (lambda: plain("a"), "the task function takes no text"),
        (str.strip, "the task function cannot be called so"),
        (textual, "the task function returned 'You work"),
        ("nowhere.py@task", "there is no file nowhere.py"),
        (3, "`task` is 3"),
    ],
)
def test_a_task_that_cannot_be_meant_is_refused(tmp_path: Path, task: Any, words: str):
    with pytest.raises(kept.SetupError, match=words):
        run(tmp_path, task=task, proposers=POOL)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"epochs": 4, "temprature": 1},
            "`epochs` means nothing .*\n`temprature` is no argument",
        ),
        ({"testset": []}, "`testset` means nothing here"),
        ({"gate": "rac"}, "`gate` is 'rac', not a gate"),
        ({"model": "openai/a,openai/b"}, "`model` names several"),
        ({"scorer": "matches"}, "no scorer `matches`\n\nhint: there are match"),
        ({"proposers": None, "reflection_lm": "nobody/knows"}, "no provider"),
        ({"max_metric_calls": None}, "nothing says how long"),
        ({"model": "nobody/knows"}, "Inspect cannot run: .*nobody"),
        ({"limit": 3, "sample_id": "order-100"}, "both `limit` and `sample_id`"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(tmp_path: Path, more: dict[str, Any], words: str):
    given: dict[str, Any] = {"proposers": POOL, **more}
    with pytest.raises(kept.SetupError, match=words):
        run(tmp_path, **{k: v for k, v in given.items() if v is not None or k[:3] == "max"})


def test_nobody_who_writes_is_told(tmp_path: Path):
    with pytest.raises(kept.SetupError, match="nobody writes new texts"):
        run(tmp_path)


def test_every_argument_of_inspects_is_either_meant_or_refused(inspect_ai: Any):
    from kept.adapters.inspect.api import REFUSED, known_terms

    theirs = set(inspect.signature(inspect_ai.eval).parameters) - {"kwargs"}
    theirs |= set(import_module("inspect_ai.model").GenerateConfigArgs.__annotations__)
    known = set(known_terms())
    assert theirs - known - set(REFUSED) == set()
    assert known & set(REFUSED) == {"seed"}
