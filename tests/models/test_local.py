"""The model on this machine: real weights, real answers."""

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.llm import Image, Message, ModelReply, ModelRequest, ToolOffer
from kept.core.ports import Model
from kept.core.rollout import Failure
from kept.models.client import connect
from kept.models.local import process as local_process
from kept.models.local.model import LocalModel
from kept.models.local.process import LlamaProcess
from kept.models.providers import ModelConfig
from kept.testing import ModelSuite
from tests.processes import is_gone

pytestmark = pytest.mark.model

LABEL = {
    "type": "object",
    "properties": {"label": {"enum": ["good", "bad"]}},
    "required": ["label"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(smollm2: Path) -> LocalModel:
    return LocalModel("local/smollm2", smollm2)


def ask(model: Model, text: str, **how: object) -> ModelReply:
    reply = asyncio.run(model.complete(request(text, **how)))
    assert isinstance(reply, ModelReply), reply
    return reply


def request(text: str, **how: object) -> ModelRequest:
    return ModelRequest((Message("user", text),), **{"max_tokens": 12, **how})  # type: ignore[arg-type]


class TestLocalModel(ModelSuite):
    @pytest.fixture(autouse=True)
    def weights(self, model: LocalModel, tmp_path: Path) -> None:
        self.model = model
        self.folder = tmp_path

    def make_model(self) -> Model:
        return self.model

    def make_failing_model(self) -> Model:
        (self.folder / "no.gguf").write_bytes(b"no weights at all")
        return LocalModel("local/broken", self.folder / "no.gguf")


def test_what_its_config_says_shapes_replies_to_requests_that_do_not(smollm2: Path):
    config = ModelConfig(provider="local", model="smollm2", max_tokens=3, temperature=0.0)
    asked = ModelRequest((Message("user", "Tell me a long story."),))
    reply = asyncio.run(connect(config).complete(asked))
    assert isinstance(reply, ModelReply)
    assert (reply.finish, reply.usage.tokens_out) == ("length", 3)
    longer = asyncio.run(connect(config).complete(replace(asked, max_tokens=5)))
    assert isinstance(longer, ModelReply)
    assert longer.usage.tokens_out == 5


def test_the_same_seed_gives_the_same_answer_and_another_one_another(model: LocalModel):
    texts = [ask(model, "Name an animal.", seed=s, temperature=1.5).text for s in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_without_temperature_the_seed_does_not_matter(model: LocalModel):
    asked = [("Name a colour.", seed) for seed in (1, 2, 3)]
    texts = {ask(model, text, seed=seed, temperature=0.0).text for text, seed in asked}
    assert len(texts) == 1


def test_an_answer_does_not_depend_on_what_else_is_asked_at_the_time(model: LocalModel):
    what = [request(f"Write a word about {n}.", seed=n, temperature=0.8) for n in range(8)]

    async def together() -> list[ModelReply | Failure]:
        return await asyncio.gather(*(model.complete(one) for one in what))

    alone = [asyncio.run(model.complete(one)) for one in what]
    crowd = asyncio.run(together())
    assert [reply.text for reply in crowd if isinstance(reply, ModelReply)] == [
        reply.text for reply in alone if isinstance(reply, ModelReply)
    ]


def test_a_schema_is_kept_to_and_nothing_is_written_round_it(model: LocalModel):
    for seed in range(4):
        reply = ask(model, "I liked it.", schema=LABEL, seed=seed, temperature=1.0, max_tokens=40)
        assert json.loads(reply.text)["label"] in ("good", "bad")
        assert reply.text == json.dumps(json.loads(reply.text), separators=(",", ":"))
        assert reply.finish == "stop"


def test_a_schema_that_is_none_is_a_failure_and_not_a_free_answer(model: LocalModel):
    failure = asyncio.run(model.complete(request("hello", schema={"type": "nonsense"})))
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
    assert "schema" in failure.message


def test_an_answer_ends_at_a_stop_text_and_at_its_limit(model: LocalModel):
    whole = ask(model, "Count from one to ten.", temperature=0.0, max_tokens=12)
    assert whole.finish == "length"
    assert whole.usage.tokens_out == 12
    word = whole.text.split()[2]
    short = ask(model, "Count from one to ten.", temperature=0.0, max_tokens=12, stop=(word,))
    assert short.finish == "stop"
    assert short.text == whole.text[: whole.text.index(word)]


def test_tokens_are_counted_and_those_it_had_read_before_too(model: LocalModel):
    text = "Which of these words is the longest: elephant, ant, hippopotamus? " * 3
    first, second = (ask(model, text, temperature=0.0, max_tokens=1) for _ in range(2))
    assert first.usage.tokens_in == second.usage.tokens_in > 40
    assert second.usage.calls == 1
    assert second.usage.usd == 0
    assert second.usage.tokens_cached > 40


def test_a_prompt_that_does_not_fit_is_a_failure_of_its_own_kind(model: LocalModel):
    failure = asyncio.run(model.complete(request("far too long " * 2000)))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("context", "candidate")
    assert "2048 tokens" in failure.message


@pytest.mark.parametrize(
    "asked",
    [
        ModelRequest((Message("user", "x"),), tools=(ToolOffer("t", "", {}),)),
        ModelRequest((Message("user", "x", (Image("image/png", b""),)),)),
    ],
)
def test_what_it_cannot_do_is_said_and_not_left_out(model: LocalModel, asked: ModelRequest):
    failure = asyncio.run(model.complete(asked))
    assert isinstance(failure, Failure)
    assert failure.kind == "harness"
    assert "cannot be given" in failure.message


def test_the_event_loop_goes_on_while_it_answers(model: LocalModel):
    ask(model, "warm up", max_tokens=1)

    async def watched() -> float:
        task = asyncio.create_task(model.complete(request("Tell a long story.", max_tokens=40)))
        longest, last = 0.0, (began := time.monotonic())
        while not task.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        return longest / (time.monotonic() - began)

    # a blocked loop would stand still for all of the forty tokens
    assert asyncio.run(watched()) < 0.7


def test_cancelling_ends_the_work_itself(model: LocalModel):
    async def cancelled() -> tuple[list[int], list[int]]:
        story = request("Tell a very long story.", max_tokens=1500, temperature=1.0)
        tasks = [asyncio.create_task(model.complete(story)) for _ in range(8)]
        while not any(calls(model)):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        working = calls(model)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return working, calls(model)

    working, after = asyncio.run(cancelled())
    assert sum(working) == 4, "no more at once than there are slots"
    assert sum(after) == 0
    assert ask(model, "hello", max_tokens=2).text, "and the slots are free again"


def calls(model: LocalModel) -> list[int]:
    assert model._engine is not None
    return list(model._engine._calls)


ANSWERING = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from kept.core.llm import Message, ModelRequest
from kept.models.local.model import LocalModel
model = LocalModel("local/smollm2", Path(sys.argv[1]))
story = ModelRequest((Message("user", "Tell a very long story."),), max_tokens=1500)
threading.Thread(target=lambda: asyncio.run(model.complete(story)), daemon=True).start()
while model._engine is None or not any(one.busy for one in model._engine._processes):
    pass
print(*(one.pid for one in model._engine._processes), flush=True)
"""


def ended_in_an_answer(weights: Path, more: str = "") -> tuple[int, list[int]]:
    """How a process ended that was being answered, and the processes that answered it."""
    done = subprocess.run(
        [sys.executable, "-c", ANSWERING + more, str(weights)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert not done.stderr
    return done.returncode, [int(pid) for pid in done.stdout.split()]


@pytest.mark.slow
def test_a_process_that_ends_in_the_middle_of_an_answer_ends_well(smollm2: Path):
    code, pids = ended_in_an_answer(smollm2)
    assert code == 0
    assert pids
    assert all(map(is_gone, pids))


def test_it_writes_nothing_to_the_terminal(smollm2: Path, capfd: pytest.CaptureFixture[str]):
    ask(LocalModel("local/smollm2", smollm2, slots=1, context=192), "hello")
    assert capfd.readouterr() == ("", "")


STORY = ModelRequest((Message("user", "Tell a very long story."),), max_tokens=1500)


def processes(model: LocalModel) -> list[LlamaProcess]:
    assert model._engine is not None
    return model._engine._processes


async def killed(model: LocalModel) -> ModelReply | Failure:
    """What comes of a long answer whose llama is killed in the middle."""
    task = asyncio.create_task(model.complete(STORY))
    while model._engine is None or not processes(model)[0].busy:
        await asyncio.sleep(0.01)
    os.kill(processes(model)[0].pid, signal.SIGKILL)
    return await task


def test_a_llama_that_dies_is_a_failure_of_nobody_and_the_next_question_has_another(smollm2: Path):
    model = LocalModel("local/smollm2", smollm2, slots=1)
    failure = asyncio.run(killed(model))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("server", "infrastructure")
    assert failure.message == "local/smollm2 failed: llama.cpp was killed by SIGKILL"
    assert ask(model, "hello", max_tokens=2).usage.tokens_out == 2


def test_where_it_cannot_be_started_again_every_question_is_told_so(smollm2: Path, tmp_path: Path):
    weights = tmp_path / "weights.gguf"
    shutil.copy(smollm2, weights)
    model = LocalModel("local/smollm2", weights, slots=1)
    asyncio.run(killed(model))
    weights.write_bytes(b"no weights at all")
    for _ in range(2):
        failure = asyncio.run(asyncio.wait_for(model.complete(STORY), 60))
        assert isinstance(failure, Failure)
        assert failure.kind == "harness"
        assert "llama.cpp cannot use" in failure.message
    shutil.copy(smollm2, weights)
    assert ask(model, "hello", max_tokens=2).usage.tokens_out == 2


@pytest.mark.parametrize(
    ("worker", "kind", "told"),
    [
        (
            "import sys; sys.exit('no such instruction')",
            "server",
            "ended with exit 1: no such instruction",
        ),
        ("import os; os.kill(os.getpid(), 9)", "server", "was killed by SIGKILL"),
        ("print('not JSON', flush=True)", "server", "did not load"),
        ('print(\'{"missing": "no libgomp"}\', flush=True)', "harness", "does not work: no lib"),
        ('print(\'{"ready": 1}\\n{"id": 0, "ch\', flush=True)', "server", "ended with exit 0"),
    ],
)
def test_a_llama_that_never_answers_is_told_of_and_nobody_waits_for_it(
    worker: str,
    kind: str,
    told: str,
    smollm2: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    (tmp_path / "worker.py").write_text(worker)
    monkeypatch.setattr(local_process, "_WORKER", tmp_path / "worker.py")
    model = LocalModel("local/smollm2", smollm2, slots=2, context=64)
    failure = asyncio.run(asyncio.wait_for(model.complete(STORY), 60))
    assert isinstance(failure, Failure)
    assert failure.kind == kind
    assert told in failure.message


def test_a_llama_that_cannot_be_started_is_a_failure(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    failure = asyncio.run(LocalModel("local/smollm2", smollm2, slots=1).complete(STORY))
    assert isinstance(failure, Failure)
    assert failure.kind == "server"
    assert "llama.cpp cannot be started" in failure.message


@pytest.mark.kill
def test_when_we_are_killed_no_llama_is_left(smollm2: Path):
    code, pids = ended_in_an_answer(smollm2, "os.kill(os.getpid(), signal.SIGKILL)")
    assert code == -signal.SIGKILL
    assert pids
    assert all(map(is_gone, pids)), "it works on for nobody"


def test_when_nobody_has_the_model_any_more_its_processes_are_gone(smollm2: Path):
    model = LocalModel("local/smollm2", smollm2, slots=1, context=256)
    ask(model, "hello", max_tokens=1)
    (process,) = processes(model)
    del model
    gc.collect()
    # the thread that answered may hold it a moment longer
    assert process._process.wait(30) == 0


def test_a_llama_is_told_none_of_our_secrets(smollm2: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    model = LocalModel("local/smollm2", smollm2, slots=1, context=128)
    ask(model, "hello", max_tokens=1)
    (process,) = processes(model)
    assert b"sk-0123456789" not in Path(f"/proc/{process.pid}/environ").read_bytes()
