"""OfficeQA: its rows and documents, the tool loop, and both measures by hand."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest, ToolCall
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import EnvSettings, Graded
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.officeqa import OfficeQa, normal, numbers_in, official, token_f1
from kept.evaluators.environments.registry import find_env
from kept.models.scripted import Line, ScriptedModel
from kept.testing import EnvironmentSuite, MemoryJournal
from tests.evaluators.environments.officeqa_data import (
    BULLETINS,
    bulletin,
    csv_row,
    spent,
    write_documents,
    write_rows,
    write_split,
)
from tests.evaluators.environments.shared import shared

FOLDER = Path("data") / "officeqa_docs_official"


def called(tool: str, number: int = 1, **arguments: object) -> ModelReply:
    call = ToolCall(f"c{number}", tool, json.dumps(arguments))
    return ModelReply("", finish="tool_calls", tool_calls=(call,))


def results(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages if message.role == "tool"]


def looking(case: Case) -> Callable[[ModelRequest], Line]:
    """Lists the documents, searches them for the year, and answers with the figure found."""
    year = values(case)["question"].partition(" in ")[2][:4]

    def say(request: ModelRequest) -> Line:
        seen = results(request)
        if not seen:
            return called("glob", pattern="*")
        if len(seen) == 1:
            assert seen[0].splitlines() == sorted(values(case)["source_files"])
            return called("grep", 2, pattern=f"| {year} |")
        return f"<answer>{seen[1].split('|')[3].strip()}</answer>"

    return say


class TestOfficeQa(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_split(tmp_path)

    def make_env(self):
        return OfficeQa(data_dirs=(self._folder / FOLDER,))

    def data(self):
        return self._folder / "data" / "officeqa_split" / "train"

    def solving(self, case: Case) -> Sequence[Line] | Callable[[ModelRequest], Line]:
        return looking(case)

    def failing(self, case: Case) -> Sequence[Line]:
        return [called("grep", pattern="defense"), "<answer>12 million</answer>"]

    def metrics(self):
        return ("em", "f1")


class TestOfficeQaByThePublishedRule(TestOfficeQa):
    def make_env(self):
        return OfficeQa(data_dirs=(self._folder / FOLDER,), measure="official", tolerance=0.01)


EXACT: list[tuple[str, str, bool]] = [
    # by hand: lower case; commas, other punctuation than . - %, and four words of units dropped
    ("3,702", "3702", True),
    ("3702", "3,702", True),
    ("3702.", "3702", False),
    ("3,702 million", "3,702", True),
    ("$3,702 million", "3,702", True),
    ("46080", "46080 million", True),
    ("46080 Millions of dollars", "46080 million", False),
    ("887.3 billion", "887.3", True),
    ("1708.80%", "1708.80%", True),
    ("1708.80", "1708.80%", False),
    ("1708.8%", "1708.80%", False),
    ("-17.41%", "-17.41%", True),
    ("17.41%", "-17.41%", False),
    ("\u22123.624", "-3.624", True),
    ("-3.624", "\u22123.624", True),
    ("3.624", "\u22123.624", False),
    ("[0.086, -174.143]", "[0.086, \u2212174.143]", True),
    ("0.086 -174.143", "[0.086, \u2212174.143]", True),
    ("[-174.143, 0.086]", "[0.086, \u2212174.143]", False),
    ("march 5 1957", "March 5, 1957", True),
    ("March 1957", "March 5, 1957", False),
    ("  October\n1976 ", "October 1976", True),
    ("nominal dollars 509", "509", True),
    ("509 (nominal)", "509", True),
    ("509 thousand", "509", False),
    ("[0.022, Surplus]", "[0.022, surplus]", True),
]


@pytest.mark.parametrize(("answer", "gold", "same"), EXACT)
def test_equality_as_computed_by_hand(answer: str, gold: str, same: bool):
    assert (normal(answer) == normal(gold)) is same


F1: list[tuple[str, str, float]] = [
    # by hand: 2 * words in common / (words of one + words of the other)
    ("3,702", "3702", 1.0),
    ("3,702 million", "3702", 1.0),
    ("3703", "3702", 0.0),
    ("about 3702", "3702", 2 / 3),
    ("about 3702 in all", "3702", 2 / 5),
    ("March 5, 1957", "March 5, 1957", 1.0),
    ("March 1957", "March 5, 1957", 4 / 5),
    ("April 5, 1957", "March 5, 1957", 4 / 6),
    ("1957", "October 1976", 0.0),
    ("October", "October 1976", 2 / 3),
    ("1976 October", "October 1976", 1.0),
    ("[0.086, 1]", "[0.086, -174.143]", 1 / 2),
    ("[0.086]", "[0.086, -174.143]", 2 / 3),
    ("[1, 1, 1]", "[1, 2, 3]", 1 / 3),
    ("[1, 1, 3]", "[1, 1, 2]", 2 / 3),
    ("[3, 2, 1]", "[1, 2, 3]", 1.0),
    ("million", "billion", 1.0),
    ("million", "12", 0.0),
    ("12", "$", 0.0),
    ("the total was 7 of 9", "7", 2 / 7),
    ("a b c d", "a b x y", 1 / 2),
    ("0.5%", "0.5", 0.0),
]


@pytest.mark.parametrize(("answer", "gold", "expected"), F1)
def test_shared_words_as_computed_by_hand(answer: str, gold: str, expected: float):
    assert token_f1(answer, gold) == pytest.approx(expected)


OFFICIAL: list[tuple[str, str, float, bool]] = [
    # by hand, from the published rule: |expected - found| / |expected| <= tolerance
    ("3,702", "3702", 0.0, True),
    ("It was $3,702 million in 1940", "3,702", 0.0, True),
    ("3703", "3702", 0.0, False),
    ("3703", "3702", 0.001, True),
    ("3740", "3702", 0.01, False),
    ("3739", "3702", 0.01, True),
    ("3665", "3702", 0.01, True),
    ("-3702", "3702", 0.05, False),
    ("(1,557.86)", "-1,557.86 millions", 0.0, True),
    ("-$1,557.86", "\u22121,557.86", 0.0, True),
    ("0", "0", 0.0, True),
    ("0.0001", "0", 0.5, False),
    # the numbers are compared as they stand; units have to agree where both are named
    ("543", "543 million", 0.0, True),
    ("543 Millions", "543 million", 0.0, True),
    ("543 M", "543 million", 0.0, True),
    ("543 billion", "543 million", 0.0, False),
    ("0.543 billion", "543 million", 0.0, False),
    ("543000000", "543 million", 0.05, False),
    ("8.79", "8.79%", 0.0, True),
    ("0.0879", "8.79%", 0.0, False),
    # an answer has as many numbers as are expected; years count only where one is expected
    ("3702 or 3703", "3702", 0.0, False),
    ("1940", "1940", 0.0, True),
    ("in 1940", "1939.5", 0.05, False),
    ("1940.5 in 1950", "1939.5", 0.05, True),
    ("1980 and 1950", "1950", 0.0, False),
    # what stands beside the numbers has to agree
    ("March 5, 1957", "March 5, 1957", 0.0, True),
    ("April 5, 1957", "March 5, 1957", 0.0, False),
    ("1957-03", "March 5, 1957", 0.0, False),
    ("It was October 1976", "October 1976", 0.0, True),
    ("1976", "October 1976", 0.0, False),
    # of a list every number has to be there, in order
    ("[0.086, -174.143]", "[0.086, \u2212174.143]", 0.0, True),
    ("0.086 and -174.143", "[0.086, \u2212174.143]", 0.0, True),
    ("[-174.143, 0.086]", "[0.086, \u2212174.143]", 0.0, False),
    ("[0.086, 174.143]", "[0.086, \u2212174.143]", 0.0, False),
    ("0.086", "[0.086, \u2212174.143]", 0.0, False),
    ("[0.0861, -174.2]", "[0.086, \u2212174.143]", 0.01, True),
    ("55, 242.52", "[55.00,242.52]", 0.0, True),
    ("[8,152,260]", "[8, 152260]", 0.0, True),
    ("8,152,260", "8152260", 0.0, True),
    ("[36.58, usual]", "[36.58, unusual]", 0.0, True),
    ("[36.58, calm]", "[36.58, unusual]", 0.0, False),
    ("36.58", "[36.58, unusual]", 0.0, False),
    # without numbers the text has to be the expected one
    ("Surplus", "surplus", 0.0, True),
    ("the surplus", "surplus", 0.0, False),
    ("Insurance Trust Fund", "Insurance (OASI) Trust Fund", 0.0, True),
    ("surplus 3", "surplus", 0.0, False),
    # an answer is one line of at most 250 characters, without markup
    ("3702\n3702", "3702", 0.0, False),
    ("<b>3702</b>", "3702", 0.0, False),
    ("the figure is " * 20 + "3702", "3702", 0.0, False),
    ("unable to determine, perhaps 3702", "3702", 0.0, False),
    ("unknown", "42", 0.0, False),
]


@pytest.mark.parametrize(("answer", "gold", "tolerance", "same"), OFFICIAL)
def test_the_published_rule_as_computed_by_hand(
    answer: str, gold: str, tolerance: float, same: bool
):
    assert official(answer, gold, tolerance) is same


def test_a_list_with_many_commas_is_compared_in_no_time():
    """There are more ways to part it than could be tried one by one."""
    gold = f"[{', '.join(['111,111'] * 29)}, 5]"
    answer = f"{','.join(['111'] * 45)},999"
    assert not official(answer, gold, tolerance=1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[55.00,242.52]", [55.0, 242.52]),
        ("[364,443, 371,327]", [364443, 371327]),
        ("12,5 and 1,234.5", [12, 5, 1234.5]),
        ("-$1,557.86 million", [-1557.86]),
        ("(1,557.86) and (1940)", [-1557.86, 1940]),
        ("$ 572,397.00", [572397.0]),
        ("FY1940, Q3", [1940, 3]),
        ("none", []),
    ],
)
def test_numbers_are_found_as_they_are_written(text: str, expected: list[float]):
    assert [number.value for number in numbers_in(text)] == expected


def env_of(folder: Path, **options: object) -> OfficeQa:
    return OfficeQa(data_dirs=(folder / FOLDER,), **options)  # type: ignore[arg-type] # options of a test


def case_of(folder: Path, n: int = 0) -> Case:
    split = folder / "data" / "officeqa_split" / "train"
    return list(env_of(folder).read(split))[n].case


def rolled(env: OfficeQa, case: Case, script: Callable[[ModelRequest], Line]) -> Rollout | Failure:
    candidate = Candidate(env.skill())
    job = Job(candidate.id, case.id, 0, "decide")
    scope = JournalScope(MemoryJournal(), job)
    return asyncio.run(ChatRunner(env, ScriptedModel(script)).run(job, candidate, case, scope))


def test_rows_of_the_csv_split_are_read(tmp_path: Path):
    write_split(tmp_path)
    case = case_of(tmp_path)
    assert case.id == "UID0000"
    assert values(case)["source_files"] == [BULLETINS[2], BULLETINS[0]]
    assert [one["path"] for one in values(case)["documents"]] == [BULLETINS[2], BULLETINS[0]]
    about = env_of(tmp_path).about(case)
    assert (about.type, about.reference, about.golds) == ("easy", "1,537", ("1,537",))
    prompt = env_of(tmp_path).pose(case).prompt
    assert prompt.startswith("## Question\nWhat was spent for national defense in 1901")
    assert (
        f"## Candidate Files\n- {BULLETINS[2]}\n- {BULLETINS[0]}\n\n## Source Hints\n- h" in prompt
    )


@pytest.mark.parametrize(
    "text", ["a.txt\nb.txt", "a.txt, b.txt", "a.txt,b.txt", '["a.txt", "b.txt"]']
)
def test_files_are_listed_in_each_form(tmp_path: Path, text: str):
    place = write_documents(tmp_path)
    for name in ("a.txt", "b.txt"):
        (place / name).write_text(name)
    path = write_rows(tmp_path / "rows.csv", [{**csv_row(0), "source_files": text}])
    (one,) = env_of(tmp_path).read(path)
    assert values(one.case)["source_files"] == ["a.txt", "b.txt"]


def test_an_address_with_a_comma_stays_whole(tmp_path: Path):
    write_documents(tmp_path)
    urls = "https://a.example/x,y?page=1, https://b.example/z"
    path = write_rows(tmp_path / "rows.csv", [{**csv_row(0), "source_docs": urls}])
    (one,) = env_of(tmp_path).read(path)
    assert values(one.case)["source_docs"] == ["https://a.example/x,y?page=1", urls.split()[1]]


def test_the_folder_with_texts_of_a_download_is_taken(tmp_path: Path):
    write_split(tmp_path)
    place = tmp_path / FOLDER
    (place / "transformed").mkdir()
    for name in BULLETINS:
        (place / name).rename(place / "transformed" / name)
    (place / "outside.txt").write_text("not a text of the download")
    case = case_of(tmp_path)
    assert [one["path"] for one in values(case)["documents"]] == [BULLETINS[2], BULLETINS[0]]


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    place = write_documents(tmp_path)
    (tmp_path / "elsewhere.txt").write_text("secret")
    (place / "link.txt").symlink_to(tmp_path / "elsewhere.txt")
    rows = [csv_row(n) for n in range(5)]
    rows[0]["answer"] = ""
    rows[1]["question"] = " "
    rows[2]["source_files"] = "gone.txt\nlost.txt"
    rows[3]["source_files"] = "../../elsewhere.txt"
    rows[4]["source_files"] = "link.txt"
    path = write_rows(tmp_path / "rows.csv", rows)
    with pytest.raises(SpecError) as raised:
        list(env_of(tmp_path).read(path))
    told = [(problem.where, problem.message) for problem in raised.value.problems]
    assert [message for _, message in told] == [
        "`answer` is empty, where a text or a list was expected",
        "`question` is empty, where a text was expected",
        f"there is no document `gone.txt`, `lost.txt` in {place}",
        f"there is no document `elsewhere.txt` in {place}",
        f"there is no document `link.txt` in {place}",
    ]
    lines = [int(where.rpartition(":")[2]) for where, _ in told]
    assert lines == sorted(lines) and len(set(lines)) == 5


def test_a_case_that_stands_twice_is_refused(tmp_path: Path):
    split = write_split(tmp_path)
    write_rows(split / "val" / "val.csv", [csv_row(0)])
    settings = EnvSettings(
        name="officeqa", folder=tmp_path, split_mode="split_dir", split_dir=str(split)
    )
    with pytest.raises(SpecError) as raised:
        part(env_of(tmp_path), settings)
    assert "UID0000" in str(raised.value)


def test_documents_that_are_not_there_are_one_error(tmp_path: Path):
    split = write_split(tmp_path)
    options = {"data_dirs": ["nowhere"]}
    settings = EnvSettings(
        name="officeqa",
        folder=tmp_path,
        split_mode="split_dir",
        split_dir=str(split),
        options=options,
    )
    env = find_env(settings)
    with pytest.raises(SpecError) as raised:
        part(env, settings)
    (problem,) = raised.value.problems
    assert problem.message == f"there is no folder with documents {tmp_path / 'nowhere'}"
    assert problem.hint == env.data


def test_only_the_named_documents_can_be_reached(tmp_path: Path):
    write_split(tmp_path)
    place = tmp_path / FOLDER
    (tmp_path / "secret.txt").write_text("the answer is 42")
    (place / "link.txt").symlink_to(tmp_path / "secret.txt")
    case = case_of(tmp_path, 1)
    (mine,) = values(case)["source_files"]
    other = next(name for name in BULLETINS if name != mine)
    tries = ["../../secret.txt", "link.txt", other, str(place / mine), f"../{FOLDER.name}/{mine}"]

    def say(request: ModelRequest) -> Line:
        seen = results(request)
        if len(seen) < len(tries):
            return called("read", len(seen), path=tries[len(seen)])
        if len(seen) == len(tries):
            return called("grep", 98, pattern="the answer is")
        if len(seen) == len(tries) + 1:
            return called("read", 99, path=mine)
        *refused, searched, text = seen
        assert all("is none of the documents" in one for one in refused), refused
        assert searched == "no line has `the answer is`"
        assert text.startswith(bulletin(BULLETINS.index(mine))[:40])
        return "<answer>done</answer>"

    rollout = rolled(env_of(tmp_path), case, say)
    assert isinstance(rollout, Rollout) and rollout.output == "<answer>done</answer>"


@pytest.mark.parametrize(("most", "ends"), [(3, True), (2, False)])
def test_replies_are_counted_with_the_answer(tmp_path: Path, most: int, ends: bool):
    write_split(tmp_path)
    case = case_of(tmp_path)
    rollout = rolled(env_of(tmp_path, max_tool_turns=most), case, looking(case))
    assert isinstance(rollout, Rollout)
    assert bool(rollout.output) is ends
    assert (rollout.trace[-1].role == "failure") is not ends


def test_the_seeds_limit_is_24_replies(tmp_path: Path):
    write_split(tmp_path)
    asked: list[int] = []

    def say(request: ModelRequest) -> Line:
        asked.append(1)
        return called("glob", len(asked), pattern=f"*{len(asked)}*")

    rollout = rolled(env_of(tmp_path), case_of(tmp_path), say)
    assert isinstance(rollout, Rollout) and not rollout.output
    assert len(asked) == 24


def test_a_reply_without_tags_is_a_failure_and_no_zero(tmp_path: Path):
    write_split(tmp_path)
    graded = env_of(tmp_path).grade(case_of(tmp_path), Rollout(spent(1901)))
    assert isinstance(graded, Failure)
    assert graded.blame == "candidate"


def test_both_measures_tell_what_they_measured(tmp_path: Path):
    write_split(tmp_path)
    said = Rollout("<answer>about 1,540 million</answer>")
    exact = env_of(tmp_path).grade(case_of(tmp_path), said)
    near = env_of(tmp_path, measure="official", tolerance=0.01).grade(case_of(tmp_path), said)
    assert isinstance(exact, Graded) and isinstance(near, Graded)
    assert (exact.hard, exact.soft, exact.metrics) == (0.0, 0.0, {"em": 0.0, "f1": 0.0})
    assert (near.hard, near.soft, near.why) == (1.0, 1.0, "")


def test_a_changed_document_makes_another_case_and_stops_the_old_one(tmp_path: Path):
    write_split(tmp_path)
    before = case_of(tmp_path)
    (tmp_path / FOLDER / BULLETINS[0]).write_text("another")
    assert case_of(tmp_path) != before
    scope = JournalScope(MemoryJournal(), Job("x", before.id, 0, "decide"))
    with pytest.raises(SetupError, match=r"treasury_bulletin_1941_01\.txt has changed"):
        env_of(tmp_path).begin(before, Job("x", before.id, 0, "decide"), scope)


def test_an_agent_cli_finds_the_named_documents(tmp_path: Path):
    write_split(tmp_path)
    posed = env_of(tmp_path).pose(case_of(tmp_path))
    assert dict(posed.files) == {
        BULLETINS[0]: bulletin(0).encode(),
        BULLETINS[2]: bulletin(2).encode(),
    }


@pytest.mark.parametrize(
    ("option", "value"),
    [("max_tool_turns", 0), ("tolerance", 1.5), ("exec_timeout", 0), ("data_dirs", ())],
)
def test_options_that_make_no_sense_are_refused(option: str, value: object):
    with pytest.raises(ValueError, match=f"`{option}`"):
        OfficeQa(**{option: value})  # type: ignore[arg-type] # options of a test


@pytest.mark.parametrize(("name", "size"), [("officeqa_full.csv", 246), ("officeqa_pro.csv", 133)])
def test_the_published_questions_are_read(tmp_path: Path, name: str, size: int):
    """The real questions, where they are, with documents written here."""
    import csv

    source = shared("officeqa", name)
    with source.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        for one in row["source_files"].split("\n"):
            (tmp_path / one.strip()).write_text(f"{one}: the answer is {row['answer']}\n")
    env = OfficeQa(data_dirs=(tmp_path,))
    cases = {one.case.id: one.case for one in env.read(source)}
    assert len(cases) == len(rows) == size
    for row in rows:
        case, gold = cases[row["uid"]], row["answer"]
        assert values(case)["source_files"] == [one.strip() for one in row["source_files"].split()]
        for made in (env, OfficeQa(data_dirs=(tmp_path,), measure="official")):
            graded = made.grade(case, Rollout(f"<answer>{gold}</answer>"))
            assert isinstance(graded, Graded) and graded.hard == graded.soft == 1, gold
            graded = made.grade(case, Rollout("<answer>1234.56789</answer>"))
            assert isinstance(graded, Graded) and graded.hard == 0, gold
