"""`--no-cache` and `models.<role>.cache: false`: models are asked anew."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from kept.models.roles import is_kept
from kept.recipes.agent_config.spec.common import LlmSpec
from kept.testing.server import ModelServer, Seen
from kept.ui.cli.main import cli
from tests.ui.cli.tasks import kept

RUNS = (
    *("optimize", "eval", "compare", "train", "resume", "refine"),
    *("test run", "test optimize", "agent run", "agent optimize"),
)


@pytest.mark.parametrize("name", RUNS)
def test_every_command_that_asks_models_can_do_without_the_cache(name: str):
    command: click.Command | None = cli
    for word in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    assert any("--no-cache" in param.opts for param in command.params)


def test_a_model_of_an_agent_yaml_says_whether_it_is_cached(tmp_path: Path):
    said = {"provider": "openai", "name": "gpt-5-mini"}
    plain = LlmSpec.model_validate(said)
    assert "cache" not in plain.model_dump(), "the hash of a run made before stays the same"
    assert is_kept("critic", plain.config(tmp_path))
    assert not is_kept("critic", LlmSpec.model_validate({**said, "cache": False}).config(tmp_path))


TASK = """\
artifacts: {include: [prompt.md]}
models: {optimizer: openai_compatible/m}
runner: {command: "true"}
scorer: {type: rules, rules: [{kind: matches, pattern: good}]}
objective: {primary_metric: score, direction: maximize, bounds: [0, 1]}
sandbox: {walls: "off"}
proposers: [{kind: edit}]
gate: strict
budget: {max_iterations: 1}
width: 1
"""


def propose(seen: Seen) -> str:
    edit = {"op": "append", "path": "prompt.md", "target": "", "text": f"good {seen.body['seed']}"}
    return json.dumps({"why": "more of it", "cases": [], "edits": [edit]})


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(propose) as made:
        yield made


@pytest.fixture
def task(tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", server.v1)
    monkeypatch.delenv("KEPT_MODEL", raising=False)
    (tmp_path / "prompt.md").write_text("a seed\n")
    spec = tmp_path / "task.yaml"
    spec.write_text(TASK)
    return spec


@pytest.mark.slow
def test_a_run_without_the_cache_asks_anew(
    task: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
):
    def calls(*more: str) -> int:
        before = len(server.log)
        called = kept("optimize", str(task), "-q", *more)
        assert called.code == 0, called.stderr
        return len(server.log) - before

    first = calls()
    assert first > 0
    assert calls() == 0, "every reply is in the cache"
    assert calls("--no-cache") == first
    assert calls("--set", "models.optimizer.cache=false") == first
    # the model that KEPT_MODEL names has the same key
    task.write_text(task.read_text().replace("models: {optimizer: openai_compatible/m}\n", ""))
    monkeypatch.setenv("KEPT_MODEL", "openai_compatible/m")
    assert calls() == 0
    assert calls("--set", "models.optimizer.cache=false") == first
