"""What holodeck gets wrong with providers and time, with the input that shows it; and the page."""

import time
from pathlib import Path

import pytest

from kept.testing.server import Fault, ModelServer, Seen
from tests.docs_pages import check_named_tests
from tests.recipes.agent_config.spec.agents import write
from tests.recipes.agent_config.test_agent import measured, plan_of

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = ROOT / "docs" / "reference" / "holodeck.md"
AGENT = """\
name: numbers
model:
  provider: {provider}
  name: {name}
  endpoint: "{url}"
  temperature: 0.7
  top_p: 0.9
  max_tokens: 77
instructions: {{inline: Answer.}}
evaluations: {{metrics: [{{metric: equality}}]}}
test_cases:
- {{name: slow, input: slow, ground_truth: yes it is}}
- {{name: quick, input: quick, ground_truth: yes it is}}
execution: {{llm_timeout: 1}}
"""
NAMES = (
    ("openai", "gpt-4o-mini"),
    # a model that thinks first is sent them as well: what it does not take, it says
    ("openai", "gpt-5-mini"),
    ("azure_openai", "gpt-4o-mini"),
    ("anthropic", "claude-3-5-haiku-latest"),
    ("ollama", "llama3.2"),
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI", "AZURE_OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", "none")
        # nobody answers there: only `model.endpoint` leads anywhere
        monkeypatch.setenv(f"{name}_BASE_URL", "http://127.0.0.1:9")


def agent(folder: Path, provider: str, name: str, url: str) -> Path:
    text = AGENT.format(provider=provider, name=name, url=url)
    return write(folder, {"agent.yaml": text})


@pytest.mark.parametrize(("provider", "name"), NAMES)
def test_every_provider_is_sent_the_numbers_at_the_endpoint_that_the_file_names(
    tmp_path: Path, provider: str, name: str
):
    """Bug 17: two providers never sent them, and OpenAI's never looked at `endpoint`."""
    with ModelServer(lambda _: "yes it is") as server:
        url = server.v1 if provider == "openai" else server.url
        sweep = measured(plan_of(agent(tmp_path, provider, name, url)), tmp_path)
        bodies = [seen.body for seen in server.log]
    assert sweep.count("passed") == 2
    assert len(bodies) == 2
    for body in bodies:
        assert body["temperature"] == 0.7
        assert body["top_p"] == 0.9
        assert body.get("max_tokens", body.get("max_completion_tokens")) == 77


def test_a_case_of_one_turn_whose_model_hangs_is_given_up_and_the_other_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Bug 16: only turns of several had `llm_timeout`."""
    monkeypatch.setattr("kept.models.endpoint.FIRST_WAIT", 0.001)

    # a try has a second, and there are six of them
    def hang(seen: Seen) -> Fault | None:
        return Fault("slow", seconds=30) if seen.text == "slow" else None

    with ModelServer(lambda _: "yes it is", faults=hang) as server:
        started = time.monotonic()
        sweep = measured(plan_of(agent(tmp_path, *NAMES[0], server.v1)), tmp_path)
    assert time.monotonic() - started < 25
    slow, quick = sweep.cases
    assert quick.status == "passed"
    assert slow.status == "errored", "a model that is not there is nobody's score"
    assert slow.failure is not None and slow.failure.blame == "infrastructure"


def test_every_test_that_the_page_names_exists():
    assert check_named_tests(PAGE, ROOT) == {*range(1, 19)}
