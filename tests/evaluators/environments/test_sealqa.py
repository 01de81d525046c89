"""SealQA: its rows, the further reply with pages, its judge, and equality by hand."""

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelRequest, ToolAnswer
from kept.core.rollout import Failure, Job, Rollout
from kept.engine.replay import JournalScope
from kept.errors import SpecError
from kept.evaluators.environments.base import EnvSettings, Graded, JudgeQuestion
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.datasets import part, values
from kept.evaluators.environments.sealqa import MOST_CHARS, SealQa, contained, normal, verdict
from kept.evaluators.tools import web_pages
from kept.evaluators.tools.web_pages import Pages, page_text
from kept.models.scripted import Line, ScriptedModel
from kept.testing import EnvironmentSuite, MemoryJournal
from tests.evaluators.environments.sealqa_data import (
    csv_row,
    founded,
    page,
    write_rows,
    write_split,
)


class TestSealQa(EnvironmentSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self._folder = tmp_path
        write_split(tmp_path)

    def make_env(self):
        return SealQa()

    def data(self):
        return self._folder / "data" / "sealqa_split" / "train"

    def solving(self, case: Case) -> Sequence[str]:
        return [f"It was <answer> {values(case)['answer'].upper()}! </answer>"]

    def failing(self, case: Case) -> Sequence[str]:
        return ["<answer>in 1066</answer>"]

    def metrics(self):
        return ("contained",)


class TestSealQaWithPagesAndAJudge(TestSealQa):
    def make_env(self):
        return SealQa(pages_dir=self._folder / "pages")

    def judge(self):
        return ScriptedModel(lambda asked: "B" if "in 1066" in asked.messages[-1].text else "A")

    def solving(self, case: Case) -> Sequence[str]:
        return ["Let me see.", f"<answer>the year {values(case)['answer'][3:]}</answer>"]

    def failing(self, case: Case) -> Sequence[str]:
        return ["Let me see.", "<answer>in 1066</answer>"]


EQUAL: list[tuple[str, str, bool, bool]] = [
    # by hand: lower case, single blanks, all signs dropped but % . -; equal; one inside the other
    ("8", "8", True, True),
    ("8.", "8", False, True),
    ("18", "8", False, True),
    ("eight", "8", False, False),
    ("  Jamie   Oliver ", "jamie oliver", True, True),
    ("Jamie Oliver!", "Jamie Oliver", True, True),
    ("Jamie's", "jamies", True, True),
    ("Oliver", "Jamie Oliver", False, True),
    ("It is Jamie Oliver", "Jamie Oliver", False, True),
    ("Oliver Jamie", "Jamie Oliver", False, False),
    ("9.5%", "9.5 %", False, False),
    ("9.5%", "9.5%", True, True),
    ("9.5", "9.5%", False, True),
    ("1,234", "1234", True, True),
    ("$1,234", "1234", True, True),
    ("-3", "3", False, True),
    ("well-known", "well known", False, False),
    ("a/b", "ab", True, True),
    ("snake_case", "snakecase", False, False),
    ("Zürich", "zürich", True, True),
    ("Zürich", "Zurich", False, False),
    ("", "8", False, False),
    ("?!", "8", False, False),
    ("3\nTom", "3 tom", True, True),
]


@pytest.mark.parametrize(("answer", "gold", "equal", "inside"), EQUAL)
def test_equality_as_computed_by_hand(answer: str, gold: str, equal: bool, inside: bool):
    assert (normal(answer) == normal(gold)) is equal
    assert contained(answer, gold) is inside


VERDICTS: list[tuple[str, str]] = [
    # by hand: the letter that a reply begins with; a word is no letter
    *(("A", "A"), ("B", "B"), ("C", "C"), (" A\n", "A"), ("A.", "A"), ("A: CORRECT", "A")),
    *(("(B)", "B"), ("**C**", "C"), ("`A`", "A"), ("'B'", "B"), ("A, and not B", "A")),
    *(("C - not attempted", "C"), ("B\nbecause it differs", "B"), ("- A", "A"), ("[C]", "C")),
    *(("", ""), ("D", ""), ("Correct", ""), ("About right", ""), ("a", ""), ("The answer: A", "")),
    *(("CORRECT", ""), ("BAD", ""), ("A1", ""), ("yes", "")),
]


@pytest.mark.parametrize(("reply", "letter"), VERDICTS)
def test_verdicts_as_read_by_hand(reply: str, letter: str):
    assert verdict(reply) == letter


def case_of(folder: Path, n: int = 0) -> Case:
    return list(SealQa().read(folder / "data" / "sealqa_split" / "train"))[n].case


def rolled(
    env: SealQa, case: Case, script: Sequence[Line] | Callable[[ModelRequest], Line]
) -> tuple[Rollout | Failure, ScriptedModel]:
    candidate, model = Candidate(env.skill()), ScriptedModel(script)
    job = Job(candidate.id, case.id, 0, "decide")
    scope = JournalScope(MemoryJournal(), job)
    return asyncio.run(ChatRunner(env, model).run(job, candidate, case, scope)), model


def test_rows_of_the_csv_split_are_read(tmp_path: Path):
    write_split(tmp_path)
    case = case_of(tmp_path, 1)
    assert (case.id, values(case)["answer"]) == ("q1", "in 1207")
    about = SealQa().about(case)
    assert (about.type, about.golds) == ("History", ("in 1207",))
    assert SealQa().pose(case).prompt.split("\n\n")[:-1] == [
        "## Question\nWhen was town 1 founded?",
        "## Search Results\n1. Town 1 was founded in 1207.\n2. Town 1 is new.",
        "## URL Hints\nhttps://towns.example/wiki/Town_1#History",
        "## Freshness\nnever-changing",
        "## Question Types\nadvanced reasoning, temporal tracking",
    ]
    assert "sealqa:0000" not in str(case.data), "the canary stays out of prompts"


def test_a_reply_without_an_answer_is_asked_again_with_pages(tmp_path: Path):
    write_split(tmp_path)
    env = SealQa(pages_dir=tmp_path / "pages")
    rollout, model = rolled(env, case_of(tmp_path), ["Hm.", "<answer>in 1200</answer>", "more"])
    assert isinstance(rollout, Rollout) and rollout.output == "<answer>in 1200</answer>"
    asked = model.requests[-1].messages[-1].text
    url = "https://towns.example/wiki/Town_0#History"
    assert f"URL: {url}\n\nTown 0\nIt was founded in 1200." in asked
    assert "no text" not in asked
    rollout, model = rolled(env, case_of(tmp_path), ["<answer>first</answer>", "more"])
    assert isinstance(rollout, Rollout) and len(model.requests) == 1
    rollout, model = rolled(env, case_of(tmp_path), ["Hm.", "Hm again.", "more"])
    assert isinstance(rollout, Rollout) and len(model.requests) == 2
    assert isinstance(env.grade(case_of(tmp_path), rollout), Failure)


@pytest.mark.parametrize("options", [{}, {"max_tool_turns": 1, "pages_dir": Path("pages")}])
def test_there_is_no_further_reply_without_pages(tmp_path: Path, options: dict[str, object]):
    write_split(tmp_path)
    env = SealQa(**options)  # type: ignore[arg-type] # options of a test
    _, model = rolled(env, case_of(tmp_path), ["Hm.", "more"])
    assert len(model.requests) == 1


def test_an_agent_cli_finds_stored_pages(tmp_path: Path):
    write_split(tmp_path)
    posed = SealQa(pages_dir=tmp_path / "pages").pose(case_of(tmp_path))
    assert dict(posed.files) == {"pages/01.txt": b"Town 0\nIt was founded in 1200."}


@pytest.mark.parametrize(
    "url",
    [
        "https://towns.example/../../secret",
        "https://../secret",
        "https://towns.example/%2e%2e/%2e%2e/secret",
        "https://towns.example/link",
        "https://towns.example/" + "x" * 5_000,
        "https://towns.example/\0",
        "https://[bad/secret",
        "/etc/passwd",
    ],
)
def test_no_address_leads_out_of_the_folder(tmp_path: Path, url: str):
    write_split(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "pages" / "towns.example" / "link").symlink_to(tmp_path / "secret.txt")
    assert Pages(tmp_path / "pages").stored(url) is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("plain < text\n", "plain < text"),
        ("<p>one</p><p>two  <i>three</i></p>", "one\ntwo three"),
        ("<html><head><style>x</style><body>seen", "seen"),
        ("<table><tr><td>a</td><td>b</td></tr></table>", "| a | b"),
        ("<div>a &amp; b<script>if (a < b) {}</script></div>", "a & b"),
    ],
)
def test_a_page_is_read_without_its_markup(source: str, text: str):
    assert page_text(source) == text


class Town(BaseHTTPRequestHandler):
    """Has a page about one town, and no other."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        there = self.path == "/Town_0"
        self.send_response(200 if there else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page(0).encode() + b"<p>" + b"x" * 2 * MOST_CHARS if there else b"gone")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def web() -> Iterator[tuple[str, list[str]]]:
    Town.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Town)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Town.asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("is_open", [True, False])
def test_the_network_is_used_only_where_the_config_opens_it(
    tmp_path: Path, web: tuple[str, list[str]], is_open: bool
):
    url, asked = web
    row = {**csv_row(0), "urls": f"{url}/gone, {url}/Town_0, {url}/third"}
    (one,) = SealQa().read(write_rows(tmp_path / "rows.csv", [row]))
    (tmp_path / "pages").mkdir()
    env = SealQa(pages_dir=tmp_path / "pages", network=is_open)
    _, model = rolled(env, one.case, ["Hm.", "<answer>in 1200</answer>"])
    assert asked == (["/gone", "/Town_0"] if is_open else [])
    assert len(model.requests) == (2 if is_open else 1)
    if is_open:
        told = model.requests[-1].messages[-1].text
        assert f"URL: {url}/Town_0\n\nTown 0\nIt was founded in 1200." in told
        assert "/gone\n" not in told and len(told) < MOST_CHARS + 300


def test_a_network_that_does_not_answer_is_no_wrong_answer(tmp_path: Path):
    row = {**csv_row(0), "urls": "http://127.0.0.1:9/nothing"}
    (one,) = SealQa().read(write_rows(tmp_path / "rows.csv", [row]))
    rollout, _ = rolled(SealQa(network=True), one.case, ["Hm.", "more"])
    assert isinstance(rollout, Failure) and rollout.blame == "infrastructure"


BROKEN = [
    # what a server sends, and if it is a failure of the network
    (b"no status\r\n\r\n", True),
    (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n", True),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/html\r\n\r\nzz\r\n",
        True,
    ),
    (b"HTTP/1.1 302 F\r\nLocation: file:///etc/passwd\r\n\r\n", False),
    (b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nxx", False),
]


@pytest.mark.parametrize(("sent", "is_network"), BROKEN)
def test_a_server_that_does_not_speak_http_raises_nothing(sent: bytes, is_network: bool):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(sent)

        Thread(target=serve, daemon=True).start()
        found = web_pages._fetched(f"http://127.0.0.1:{server.getsockname()[1]}/a")
    if is_network:
        assert isinstance(found, Failure) and found.blame == "infrastructure"
    else:
        assert isinstance(found, ToolAnswer) and found.wrong


@pytest.mark.parametrize("url", ["http://[::1/", "http://a b/", "http://a:x/", "ftp://a/", "x"])
def test_what_is_no_address_is_left_out(url: str):
    found = web_pages._fetched(url)
    assert isinstance(found, ToolAnswer) and found.text == f"{url} is no address of a web page"


@pytest.mark.slow
def test_a_hostile_page_is_left_out_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Markup that is never closed takes the parser the square of its size: hours for 4 MB."""
    monkeypatch.setattr(web_pages, "PARSE_SECONDS", 1.0)
    write_split(tmp_path)
    (tmp_path / "pages" / "towns.example" / "wiki" / "Town_0.html").write_text(
        "<html>" + "<a " * 1_000_000
    )
    env, case = SealQa(pages_dir=tmp_path / "pages"), case_of(tmp_path)
    rollout, model = rolled(env, case, ["Hm.", "more"])
    assert isinstance(rollout, Rollout) and len(model.requests) == 1
    told = "This page cannot be read: reading it takes more than 1 seconds"
    assert dict(env.pose(case).files) == {"pages/01.txt": told.encode()}


@pytest.mark.parametrize(("letter", "hard"), [("A", 1.0), ("B", 0.0), ("C", 0.0)])
def test_a_judge_decides_what_is_not_equal(tmp_path: Path, letter: str, hard: float):
    write_split(tmp_path)
    case = case_of(tmp_path)
    question = SealQa().grade(case, Rollout("<answer>the year 1200</answer>"))
    assert isinstance(question, JudgeQuestion)
    text = question.request.messages[-1].text
    assert all(part in text for part in ("When was town 0", founded(0), "the year 1200"))
    graded = question.read(f"{letter}.")
    assert isinstance(graded, Graded) and graded.hard == graded.soft == hard
    assert bool(graded.why) is not bool(hard)
    unread = question.read("Well, it depends")
    assert isinstance(unread, Failure) and unread.blame == "infrastructure"
    assert isinstance(question.fallback, Graded) and question.fallback.hard == 0


def test_an_equal_answer_needs_no_judge_and_a_long_one_gets_none(tmp_path: Path):
    write_split(tmp_path)
    case = case_of(tmp_path)
    assert isinstance(SealQa().grade(case, Rollout("<answer>IN 1200</answer>")), Graded)
    for said in ("in 1200", "<answer> </answer>", f"<answer>{'x' * 3_000}</answer>"):
        graded = SealQa().grade(case, Rollout(said))
        assert isinstance(graded, Failure) and graded.blame == "candidate", said


def test_known_traps_are_named_at_load_all_at_once(tmp_path: Path):
    split = write_split(tmp_path)
    rows = [{**csv_row(n), "search_results": "conflicting"} for n in range(2)]
    rows.append({**csv_row(2), "urls": "https://elsewhere.example/x"})
    write_rows(split / "train" / "train.csv", rows)
    settings = EnvSettings(
        name="sealqa", folder=tmp_path, split_mode="split_dir", split_dir=str(split)
    )
    notes = part(SealQa(pages_dir=tmp_path / "pages"), settings).notes
    assert len(notes) == 2, notes
    assert "only names its kind" in notes[0] and "q0" in notes[0] and "train.csv:3" in notes[0]
    assert "none of the pages" in notes[1] and "q2" in notes[1]
    env = SealQa()
    assert "conflicting" not in env.pose(case_of(tmp_path)).prompt


def test_all_that_is_wrong_with_the_data_is_told_at_once(tmp_path: Path):
    rows = [{**csv_row(0), "answer": ""}, csv_row(1), {**csv_row(2), "question": " "}]
    path = write_rows(tmp_path / "rows.csv", rows)
    with pytest.raises(SpecError) as raised:
        list(SealQa().read(path))
    told = [(problem.where, problem.message) for problem in raised.value.problems]
    assert told == [
        (f"{path}:2", "`answer` is empty, where a text or a list was expected"),
        (f"{path}:6", "`question` is empty, where a text was expected"),
    ]


def test_pages_that_are_not_there_are_one_error(tmp_path: Path):
    split = write_split(tmp_path)
    settings = EnvSettings(
        name="sealqa", folder=tmp_path, split_mode="split_dir", split_dir=str(split)
    )
    with pytest.raises(SpecError, match="there is no folder with pages") as raised:
        part(SealQa(pages_dir=tmp_path / "nowhere"), settings)
    assert len(raised.value.problems) == 1


@pytest.mark.parametrize(("option", "value"), [("max_tool_turns", 0), ("exec_timeout", 0)])
def test_options_that_make_no_sense_are_refused(option: str, value: object):
    with pytest.raises(ValueError, match=f"`{option}`"):
        SealQa(**{option: value})  # type: ignore[arg-type] # options of a test
