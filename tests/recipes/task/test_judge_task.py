"""A task that judges score: what is wrong with it is told, and it runs, is cut, and is reported."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kept.core.plan import Plan
from kept.errors import SpecError
from kept.evaluators.scorers.judge.scorer import JudgeScorer
from kept.recipes.task.compile import compile_task
from kept.results.steps import step_detail
from kept.results.summary import summary
from kept.run import inputs_of, start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing.server import ModelServer, Seen
from kept.ui.cli._render import step_text
from kept.ui.report.json import as_json
from kept.ui.report.markdown import markdown
from tests.recipes.cutting import check_every_cut
from tests.recipes.telling import problems, write_cases
from tests.sampling import some_or_all

TASK = """\
artifacts: {include: [prompt.md]}
models: {judge: {provider: openai_compatible, model: strict, base_url: "URL", cache: false}}
runner: {model: openai_compatible/target, prompt: prompt.md, input: question}
scorer:
  type: judge
  judges:
    - {provider: openai_compatible, model: strict, base_url: "URL", cache: false}
    - {provider: openai_compatible, model: mild, base_url: "URL", cache: false}
  criteria:
    - {name: loud, means: it is said aloud}
    - {name: whole, means: all words are there, levels: [no, yes], weight: 2}
  pairwise: {reference: answer}
  input: [question]
  rules: [{kind: lacks, pattern: "(?i)as an ai"}]
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
proposers: [{kind: variants, files: ["drafts/*"]}]
cases: {file: cases.jsonl, split: "1:2:0"}
budget: {max_iterations: 4}
gate: strict
workers: 4
"""


def answer(seen: Seen) -> str:
    """The target says what it was asked, as its prompt wants it; judges like it loud."""
    if seen.model == "target":
        told = seen.lines[0].text
        said = seen.text.upper() if "SHOUT" in told else seen.text
        return said + (" as an AI" if "HUMBLE" in told else "")
    found = re.findall(r"<([\w-]+)-[0-9a-f]{8}>\n(.*?)\n</", seen.text, re.DOTALL)
    shown = dict(found)
    if "output" not in shown:
        better = next((n for n in ("first", "second") if shown[n].isupper()), "equal")
        return json.dumps({"reason": "I hear it", "better": better})
    loud = shown["output"].isupper()
    level = (5 if loud else 2) if seen.model == "strict" else (4 if loud else 3)
    grades = {"loud": ("I can hear it", level), "whole": ("none is missing", "yes")}
    return json.dumps({n: {"reason": why, "level": lev} for n, (why, lev) in grades.items()})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer(answer) as made:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", made.v1)
        yield made


@pytest.fixture
def task(tmp_path: Path, server: ModelServer) -> Path:
    for name, text in {"1-humble": "SHOUT, be HUMBLE.", "2-loud": "SHOUT it."}.items():
        (tmp_path / "drafts" / name).mkdir(parents=True)
        (tmp_path / "drafts" / name / "prompt.md").write_text(f"{text}\n")
    (tmp_path / "prompt.md").write_text("Say it.\n")
    rows = ({"id": f"c{n}", "question": f"word {n}", "answer": "so so"} for n in range(6))
    write_cases(tmp_path, rows)
    (tmp_path / "task.yaml").write_text(TASK.replace("URL", server.v1))
    return tmp_path / "task.yaml"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("scorer.criteria=null", "scorer.criteria: nothing, where a list was expected"),
        ("scorer={type: judge}", "scorer: there is nothing to judge by; give `criteria`, `pair"),
        ("scorer.criteria=[{name: a b, means: x}]", "scorer.criteria[0].name: `a b` is not a name"),
        ("scorer.criteria=[{name: score, means: x}]", "scorer.criteria[0].name: no criterion can"),
        ("scorer.criteria=[{name: a}]", "scorer.criteria[0].means: missing"),
        (
            "scorer.criteria=[{name: a, means: x, scale: [5, 1]}]",
            "scorer.criteria[0]: `scale` is reversed",
        ),
        (
            "scorer.criteria=[{name: a, means: x, scale: [1, 5], levels: [no, yes]}]",
            "scorer.criteria[0]: a criterion has either a `scale` or `levels`",
        ),
        (
            "scorer.criteria=[{name: a, means: x, levels: [no]}]",
            "scorer.criteria[0]: `levels` are two words or more, each another",
        ),
        (
            "scorer.criteria=[{name: a, means: x}, {name: a, means: y}]",
            "scorer: two criteria are named `a`",
        ),
        ("scorer.input=title", "scorer.input: 6 cases without a field `title`"),
        ("scorer.reference=gold", "scorer.reference: 6 cases without a field `gold`"),
        ("scorer.pairwise.reference=x", "scorer.pairwise.reference: 6 cases without a field `x`"),
        ("scorer.cap=2", "scorer.cap: the number 2, where 1 or less was expected"),
        ("scorer.prompt=gone.md", "scorer.prompt: cannot read `gone.md`"),
        ("scorer.prompt=/etc/passwd", "scorer.prompt: `/etc/passwd` is not a path below"),
        ("scorer.judges=[gpt-5]", "scorer.judges[0]: `gpt-5` is not a model"),
        ("scorer.judges=[]", "scorer.judges: empty, where at least one was expected"),
        (
            "scorer.rules=[{kind: lacks, pattern: x, name: loud}]",
            "scorer: a rule cannot be named `loud`",
        ),
        ("objective.primary_metric=loudness", "objective.primary_metric: the scorer `judge` does"),
    ],
)
def test_what_is_wrong_with_judges_is_told(task: Path, override: str, problem: str):
    told = problems(task, override)
    assert any(line.startswith(problem) for line in told), told


def test_a_judge_is_named_here_or_as_a_role(task: Path):
    text = re.sub(r"  judges:\n.*\n.*\n", "", task.read_text())
    task.write_text(text)
    assert isinstance(compile_task(task).plan.scorer, JudgeScorer)
    task.write_text(text.replace("models: {judge", "models: {worker"))
    assert problems(task) == ["scorer.judges: missing"]


def test_a_judge_of_unknown_price_is_refused_where_money_is_limited(task: Path):
    judges = "scorer.judges=[{provider: openai_compatible, model: m, base_url: 'https://far/v1'}]"
    limited = "budget={max_iterations: 2, max_usd: 1, usd_per_rollout: 0}"
    (line,) = problems(task, judges, limited)
    assert line.startswith("scorer.judges[0]: what a call costs at most is not known")


def test_a_judge_whose_price_is_not_known_is_told_before_a_run(task: Path):
    judges = "scorer.judges=[{provider: openai_compatible, model: m, base_url: 'https://far/v1'}]"
    told = compile_task(task, [judges]).warnings
    assert "the price of `openai_compatible/m` is not known: what it costs is not counted" in told


def test_what_judges_cost_is_counted_and_limited(task: Path, tmp_path: Path, server: ModelServer):
    priced = "price: {input: 10, output: 1000}, max_tokens: 50, cache: false"
    judge = f"{{provider: openai_compatible, model: strict, base_url: '{server.v1}', {priced}}}"
    one = (f"scorer.judges=[{judge}]", "workers=2")
    with run(compile_task(task, one).plan, tmp_path / "home") as done:
        spend = summary(done).spend
    judged = [seen for seen in server.answered if seen.model == "strict"]
    assert spend.calls == len(server.answered)
    assert spend.usd > len(judged) * 0.001
    before = len(server.answered)
    limit = f"budget={{max_iterations: 4, max_usd: {spend.usd / 2}}}"
    with run(compile_task(task, [*one, limit]).plan, tmp_path / "less") as done:
        told = summary(done)
    assert told.stopped is not None
    assert told.stopped.kind == "usd"
    assert told.spend.usd <= spend.usd / 2
    assert before < len(server.answered) < 2 * before


def test_a_judge_without_a_key_is_told_before_anything_runs(
    task: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(SpecError, match=r"scorer.judges\[0\]: .*: OPENAI_API_KEY is not set"):
        compile_task(task, ["scorer.judges=[openai/gpt-5-mini]"])


def test_a_plan_alone_makes_no_cache(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: ModelServer
):
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
    compile_task(task, ["scorer.judges=[openai_compatible/m]"])
    assert not (tmp_path / "cache").exists()


def test_a_change_of_a_judges_prompt_is_noticed_by_a_resume(task: Path):
    (task.parent / "strict.md").write_text("Be strict.\n")
    before = inputs_of(compile_task(task, ["scorer.prompt=strict.md"]).plan)
    (task.parent / "strict.md").write_text("Be mild.\n")
    after = inputs_of(compile_task(task, ["scorer.prompt=strict.md"]).plan)
    assert {name for name in after if after[name] != before[name]} == {"`strict.md`"}


@pytest.mark.parametrize("rubric", ["", "Silence is golden.\n"])
def test_judges_see_what_the_target_saw_and_the_rubric_beside_the_task(
    task: Path, tmp_path: Path, server: ModelServer, rubric: str
):
    (task.parent / "rubric.md").write_text(rubric or " ")
    text = task.read_text().replace("  input: [question]\n", "")
    task.write_text(text.replace("  pairwise: {reference: answer}\n", ""))
    with run(compile_task(task, ["budget={max_iterations: 1}"]).plan, tmp_path / "home"):
        asked = [seen for seen in server.log if seen.model in ("strict", "mild")]
    assert asked
    assert all(re.search(r"<input-\w{8}>\nword \d\n", seen.text) for seen in asked)
    assert not any("so so" in str(seen.body) for seen in asked), "the answer was not named"
    assert all(("Silence is golden." in seen.lines[0].text) == bool(rubric) for seen in asked)


def run(plan: Plan, home: Path) -> Run:
    folder, _ = asyncio.run(start(plan, Home(home)))
    return Run(folder)


def test_what_judges_prefer_is_kept_and_a_broken_rule_is_not(task: Path, tmp_path: Path):
    with run(compile_task(task).plan, tmp_path / "home") as done:
        verdicts = [closed.verdict for closed in done.state.history[:2]]
        shown = step_text(step_detail(done, 1), traces=False)
        report = markdown(done)
    # the humble draft is loud too, and its judges would say so: the rule comes before them
    assert [verdict.outcome for verdict in verdicts] == ["discard", "keep"]
    assert "finding    judge 1: loud 5 of 5: I can hear it" in shown
    assert "finding    judge 2: whole yes: none is missing" in shown
    assert "judged by openai_compatible/strict, openai_compatible/mild" in report
    assert "rules cap it at 0" in report


@pytest.mark.slow
@some_or_all
def test_a_judged_run_cut_after_anything_it_wrote_asks_nothing_again(
    task: Path, tmp_path: Path, server: ModelServer, everything: bool
):
    def make() -> Plan:
        return compile_task(task).plan

    state = check_every_cut(make, server, tmp_path, everything=everything)
    assert state.keeps == 1


@pytest.mark.slow
@some_or_all
def test_a_judged_run_whose_journal_lost_its_open_steps_asks_nothing_again(
    task: Path, tmp_path: Path, server: ModelServer, everything: bool
):
    def make() -> Plan:
        return compile_task(task).plan

    check_every_cut(make, server, tmp_path, everything=everything, lost=True)


@pytest.mark.parametrize("wordy", [True, False])
def test_scores_that_move_with_length_are_told_in_the_report(
    wordy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def verbose(seen: Seen) -> str:
        if seen.model == "target":
            words = int(re.findall(r"\d+", seen.lines[0].text)[0])
            return f"{seen.text} " + "word " * (words + len(seen.text) % 3)
        (output,) = re.findall(r"<output-[0-9a-f]{8}>\n(.*?)\n</", seen.text, re.DOTALL)
        level = len(output) if wordy else sum(map(ord, seen.text))
        return json.dumps({"good": {"reason": "", "level": min(100, level % 101)}})

    for words in (3, 12, 6, 9):
        (tmp_path / "drafts" / str(words)).mkdir(parents=True)
        (tmp_path / "drafts" / str(words) / "prompt.md").write_text(f"Use {words} words.\n")
    (tmp_path / "prompt.md").write_text("Use 5 words.\n")
    rows = ({"id": f"c{n}", "question": "why" * (n + 1)} for n in range(8))
    write_cases(tmp_path, rows)
    with ModelServer(verbose) as server:
        monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
        scorer = (
            "{type: judge, judges: [{provider: openai_compatible, model: j, cache: false}], "
            "criteria: [{name: good, means: it is, scale: [0, 100]}]}"
        )
        text = re.sub(r"scorer:\n(  .*\n)+", f"scorer: {scorer}\n", TASK)
        (tmp_path / "task.yaml").write_text(text.replace("URL", server.v1))
        with run(compile_task(tmp_path / "task.yaml").plan, tmp_path / "home") as done:
            told = [line for line in as_json(done)["caveats"] if "moves with length" in line]
            page = markdown(done)
    assert len(told) == wordy
    if wordy:
        assert "longer outputs to the same case scored higher (rank correlation +" in told[0]
        assert told[0] in page
