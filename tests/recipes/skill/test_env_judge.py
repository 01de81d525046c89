"""The judge of an environment in a run: who it is, what it costs, and that a run asks it once."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kept.core.case import Case
from kept.core.llm import Message, ModelRequest
from kept.core.rollout import Failure, Rollout
from kept.evaluators.environments.base import (
    About,
    Graded,
    Item,
    JudgeOptions,
    JudgeQuestion,
    Posed,
)
from kept.evaluators.environments.datasets import Fields, as_items, item, rows_in, values
from kept.testing.server import ModelServer, Seen
from tests.ui.cli.tasks import Called, kept

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Told(JudgeOptions):
    """A question whose answer a model compares with the one expected."""

    name = "told"

    def read(self, path: Path) -> Iterable[Item]:
        fields = Fields()
        rows = ((row, fields.texts(row, ("answer",))) for row in rows_in(path))
        found = (
            item(row, {"question": f"What is number {row.number}?", "answer": answer[0]})
            for row, answer in rows
            if answer
        )
        return as_items(fields, found)

    def pose(self, case: Case) -> Posed:
        return Posed(values(case)["question"])

    def grade(self, case: Case, rollout: Rollout) -> Graded | JudgeQuestion | Failure:
        gold = values(case)["answer"]
        if rollout.output == gold:
            return Graded(1.0, 1.0)
        text = f"Is `{rollout.output}` the same as `{gold}`?"
        wrong = Graded(0.0, 0.0, "it is not the answer that was expected")
        return JudgeQuestion(
            ModelRequest((Message("user", text),)),
            lambda said: Graded(1.0, 1.0, told="judge: True") if "True" in said else wrong,
            wrong,
        )

    def about(self, case: Case) -> About:
        return About(values(case)["question"], reference=values(case)["answer"])


def answer(seen: Seen) -> str:
    """The student says `<n> indeed`, which only a judge finds right; for every third it lies."""
    if seen.model == "student":
        n = int(re.findall(r"number (\d+)", seen.text)[0])
        return f"{n if n % 3 else n + 1} indeed"
    if "is the same" in seen.text.lower() or "the same as" in seen.text:
        said, gold = re.findall(r"`(\d+)", seen.text)
        return str(said == gold)
    return "never asked"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    rows = [{"id": f"q{n}", "answer": str(n)} for n in range(1, 13)]
    (tmp_path / "data.json").write_text(json.dumps(rows))
    return tmp_path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        yield made


def call(command: str, server: ModelServer, *more: str, judge: str = "", price: str = "") -> Called:
    at = f"provider: openai_compatible, base_url: '{server.v1}'"
    Path("skill.yaml").write_text(
        f"model:\n  optimizer: {{model: teacher, {at}{price}}}\n"
        f"  target: {{model: student, {at}{price}}}\n"
        "train: {num_epochs: 1, batch_size: 4}\n"
        "env:\n  name: tests.recipes.skill.test_env_judge:Told\n  data_path: data.json\n"
        "  split_ratio: '4:4:4'\n" + (f"  judge_model: {judge}\n" if judge else "")
    )
    return kept(command, "skill.yaml", *more)


def asked(server: ModelServer) -> list[str]:
    """The models of the questions to a judge."""
    return [seen.model for seen in server.log if "the same as" in seen.text]


def passed(called: Called) -> int:
    assert called.code == 0, called.stderr
    return json.loads(called.stdout)["summary"]["passed"]


EVAL = ("--split", "all", "--json")


def test_the_teacher_judges_where_nobody_else_is_named(server: ModelServer):
    assert passed(call("eval", server, *EVAL)) == 8
    assert asked(server) == ["teacher"] * 12
    request = next(seen.body for seen in server.log if seen.model == "teacher")
    assert 256 in (request.get("max_tokens"), request.get("max_completion_tokens"))


def test_another_run_is_served_from_the_cache_of_calls(server: ModelServer):
    first = passed(call("eval", server, *EVAL))
    assert passed(call("eval", server, *EVAL)) == first
    assert len(asked(server)) == 12, "the judge was asked for the same again"
    assert sum(seen.model == "student" for seen in server.log) == 24


@pytest.mark.parametrize("judge", ["judge", "JUDGE"])
def test_another_model_may_judge(server: ModelServer, judge: str):
    block = f"{{provider: openai_compatible, model: judge, base_url: '{server.v1}'}}"
    assert passed(call("eval", server, *EVAL, judge=judge.replace("JUDGE", block))) == 8
    assert asked(server) == ["judge"] * 12


def test_without_a_judge_the_rule_decides_and_that_is_told(server: ModelServer):
    called = call("eval", server, *EVAL, judge="none")
    assert passed(called) == 0 and not asked(server)
    assert "there is no judge: answers that need one are graded by" in called.stderr


def test_the_judge_is_counted_in_the_bounds_of_check(server: ModelServer):
    told = call("check", server)
    assert told.code == 0, told.stderr
    (row,) = re.findall(r"judge +`(\S+)`, at most ([\d,]+) calls", told.stdout)
    (most,) = re.findall(r"rollouts +at most ([\d,]*\d)", told.stdout)
    assert row == ("openai_compatible/teacher", most)
    assert "judge" not in call("check", server, judge="none").stdout.replace("judge_", "")


def test_what_a_judge_costs_is_paid_for(server: ModelServer):
    price = ", price: {input: 1, output: 1}, max_tokens: 50, cache: false"
    alone = call("eval", server, *EVAL, judge="none", price=price)
    judged = call("eval", server, *EVAL, price=price)
    assert alone.code == judged.code == 0, judged.stderr
    costs = sorted(float(usd) for usd in re.findall(r'"usd": ([\d.e-]+)', runs().stdout))
    assert len(costs) == 2 and costs[1] > costs[0] > 0


def runs() -> Called:
    return kept("runs", "--json")


def test_money_cannot_be_limited_where_the_judge_has_no_price(server: ModelServer):
    price = ", price: {input: 1, output: 1}, max_tokens: 50"
    judge = "{provider: openai_compatible, base_url: 'http://example.com/v1', model: other}"
    called = call("check", server, "--set", "budget.max_usd=1", judge=judge, price=price)
    assert called.code == 2
    assert "`max_usd` cannot be kept: `openai_compatible/other` has no `price`" in called.stderr


def test_a_judge_that_cannot_be_read_is_told_with_its_line(server: ModelServer):
    called = call("check", server, judge="{model: m, provider: nowhere}")
    assert called.code == 2
    assert "skill.yaml:9 env.judge_model.provider" in called.stderr, called.stderr


def test_nothing_secret_of_a_judge_is_written_down(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JUDGE_URL", server.v1.replace("//", "//user:very-secret-login@"))
    block = "{provider: openai_compatible, model: judge, base_url: '${JUDGE_URL}', max_tokens: 9}"
    assert passed(call("eval", server, *EVAL, judge=block)) == 8
    written = b"".join(one.read_bytes() for one in Path(".kept").rglob("*") if one.is_file())
    assert b"very-secret-login" not in written
