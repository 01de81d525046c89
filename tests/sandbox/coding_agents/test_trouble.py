"""How a CLI ended: what kind of failure it is, and whose."""

from pathlib import Path

import pytest

from kept.core.rollout import Failure
from kept.models.providers import ModelConfig
from kept.sandbox.coding_agents.definition import Told
from kept.sandbox.coding_agents.result import events_of, fault
from kept.sandbox.coding_agents.run import CLIS
from kept.sandbox.command import Exit

RECORDED = Path(__file__).parent / "recorded"
CLAUDE = CLIS["claude_code_exec"]


def config(provider: str = "anthropic") -> ModelConfig:
    return ModelConfig(provider=provider, model="m")


def found(told: Told, ended: Exit) -> Failure | None:
    return fault(CLAUDE, config(), told, ended, 60)


def worked(final: str = "done") -> Told:
    told = Told()
    told.say("I will look")
    told.final = final
    return told


@pytest.mark.parametrize(
    ("name", "tag", "kind", "blame", "again"),
    [
        ("codex_exec", "401", "harness", "infrastructure", False),
        ("codex_exec", "429", "rate_limit", "infrastructure", True),
        ("codex_exec", "cut", "network", "infrastructure", False),
        ("claude_code_exec", "401", "harness", "infrastructure", False),
        ("claude_code_exec", "529", "server", "infrastructure", False),
        ("claude_code_exec", "context", "context", "candidate", False),
        ("opencode_exec", "401", "harness", "infrastructure", False),
    ],
)
def test_what_its_provider_did_is_whose_fault_it_is(
    name: str, tag: str, kind: str, blame: str, again: bool
):
    cli = CLIS[name]
    text = (RECORDED / f"{cli.short}-{tag}.jsonl").read_text(encoding="utf-8")
    told = cli.listen(events_of(text))
    failure = fault(cli, config(cli.providers[0]), told, Exit(1, text, ""), 60)
    assert failure is not None
    assert (failure.kind, failure.blame, failure.retryable) == (kind, blame, again)


def test_a_wrong_key_is_told_with_the_variable_that_it_stands_in():
    told = Told(error="401 bad key", status=401)
    failure = found(told, Exit(1, "", ""))
    assert failure is not None
    assert failure.message.endswith("the key is missing or wrong: look at ANTHROPIC_API_KEY")


def waiting() -> Told:
    told = worked()
    told.wait("529 overloaded")
    return told


@pytest.mark.parametrize(
    ("told", "ended", "kind", "blame"),
    [
        (Told(), Exit(127, "", "sh: claude: not found"), "harness", "infrastructure"),
        (Told(), Exit(0, "hello", ""), "harness", "infrastructure"),
        (Told(), Exit(-15, "", "", timed_out=True), "timeout", "infrastructure"),
        (waiting(), Exit(-15, "", "", timed_out=True), "timeout", "infrastructure"),
        (worked(), Exit(-15, "", "", timed_out=True), "timeout", "candidate"),
        (worked(), Exit(152, "", ""), "limit", "candidate"),
        (worked(), Exit(137, "", ""), "crash", "candidate"),
        (worked(), Exit(1, "", "oops"), "crash", "infrastructure"),
        (waiting(), Exit(1, "", ""), "server", "infrastructure"),
        (worked(final=""), Exit(0, "", ""), "empty", "candidate"),
        (Told(stop="refusal"), Exit(0, "", ""), "refused", "candidate"),
        (Told(stop="error_max_turns"), Exit(1, "", ""), "limit", "candidate"),
        (Told(error="getaddrinfo ENOTFOUND x"), Exit(1, "", ""), "network", "infrastructure"),
    ],
)
def test_how_it_ended_is_whose_fault_it_is(told: Told, ended: Exit, kind: str, blame: str):
    failure = found(told, ended)
    assert failure is not None
    assert (failure.kind, failure.blame) == (kind, blame)
    assert failure.message


def test_a_program_that_is_not_there_is_told_with_how_to_have_it():
    failure = found(Told(), Exit(127, "", "sh: claude: not found"))
    assert failure is not None
    assert "npm install -g @anthropic-ai/claude-code" in failure.message


def test_an_agent_that_is_done_did_nothing_wrong():
    assert found(worked(), Exit(0, "", "a warning")) is None
