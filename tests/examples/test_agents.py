"""The agents of `examples/agents`, run offline: a script answers for their models, over HTTP."""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.results.cases import Sweep, sweep_of
from kept.results.cases import Tested as Case
from kept.store.reader import Run
from kept.testing.server import ModelServer, Seen
from tests.examples.by_hand import EXAMPLES
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

Say = Callable[[Seen], ModelReply | str]


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("KEPT_HOME", str(tmp_path / "home"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of this test alone."""
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))


def evaluated(name: str, here: Path, code: int, *words: str) -> Sweep:
    """An example copied to a folder of its own, and what its cases came to."""
    folder = here / name
    shutil.copytree(EXAMPLES / "agents" / name, folder)
    called = kept("eval", str(folder / "agent.yaml"), "-q", *words)
    assert called.code == code, called.stderr + called.stdout
    (run,) = (here / "home" / "runs").iterdir()
    with Run(run) as opened:
        sweep = sweep_of(opened)
    assert sweep is not None
    return sweep


def scripted(
    name: str, here: Path, say: Say, monkeypatch: pytest.MonkeyPatch, code: int = 0
) -> Sweep:
    with ModelServer(say) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        return evaluated(name, here, code)


def using(*calls: tuple[str, Mapping[str, object]]) -> ModelReply:
    wanted = tuple(
        ToolCall(f"call-{n}", name, json.dumps(arguments))
        for n, (name, arguments) in enumerate(calls)
    )
    return ModelReply("", finish="tool_calls", tool_calls=wanted)


def results(seen: Seen) -> list[str]:
    """What the tools of this turn said: those of earlier turns stand before the last input."""
    lines = list(seen.lines)
    last = max(n for n, line in enumerate(lines) if line.role == "user" and line.text == seen.text)
    return [line.text for line in lines[last:] if line.role == "tool"]


def by_name(sweep: Sweep) -> dict[str, Case]:
    return {one.case: one for one in sweep.cases}


def used(one: Case) -> list[str]:
    return [use.name for exchange in one.exchanges for use in exchange.uses]


def route(seen: Seen) -> ModelReply | str:
    """Look rules up with the ticket's words, and take the team of the first that is found."""
    found = results(seen)
    if not found:
        return using(("routing_rules", {"query": seen.text}))
    team = re.search(r"billing|technical|account", found[0].partition("team")[2])
    assert team, found
    return json.dumps({"category": team[0], "urgency": "low"})


@pytest.mark.usefixtures("cache")
def test_the_router_looks_rules_up_and_is_compared_by_one_value_of_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sweep = scripted("ticket-router", tmp_path, route, monkeypatch)
    cases = by_name(sweep)
    assert {one.status for one in sweep.cases} == {"passed"} and len(cases) == 4
    assert all(used(one) == ["routing_rules"] for one in sweep.cases)
    first, second = cases["charged-twice"].exchanges[0].context
    assert "A card charged twice" in first and "A card charged twice" not in second
    assert sweep.means["equality"].score == 1


@pytest.mark.usefixtures("cache")
def test_an_answer_of_the_router_that_is_no_json_fails_its_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def say(seen: Seen) -> ModelReply | str:
        broken = "crashes when" in seen.text and results(seen)
        return "technical, I would say" if broken else route(seen)

    sweep = scripted("ticket-router", tmp_path, say, monkeypatch, code=1)
    failed = [one.case for one in sweep.cases if one.status == "failed"]
    assert failed == ["crash-at-start"]
    assert sweep.means["equality"].score == pytest.approx(0.75)


def moderate(seen: Seen) -> ModelReply | str:
    """The moderator, who lets adverts pass with words of its own, and its judge."""
    if seen.model == "gpt-4o":
        return judge(seen)
    found = results(seen)
    if not found:
        return using(("policy", {"query": seen.text}), ("precedents", {"query": seen.text}))
    if "watches" in seen.text:
        return "allow: watches are a hobby."
    decided = re.search(r"allow|review|remove", found[1].partition("decision")[2])
    assert decided, found
    return f"{decided[0]}: as {found[0].split('.')[0]} says."


def judge(seen: Seen) -> str:
    """Grades by the decision; an answer is one statement; what names a rule is believed."""
    wanted = seen.body["response_format"]["json_schema"]["schema"]["properties"]
    if "statements" in wanted:
        return json.dumps(
            {"statements": [re.findall(r"(?:allow|remove|review): .*", str(seen.text))[0]]}
        )
    if "grade" in wanted:
        answer, expected = re.findall(r"(allow|remove|review)\b", seen.text)[:2]
        return json.dumps({"reason": "held side by side", "grade": 9 if answer == expected else 2})
    verdict = "no" if "hobby" in seen.text.rpartition("statement")[0][-200:] else "yes"
    return json.dumps({"reason": "looked up", "verdict": verdict})


@pytest.mark.usefixtures("cache")
def test_the_moderator_is_judged_by_criteria_and_by_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sweep = scripted("content-moderator", tmp_path, moderate, monkeypatch, code=1)
    cases = by_name(sweep)
    assert {name: one.status for name, one in cases.items()} == {
        "a-recipe": "passed",
        "an-advert": "failed",
        "an-address": "passed",
    }
    assert all(used(one) == ["policy", "precedents"] for one in sweep.cases)
    assert cases["an-advert"].metrics["decision"] == pytest.approx(0.2)
    assert cases["a-recipe"].metrics["decision"] == pytest.approx(0.9)
    assert {each.model for one in sweep.cases for each in one.measured} == {"openai/gpt-4o"}
    context = cases["an-address"].exchanges[0].context
    assert len(context) == 3, "two rules, and a post that was decided"
    assert "Rule 3" in context[0] + context[1] and "The umpire lives" in context[2]


def help_customer(seen: Seen) -> ModelReply | str:
    found, text = results(seen), seen.text
    order = re.search(r"T-\d+", text)
    if order and "back" in text:
        if not found:
            return using(("manual", {"query": text}), ("open_return", {"order": order[0]}))
        rule = re.search(r"Tea (may be sent back within \d+ days)", found[0])
        assert rule, found
        return f"Yes, tea {rule[1]}, and {found[1]}"
    if order:
        return found[0] if found else using(("order_status", {"order": order[0]}))
    if not found:
        return using(("teas", {"query": text}), ("faq", {"query": text}))
    name = re.search(r"Lapsang|Sencha|Assam", found[0])
    rule = re.search(r"Black tea should draw for \w+ minutes", found[1])
    assert name and rule, found
    return f"{name[0]} tastes of smoke. {rule[0]}."


@pytest.mark.usefixtures("cache")
def test_support_uses_a_server_that_comes_with_it_and_several_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sweep = scripted("support", tmp_path, help_customer, monkeypatch)
    cases = by_name(sweep)
    assert {one.status for one in sweep.cases} == {"passed"} and len(cases) == 4
    assert used(cases["send-back"]) == ["manual", "open_return"]
    (unknown,) = cases["unknown-order"].exchanges[0].uses
    assert unknown.wrong and "There is no order T-9999." in unknown.result
    manual, opened = cases["send-back"].exchanges[0].uses
    assert len(manual.context) == 2 and "within 30 days" in manual.context[0]
    assert opened.result == "R-1007 is your return." and opened.context == ()
    assert used(cases["smoky"]) == ["teas", "faq"]


def compute(seen: Seen) -> ModelReply | str:
    """Look up what is named, compute by tools, and remember what earlier turns came to."""
    said = [line.text for line in seen.lines if line.role == "assistant" and line.text]
    found, text = results(seen), seen.text
    plans: dict[str, tuple[list[tuple[str, int]], str]] = {
        "What was the revenue": ([("revenue", 2019)], ""),
        "And how much more": ([("revenue", 2018)], "subtract"),
        "Which share": ([("revenue", 2018)], "divide"),
        "What was left": ([("revenue", 2019), ("costs", 2019)], "subtract"),
        "How much is that": ([("staff", 2019)], "divide"),
        "What were the costs": ([("costs", 2019), ("costs", 2017)], ""),
    }
    figures, tool = next(plan for start, plan in plans.items() if text.startswith(start))
    if not found:
        return using(*(("lookup", {"figure": what, "year": year}) for what, year in figures))
    if tool and len(found) == len(figures):
        numbers = [float(one) for one in (*said[-1:], *found)][-2:]
        return using((tool, {"a": numbers[0], "b": numbers[1]}))
    return found[-1] if tool else found[0]


def test_finance_computes_over_turns_and_its_grader_of_holodeck_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sweep = scripted("finance", tmp_path, compute, monkeypatch)
    cases = by_name(sweep)
    assert {one.status for one in sweep.cases} == {"passed"}
    assert [len(one.exchanges) for one in sweep.cases] == [3, 2, 1]
    assert used(cases["growth"]) == ["lookup", "lookup", "subtract", "lookup", "divide"]
    assert [exchange.response for exchange in cases["growth"].exchanges][:2] == [
        "206588",
        "25587.0",
    ]
    _, missing = cases["not-in-the-report"].exchanges[0].uses
    assert missing.wrong and "the report has no costs of 2017" in missing.result
    graded = [each for each in cases["margin"].measured if each.metric == "program"]
    assert [each.details["turn"] for each in graded] == [0, 1]
    assert [each.details["case"] for each in graded] == ["margin", "margin"]
    assert [each.details["made"] for each in graded] == [["subtract"], ["divide"]]


def test_finance_that_computes_in_its_head_is_right_by_number_and_fails_by_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def say(seen: Seen) -> ModelReply | str:
        reply = compute(seen)
        if seen.text.startswith("Which share") and isinstance(reply, ModelReply) and results(seen):
            return "14.14%"
        return reply

    sweep = scripted("finance", tmp_path, say, monkeypatch, code=1)
    growth = by_name(sweep)["growth"]
    assert growth.status == "failed"
    last = {each.metric: each.score for each in growth.measured if each.exchange == 2}
    assert last == {"numeric": 1.0, "program": 0.0}
    assert [one.matched for one in growth.expected] == [True, True, False]
    assert sweep.count("passed") == 2


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_the_router_runs_on_the_embedded_model(tmp_path: Path):
    # it can be given no tools, so it decides without the rules
    folder = tmp_path / "ticket-router"
    shutil.copytree(EXAMPLES / "agents" / "ticket-router", folder)
    text = (folder / "agent.yaml").read_text()
    text = re.sub(r"tools:\n.*?(?=evaluations:)", "", text, flags=re.DOTALL)
    (folder / "agent.yaml").write_text(text.replace("    expected_tools: [routing_rules]\n", ""))
    local = ("--set", "model.provider=local", "--set", "model.name=smollm2")
    called = kept("eval", str(folder / "agent.yaml"), "--json", *local)
    assert called.code in (0, 1), called.stderr
    results = called.json["results"]
    assert len(results) == 4
    for one in results:
        category = json.loads(one["agent_response"])["category"]
        assert category in ("billing", "technical", "account")
        assert one["passed"] is (category == one["ground_truth"])


@pytest.mark.model
@pytest.mark.usefixtures("smollm2")
def test_sentiment_can_be_tuned_without_a_key(tmp_path: Path):
    folder = tmp_path / "sentiment"
    shutil.copytree(EXAMPLES / "agents" / "sentiment", folder)
    called = kept("test", "optimize", str(folder / "agent.yaml"), "--dry-run")
    assert called.code == 0, called.stderr
    assert "warning" not in called.stderr
    told = [tuple(line.split("  ", 1)) for line in called.stdout.splitlines()]
    axes = [value.strip() for name, value in told if name == "axis"]
    assert axes == ["model.temperature [0.0, 1.5]", "instructions, 400 characters at most"]
    assert "49 train, 81 holdout, 32 test" in called.stdout
    assert not (folder / "results").exists()
