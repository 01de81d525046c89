"""The names of seed 004 for models mean ours, and what cannot be meant is told with its line."""
# ruff: noqa: E501 # a row of a table reads better than it wraps

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kept.errors import SpecError
from kept.models.endpoint import Line
from kept.models.providers import Entra, located, missing
from kept.recipes.base import plan_facts
from kept.recipes.skill.config_keys import from_seed
from kept.recipes.task.compile import compile_task
from kept.spec.shared_sections import ModelSpec
from tests.recipes.task.tasks import TASK, write_task

RECOMMENDED = {
    "teacher_backend": "openai_chat",
    "student_backend": "codex_exec",
    "teacher": "gpt-5.4",
    "student": "gpt-5.4-codex",
    "reasoning_effort": "medium",
}
AZURE = {
    "azure_openai_endpoint": "https://x.openai.azure.com/",
    "azure_openai_api_version": "2025-04-01-preview",
    "azure_openai_api_key": "",
    "azure_openai_auth_mode": "api_key",
    "azure_openai_ad_scope": "https://cognitiveservices.azure.com/.default",
    "azure_openai_managed_identity_client_id": "",
}
SNAPSHOT = {
    "backend": "azure_openai",
    "teacher": "gpt-5.4",
    "student": "gpt-5.4",
    "teacher_backend": "openai_chat",
    "student_backend": "openai_chat",
    "reasoning_effort": "medium",
}


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch):
    for name in ("KEPT_MODEL", "AZURE_OPENAI_ENDPOINT", "AZURE_OPENAI_API_VERSION"):
        monkeypatch.delenv(name, raising=False)


def test_the_shape_that_the_seed_recommends_has_an_optimizer_and_an_agent():
    mapped = from_seed(RECOMMENDED)
    assert mapped.models == {
        "optimizer": {"provider": "openai", "model": "gpt-5.4", "effort": "medium"}
    }
    assert (mapped.agent, mapped.wrong) == ("codex_exec", [])


def test_the_settings_of_the_seed_are_azures_for_both_roles():
    block = {"provider": "azure_openai", "model": "gpt-5.4", "effort": "medium"}
    assert from_seed(SNAPSHOT).models == {"optimizer": block, "target": block}
    mapped = from_seed({**SNAPSHOT, "backend": None, **AZURE})
    where = {
        "base_url": AZURE["azure_openai_endpoint"],
        "api_version": "2025-04-01-preview",
        "token_scope": "https://cognitiveservices.azure.com/.default",
        "auth": "api_key",
    }
    assert mapped.models == {"optimizer": {**block, **where}, "target": {**block, **where}}
    assert mapped.wrong == []


class Credential:
    """Says what it was asked for."""

    def get_token(self, scope: str) -> Any:
        return SimpleNamespace(token=f"for {scope}", expires_on=9e9)


@pytest.mark.parametrize(
    ("mode", "keys", "header"),
    [
        ("", {"AZURE_OPENAI_API_KEY": "k"}, {"api-key": "k"}),
        ("api_key", {"AZURE_OPENAI_API_KEY": "k"}, {"api-key": "k"}),
        ("azure_ad", {"AZURE_OPENAI_API_KEY": "k"}, {"authorization": "Bearer for https://x.azure.us/.default"}),
        ("managed_identity", {}, {"authorization": "Bearer for https://x.azure.us/.default"}),
        ("", {"MINE": "m"}, {"api-key": "m"}),
    ],
)  # fmt: skip
def test_azure_is_asked_as_the_keys_of_the_seed_say(
    mode: str, keys: dict[str, str], header: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    """An identity is shown although there is a key: the mode was checked, and not looked at."""
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    scope = "https://x.azure.us/.default"
    said = {**AZURE, "azure_openai_auth_mode": mode, "azure_openai_ad_scope": scope}
    said |= {"azure_openai_api_key": "${MINE}"} if "MINE" in keys else {}
    said |= {"azure_openai_managed_identity_client_id": "client-7"}
    mapped = from_seed({**SNAPSHOT, **said})
    assert mapped.wrong == []
    config = located(ModelSpec.model_validate(mapped.models["target"]).config(Path.cwd()))
    line = Line(config, "chat/completions", Entra(Credential(), scope=config.token_scope))
    assert asyncio.run(line._headers()) == header
    url = "https://x.openai.azure.com/openai/deployments/gpt-5.4/chat/completions"
    assert line.endpoint.url == f"{url}?api-version=2025-04-01-preview"
    assert config.identity == "client-7"


def test_a_key_that_the_mode_of_the_seed_wants_must_be_there(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("AZURE_OPENAI_API_KEY", raising=False)
    block = from_seed({**SNAPSHOT, **AZURE}).models["target"]
    config = ModelSpec.model_validate(block).config(Path.cwd())
    assert missing(config) == "AZURE_OPENAI_API_KEY is not set"


def test_what_is_said_of_all_models_holds_for_one_in_our_words():
    """`reasoning_effort` beside an `optimizer` was read, and meant nothing."""
    said = {
        "optimizer": "openai/x",
        "target": {"provider": "openai", "model": "y", "effort": "low"},
    }
    mapped = from_seed({**said, "reasoning_effort": "high"})
    assert mapped.models["optimizer"] == {"provider": "openai", "model": "x", "effort": "high"}
    assert mapped.models["target"]["effort"] == "low"
    assert from_seed(said).models == said


def test_a_managed_identity_of_the_seed_is_the_one_that_is_asked():
    scope = "https://cognitiveservices.azure.us/.default"
    said = {**AZURE, "azure_openai_auth_mode": "managed_identity", "azure_openai_ad_scope": scope}
    mapped = from_seed({**SNAPSHOT, **said, "azure_openai_managed_identity_client_id": "client-7"})
    assert mapped.wrong == []
    config = ModelSpec.model_validate(mapped.models["target"]).config(Path.cwd())
    assert (config.identity, config.token_scope) == ("client-7", scope)


@pytest.mark.parametrize(
    ("given", "azure", "models"),
    [
        ({"teacher": "t"}, False, {"optimizer": "openai/t"}),
        ({"teacher": "t"}, True, {"optimizer": "azure_openai/t"}),
        ({"teacher": "t", "teacher_backend": "claude_chat"}, True, {"optimizer": "anthropic/t"}),
        ({"backend": "claude", "teacher": "t", "student": "s"}, False, {"optimizer": "anthropic/t", "target": "anthropic/s"}),
        ({"backend": "codex", "teacher": "t", "student": "s"}, False, {"optimizer": "openai/t"}),
        ({"backend": "azure_openai", "teacher": "t"}, False, {"optimizer": "azure_openai/t"}),
        ({"judge": "openai/j", "student": "s"}, False, {"judge": "openai/j", "target": "openai/s"}),
    ],
)  # fmt: skip
def test_a_backend_is_a_provider(given: dict[str, Any], azure: bool, models: dict[str, str]):
    mapped = from_seed(given, azure=azure)
    named = {
        role: one if isinstance(one, str) else f"{one['provider']}/{one['model']}"
        for role, one in mapped.models.items()
    }
    assert (named, mapped.wrong) == (models, [])


def problems(folder: Path, models: str) -> list[str]:
    with pytest.raises(SpecError) as told:
        compile_task(write_task(folder, f"{TASK}models:\n{models}"))
    return [str(one).removeprefix(f"{folder}/") for one in told.value.problems]


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ("  teacher: t\n  teacher_backend: codex_exec\n", "task.yaml:9 models.teacher_backend: `codex_exec` is no backend of a teacher (hint: there are `openai_chat`, `claude_chat`)"),
        ("  student: s\n  student_backend: codex\n", "task.yaml:9 models.student_backend: `codex` is no backend of a student (hint: there are `openai_chat`, `claude_chat`, `codex_exec`, `claude_code_exec`)"),
        ("  student: s\n  student_backend: codex_exec\n", "task.yaml:9 models.student_backend: `codex_exec` is an agent CLI, which is a runner and no model (hint: say in `runner` how a candidate is run)"),
        ("  teacher_backend: openai_chat\n", "task.yaml:8 models.teacher_backend: the model itself is missing: give `teacher`"),
        ("  teacher: t\n  optimizer: openai/x\n", "task.yaml:8 models.teacher: `optimizer` is the same role, and has a model too (hint: call it `optimizer`, or leave that out)"),
        ("  teacher: t\n  reasoning_effort: huge\n", "task.yaml:9 models.reasoning_effort: `huge` is none (hint: there are `minimal`, `low`, `medium`, `high`)"),
        ("  teacher: 5\n", "task.yaml:8 models.teacher: no text, where one was expected"),
        ("  teacher: t\n  azure_openai_auth_mode: magic\n", "task.yaml:9 models.azure_openai_auth_mode: `magic` is none (hint: there are `api_key`, `azure_ad`, `azure_cli`, `managed_identity`, `aad`, `default`)"),
        ("  teacher: t\n  azure_openai_ad_scope: https://azure.com.evil.example/.default\n", "task.yaml:9 models.azure_openai_ad_scope: tokens of an Azure identity are for Azure alone, as in https://cognitiveservices.azure.com/.default"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_told_with_its_line(tmp_path: Path, models: str, said: str):
    assert said in problems(tmp_path, models)


def test_a_key_in_a_file_is_refused_and_not_repeated(tmp_path: Path):
    key = "0123456789abcdef"
    (told,) = problems(tmp_path, f"  teacher: t\n  azure_openai_api_key: {key}\n")
    assert told.startswith("task.yaml:9 models.azure_openai_api_key: a key is kept in the environ")
    assert key not in told


def test_a_task_may_name_its_models_as_the_seed_does(tmp_path: Path):
    models = "".join(f"  {key}: '{value}'\n" for key, value in {**SNAPSHOT, **AZURE}.items())
    plan = compile_task(write_task(tmp_path, f"{TASK}models:\n{models}")).plan
    assert plan_facts(plan).models == {
        "optimizer": {"model": "azure_openai/gpt-5.4", "cache": True},
        "target": {"model": "azure_openai/gpt-5.4", "cache": False},
    }
