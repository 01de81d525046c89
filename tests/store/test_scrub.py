"""Secrets stay out of what is written, and nothing that a run works on is changed by that."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import kept
from kept.core.llm import ModelReply
from kept.core.rollout import Failure, Usage
from kept.engine.replay import JournalScope
from kept.settings import secrets
from kept.store.codec import Scrub
from kept.store.journal import RunJournal


def test_words_are_scrubbed_and_numbers_names_and_edits_are_not():
    line: dict[str, Any] = {
        "kind": "x",
        "case": "33333333",
        "metrics": {"score": 0.3333333333},
        "failure": {"message": "denied for 33333333"},
        "reply": {"why": "33333333", "edits": [{"new": "call 33333333"}]},
    }
    data = json.dumps(line).encode()
    found = json.loads(Scrub(["33333333"]).clean(data))
    assert found["failure"]["message"] == "denied for [secret]"
    assert found["reply"]["why"] == "[secret]"
    assert found["reply"]["edits"] == line["reply"]["edits"]
    assert (found["case"], found["metrics"]) == (line["case"], line["metrics"])
    numbers = b'{"score":0.33333333333}'
    assert Scrub(["33333333"]).clean(numbers) == numbers


@pytest.mark.parametrize("secret", ['quote"quote', "back\\slash", "schlüssel-ä", "line\nbreak-x"])
def test_a_secret_is_found_however_it_is_written(secret: str):
    scrub = Scrub([secret])
    for text in (secret, json.dumps({"key": secret}), f"x{secret}y"):
        for ascii_only in (True, False):
            data = json.dumps({"text": text}, ensure_ascii=ascii_only).encode()
            assert json.loads(scrub.clean(data))["text"].count("[secret]") == 1


def test_the_name_of_an_author_is_no_secret(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Jane Elizabeth Doe")
    monkeypatch.setenv("PROXY_AUTH", "user:hunter22222")
    assert "Jane Elizabeth Doe" not in secrets()
    assert "user:hunter22222" in secrets()


def test_a_resumed_run_works_on_the_same_text_as_the_first_sitting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SIGNING_KEY", "Jane Elizabeth Doe")
    seen: list[str] = []

    async def evaluate(candidate: kept.Candidate) -> float:
        await asyncio.sleep(0)
        seen.append(candidate.text)
        if len(seen) == 2:
            raise kept.RunError("the machine went down")
        return float("Doe" in candidate.text)

    def run(resume: str | None) -> kept.Result:
        text = "Sign as Jane Elizabeth Doe."
        return kept.optimize("Sign.", evaluate, proposers=[text], home=tmp_path, resume=resume)

    with pytest.raises(kept.RunError):
        run(None)
    assert run("last").best.text == "Sign as Jane Elizabeth Doe."


def test_a_live_run_hears_the_reply_that_its_resume_will_hear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SIGNING_KEY", "hunter22222")

    async def say() -> ModelReply:
        return ModelReply("sign it with hunter22222", Usage(calls=1))

    def hear() -> ModelReply | Failure:
        journal = RunJournal(tmp_path / "run")
        try:
            journal.tail(0)
            return asyncio.run(JournalScope(journal, "propose/0").call("how?", ModelReply, say))
        finally:
            journal.close()

    assert hear() == hear() == ModelReply("sign it with [secret]", Usage(calls=1))
