"""What goes wrong in the middle of a run is told in words, and the other cases finish."""

import json
import os
import signal
from pathlib import Path

import pytest

from kept.core.llm import ModelReply, ToolCall
from kept.errors import SpecError
from kept.recipes.agent_config.compile import compile_agent
from kept.recipes.evaluate.request import Wanted
from kept.results.cases import Sweep
from kept.testing.server import ModelServer, Seen
from tests.recipes.agent_config.spec.agents import write
from tests.recipes.agent_config.test_agent import measured, plan_of
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

HEAD = """\
name: hard
model: {{provider: openai, name: gpt-4o-mini, endpoint: "{url}"}}
instructions: {{inline: Do it.}}
evaluations: {{metrics: [{metric}]}}
"""
EQUAL = "{metric: equality}"
CASES = """\
test_cases:
- {name: one, input: first, ground_truth: done}
- {name: two, input: second, ground_truth: done}
- {name: three, input: third, ground_truth: done}
"""
SHOP = """\
tools:
- {type: mcp, name: shop, description: d, transport: stdio, command: python, args: [shop.py]}
execution: {parallel_test_cases: 1}
"""
SERVER = """\
import os
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop", log_level="CRITICAL")
with Path(__file__).with_name("pids").open("a") as pids:
    pids.write(f"{os.getpid()}\\n")


@server.tool()
def look(text: str) -> str:
    return "done"


server.run("stdio")
"""
FUNCTION = """\
tools:
- {type: function, name: look, description: d, file: look.py, function: look}
"""


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def look(seen: Seen) -> ModelReply | str:
    """Use the tool once, and say what it said."""
    if seen.tool_results:
        return seen.tool_results[-1]
    call = ToolCall("call", "look", json.dumps({"text": seen.text}))
    return ModelReply("", finish="tool_calls", tool_calls=(call,))


def agent(
    server: ModelServer, folder: Path, rest: str = "", metric: str = EQUAL, **files: str
) -> Path:
    text = HEAD.format(url=server.v1, metric=metric) + CASES + rest
    named = {f"{name}.py": said for name, said in files.items()}
    return write(folder, {"agent.yaml": text, **named})


def statuses(sweep: Sweep) -> dict[str, str]:
    return {one.case: one.status for one in sweep.cases}


def test_a_server_of_tools_that_is_killed_in_the_middle_is_opened_again(tmp_path: Path):
    killed: list[int] = []

    def say(seen: Seen) -> ModelReply | str:
        if seen.text == "second" and not killed:
            pid = int((tmp_path / "pids").read_text().split()[-1])
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        return look(seen)

    with ModelServer(say) as server:
        sweep = measured(plan_of(agent(server, tmp_path, SHOP, shop=SERVER)), tmp_path)
    assert killed
    assert statuses(sweep) == {"one": "passed", "two": "passed", "three": "passed"}
    assert len(set((tmp_path / "pids").read_text().split())) == 2


DEADLY = SERVER.replace(
    '    return "done"\n',
    '    if text == "second":\n        os._exit(7)\n    time.sleep(0.3)\n    return "done"\n',
).replace("import os\n", "import os\nimport time\n")


def test_a_case_that_brings_the_server_of_tools_down_takes_no_other_with_it(tmp_path: Path):
    with ModelServer(look) as server:
        rest = SHOP.replace("parallel_test_cases: 1", "parallel_test_cases: 3")
        sweep = measured(plan_of(agent(server, tmp_path, rest, shop=DEADLY)), tmp_path)
    assert statuses(sweep) == {"one": "passed", "two": "errored", "three": "passed"}
    assert sweep.cases[1].why == (
        "the server `shop` went away while it was asked for `look`: it ended with exit 7 (twice)"
    )


RAISING = """\
def grade(ctx):
    if ctx.turn_input == "second":
        raise ValueError("no such column")
    return ctx.agent_response == "done"
"""
HANGING = """\
import time


def grade(ctx):
    if ctx.turn_input == "second":
        time.sleep(60)
    return ctx.agent_response == "done"
"""


@pytest.mark.parametrize(
    ("grader", "why"), [(RAISING, "ValueError: no such column"), (HANGING, "second")]
)
def test_a_grader_that_raises_or_hangs_leaves_its_case_unmeasured(
    tmp_path: Path, grader: str, why: str
):
    metric = "{type: code, grader: 'graders:grade'}"
    with ModelServer(lambda _: "done") as server:
        rest = "execution: {llm_timeout: 1}\n"
        path = agent(server, tmp_path, rest, metric, graders=grader)
        sweep = measured(plan_of(path), tmp_path)
    assert statuses(sweep) == {"one": "passed", "two": "errored", "three": "passed"}
    second = sweep.cases[1]
    assert second.failure is not None and second.failure.blame == "infrastructure"
    assert why in second.why
    assert (sweep.means["grade"].errored, sweep.means["grade"].asked) == (1, 3)


OUTSIDE = """\
from pathlib import Path


def look(text: str) -> str:
    if text == "second":
        Path(__file__).with_name("agent.yaml").write_text("mine")
    return "done"
"""
LARGE = 'def look(text: str) -> str:\n    return "x" * 50_000_000 if text == "second" else "done"\n'


def test_a_tool_that_writes_outside_its_room_is_told_so_and_nothing_is_written(tmp_path: Path):
    with ModelServer(look) as server:
        path = agent(server, tmp_path, FUNCTION, look=OUTSIDE)
        before = path.read_bytes()
        sweep = measured(plan_of(path), tmp_path)
    assert path.read_bytes() == before
    assert statuses(sweep) == {"one": "passed", "two": "failed", "three": "passed"}
    (use,) = sweep.cases[1].exchanges[0].uses
    assert use.wrong
    assert "Read-only file system" in use.result and "only its own /tmp" in use.result


def test_fifty_megabytes_of_a_tool_are_cut_and_the_model_is_told(tmp_path: Path):
    with ModelServer(look) as server:
        sweep = measured(plan_of(agent(server, tmp_path, FUNCTION, look=LARGE)), tmp_path)
    assert statuses(sweep) == {"one": "passed", "two": "failed", "three": "passed"}
    (use,) = sweep.cases[1].exchanges[0].uses
    assert len(use.result) < 200_000


def test_fifty_megabytes_of_a_model_are_one_failed_case(tmp_path: Path):
    def say(seen: Seen) -> str:
        return "x" * 50_000_000 if seen.text == "second" else "done"

    with ModelServer(say) as server:
        sweep = measured(plan_of(agent(server, tmp_path)), tmp_path)
    told = statuses(sweep)
    assert (told["one"], told["three"]) == ("passed", "passed")
    assert told["two"] != "passed" and sweep.cases[1].why
    size = sum(one.stat().st_size for one in (tmp_path / ".kept").rglob("*") if one.is_file())
    assert size < 20_000_000


def in_a_file(path: Path, rows: str) -> None:
    """Move the cases of an agent to a file of their own."""
    path.write_text(path.read_text().replace(CASES, "test_cases_file: cases.yaml\n"))
    path.with_name("cases.yaml").write_text(rows)


ROWS = CASES.partition("\n")[2]
GONE = "{path: gone.txt, type: text}"
BAD = "cases.yaml:2 test_cases[1].inptu: unknown key (hint: did you mean `input`?)"


def test_one_bad_row_of_a_case_file_is_told_with_its_line_and_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with ModelServer(lambda _: "done") as server:
        in_a_file(agent(server, tmp_path), ROWS.replace("two, input", "two, inptu"))
        called = kept("test", "run", "agent.yaml", "--json")
    told = {result["test_name"]: result for result in called.json["results"]}
    assert list(told) == ["one", "two", "three"]
    assert [one["status"] for one in told.values()] == ["passed", "errored", "passed"]
    assert told["two"]["errors"] == [BAD]
    assert called.code == 3
    assert f"warning: the case `two` is not run: {BAD}" in called.stderr
    checked = kept("check", "agent.yaml")
    assert checked.code == 2
    assert f"error: {BAD}" in checked.stderr


@pytest.mark.parametrize(
    ("rows", "names", "why"),
    [
        # of two rows with one name the second is no case, and neither is one that is no mapping
        ("- {name: a, input: x}\n- {name: a, input: y}\n- 7\n", ["a", "case-2", "case-3"], "twice"),
        ("- {input: x}\n- {input: [y]}\n- {input: z}\n", ["case-1", "case-2", "case-3"], "a text"),
        (f"- {{input: x}}\n- {{input: y, files: [{GONE}]}}\n", ["case-1", "case-2"], "gone.txt"),
        ("- {input: x}\n- {input: '${NOBODY_SET_THIS}'}\n", ["case-1", "case-2"], "is not set"),
    ],
)  # fmt: skip
def test_a_bad_row_keeps_its_place_and_the_others_their_names(
    tmp_path: Path, rows: str, names: list[str], why: str
):
    with ModelServer(lambda _: "done") as server:
        path = agent(server, tmp_path)
        in_a_file(path, rows)
        sweep = measured(plan_of(path), tmp_path)
    assert [one.case for one in sweep.cases] == names
    assert sweep.cases[0].status == "passed"
    assert sweep.cases[1].status == "errored" and why in sweep.cases[1].why


@pytest.mark.parametrize(
    "rows",
    ["- {inptu: x}\n- {inptu: y}\n", "test_cases: []\n", "tests: [{input: x}]\n", "- {a: [\n"],
)
def test_a_case_file_without_a_sound_row_is_refused_before_anything_is_asked(
    tmp_path: Path, rows: str
):
    with ModelServer(lambda _: "done") as server:
        path = agent(server, tmp_path)
        in_a_file(path, rows)
        with pytest.raises(SpecError) as caught:
            compile_agent(path, Wanted())
        assert server.log == []
    assert "cases.yaml" in "\n".join(map(str, caught.value.problems))


def test_where_the_agent_is_wrong_as_well_bad_rows_are_told_with_it(tmp_path: Path):
    with ModelServer(lambda _: "done") as server:
        path = agent(server, tmp_path, "x: 1\n")
        in_a_file(path, ROWS.replace("two, input", "two, inptu"))
        with pytest.raises(SpecError) as caught:
            compile_agent(path, Wanted())
    told = "\n".join(map(str, caught.value.problems))
    assert "x: unknown key" in told and "test_cases[1].inptu: unknown key" in told
