"""Functions of a user as tools, in real processes, with walls round them where they can be had."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ToolAnswer
from kept.core.ports import Tool
from kept.core.rollout import Failure
from kept.engine.replay import JournalScope
from kept.evaluators.tools import function as function_module
from kept.evaluators.tools.function import FunctionConfig, FunctionTools
from kept.sandbox import worker
from kept.sandbox import worker as worker_module
from kept.sandbox.capabilities import abilities
from kept.testing import MemoryJournal, ToolSuite
from tests.processes import is_gone

pytestmark = pytest.mark.sandbox

MODULE = '''
import asyncio, os, signal, subprocess, sys, time
from dataclasses import dataclass
from typing import Literal
import helper

print("imported")

def price(item: str, count: int = 1, unit: Literal["EUR", "USD"] = "EUR"):
    """Tell what something costs.

    Args:
        item: what it is,
            in one word
        count (int): how many
    """
    print("to nobody")
    return {"item": item, "sum": count * helper.PRICE, "unit": unit}

def anything(**given):
    return sorted(given)

def sphinx(city):
    """Say the weather.

    :param str city: where
    """
    return f"fine in {city}"

_loops = set()

async def waits():
    _loops.add(id(asyncio.get_running_loop()))
    await asyncio.sleep(0)
    return f"{len(_loops)} loop"

@dataclass
class Point:
    x: int

def objects(): return {"p": Point(1), "s": {2}, "e": ValueError("v")}
def nothing(): return None
def raises(): raise KeyError("no such city")
def leaves(): sys.exit("good bye")
def dies(): os.kill(os.getpid(), signal.SIGKILL)
def ends(): print("last words", file=sys.stderr, flush=True); os._exit(3)
def hangs(): time.sleep(60)
def hangs_with_a_child():
    print(subprocess.Popen(["sleep", "61"]).pid, file=sys.stderr)
    time.sleep(60)
def large(): return "x" * 50_000_000
def floods(): os.write(3, b"x" * 9_000_000); time.sleep(60)
def writes(path): open(path, "w").write("x"); return "written"
def pid(): return os.getpid()
def secret(): return os.environ.get("SECRET_KEY", "not there")
def reads(): return sys.stdin.read() + subprocess.run(["cat"], capture_output=True).stdout.decode()
def half(): return "half \\\\ud83d".encode().decode("unicode_escape")
def by_place(x, /): return x

CONSTANT = 3
'''


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "tools.py").write_text(MODULE)
    (tmp_path / "helper.py").write_text("PRICE = 2\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    return tmp_path


def config(folder: Path, function: str, **more: Any) -> FunctionConfig:
    return FunctionConfig("tool", "shop/tools.py", function, folder, **more)


async def open_one(functions: FunctionTools) -> Tool:
    tools = await functions.tools()
    assert isinstance(tools, tuple), tools
    return tools[0]


def scope() -> JournalScope:
    return JournalScope(MemoryJournal(), "scope")


def used(configured: FunctionConfig, *uses: Mapping[str, object]) -> list[ToolAnswer | Failure]:
    async def whole() -> list[ToolAnswer | Failure]:
        functions = FunctionTools(configured)
        try:
            tool = await open_one(functions)
            return [await tool.use(arguments, scope()) for arguments in uses or ({},)]
        finally:
            await functions.close()

    return asyncio.run(whole())


def answered(configured: FunctionConfig, **arguments: object) -> ToolAnswer:
    (answer,) = used(configured, arguments)
    assert isinstance(answer, ToolAnswer), answer
    return answer


def failed(configured: FunctionConfig) -> Failure:
    async def whole() -> object:
        functions = FunctionTools(configured)
        try:
            return await functions.tools()
        finally:
            await functions.close()

    failure = asyncio.run(whole())
    assert isinstance(failure, Failure), failure
    return failure


class TestFunctionTools(ToolSuite):
    @pytest.fixture(autouse=True)
    def _in_folder(self, folder: Path) -> None:
        self._opened: dict[str, FunctionTools] = {}
        self._folder = folder

    async def _open(self, function: str) -> Tool:
        made = FunctionTools(config(self._folder, function))
        return await open_one(self._opened.setdefault(function, made))

    async def open_tool(self) -> Tool:
        return await self._open("anything")

    async def open_hanging_tool(self) -> Tool | None:
        return await self._open("hangs")

    async def close(self) -> None:
        for functions in self._opened.values():
            await functions.close()

    def arguments(self) -> Mapping[str, object]:
        return {}

    def wrong_arguments(self) -> Mapping[str, object] | None:
        return None


def test_signature_and_docstring_tell_a_model_what_a_function_takes(folder: Path):
    async def whole():
        functions = FunctionTools(config(folder, "price"))
        offer = (await open_one(functions)).offer
        await functions.close()
        return offer

    offer = asyncio.run(whole())
    assert offer.name == "tool"
    assert offer.description == "Tell what something costs."
    assert offer.parameters == {
        "type": "object",
        "properties": {
            "item": {"type": "string", "description": "what it is, in one word"},
            "count": {"type": "integer", "description": "how many", "default": 1},
            "unit": {"enum": ["EUR", "USD"], "default": "EUR"},
        },
        "required": ["item"],
        "additionalProperties": False,
    }


def test_what_a_spec_says_goes_before_what_a_function_tells(folder: Path):
    said = {"item": {"type": "str", "description": "a ware"}, "count": {"required": True}}

    async def whole():
        functions = FunctionTools(config(folder, "price", parameters=said, description="Ask me."))
        mine = (await open_one(functions)).offer
        tools = await functions.tools("Ask me twice.")
        assert isinstance(tools, tuple)
        await functions.close()
        return mine, tools[0].offer

    mine, other = asyncio.run(whole())
    assert (mine.description, other.description) == ("Ask me.", "Ask me twice.")
    assert mine.parameters["properties"] == {
        "item": {"type": "string", "description": "a ware"},
        "count": {"type": "integer", "description": "how many", "default": 1},
    }
    assert mine.parameters["required"] == ["item", "count"]


def test_a_function_is_called_with_what_it_takes_and_told_as_json(folder: Path):
    answer = answered(config(folder, "price"), item="tea", count=3)
    assert json.loads(answer.text) == {"item": "tea", "sum": 6, "unit": "EUR"}
    assert answer.seconds > 0


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("nothing", "null"),
        ("objects", '{"p": {"x": 1}, "s": [2], "e": "v"}'),
        ("secret", "not there"),
        ("reads", ""),
        ("half", "half ?"),
    ],
)
def test_what_a_function_gives_back_is_told_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch, function: str, text: str
):
    monkeypatch.setenv("SECRET_KEY", "s3cret-s3cret")
    assert answered(config(folder, function)).text == text


def test_a_variable_is_seen_when_it_is_passed_on(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SECRET_KEY", "s3cret-s3cret")
    assert answered(config(folder, "secret", passed_on=("SECRET_KEY",))).text == "s3cret-s3cret"


def test_coroutines_are_awaited_all_in_one_loop(folder: Path):
    first, second = used(config(folder, "waits"), {}, {})
    assert isinstance(first, ToolAnswer) and isinstance(second, ToolAnswer)
    assert (first.text, second.text) == ("1 loop", "1 loop")


def test_arguments_that_a_function_does_not_take_are_told_to_the_model(folder: Path):
    told = {
        '"item" is a required property': {},
        "at `item`: 3 is not of type": {"item": 3},
        "at `unit`": {"item": "tea", "unit": "GBP"},
        "'colour' was unexpected": {"item": "tea", "colour": "red"},
    }
    for words, answer in zip(told, used(config(folder, "price"), *told.values()), strict=True):
        assert isinstance(answer, ToolAnswer) and answer.wrong
        assert words in answer.text


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("raises", "KeyError: 'no such city'"),
        ("leaves", "SystemExit: good bye"),
        ("dies", "the process of `tool` was killed by SIGKILL"),
        ("ends", "the process of `tool` ended with exit 3: last words"),
        ("hangs", "`tool` did not answer within 0.5 seconds"),
    ],
)
def test_a_call_that_goes_wrong_is_told_to_the_model_and_the_next_one_goes_on(
    folder: Path, function: str, words: str
):
    limit = 0.5 if function == "hangs" else 30.0
    first, second = used(config(folder, function, timeout=limit), {}, {})
    assert isinstance(first, ToolAnswer) and isinstance(second, ToolAnswer)
    assert first.wrong and first.text == words
    assert second.text == words


def test_a_hanging_function_is_ended_with_what_it_started(folder: Path):
    answer = answered(config(folder, "hangs_with_a_child", timeout=0.5))
    assert answer.wrong
    assert not [words for words in _commands() if b"sleep\0" + b"61\0" in words]


def test_fifty_megabytes_are_cut_with_words(folder: Path):
    answer = answered(config(folder, "large"))
    assert answer.text.startswith("xxx")
    assert answer.text.endswith("x\n[49,810,000 more characters were left out]")
    assert not answer.wrong


def test_a_process_that_floods_its_pipe_is_ended_before_it_fills_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(worker_module, "MOST_LINE", 1_000_000)
    answer = answered(config(folder, "floods"))
    assert answer.wrong
    assert answer.text == "the process of `tool` answered with more than 0 MiB"


def test_a_function_writes_to_its_own_folders_and_to_no_other(folder: Path):
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    inside, outside = folder / "shop" / "new", Path("/tmp") / f"kept-outside-{os.getpid()}"
    # a home below /tmp is hidden, and what is written there goes nowhere
    user = Path("/var") if Path.home().is_relative_to("/tmp") else Path.home()
    uses = [{"path": str(path)} for path in (inside, outside, user / "kept-new")]
    beside, own, home = used(config(folder, "writes"), *uses)
    assert isinstance(beside, ToolAnswer) and isinstance(home, ToolAnswer)
    assert beside.wrong and "Read-only file system" in beside.text
    assert home.wrong and "Read-only file system" in home.text
    assert isinstance(own, ToolAnswer) and own.text == "written"
    # /tmp is one of its own
    assert not outside.exists() and not inside.exists()


def test_a_process_is_started_when_needed_and_used_again(folder: Path):
    async def whole() -> tuple[list[str], list[str]]:
        functions = FunctionTools(config(folder, "pid"))
        tool = await open_one(functions)

        async def text() -> str:
            answer = await tool.use({}, scope())
            assert isinstance(answer, ToolAnswer)
            return answer.text

        one_by_one = [await text() for _ in range(20)]
        started = len(functions._idle)
        at_once = await asyncio.gather(*(text() for _ in range(20)))
        assert started == 1
        assert 1 < len(functions._idle) <= max(function_module.MOST_PROCESSES, os.cpu_count() or 1)
        children = list(functions._idle)
        await functions.close()
        assert all(is_gone(child._process.pid) for child in children)
        return one_by_one, at_once

    one_by_one, _ = asyncio.run(whole())
    assert len(set(one_by_one)) == 1


def test_cases_that_begin_at_once_start_one_process(folder: Path):
    async def whole() -> int:
        functions = FunctionTools(config(folder, "pid"))
        await asyncio.gather(*(functions.tools() for _ in range(8)))
        started = len(functions._idle)
        await functions.close()
        return started

    assert asyncio.run(whole()) == 1


def test_a_process_that_ended_while_nobody_used_it_is_replaced(folder: Path):
    async def whole() -> ToolAnswer | Failure:
        functions = FunctionTools(config(folder, "nothing"))
        tool = await open_one(functions)
        (child,) = functions._idle
        child._process.kill()
        child._process.wait()
        answer = await tool.use({}, scope())
        await functions.close()
        return answer

    answer = asyncio.run(whole())
    assert isinstance(answer, ToolAnswer) and answer.text == "null"


@pytest.mark.parametrize(
    ("file", "function", "words"),
    [
        ("shop/gone.py", "f", "(`f` of shop/gone.py): there is no such file"),
        ("broken.py", "f", "it cannot be imported: ZeroDivisionError: division by zero"),
        ("shop/tools.py", "missing", "it has no `missing`"),
        ("shop/tools.py", "CONSTANT", "`CONSTANT` is not a function"),
        ("shop/tools.py", "by_place", "it takes `x` by its place alone"),
    ],
)
def test_a_function_that_cannot_be_had_is_a_broken_harness(
    folder: Path, file: str, function: str, words: str
):
    failure = failed(FunctionConfig("tool", file, function, folder))
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert words in failure.message


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"thing": {"type": "string"}}, "it does not take `thing`; it takes item, count, unit"),
        ({"count": {"type": "int"}}, "it needs `item`, of which its `parameters` say nothing"),
        ({"item": {"type": "text"}}, "its `parameters` are no JSON schema"),
    ],
)
def test_parameters_that_do_not_fit_the_function_are_told(
    folder: Path, said: Mapping[str, Mapping[str, object]], words: str
):
    assert words in failed(config(folder, "price", parameters=said)).message


@pytest.fixture
def without_walls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    able = replace(abilities(), walls=False, why_not="no `bwrap` here")
    for module in (worker, function_module):
        monkeypatch.setattr(module, "abilities", lambda: able)
    yield


@pytest.mark.usefixtures("without_walls")
def test_without_walls_a_function_works_and_what_does_not_hold_is_said(folder: Path):
    configured = config(folder, "price")
    assert json.loads(answered(configured, item="tea").text)["sum"] == 2
    assert answered(config(folder, "hangs_with_a_child", timeout=0.5)).wrong
    assert not [words for words in _commands() if b"sleep\0" + b"61\0" in words]
    (warning,) = FunctionTools(configured).warnings
    words = "nothing keeps the tool `tool` from writing to your files: no `bwrap` here"
    assert warning == words


def _commands() -> list[bytes]:
    """The words of every process there is."""
    found: list[bytes] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found
