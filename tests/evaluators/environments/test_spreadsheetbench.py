"""SpreadsheetBench: its folders, how cells are compared, programs in three modes, real tasks."""

import asyncio
import io
import json
import time as clock
import zipfile
from collections.abc import Callable, Sequence
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest, ToolCall
from kept.core.rollout import Failure, Job, Purpose, Rollout, Usage
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SetupError, SpecError
from kept.evaluators.environments.base import EnvSettings, Graded
from kept.evaluators.environments.chat_student import ChatRunner, EnvScorer
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.spreadsheetbench.cells import (
    Area,
    areas_of,
    differences,
    look,
    normal,
)
from kept.evaluators.environments.spreadsheetbench.environment import SpreadsheetBench
from kept.evaluators.environments.spreadsheetbench.tasks import ALL, SOME
from kept.evaluators.environments.spreadsheetbench.workbench import SOLUTION, code_in, look_at
from kept.evaluators.tools.libreoffice import recalculated
from kept.evaluators.tools.python_code import data_bench
from kept.models.scripted import Line
from kept.sandbox.bwrap import INSIDE
from kept.sandbox.workspace import Scratch
from kept.testing import EnvironmentSuite, MemoryJournal, ScriptedModel
from tests.evaluators.environments.shared import shared
from tests.evaluators.environments.spreadsheet_data import (
    SPREADSHEETS,
    doubled,
    program,
    row,
    row_id,
    rows,
    workbook,
    write_split,
    write_task,
    write_tasks,
)
from tests.evaluators.environments.spreadsheet_programs import PROGRAMS

D = datetime  # as workbooks hold them


NORMAL: list[tuple[object, object]] = [
    # by hand: numbers to two decimals, dates to whole days since 1899-12-30, times without seconds
    (None, None),
    ("", None),
    (" ", " "),
    (3, 3.0),
    (3.14159, 3.14),
    (2.675, 2.67),
    (-0.005, -0.01),
    (1234567.899, 1234567.9),
    (True, 1.0),
    (False, 0.0),
    ("3.14159", 3.14),
    (" 42 ", 42.0),
    ("1e3", 1000.0),
    ("1,000", "1,000"),
    ("12%", "12%"),
    ("abc", "abc"),
    ("ABC", "ABC"),
    ("nan", "nan"),
    ("inf", "inf"),
    ("#N/A", "#N/A"),
    ("TRUE", "TRUE"),
    (D(1899, 12, 30), 0.0),
    (D(1899, 12, 31), 1.0),
    (D(1900, 3, 1), 61.0),
    (D(2020, 8, 1), 44_044.0),
    (D(2020, 8, 1, 11, 0), 44_044.0),
    (D(2020, 8, 1, 12, 0), 44_044.0),
    (D(2020, 8, 1, 13, 0), 44_045.0),
    (D(2020, 8, 2, 12, 0), 44_046.0),
    (time(10, 30, 45), "10:30"),
    (time(0, 0), "00:00"),
    (time(10, 30, 0, 500_000), "10:30:00.500"),
    (timedelta(hours=25), ["duration", 90_000.0]),
]


@pytest.mark.parametrize(("value", "expected"), NORMAL)
def test_values_as_compared_by_hand(value: object, expected: object):
    assert normal(value) == expected
    assert json.loads(json.dumps(normal(value))) == expected


SAME: list[tuple[object, object, bool]] = [
    (None, "", True),
    (5, "5", True),
    (5, 5.004, True),
    (5, 5.006, False),
    (1, True, True),
    (0, False, True),
    (0, None, False),
    ("0", None, False),
    ("a", "A", False),
    ("a", "a ", False),
    ("nan", "nan", True),
    (44_044, D(2020, 8, 1), True),
    (D(2020, 8, 1, 3), D(2020, 8, 1, 9), True),
    (D(2020, 8, 1), D(2020, 8, 2), False),
    (D(2020, 8, 1), "2020-08-01", False),
    (time(10, 30, 1), time(10, 30, 59), True),
    (time(10, 30), "10:30", True),
    (time(10, 30), time(10, 31), False),
    (timedelta(hours=25), timedelta(hours=25), True),
    (timedelta(hours=25), 25, False),
    ("12%", 0.12, False),
]


@pytest.mark.parametrize(("gold", "got", "same"), SAME)
def test_cells_are_the_same_as_decided_by_hand(gold: object, got: object, same: bool):
    """Through workbooks: what is stored is read back, and compared."""
    (one, other) = (looked(workbook({"A1": value}), "A1") for value in (gold, got))
    wrong = list(differences(one, other, one["areas"]))
    assert wrong == [] if same else [one.where for one in wrong] == ["Sales!A1"]


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("C4", [Area("Data", 3, 4, 3, 4)]),
        ("A1:B2", [Area("Data", 1, 1, 2, 2)]),
        ("B2:A1", [Area("Data", 1, 1, 2, 2)]),
        ("$A$1:$B$2", [Area("Data", 1, 1, 2, 2)]),
        ("'Output'!A1:G10", [Area("Output", 1, 1, 7, 10)]),
        ("Output!AA3", [Area("Output", 27, 3, 27, 3)]),
        ("Updated Data'!B5:B9", [Area("Updated Data", 2, 5, 2, 9)]),
        ("Input!'A1:D4,'Output!'A1:G6'", [Area("Input", 1, 1, 4, 4), Area("Output", 1, 1, 7, 6)]),
        ("A1, C3", [Area("Data", 1, 1, 1, 1), Area("Data", 3, 3, 3, 3)]),
        ("'Smith, Ann'!A1,B2", [Area("Smith, Ann", 1, 1, 1, 1), Area("Data", 2, 2, 2, 2)]),
        ("'Ann''s'!A1", [Area("Ann's", 1, 1, 1, 1)]),
        ("A:B", [Area("Data", 1, 1, 2, 1_048_576)]),
        ("2:3", [Area("Data", 1, 2, 16_384, 3)]),
    ],
)
def test_positions_name_cells(position: str, expected: list[Area]):
    assert areas_of(position, ["Data", "Output", "Ann's"]) == expected


@pytest.mark.parametrize("position", ["", "all of it", "Data!", "A0B", "A1:", ","])
def test_a_position_that_names_no_cells_is_refused(position: str):
    with pytest.raises(ValueError, match="is no range of cells"):
        areas_of(position, ["Data"])


def looked(data: bytes, position: str = "C2:C4", **more: Any) -> dict[str, Any]:
    import base64

    return look(data=base64.b64encode(data).decode(), position=position, **more)


def test_a_missing_sheet_is_wrong_and_cells_elsewhere_do_not_count():
    gold = looked(workbook({"A1": 1, "Z9": 5}), "A1:B2")
    other = looked(workbook({"A1": 1, "Z9": 6}), "A1:B2")
    assert list(differences(gold, other, gold["areas"])) == []
    renamed = looked(workbook({"A1": 1}, "Sheet"), areas=gold["areas"], position="")
    (wrong,) = differences(gold, renamed, gold["areas"])
    assert wrong.where == "the sheet `Sales`"


def test_a_cell_that_is_too_much_is_wrong():
    gold, got = looked(workbook({"C2": 1})), looked(workbook({"C2": 1, "C3": 9}))
    assert [one.where for one in differences(gold, got, gold["areas"])] == ["Sales!C3"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("```python\na = 1\n```", "a = 1\n"),
        ("Look:\n```py\na = 1\n```\nand\n```python\nb = 2\n```", "a = 1\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```python\na = 1", "a = 1\n"),
        ("a = 1", "a = 1\n"),
        ('```python\ns = "```"\n```', 's = "```"\n'),
    ],
)
def test_the_first_block_of_code_is_the_program(said: str, code: str):
    assert code_in(said) == code


class Suite(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_tasks(tmp_path)

    def data(self):
        return self._folder / "dataset.json"

    def metrics(self):
        return ("workbooks_right", "tries")


@pytest.mark.sandbox
class TestSingle(Suite):
    def make_env(self):
        return SpreadsheetBench(mode="single", data_root=self._folder, recalculate=False)

    def solving(self, case: Case) -> Sequence[Line]:
        return [program()]

    def failing(self, case: Case) -> Sequence[Line]:
        return [program(3)]


@pytest.mark.sandbox
class TestMulti(Suite):
    def make_env(self):
        return SpreadsheetBench(max_turns=2, data_root=self._folder, recalculate=False)

    def solving(self, case: Case) -> Sequence[Line]:
        return ["```python\nraise ValueError('no')\n```", program()]

    def failing(self, case: Case) -> Sequence[Line]:
        return ["```python\nraise ValueError('no')\n```", program(3)]


def leaving(text: str) -> list[Line]:
    line = f"cat > {SOLUTION} <<'END'\n{code_in(text)}END\npython3 -c 'print(41 + 1)'; ls"
    call = ToolCall("1", "bash", json.dumps({"command": line}))
    return [ModelReply("", Usage(1), "tool_calls", (call,)), "It is done."]


@pytest.mark.sandbox
class TestReact(Suite):
    def make_env(self):
        return SpreadsheetBench(mode="react", data_root=self._folder, recalculate=False)

    def solving(self, case: Case) -> Sequence[Line]:
        return leaving(program())

    def failing(self, case: Case) -> Sequence[Line]:
        return leaving(program(3))


Script = Sequence[Line] | Callable[[ModelRequest], Line]


def rolled(
    env: SpreadsheetBench, case: Case, script: Script, purpose: Purpose = "decide"
) -> tuple[Rollout, Score]:
    async def once() -> tuple[Rollout, Score]:
        job = Job("x", case.id, 0, purpose)
        scope = JournalScope(MemoryJournal(), job)
        candidate = Candidate(env.skill())
        rollout = await ChatRunner(env, ScriptedModel(script)).run(job, candidate, case, scope)
        assert isinstance(rollout, Rollout), rollout
        score = await EnvScorer(env).score(job, rollout, candidate, case, scope)
        await env.close()
        assert isinstance(score, Score), score
        return rollout, score

    return asyncio.run(once())


def made(root: Path, **options: Any) -> tuple[SpreadsheetBench, Case]:
    write_tasks(root, 1)
    given: dict[str, Any] = {"recalculate": False, **options}
    env = SpreadsheetBench(data_root=root, **given)
    return env, next(iter(env.read(root))).case


def asked(rollout: Rollout) -> list[str]:
    return [item.text for item in rollout.trace if item.role == "user"][1:]


@pytest.mark.sandbox
def test_wrong_cells_are_named_in_training_alone_and_without_what_is_expected(tmp_path: Path):
    env, case = made(tmp_path)
    rollout, score = rolled(env, case, [program(3), program()], "feedback")
    assert score.metrics["hard"] == 1 and rollout.metrics["tries"] == 2
    (told,) = asked(rollout)
    assert "Sales!C2: your output = 306.0 (WRONG)" in told and "204" not in told
    for purpose in ("screen", "decide", "test"):
        rollout, score = rolled(env, case, [program(3)], purpose)  # type: ignore[arg-type] # words
        assert (score.metrics["hard"], asked(rollout)) == (0, [])
    assert "204" not in score.findings[0].text


@pytest.mark.sandbox
def test_errors_are_told_and_the_last_program_counts(tmp_path: Path):
    env, case = made(tmp_path, max_turns=3)
    bad = "```python\nimport nothing_like_it\n```"
    silent = "```python\nprint('saved nothing')\n```"
    rollout, score = rolled(env, case, [bad, silent, program()])
    first, second = asked(rollout)
    assert "No module named 'nothing_like_it'" in first
    assert "nothing was saved to OUTPUT_PATH" in second and "saved nothing" in second
    assert score.metrics["hard"] == 1 and rollout.metrics["tries"] == 3
    rollout, score = rolled(env, case, [bad, bad, bad])
    assert (score.metrics["hard"], score.metrics["soft"]) == (0, 0)
    assert "workbook 2: the program failed" in score.findings[0].text


@pytest.mark.sandbox
def test_a_program_that_only_fits_the_first_workbook_is_right_in_part(tmp_path: Path):
    env, case = made(tmp_path, mode="single")
    fixed = program().replace("sheet.cell(row, 2).value * 2", "2 * (100 + row)")
    rollout, score = rolled(env, case, [fixed])
    assert (score.metrics["hard"], score.metrics["soft"]) == (0, 0.5)
    assert score.findings[0].text.startswith("workbook 2: Sales!C2: your output = 204")
    assert {"code.py", "1_pred.xlsx", "2_pred.xlsx"} <= {*rollout.files}
    assert rollout.output == code_in(fixed)


@pytest.mark.sandbox
def test_a_program_sees_neither_the_answers_nor_the_network(tmp_path: Path):
    env, case = made(tmp_path, mode="single")
    spy = f"""```python
import os, socket
found = [name for _, _, names in os.walk({str(tmp_path)!r}) for name in names]
assert not found, found
try:
    socket.create_connection(("127.0.0.1", 9), 1)
except OSError as error:
    print("refused", error)
assert os.environ.get("OPENAI_API_KEY") is None
{code_in(program())}```"""
    _, score = rolled(env, case, [spy])
    assert score.metrics["hard"] == 1, score.findings


@pytest.mark.sandbox
def test_a_program_that_hangs_or_fills_the_disk_or_memory_is_ended(tmp_path: Path):
    env, case = made(tmp_path, mode="single", code_timeout=1.0)
    began = clock.monotonic()
    for code in (
        "while True: pass",
        "open(OUTPUT_PATH, 'wb').write(b'a' * 99 * 2**20)",
        "[0] * 10**10",
    ):
        _, score = rolled(env, case, [f"```python\n{code}\n```"])
        assert score.metrics["hard"] == 0
        assert "the program failed" in score.findings[0].text
    assert clock.monotonic() - began < 60


@pytest.mark.sandbox
def test_an_agent_is_graded_by_the_program_that_it_leaves(tmp_path: Path):
    """It is asked once, in every mode."""
    env, case = made(tmp_path, mode="multi")

    async def once(files: dict[str, bytes], said: str) -> Graded | Failure:
        job = Job("x", case.id, 0, "feedback")
        episode = env.begin(case, job, JournalScope(MemoryJournal(), job))
        posed = await episode.pose()
        assert not isinstance(posed, Failure)
        assert (
            posed.files["input.xlsx"] == (tmp_path / values(case)["workbooks"][0][0]).read_bytes()
        )
        turn = await episode.answer(said, files)
        assert not isinstance(turn, Failure) and turn.over
        await episode.close()
        return env.grade(case, Rollout(turn.output or "", files=turn.files))  # type: ignore[return-value] # no judge

    for files, said, hard in (
        ({SOLUTION: code_in(program()).encode()}, "I left it there.", 1),
        ({}, program(), 1),
        ({}, program(3), 0),
    ):
        graded = asyncio.run(once(files, said))
        assert isinstance(graded, Graded) and graded.hard == hard


def bomb() -> bytes:
    """A workbook of some kilobytes that unpacks to 300 MiB."""
    told = io.BytesIO(workbook({"C2": 1}))
    with zipfile.ZipFile(told, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/image1.png", b"\0" * (300 * 2**20))
    return told.getvalue()


def far() -> bytes:
    return workbook({"C2": 1, "XFD1048576": 2})


def broken() -> bytes:
    return workbook({"C2": 1})[:-50]


def laughing() -> bytes:
    """A workbook whose XML names entities of entities."""
    told = io.BytesIO()
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 20}">' for n in range(9))
    with (
        zipfile.ZipFile(io.BytesIO(workbook({"C2": "x"}))) as given,
        zipfile.ZipFile(told, "w") as out,
    ):
        for one in given.infolist():
            data = given.read(one)
            if one.filename == "xl/sharedStrings.xml":
                text = data.decode().partition("?>")[2] or data.decode()
                head = f'<!DOCTYPE sst [<!ENTITY e0 "ha">{entities}]>'
                data = (head + text.replace(">x<", ">&e9;<")).encode()
            out.writestr(one, data)
    return told.getvalue()


def test_hostile_workbooks_are_read_in_bounded_time_and_memory():
    began = clock.monotonic()
    areas = [["Sales", 3, 2, 3, 4]]
    hostile = (bomb(), broken(), b"", b"PK")
    found = [asyncio.run(look_at(data, areas)) for data in hostile]
    assert all("unreadable" in one for one in found), found
    assert "unpacks to 300 MiB" in found[0]["unreadable"]
    assert "haha" not in json.dumps(asyncio.run(look_at(laughing(), areas)))
    assert asyncio.run(look_at(far(), areas))["cells"] == {"Sales": {"C2": 1.0}}
    assert clock.monotonic() - began < 60


def test_both_schemes_of_names_and_ids_are_read(tmp_path: Path):
    path = write_tasks(tmp_path, 3, 2)
    bare = tmp_path / "spreadsheet" / row_id(0)
    for old in sorted(bare.iterdir()):
        old.rename(
            bare
            / (
                "initial.xlsx"
                if "1_" in old.name[:2] and "input" in old.name
                else "golden.xlsx"
                if old.name.startswith("1_")
                else "notes.txt"
            )
        )
    items = list(SpreadsheetBench(data_root=tmp_path).read(path))
    assert [one.case.id for one in items] == ["0-0", "40001", "2-2"]
    assert [len(values(one.case)["workbooks"]) for one in items] == [1, 2, 2]
    names = [Path(values(one.case)["workbooks"][0][2]).name for one in items]
    assert names == ["golden.xlsx", "1_40001_answer.xlsx", "1_2-2_golden.xlsx"]
    assert "A2=thing 2 | B2=102" in values(items[0].case)["preview"]


def test_rows_of_a_published_split_find_the_rest_in_the_dataset(tmp_path: Path):
    split = write_split(tmp_path, (2, 2, 1))
    env = SpreadsheetBench(data_root=tmp_path / SPREADSHEETS)
    settings = EnvSettings(
        name=env.name, folder=tmp_path, split_mode="split_dir", split_dir=str(split)
    )
    cases = part(env, settings).cases
    assert [case.id for case in cases.train] == ["0-0", "40001"]
    assert values(cases.train[1])["instruction"].startswith("Task 1: put twice")


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    given = [write_task(tmp_path, n) for n in range(8)]
    folders = [tmp_path / "spreadsheet" / row_id(n) for n in range(8)]
    (folders[0] / "1_0-0_answer.xlsx").unlink()
    for one in folders[1].iterdir():
        one.unlink()
    given[2]["spreadsheet_path"] = "../../etc"
    given[3]["spreadsheet_path"] = "spreadsheet/nowhere"
    given[4]["answer_position"] = "somewhere"
    given[5]["answer_position"] = "'Nowhere'!A1"
    (folders[6] / "2_6-6_answer.xlsx").write_bytes(bomb())
    given[7]["instruction"] = ""
    (tmp_path / "dataset.json").write_text("[\n" + ",\n".join(map(json.dumps, given)) + "\n]")
    with pytest.raises(SpecError) as raised:
        list(SpreadsheetBench(data_root=tmp_path).read(tmp_path))
    told = [(p.place or ("", 0), p.message) for p in raised.value.problems]
    assert [line for (_, line), _ in told] == [*range(2, 10)]
    words = [
        *("no workbook with its answer", "there is no workbook in", "leaves the data"),
        *("there is no folder `spreadsheet/nowhere`", "is no range of cells"),
        *("there is no sheet `Nowhere`", "unpacks to 300 MiB", "`instruction` is empty"),
    ]
    for (_, message), wanted in zip(told, words, strict=True):
        assert wanted in message


def test_duplicate_ids_are_refused_with_both_places(tmp_path: Path):
    rows_ = [write_task(tmp_path, n) for n in range(3)]
    (tmp_path / "dataset.json").write_text(json.dumps([*rows_, row(0)]))
    settings = EnvSettings(name="spreadsheetbench", folder=tmp_path, data_path="dataset.json")
    with pytest.raises(SpecError, match="0-0"):
        part(SpreadsheetBench(data_root=tmp_path), settings)


def test_cases_that_are_solved_untouched_are_named(tmp_path: Path):
    path = write_tasks(tmp_path, 10, 2)
    for n, case in ((3, 1), (5, 1), (5, 2)):
        name = f"{case}_{row_id(n)}"
        first = "init" if n % 3 == 2 else "input"
        place = tmp_path / "spreadsheet" / row_id(n) / f"{name}_{first}.xlsx"
        place.write_bytes(workbook(doubled(n, case)))
    settings = EnvSettings(name="spreadsheetbench", folder=tmp_path, data_path=str(path))
    parted = part(SpreadsheetBench(data_root=tmp_path), settings)
    one, all_ = sorted(parted.notes, key=lambda note: ALL in note)
    assert SOME in one and "`40003` (" in one and "`40005`" not in one
    assert ALL in all_ and "`40005` (" in all_
    assert len(parted.cases.by_id) == 10, "they are named, and used"


def test_a_workbook_that_changed_stops_the_case(tmp_path: Path):
    env, case = made(tmp_path)
    (tmp_path / values(case)["workbooks"][1][0]).write_bytes(workbook(rows(7, 7)))
    assert env.pose(case).prompt, "the first is as it was"
    (tmp_path / values(case)["workbooks"][0][0]).write_bytes(workbook(rows(7, 7)))
    with pytest.raises(SetupError, match="has changed since its case was read"):
        env.pose(case)
    assert next(iter(SpreadsheetBench(data_root=tmp_path).read(tmp_path))).case != case


def test_the_two_prompts_differ_by_rules(tmp_path: Path):
    env, case = made(tmp_path, mode="single")
    custom = SpreadsheetBench(mode="single", prompt="custom", data_root=tmp_path).pose(case)
    official = env.pose(case)
    assert official.prompt == custom.prompt
    assert "Critical Rules" in custom.system and custom.system.startswith(official.system)
    assert "openpyxl" in official.system and "INPUT_PATH" in official.system


def test_a_machine_without_libreoffice_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = SpreadsheetBench(data_root=tmp_path).needs()
    assert "install the Debian package libreoffice-calc" in said
    assert "LibreOffice" not in SpreadsheetBench(data_root=tmp_path, recalculate=False).needs()


def real() -> tuple[SpreadsheetBench, list[Case]]:
    root = shared("spreadsheetbench")
    env = SpreadsheetBench(mode="single", data_root=root)
    return env, [one.case for one in env.read(root)]


def test_real_workbooks_equal_themselves_and_eleven_are_solved_untouched():
    env, cases = real()
    found = [env._books.untouched(case) for case in cases]
    assert (len(cases), sum(map(len, found)), sum(map(sum, found))) == (27, 81, 11)
    root = env.data_root
    for case in cases:
        for n, (_, _, path, _) in enumerate(values(case)["workbooks"]):
            gold = env._books.gold(case, n)
            again = look(path=str(root / path), areas=gold["areas"])
            assert list(differences(gold, again, gold["areas"])) == []


@pytest.mark.office
@pytest.mark.sandbox
def test_formulas_are_worked_out_by_libreoffice(tmp_path: Path):
    env, case = made(tmp_path, mode="single", recalculate=True)
    assert not env.needs()
    rollout, score = rolled(env, case, [program(formulas=True)])
    assert score.metrics["hard"] == 1, score.findings
    raw = looked(rollout.files["1_pred.xlsx"], formulas=True)
    assert raw["formulas"] and raw["cells"] == {"Sales": {}}, "the program stored no values"
    _, score = rolled(env, case, [program(3, formulas=True)])
    assert "Sales!C2: your output = 306" in score.findings[0].text
    plain, case = made(tmp_path, mode="single")
    _, score = rolled(plain, case, [program(formulas=True)])
    assert score.metrics["hard"] == 0, "without LibreOffice a formula is an empty cell"


def office(books: dict[str, bytes], seconds: float = 120.0) -> Any:  # workbooks, or a failure
    async def once() -> Any:  # the same
        scratch = Scratch()
        try:
            return await recalculated(data_bench(scratch, ()), books, seconds)
        finally:
            scratch.close()

    return asyncio.run(once())


def linked(target: str) -> bytes:
    """A workbook with a cell of another file, as Excel stores such links."""
    import openpyxl
    from openpyxl.packaging.relationship import Relationship
    from openpyxl.workbook.external_link.external import ExternalBook, ExternalLink

    book: Any = openpyxl.Workbook()
    book.active["A1"] = "=[1]Sheet1!A1"
    book.active["A2"] = f'=_xlfn.WEBSERVICE("{target}")'
    book.active["A3"] = f'=HYPERLINK("{target}","here")'
    book.active["A4"] = "=20+22"
    link: Any = ExternalLink(externalBook=ExternalBook(id="rId1"))
    linking: Any = Relationship
    link.file_link = linking(type="externalLinkPath", Target=target, TargetMode="External")
    book._external_links.append(link)
    told = io.BytesIO()
    book.save(told)
    return told.getvalue()


@pytest.mark.office
@pytest.mark.sandbox
def test_a_workbook_reads_no_other_file(tmp_path: Path):
    """Neither by a link nor by a function: not even the workbook that lies beside it."""
    beside = f"file://{INSIDE}/output/in/2.xlsx"
    came = office({"1.xlsx": linked(beside), "2.xlsx": workbook({"A1": 987_654}, "Sheet1")})
    with zipfile.ZipFile(io.BytesIO(came["1.xlsx"])) as archive:
        said = b"".join(archive.read(one) for one in archive.namelist())
    assert b">42<" in said, "what needs no other file is worked out"
    assert b"987654" not in said


@pytest.mark.office
@pytest.mark.sandbox
def test_a_workbook_that_takes_too_long_is_ended_with_all_that_it_started():
    cells = {f"A{n}": f"=SUMPRODUCT(--(MOD(ROW($1:$1048576)*{n},7)=3))" for n in range(1, 4000)}
    began = clock.monotonic()
    found = office({"1.xlsx": workbook(cells)}, 5.0)
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("timeout", "candidate")
    assert clock.monotonic() - began < 40
    left = [one for one in Path("/proc").glob("[0-9]*/cmdline") if mine(one)]
    assert not left


def mine(path: Path) -> bool:
    """Whether a process is a LibreOffice of these tests, by the profile that it was given."""
    try:
        return b"UserInstallation=file:///run/kept" in path.read_bytes()
    except OSError:
        return False


@pytest.mark.office
@pytest.mark.sandbox
def test_macros_and_other_formats_are_not_opened(tmp_path: Path):
    """What only calls itself a workbook is refused before LibreOffice sees it."""
    told = io.BytesIO()
    with zipfile.ZipFile(told, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", "<office:document-content/>")
    env, case = made(tmp_path, mode="single", recalculate=True)
    code = f"open(OUTPUT_PATH, 'wb').write({told.getvalue()!r})"
    _, score = rolled(env, case, [f"```python\n{code}\n```"])
    assert "the workbook cannot be read" in score.findings[0].text
    assert "it is no sound workbook" in score.findings[0].text
    macro = io.BytesIO(workbook({"C2": 1, "C3": "=C2+41"}))
    with zipfile.ZipFile(macro, "a") as archive:
        archive.writestr("xl/vbaProject.bin", b"\xd0\xcf\x11\xe0" + bytes(4000))
    came = office({"1.xlsx": macro.getvalue(), "2.xlsx": b"PK no workbook"})
    assert looked(came["1.xlsx"])["cells"] == {"Sales": {"C2": 1.0, "C3": 42.0}}
    assert "2.xlsx" not in came or "unreadable" in looked(came["2.xlsx"])
    with zipfile.ZipFile(io.BytesIO(came["1.xlsx"])) as archive:
        assert not any("vba" in name for name in archive.namelist())


def check_recalculated(cases: Sequence[Case], env: SpreadsheetBench) -> int:
    """Expected workbooks equal themselves after LibreOffice saved a copy; how many there were."""
    golds = {
        f"{n}-{case.id}.xlsx": (case, n, Path(values(case)["workbooks"][n][2]))
        for case in cases
        for n in range(len(values(case)["workbooks"]))
    }
    came = office({name: (env.data_root / path).read_bytes() for name, (*_, path) in golds.items()})
    assert set(came) == set(golds)
    for name, (case, n, _) in golds.items():
        gold = env._books.gold(case, n)
        again = looked(came[name], areas=gold["areas"], position="")
        assert list(differences(gold, again, gold["areas"])) == [], name
    return len(came)


@pytest.mark.office
@pytest.mark.sandbox
def test_some_real_workbooks_equal_themselves_after_libreoffice():
    env, cases = real()
    assert check_recalculated(cases[:3], env) == 9


@pytest.mark.nightly
@pytest.mark.office
@pytest.mark.sandbox
def test_all_real_workbooks_equal_themselves_after_libreoffice():
    env, cases = real()
    assert check_recalculated(cases, env) == 81


def check_solved(names: Sequence[str]) -> None:
    env, cases = real()
    by_id = {case.id: case for case in cases}
    for name in names:
        _, score = rolled(env, by_id[name], [PROGRAMS[name]])
        assert (score.metrics["hard"], score.metrics["soft"]) == (1, 1), (name, score.findings)


@pytest.mark.office
@pytest.mark.sandbox
def test_some_real_tasks_are_solved_with_values_and_with_formulas():
    check_solved(["79-7", "39604"])


@pytest.mark.nightly
@pytest.mark.office
@pytest.mark.sandbox
def test_real_tasks_are_solved_by_right_programs():
    assert len(PROGRAMS) >= 10
    env, cases = real()
    solved = {case.id for case in cases if any(env._books.untouched(case))}
    assert not solved & {*PROGRAMS}, "none of them is solved by doing nothing"
    check_solved([*PROGRAMS])
