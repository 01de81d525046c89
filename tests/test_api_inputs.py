"""What `kept.optimize` refuses, and in which words."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kept
from kept.core.event import Event
from kept.core.score import Outcome
from kept.core.state import State
from kept.ui.cli.main import cli
from tests.store.damaging import resealed

CASE = kept.Case("a", 1)
CIRCLE: dict[str, Any] = {}
CIRCLE["self"] = CIRCLE


def evaluate(candidate: kept.Candidate, case: object = None) -> float:
    return 1.0


def limits(**given: Any) -> kept.Budget:
    """A budget of what a type checker would refuse."""
    return kept.Budget(**given)


def greedy(candidate: kept.Candidate, case: object, far: int) -> float:
    return 1.0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cases": []}, "`cases` is empty"),
        ({"cases": kept.Cases(train=(CASE,))}, "there are no holdout cases"),
        ({"cases": kept.Cases((CASE,), (CASE,))}, "`a` stands in train and again in holdout"),
        ({"cases": [1, 2], "split": "1:0:1"}, "there are no holdout cases"),
        ({"cases": [1, 2], "split": "half"}, "`half` is not a split"),
        ({"cases": [{"id": 1}, {"id": 1}]}, "case ids stand more than once: 1"),
        ({"cases": [CIRCLE]}, "the case `0000` cannot be written down: Circular reference"),
        ({"cases": kept.Cases(holdout=(kept.Case("a", CIRCLE),))}, "the case `a` cannot be"),
        ({"artifact": {3: "a"}}, "3 is no name of a text"),
        ({"artifact": {"../a": "a"}}, "'../a' is no name of a text"),
        ({"artifact": {"": "a"}}, "'' is no name of a text"),
        ({"artifact": {"a": "x", "a/b": "y"}}, "`a` cannot be a text and hold `a/b`"),
        ({"proposers": [lambda: "x"]}, r"the proposer `<lambda>` takes \(\), not a brief"),
        ({"gate": kept.Sigma}, "`gate` is <class .*, not a gate"),
        ({"budget": kept.Budget(max_rollouts=-1)}, "`max_rollouts` of the budget is -1, not a"),
        ({"budget": kept.Budget(max_minutes=float("nan"))}, "`max_minutes` of the budget is nan"),
        ({"budget": limits(max_iterations=1.5)}, "`max_iterations` of the budget is 1.5"),
        ({"budget": limits(max_usd="5"), "usd_per_rollout": 1}, "`max_usd` of the budget is"),
        (
            {"budget": kept.Budget(max_rollouts_usd=0.05), "usd_per_rollout": 0.01},
            "`max_rollouts_usd` of the budget is 0.05, a limit that Kept sets by itself",
        ),
        ({"budget": limits(max_rollouts_usd="5")}, "`max_rollouts_usd` of the budget is '5'"),
        ({"usd_per_rollout": float("inf")}, "`usd_per_rollout` is inf, not a price"),
        ({"proposers": []}, "there is no proposer"),
        ({"artifact": {}}, "the artifact has no texts"),
        ({"artifact": "half \ud83d"}, "`text` is not a text that can be written"),
        ({"artifact": Path("/nowhere/prompt.md")}, "cannot read /nowhere/prompt.md"),
        ({"artifact": {"a": "x", "b": "y"}, "proposers": ["z"]}, "an artifact with one text"),
        ({"resume": "nothing"}, "no run `nothing`"),
        ({"artifact": 3}, "the artifact is 3, not a text"),
        ({"evaluate": "evaluate"}, "`evaluate` is 'evaluate', not a function"),
        ({"proposers": evaluate}, "`proposers` is not a list"),
        ({"gate": "stric"}, "`gate` is 'stric', not a gate"),
        ({"budget": "5"}, "`budget` is '5', not a budget"),
        ({"direction": "Maximize"}, "`direction` is 'Maximize', not a direction"),
        ({"cases": [1, 2], "split": "1:2"}, "`1:2` is not a split"),
        ({"cases": [1, 2], "split": "0:0:0"}, "`0:0:0` is not a split"),
        ({"cases": [1, 2], "split": (3, 5, 2)}, r"`\(3, 5, 2\)` is not a split"),
        ({"cases": 5}, "`cases` is 5, not a list of cases"),
        ({"cases": "abc"}, "`cases` is 'abc', not a list of cases"),
        ({"cases": {"a": 1}}, "`cases` is {'a': 1}, not a list of cases"),
        ({"proposers": ["a", 5]}, "among `proposers` is 5"),
        ({"evaluate": lambda: 1.0}, r"`evaluate` takes \(\), not a candidate and a case"),
        ({"evaluate": greedy}, r"`evaluate` takes \(.*, far: int\).*, not a candidate"),
        ({"budget": 0}, "`budget` is 0, not a budget"),
        ({"budget": True}, "`budget` is True, not a budget"),
        ({"guards": kept.LengthGuard()}, r"`guards` is LengthGuard\(.*, not a list of guards"),
        ({"guards": ["length"]}, r"`guards` is \['length'\], not a list of guards"),
        ({"metric": 3}, "`metric` is 3, not a name"),
        ({"bounds": (1, 0)}, r"`bounds` is \(1, 0\), not a least and a greatest value"),
        ({"bounds": 5}, "`bounds` is 5, not"),
        ({"bounds": (0, float("inf"))}, r"`bounds` is \(0, inf\), not"),
        ({"workers": 0}, "`workers` is 0, not a whole number of 1 or more"),
        ({"workers": "4"}, "`workers` is '4', not a whole number"),
        ({"width": 2.5}, "`width` is 2.5, not a whole number"),
        ({"timeout": "5"}, "`timeout` is '5', not a number of seconds"),
        ({"timeout": -1}, "`timeout` is -1, not a number of seconds"),
        ({"usd_per_rollout": -1}, "`usd_per_rollout` is -1, not a price"),
        ({"random_seed": "x"}, "`random_seed` is 'x', not a whole number"),
        ({"home": 5}, "`home` is 5, not a folder"),
        ({"resume": True}, "`resume` is True, not the id of a run"),
        ({"sinks": [print]}, "`sinks` is .* not a list of sinks"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_runs(
    given: dict[str, Any], message: str, tmp_path: Path
):
    good: dict[str, Any] = {"artifact": "seed", "evaluate": evaluate, "proposers": ["other"]}
    call: dict[str, Any] = {**good, "home": tmp_path, **given}
    with pytest.raises(kept.SetupError, match=message) as caught:
        kept.optimize(**call)
    assert caught.value.hint, "what is refused comes with what to do instead"
    assert not list(tmp_path.glob("runs/*"))


def test_all_arguments_that_cannot_be_are_told_at_once(tmp_path: Path):
    with pytest.raises(kept.SetupError) as caught:
        kept.optimize("a", 3, proposers="b", gate="stric", budget=kept.Budget(max_failures=0))  # pyright: ignore[reportArgumentType] # what a type checker would refuse
    told = str(caught.value).splitlines()
    assert [line.split(" is ")[0] for line in told] == [
        *("`evaluate`", "`proposers`", "`gate`", "`max_failures` of the budget"),
    ]
    assert all("(hint: " in line for line in told)


@dataclass(frozen=True)
class Question:
    words: str


@dataclass(eq=False, repr=False)
class Node:
    """What leads back to itself, and has a field that is not there yet."""

    words: str
    parent: "Node | None" = None
    held: list["Node"] = field(default_factory=list["Node"])
    notes: dict[object, object] = field(default_factory=dict[object, object])
    known: int = field(init=False)


def tree(words: str) -> Node:
    root = Node(words)
    root.held = [Node(f"{words} {n}", root) for n in range(3)]
    return root


def chain(words: str, length: int) -> Node:
    last = Node(words)
    for _ in range(length):
        last = Node(words, last)
    return last


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = [value]
    return value


def web(words: str) -> Node:
    """In which more ways lead from one to another than anybody can walk."""
    nodes = [Node(words) for _ in range(30)]
    for node in nodes:
        node.held = nodes
    return nodes[0]


@pytest.mark.parametrize(
    "cases",
    [
        [tree(f"what is {n}?") for n in range(10)],
        [tree(f"what is {n}?").held for n in range(10)],
        [Node(f"what is {n}?", notes={1: n, "b": 2, object(): 3}) for n in range(10)],
        [chain(f"what is {n}?", 2000) for n in range(10)],
        [web(f"what is {n}?") for n in range(10)],
        [{1: "a", "b": n, None: 3} for n in range(10)],
        [{(1, 2): [{3: n, "x": 4}]} for n in range(10)],
        [Question(f"what is {n}?") for n in range(10)],
        [10**4000 + n for n in range(10)],
        [nested(n, 400) for n in range(10)],
    ],
)
def test_a_case_may_be_any_value(cases: list[object], tmp_path: Path):
    seen: list[object] = []

    def looks(candidate: kept.Candidate, case: object) -> float:
        seen.append(case)
        return float(len(candidate.text))

    assert kept.optimize("a", looks, cases, proposers=["aa"], home=tmp_path, budget=1).improved
    for one in seen:
        # plain data is handed over as a copy, an object as it is
        plain = isinstance(one, dict | list)
        assert any(one is case or (plain and one == case) for case in cases)


def test_a_list_of_cases_keeps_their_ids_and_hands_on_what_they_hold(tmp_path: Path):
    seen: set[object] = set()

    def looks(candidate: kept.Candidate, case: object) -> float:
        seen.add(case)
        return float(len(candidate.text))

    cases = [kept.Case(f"q{n}", n) for n in range(10)]
    result = kept.optimize("a", looks, cases, proposers=["aa"], home=tmp_path, budget=1)
    assert result.improved
    assert seen <= set(range(10))
    assert '"q' in (result.folder / "rollouts.jsonl").read_text()


@pytest.mark.parametrize("made", [Question, tree])
def test_cases_that_differ_inside_an_object_are_other_cases(
    made: Callable[[str], object], tmp_path: Path
):
    def looks(candidate: kept.Candidate, case: object) -> float:
        return float(len(candidate.text))

    def go(*words: str, **given: Any) -> kept.Result:
        cases = [made(f"what is {n}?") for n in range(9)] + [made(one) for one in words]
        return kept.optimize("a", looks, cases, proposers=["aa"], home=tmp_path, budget=1, **given)

    folder = go("who is 9?").folder
    with pytest.raises(kept.JournalError, match="cases changed since"):
        go("who is it?", resume="last")
    assert go("who is 9?", resume="last").improved
    # a run that began before an object was known by more than its kind
    kind = json.dumps(type(made("")).__qualname__)
    then = kept.split_cases([kept.Case(f"{n:04}", kind) for n in range(10)], (3, 5, 2))
    journal, known = folder / "journal.jsonl", f'"cases":"{then.fingerprint()}"'
    former = re.sub('"cases":"[0-9a-f]{16}"', known, journal.read_text())
    journal.write_bytes(resealed(former.encode().splitlines()))
    assert known in journal.read_text()
    assert go("who is 9?", resume="last").improved


def test_a_function_that_takes_no_case_is_warned_of_where_there_are_some(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    kept.optimize("a", size, proposers=["aa"], home=tmp_path)
    assert caplog.messages == []
    kept.optimize("a", size, range(10), proposers=["aa"], home=tmp_path)
    assert caplog.messages == ["`evaluate` takes no case, so it says the same of every one"]


def test_a_result_counts_proposals_and_not_the_turns_of_a_dry_proposer(tmp_path: Path):
    result = kept.optimize("a", size, proposers=["aa", ""], home=tmp_path, width=4)
    assert len(result.state.history) > 2
    assert str(result).splitlines()[0] == "1 → 2 in 2 proposals, 1 kept, 6 rollouts"


def size(candidate: kept.Candidate) -> float:
    return float(len(candidate.text))


def test_a_result_says_what_came_of_it_and_where_the_run_is(tmp_path: Path):
    result = kept.optimize("a", size, proposers=["aa"], home=tmp_path)
    assert str(result).splitlines() == [
        "1 → 2 in 1 proposal, 1 kept, 5 rollouts",
        "Better in the runs made here; without cases nothing says how it does on others.",
        f"run {result.folder}",
    ]


def test_a_result_has_the_spend_that_show_and_runs_tell_though_steps_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_HOME", str(tmp_path))
    budget = kept.Budget(max_failures=1)
    texts = ["bad", "aa", "aaa"]
    result = kept.optimize("a", unless_bad, proposers=texts, budget=budget, width=3)
    assert result.state.open
    assert result.spend.rollouts > result.state.spend.rollouts
    shown = json.loads(CliRunner().invoke(cli, ["show", "--json"]).stdout)["spend"]
    (listed,) = json.loads(CliRunner().invoke(cli, ["runs", "--json"]).stdout)
    assert result.spend.rollouts == shown["rollouts"] == listed["rollouts"]
    assert f"{result.spend.rollouts} rollouts" in str(result)


def unless_bad(candidate: kept.Candidate) -> float:
    if candidate.text == "bad":
        raise ValueError(candidate.text)
    time.sleep(0.02)  # so that others are under way when it is over
    return float(len(candidate.text))


def test_a_function_that_needs_a_case_is_refused_where_there_are_none(tmp_path: Path):
    def needs(candidate: kept.Candidate, case: str) -> float:
        return float(len(case))

    def may(candidate: kept.Candidate, case: str | None = None) -> float:
        return size(candidate)

    with pytest.raises(kept.SetupError, match="`evaluate` needs a case") as caught:
        kept.optimize("a", needs, proposers=["aa"], home=tmp_path)
    assert caught.value.hint == "pass `cases`, or write it as evaluate(candidate)"
    assert not list(tmp_path.glob("runs/*"))
    assert kept.optimize("a", may, proposers=["aa"], home=tmp_path).improved


def test_a_single_deciding_case_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    cases = [{"id": "x"}, {"id": "y"}, {"id": "z"}]
    kept.optimize("a", evaluate, cases, proposers=["aa"], home=tmp_path)
    (told,) = caplog.messages
    assert told.startswith("one case of 3 decides, `")
    caplog.clear()
    alone = kept.Cases(train=(), holdout=(kept.Case("x", 1),))
    kept.optimize("a", evaluate, alone, proposers=["aa"], home=tmp_path)
    assert caplog.messages == ["one case decides, `x`: what is kept may fit that case and no other"]
    caplog.clear()
    kept.optimize("a", evaluate, range(4), proposers=["aa"], home=tmp_path)
    kept.optimize("a", size, proposers=["aa"], home=tmp_path)
    assert caplog.messages == []


class Events:
    """A sink that asks for no rollouts."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def on_event(self, event: Event, state: State) -> None:
        self.kinds.append(event.kind)


class Rollouts(Events):
    """One that does."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[kept.Job] = []

    def on_rollout(self, job: kept.Job, outcome: Outcome) -> None:
        self.seen.append(job)


def test_a_sink_is_told_of_rollouts_if_it_has_a_method_for_them(tmp_path: Path):
    some, all_ = Events(), Rollouts()
    found = kept.optimize("a", size, proposers=["aa"], home=tmp_path, sinks=[some, all_])
    assert some.kinds == all_.kinds
    assert some.kinds[0] == "run_started"
    assert len(all_.seen) == found.spend.rollouts > 0
