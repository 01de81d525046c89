"""A folder as a model: prompts out, answers in."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolOffer
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.models.manual import HandoffModel, request_id
from kept.testing import ModelSuite

# it waits for files to settle
pytestmark = pytest.mark.slow

HELLO = ModelRequest((Message("system", "be brief"), Message("user", "hello")), seed=3)


class Person:
    """Answers every prompt in a folder, by a rename, as long as it is there."""

    def __init__(self, folder: Path, answer: Callable[[str], str]) -> None:
        self._folder = folder
        self._answer = answer
        self._gone = threading.Event()
        self.read: list[str] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def leave(self) -> None:
        self._gone.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._gone.wait(0.02):
            for path in self._folder.glob("*.prompt.md"):
                answer = path.with_name(path.name.replace(".prompt.", ".answer."))
                if not answer.exists():
                    self.read.append(path.read_text())
                    draft = answer.with_suffix(".draft")
                    draft.write_text(self._answer(self.read[-1]) + "\n")
                    draft.rename(answer)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "desk"


@pytest.fixture
def person(folder: Path) -> Iterator[Person]:
    someone = Person(folder, lambda prompt: prompt.strip().rpartition("\n")[2].upper())
    yield someone
    someone.leave()


class TestHandoffModel(ModelSuite):
    @pytest.fixture(autouse=True)
    def desk(self, folder: Path, person: Person) -> None:
        self.folder = folder

    def make_model(self) -> Model:
        return HandoffModel(self.folder, settled=0.05)

    def make_failing_model(self) -> Model:
        self.folder.parent.joinpath("file").write_text("")
        return HandoffModel(self.folder.parent / "file")


def complete(model: Model, request: ModelRequest = HELLO) -> ModelReply | Failure:
    return asyncio.run(model.complete(request))


def answer_of(folder: Path, request: ModelRequest = HELLO) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / f"{request_id(request)}.answer.md"


def test_a_prompt_says_all_that_must_be_known_to_answer_it(folder: Path, person: Person):
    asked = ModelRequest(HELLO.messages, schema={"enum": ["yes"]}, stop=("never",), temperature=0.5)
    assert isinstance(complete(HandoffModel(folder, settled=0), asked), ModelReply)
    (page,) = person.read
    assert f"Answer in {request_id(asked)}.answer.md" in page
    assert 'JSON that satisfies: {"enum": ["yes"]}' in page
    assert page.endswith("# system\n\nbe brief\n\n# user\n\nhello\n")


def test_the_answer_comes_back_without_its_last_line_end(folder: Path, person: Person):
    reply = complete(HandoffModel(folder, settled=0))
    assert isinstance(reply, ModelReply)
    assert reply.text == "HELLO"
    assert reply.usage.calls == 1


def test_an_answer_that_is_already_there_is_used_and_nobody_is_asked(folder: Path):
    answer_of(folder).write_text("from before")
    time.sleep(0.1)
    reply = complete(HandoffModel(folder, settled=0.05))
    assert isinstance(reply, ModelReply)
    assert reply.text == "from before"
    assert not list(folder.glob("*.prompt.md"))


def test_an_answer_that_is_still_being_written_is_not_taken(folder: Path):
    path = answer_of(folder)

    async def slowly() -> ModelReply | Failure:
        task = asyncio.create_task(HandoffModel(folder, settled=0.6).complete(HELLO))
        with path.open("w") as file:
            for word in ("one ", "two ", "three ", "four"):
                file.write(word)
                file.flush()
                await asyncio.sleep(0.3)
        return await task

    reply = asyncio.run(slowly())
    assert isinstance(reply, ModelReply)
    assert reply.text == "one two three four"


def test_an_empty_file_is_no_answer_yet(folder: Path):
    answer_of(folder).write_text("\n")
    failure = complete(HandoffModel(folder, settled=0, timeout=0.6))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("timeout", "infrastructure")
    assert "nobody wrote" in failure.message


def test_other_requests_have_other_names_and_equal_ones_the_same(folder: Path):
    other = ModelRequest(HELLO.messages, seed=4)
    equal = ModelRequest((Message("system", "be brief"), Message("user", "hello")), seed=3)
    assert request_id(HELLO) != request_id(other)
    assert request_id(HELLO) == request_id(equal)


def test_equal_requests_at_once_are_answered_once(folder: Path, person: Person):
    async def twice() -> list[ModelReply | Failure]:
        model = HandoffModel(folder, settled=0.05)
        return await asyncio.gather(*(model.complete(HELLO) for _ in range(2)))

    assert all(isinstance(reply, ModelReply) for reply in asyncio.run(twice()))
    assert len(person.read) == 1


def test_what_nobody_waits_for_any_more_is_taken_back(folder: Path):
    async def given_up() -> tuple[list[str], list[str]]:
        model = HandoffModel(folder)
        tasks = [asyncio.create_task(model.complete(HELLO)) for _ in range(2)]
        while not list(folder.glob("*.prompt.md")):
            await asyncio.sleep(0.01)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        one_left = [path.name for path in folder.glob("*.prompt.md")]
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        return one_left, [path.name for path in folder.glob("*.prompt.md")]

    one_left, none_left = asyncio.run(given_up())
    assert len(one_left) == 1
    assert none_left == []


def test_images_lie_beside_the_prompt(folder: Path, person: Person):
    asked = ModelRequest((Message("user", "what is it?", (Image("image/png", b"\x89PNG"),)),))

    async def look() -> bytes:
        task = asyncio.create_task(HandoffModel(folder, settled=0.5).complete(asked))
        while not person.read:
            await asyncio.sleep(0.01)
        data = (folder / f"{request_id(asked)}.1.png").read_bytes()
        await task
        return data

    assert asyncio.run(look()) == b"\x89PNG"
    assert f"Look at {request_id(asked)}.1.png" in person.read[0]


def test_an_answer_that_is_no_text_is_a_failure(folder: Path):
    answer_of(folder).write_bytes(b"\xff\xfe\x00")
    failure = complete(HandoffModel(folder, settled=0))
    assert isinstance(failure, Failure)
    assert failure.kind == "parse"


def test_tools_are_refused(folder: Path):
    asked = ModelRequest((Message("user", "x"),), tools=(ToolOffer("t", "", {}),))
    failure = complete(HandoffModel(folder), asked)
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
